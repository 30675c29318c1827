"""Several table functions side by side, and row numbers: ``ROWS FROM (…)``, ``WITH ORDINALITY``.

Promise: the n-th rows of all functions make the n-th row, with NULL for functions that have ended. The key encodes
everything: ``rows_from[unnest_array:1,generate_series_integer:2]+`` is two functions with one and two arguments,
numbered; ``*``, as in ``unnest_map:1*``, makes a function's rows records in one column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.container.sequences import at
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql, TableFunc
from mzsql.repr.types import BIGINT, ColumnType, RelationType, SqlType

_KEY = re.compile(r"rows_from\[(.*)\](\+?)")


class Part(NamedTuple):
    """One of the functions: the number of its arguments, and whether its rows are records."""

    func: TableFunc
    given: int
    whole: bool = False

    def columns(self, args: Sequence[SqlType]) -> RelationType:
        """The output columns of the part."""
        typ = self.func.output_type(args)
        if not self.whole:
            return typ
        fields = tuple(zip(self.func.names, typ.columns, strict=True))
        return RelationType((ColumnType(SqlType("record", fields=fields)),))


def key(parts: Sequence[Part], *, numbered: bool) -> str:
    """The key for these functions side by side.

    Args:
        parts: the functions.
        numbered: whether the rows are numbered.
    """
    body = ",".join(f"{p.func.key}:{p.given}{'*' if p.whole else ''}" for p in parts)
    return f"rows_from[{body}]{'+' if numbered else ''}"


def combined(key: str, function: Callable[[str], TableFunc]) -> TableFunc:
    """The table function with such a key.

    Args:
        key: the key.
        function: finds the table function of a part by its key.

    Raises:
        KeyError: it is no such key.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise KeyError(key)
    parts: list[Part] = []
    for item in match[1].split(","):
        name, _, count = item.removesuffix("*").rpartition(":")
        parts.append(Part(function(name), int(count), item.endswith("*")))
    return _combine(key, parts, numbered=bool(match[2]))


def _combine(key: str, parts: Sequence[Part], *, numbered: bool) -> TableFunc:
    def columns(args: Sequence[SqlType]) -> RelationType:
        found: list[ColumnType] = []
        at_ = 0
        for part in parts:
            typ = part.columns(args[at_ : at_ + part.given])
            at_ += part.given
            alone = len(parts) == 1
            found += [ColumnType(c.type, c.nullable or not alone) for c in typ.columns]
        if numbered:
            found.append(ColumnType(BIGINT, False))
        return RelationType(tuple(found))

    def rows(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return _zipped(parts, args, engine, numbered=numbered)

    names = tuple(name for p in parts for name in ((p.func.name,) if p.whole else p.func.names))
    return TableFunc(
        key=key,
        name="rows_from" if len(parts) > 1 else parts[0].func.name,
        args=tuple(arg for p in parts for arg in p.func.args),
        names=(*names, "ordinality") if numbered else names,
        output=RelationType((ColumnType(SqlType("any")),)),
        rows=rows,
        errors=tuple(_rules(parts)),
        columns=columns,
    )


def _rules(parts: Sequence[Part]) -> list[ErrorRule]:
    found: list[ErrorRule] = []
    start = 0
    for func, count, _ in parts:
        for rule in func.errors:
            message = rule.message
            shown = message if isinstance(message, str) else _over(message, start, count)
            found.append(ErrorRule(_over(rule.condition, start, count), shown))
        start += count
    return found


def _over(spelling: Spelling, start: int, count: int) -> Spelling:
    """The spelling applied to ``count`` of the arguments from ``start``."""
    return lambda engine, args, typ: spelling(engine, args[start : start + count], typ)


def _zipped(parts: Sequence[Part], args: Sequence[Sql], engine: Engine, *, numbered: bool) -> Ast:
    lists: dict[str, Ast] = {}
    fields: dict[str, Ast] = {}
    whole, number = s.variable("rf0"), s.variable("rf1")
    spark = engine is Engine.SPARK
    position = s.add(number, s.num(1))
    start, width = 0, 0
    for i, part in enumerate(parts):
        given = args[start : start + part.given]
        start += part.given
        typ = part.func.output_type([arg.typ for arg in given])
        lists[f"l{i}"] = part.func.rows(engine, given, typ.columns[0].type)
        item = at(s.field(whole, f"l{i}"), position, engine)
        taken_apart = typ.arity > 1 and not part.whole
        for j in range(typ.arity if taken_apart else 1):
            width += 1
            fields[f"f{width}"] = s.field(item, f"f{j + 1}") if taken_apart else item
    if numbered:
        fields[f"f{width + 1}"] = s.big(position)
    sizes = [s.coalesce(s.size(s.field(whole, name), engine), s.num(0)) for name in lists]
    longest = s.call("GREATEST", *sizes) if len(sizes) > 1 else sizes[0]
    if spark:
        numbers = s.call(
            "FILTER",
            s.call("SEQUENCE", s.num(0), longest),
            s.lambda_(("rf2",), s.lt(s.variable("rf2"), longest)),
        )
        body = s.call("TRANSFORM", numbers, s.lambda_(("rf1",), s.struct(**fields)))
    else:
        body = s.call(
            "LIST_TRANSFORM", s.call("RANGE", longest), s.lambda_(("rf1",), s.struct(**fields))
        )
    return s.let(s.struct(**lists), "rf0", body, engine)
