"""Table functions over texts: pieces between matches, matches, the groups of a match, fields of CSV.

Promise: the number of columns of `regexp_extract` and `csv_extract` follows from a constant, and is in the key:
``regexp_extract/column1/year`` has two columns, ``csv_extract/3`` three.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine, Spelling, Sql, TableFunc
from mzsql.expr.functions.text import regexes
from mzsql.expr.functions.text.patterns import FLAGS, groups, spelled
from mzsql.repr.types import INTEGER, TEXT, ColumnType, RelationType, SqlType


def _all(text: Ast, pattern: str, group: int) -> Ast:
    return s.call("REGEXP_EXTRACT_ALL", text, s.text(pattern), s.num(group))


def _none(typ: SqlType, engine: Engine) -> Ast:
    return s.cast(s.array(), SqlType("array", element=typ), engine)


# --- matches -----------------------------------------------------------------------------------------


def _matches(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The groups of each match (without the flag g, of the first one), or the match itself if the pattern has no
    groups.
    """
    pattern, text = regexes.valid_pattern(args[1]), args[0].ast
    if pattern is None:
        return _none(regexes.TEXTS, engine)
    flags = regexes.known_flags(args, 2)
    whole, known = spelled(pattern, flags, engine), groups(pattern)
    if "g" not in flags:
        items = [regexes.captured(text, whole, g, i) for i, g in enumerate(known, start=1)]
        made = s.cast(s.array(*(items or [s.regexp_group(text, whole, 0)])), regexes.TEXTS, engine)
        found = s.case((s.matches(text, whole, engine), s.array(made)))
        return s.coalesce(found, _none(regexes.TEXTS, engine))
    if engine is Engine.SPARK:
        regexes.refuse_nothing(pattern, flags)
    row, place = s.variable("rm0"), s.variable("rm1")
    numbers = range(1, len(known) + 1) if known else range(1)
    lists = {f"g{n}": _all(text, whole, n) for n in numbers}
    size = s.size(s.field(row, f"g{numbers[0]}"), engine)
    items = []
    for n in numbers:
        item = _at(s.field(row, f"g{n}"), place, engine)
        loose = bool(known) and known[n - 1].optional
        items.append(s.nullif(item, s.text("")) if loose else item)
    made = s.cast(s.array(*items), regexes.TEXTS, engine)
    body = s.mapped(_positions(size, engine), "rm1", made, engine)
    return s.let(s.struct(**lists), "rm0", body, engine)


def _positions(size: Ast, engine: Engine) -> Ast:
    """The array 1 … ``size``."""
    if engine is Engine.SPARK:
        every = s.call("SEQUENCE", s.num(0), size)
        return s.kept(every, "ps0", s.gt(s.variable("ps0"), s.num(0)), engine)
    return s.call("RANGE", s.num(1), s.add(size, s.num(1)))


def _at(items: Ast, place: Ast, engine: Engine) -> Ast:
    return s.call("ELEMENT_AT" if engine is Engine.SPARK else "LIST_EXTRACT", items, place)


def _regexp_tables() -> list[TableFunc]:
    found = []
    for name, typ, rows, allowed in (
        ("regexp_matches", regexes.TEXTS, _matches, FLAGS),
        ("regexp_split_to_table", TEXT, regexes.split, FLAGS - {"g"}),
    ):
        for flagged in (False, True):

            def pieces(
                engine: Engine,
                args: Sequence[Sql],
                typ_: SqlType,
                rows: Spelling = rows,
                typ: SqlType = typ,
            ) -> Ast:
                del typ_
                return rows(engine, args, SqlType("array", element=typ))

            rules = (regexes.invalid(1), regexes.bad_flag(2, allowed))
            found.append(
                TableFunc(
                    key=f"{name}_flags" if flagged else name,
                    name=name,
                    args=(TEXT,) * (2 + flagged),
                    names=(name,),
                    output=RelationType((ColumnType(typ, False),)),
                    rows=pieces,
                    errors=rules if flagged else rules[:1],
                )
            )
    return found


# --- functions whose columns a constant tells ----------------------------------------------------------


def extract_key(pattern: str) -> str | None:
    """The key of `regexp_extract` for a valid pattern; None for one without groups."""
    known = groups(pattern)
    if not known:
        return None
    names = [group.name or f"column{i}" for i, group in enumerate(known, start=1)]
    return "/".join(("regexp_extract", *names))


def csv_key(columns: int) -> str:
    """The key of `csv_extract` for a number of columns."""
    return f"csv_extract/{columns}"


def made(key: str) -> TableFunc | None:
    """The table function with such a key; None for any other key."""
    name, *parts = key.split("/")
    if name == "regexp_extract" and parts:
        return _extract(key, tuple(parts))
    if name == "csv_extract" and len(parts) == 1:
        return _csv(key, int(parts[0]))
    return None


def _rows_of(key: str, first: SqlType, names: tuple[str, ...], rows: Spelling) -> TableFunc:
    return TableFunc(
        key=key,
        name=key.partition("/")[0],
        args=(first, TEXT),
        names=names,
        output=RelationType((ColumnType(TEXT),) * len(names)),
        rows=rows,
    )


def _row(items: Sequence[Ast]) -> Ast:
    if len(items) == 1:
        return items[0]
    return s.struct(**{f"f{i}": item for i, item in enumerate(items, start=1)})


def _extract(key: str, names: tuple[str, ...]) -> TableFunc:
    def rows(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        """One row of the first match's groups; none without a match."""
        pattern, text = regexes.valid_pattern(args[0]), args[1].ast
        known = () if pattern is None else groups(pattern)
        whole = spelled(pattern or "()", "", engine)
        items = [regexes.captured(text, whole, g, i) for i, g in enumerate(known, start=1)]
        one = s.array(_row([s.string(item) for item in items]))
        keep = s.coalesce(s.matches(text, whole, engine), s.boolean(False))
        return s.kept(one, "rx0", keep, engine)

    return _rows_of(key, TEXT, names, rows)


_RECORD = '(?:"(?:[^"]|"")*"|[^"\\n])+'
_FIELD = '("(?:[^"]|"")*"|[^,]*),'


def _csv(key: str, width: int) -> TableFunc:
    def rows(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        """A row for each record with as many fields; others are passed over."""
        record, item, fields = s.variable("cs0"), s.variable("cs1"), s.variable("cs2")
        line = s.regexp_replace(record, "\\r$", "", engine)
        bare = s.call(
            "SUBSTRING", item, s.num(2), s.integer(s.sub(s.call("LENGTH", item), s.num(2)))
        )
        quoted = s.matches(item, '(?s)^".*"$', engine)
        plain = s.case((quoted, s.call("REPLACE", bare, s.text('""'), s.text('"'))), otherwise=item)
        pieces = s.mapped(_all(s.concat(line, s.text(",")), _FIELD, 1), "cs1", plain, engine)
        every = s.mapped(_all(args[1].ast, _RECORD, 0), "cs0", pieces, engine)
        size = s.size(fields, engine)
        fitting = s.kept(every, "cs2", s.eq(size, s.num(width)), engine)
        whole = s.variable("cs3")
        parts = [_at(whole, s.num(i), engine) for i in range(1, width + 1)]
        return s.mapped(fitting, "cs3", _row(parts), engine)

    names = tuple(f"column{i}" for i in range(1, width + 1))
    return _rows_of(key, INTEGER, names, rows)


FUNCTIONS: tuple[TableFunc, ...] = tuple(_regexp_tables())
