"""Several table functions side by side, and the number of each row: ``ROWS FROM (…)``, ``WITH ORDINALITY``.

Promise: the n-th rows of all functions make the n-th row; where one has ended there is NULL. The key says it all:
``rows_from[unnest_array:1,generate_series_integer:2]+`` are two functions of one and two arguments, numbered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.containers import at
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql, TableFunc
from mzsql.repr.types import BIGINT, ColumnType, RelationType, SqlType

_KEY = re.compile(r"rows_from\[(.*)\](\+?)")
_Part = tuple[TableFunc, int]


def key(parts: Sequence[_Part], *, numbered: bool) -> str:
    """The key of functions, each with the number of its arguments, side by side."""
    body = ",".join(f"{func.key}:{count}" for func, count in parts)
    return f"rows_from[{body}]{'+' if numbered else ''}"


def combined(key: str, table: Mapping[str, TableFunc]) -> TableFunc:
    """The table function of such a key; KeyError of any other one."""
    match = _KEY.fullmatch(key)
    if match is None:
        raise KeyError(key)
    parts: list[_Part] = []
    for item in match[1].split(","):
        name, _, count = item.rpartition(":")
        parts.append((table[name], int(count)))
    return _combine(key, parts, numbered=bool(match[2]))


def _combine(key: str, parts: Sequence[_Part], *, numbered: bool) -> TableFunc:
    def columns(args: Sequence[SqlType]) -> RelationType:
        found: list[ColumnType] = []
        at_ = 0
        for func, count in parts:
            typ = func.output_type(args[at_ : at_ + count])
            at_ += count
            alone = len(parts) == 1
            found += [ColumnType(c.type, c.nullable or not alone) for c in typ.columns]
        if numbered:
            found.append(ColumnType(BIGINT, False))
        return RelationType(tuple(found))

    def rows(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return _zipped(parts, args, engine, numbered=numbered)

    names = tuple(name for func, _ in parts for name in func.names)
    return TableFunc(
        key=key,
        name="rows_from" if len(parts) > 1 else parts[0][0].name,
        args=tuple(arg for func, _ in parts for arg in func.args),
        names=(*names, "ordinality") if numbered else names,
        output=RelationType((ColumnType(SqlType("any")),)),
        rows=rows,
        errors=tuple(_rules(parts)),
        columns=columns,
    )


def _rules(parts: Sequence[_Part]) -> list[ErrorRule]:
    found: list[ErrorRule] = []
    start = 0
    for func, count in parts:
        for rule in func.errors:
            message = rule.message
            shown = message if isinstance(message, str) else _over(message, start, count)
            found.append(ErrorRule(_over(rule.condition, start, count), shown))
        start += count
    return found


def _over(spelling: Spelling, start: int, count: int) -> Spelling:
    """A spelling over some of the arguments."""
    return lambda engine, args, typ: spelling(engine, args[start : start + count], typ)


def _zipped(parts: Sequence[_Part], args: Sequence[Sql], engine: Engine, *, numbered: bool) -> Ast:
    lists: dict[str, Ast] = {}
    fields: dict[str, Ast] = {}
    whole, number = s.variable("rf0"), s.variable("rf1")
    spark = engine is Engine.SPARK
    position = s.add(number, s.num(1))
    start, width = 0, 0
    for i, (func, count) in enumerate(parts):
        given = args[start : start + count]
        start += count
        typ = func.output_type([arg.typ for arg in given])
        lists[f"l{i}"] = func.rows(engine, given, typ.columns[0].type)
        item = at(s.field(whole, f"l{i}"), position, engine)
        for j in range(typ.arity):
            width += 1
            fields[f"f{width}"] = s.field(item, f"f{j + 1}") if typ.arity > 1 else item
    if numbered:
        fields[f"f{width + 1}"] = s.big(position)
    sizes = [
        s.coalesce(s.call("SIZE" if spark else "LEN", s.field(whole, name)), s.num(0))
        for name in lists
    ]
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
