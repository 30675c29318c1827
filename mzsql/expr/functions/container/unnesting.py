"""Table functions over arrays, lists and maps: their elements, their subscripts."""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.container.polymorphic import ARRAY, LIST, MAP
from mzsql.expr.functions.container.sequences import at, dimension
from mzsql.expr.functions.declare import Ast, duckdb_only
from mzsql.expr.functions.table import Engine, Sql, TableFunc
from mzsql.repr.types import BOOLEAN, INTEGER, TEXT, ColumnType, RelationType, SqlType


def base_element(typ: SqlType) -> SqlType:
    """The element type of an array through all dimensions, or of a list."""
    element = typ.element or TEXT
    while typ.kind == "array" and element.kind == "array" and element.element is not None:
        element = element.element
    return element


def _flat(arg: Sql) -> Ast:
    """The elements of an array in one dimension."""
    array, element = arg.ast, arg.typ.element
    while arg.typ.kind == "array" and element is not None and element.kind == "array":
        array, element = s.call("FLATTEN", array), element.element
    return array.copy()


def _one(args: Sequence[SqlType]) -> RelationType:
    return RelationType((ColumnType(base_element(args[0])),))


def _unnest(param: SqlType) -> TableFunc:
    return TableFunc(
        key=f"unnest_{param.kind}",
        name="unnest",
        args=(param,),
        names=("unnest",),
        output=RelationType((ColumnType(SqlType("any")),)),
        rows=lambda _engine, args, _typ: _flat(args[0]),
        columns=_one,
    )


def _entries(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    entry = s.variable("un0")
    pair = s.struct(f1=s.field(entry, "key"), f2=s.field(entry, "value"))
    return s.mapped(s.call("MAP_ENTRIES", args[0].ast), "un0", pair, engine)


def _key_and_value(args: Sequence[SqlType]) -> RelationType:
    return RelationType((ColumnType(TEXT, False), ColumnType(args[0].element or TEXT)))


def _subscripts(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only("generate_subscripts")
    numbers = s.call("RANGE", s.num(1), s.add(s.big(dimension(args, engine)), s.num(1)))
    return s.cast(numbers, SqlType("array", element=INTEGER), engine)


def _subscripts_back(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The subscripts, from the last one where the third argument says so; NULL, and so no rows, where that is NULL."""
    forth, back = _subscripts(engine, args[:2], typ), args[2].ast
    return s.case((back, s.call("LIST_REVERSE", forth)), (s.not_(back), forth))


def _expanded(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only("_pg_expandarray")
    numbers = s.call("RANGE", s.num(1), s.add(s.call("LEN", _flat(args[0])), s.num(1)))
    number = s.variable("pe0")
    pair = s.struct(f1=at(_flat(args[0]), number, engine), f2=s.integer(number))
    return s.call("LIST_TRANSFORM", numbers, s.lambda_(("pe0",), pair))


def _expanded_columns(args: Sequence[SqlType]) -> RelationType:
    return RelationType((ColumnType(base_element(args[0])), ColumnType(INTEGER, False)))


FUNCTIONS: tuple[TableFunc, ...] = (
    _unnest(ARRAY),
    _unnest(LIST),
    TableFunc(
        key="unnest_map",
        name="unnest",
        args=(MAP,),
        names=("key", "value"),
        output=RelationType((ColumnType(TEXT, False), ColumnType(SqlType("any")))),
        rows=_entries,
        columns=_key_and_value,
    ),
    TableFunc(
        key="generate_subscripts",
        name="generate_subscripts",
        args=(ARRAY, INTEGER),
        names=("generate_subscripts",),
        output=RelationType((ColumnType(INTEGER, False),)),
        rows=_subscripts,
    ),
    TableFunc(
        key="generate_subscripts_reverse",
        name="generate_subscripts",
        args=(ARRAY, INTEGER, BOOLEAN),
        names=("generate_subscripts",),
        output=RelationType((ColumnType(INTEGER, False),)),
        rows=_subscripts_back,
    ),
    TableFunc(
        key="_pg_expandarray",
        name="_pg_expandarray",
        args=(ARRAY,),
        names=("x", "n"),
        output=RelationType((ColumnType(SqlType("any")), ColumnType(INTEGER, False))),
        rows=_expanded,
        columns=_expanded_columns,
    ),
)
