"""Table functions over jsonb: an array's elements, an object's keys and entries. Other documents yield no rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.json import documents as j
from mzsql.expr.functions.table import Engine, Sql, TableFunc
from mzsql.repr.types import JSONB, TEXT, ColumnType, RelationType, SqlType


def _func(
    name: str, columns: tuple[tuple[str, ColumnType], ...], rows: Callable[[Ast], Ast]
) -> TableFunc:
    def spelling(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        j.duckdb(engine)
        return rows(args[0].ast)

    return TableFunc(
        key=name,
        name=name,
        args=(JSONB,),
        names=tuple(column for column, _ in columns),
        output=RelationType(tuple(typ for _, typ in columns)),
        rows=spelling,
    )


def _texts(json: Ast) -> Ast:
    item = s.variable("jx0")
    return s.call("LIST_TRANSFORM", j.elements(json), s.lambda_(("jx0",), j.shown(item)))


def _pairs(json: Ast) -> Ast:
    entry = s.variable("jx1")
    pair = s.struct(f1=s.field(entry, "key"), f2=s.field(entry, "value"))
    return s.call("LIST_TRANSFORM", j.entries(json), s.lambda_(("jx1",), pair))


def _text_pairs(json: Ast) -> Ast:
    entry = s.variable("jx1")
    pair = s.struct(f1=s.field(entry, "key"), f2=j.shown(s.field(entry, "value")))
    return s.call("LIST_TRANSFORM", j.entries(json), s.lambda_(("jx1",), pair))


_KEY = ("key", ColumnType(TEXT, False))
_VALUE, _TEXT = ("value", ColumnType(JSONB, False)), ("value", ColumnType(TEXT))
FUNCTIONS: tuple[TableFunc, ...] = tuple(
    func
    # PostgreSQL's json is jsonb here.
    for kind in ("jsonb", "json")
    for func in (
        _func(f"{kind}_array_elements", (_VALUE,), j.elements),
        _func(f"{kind}_array_elements_text", (_TEXT,), _texts),
        _func(f"{kind}_object_keys", ((f"{kind}_object_keys", ColumnType(TEXT, False)),), j.keys),
        _func(f"{kind}_each", (_KEY, _VALUE), _pairs),
        _func(f"{kind}_each_text", (_KEY, _TEXT), _text_pairs),
    )
)
