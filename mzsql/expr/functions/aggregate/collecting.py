"""Aggregates that collect a group's rows, in order, into one value: array, list, map or jsonb.

Promise: the last value of a key counts, in the aggregate's order; rows with a NULL key, and rows that FILTER excludes,
do not count. Without rows the value is NULL.
"""

from __future__ import annotations

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.container.maps import map_of_entries
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.json import documents as j
from mzsql.expr.functions.json.jsonb import document
from mzsql.expr.functions.table import Engine
from mzsql.repr.types import JSONB, SqlType

#: The number of arguments of each.
ARGUMENTS = {"array_agg": 1, "list_agg": 1, "jsonb_agg": 1, "jsonb_object_agg": 2, "map_agg": 2}


def arguments(row: SqlType) -> tuple[SqlType, ...]:
    """The types of the arguments, given the aggregated row: (record of the arguments, or the collected document, order
    …).
    """
    first = row.fields[0][1].type
    return tuple(column.type for _, column in first.fields) if first.kind == "record" else (first,)


def result(base: str, row: SqlType) -> SqlType:
    """The type of a collecting aggregate over rows of this type."""
    given = arguments(row)
    if base.startswith("jsonb"):
        return JSONB
    if base == "map_agg":
        return SqlType("map", element=given[1])
    return SqlType("array" if base == "array_agg" else "list", element=given[0])


def collected(base: str, rows: Ast, row: SqlType, typ: SqlType, engine: Engine) -> Ast:
    """The value for an ordered array of rows.

    Args:
        base: the aggregate.
        rows: the rows; NULL where FILTER excludes one.
        row: the type of the rows.
        typ: the type of the result.
        engine: the engine.
    """
    kept = s.kept(rows, "cf0", s.is_not_null(s.variable("cf0")), engine)
    value = _value(base, kept, row, typ, engine)
    return s.case((s.gt(s.size(kept, engine), s.num(0)), value))


def _value(base: str, rows: Ast, row: SqlType, typ: SqlType, engine: Engine) -> Ast:
    given = arguments(row)
    values = s.field(s.variable("cv0"), "f1")
    first = s.field(values, "f1") if row.fields[0][1].type.kind == "record" else values
    if base in ("array_agg", "list_agg"):
        return s.mapped(rows, "cv0", first, engine)
    if base == "map_agg":
        pair = s.struct(key=first, value=s.field(values, "f2"))
        return map_of_entries(s.mapped(rows, "cv0", pair, engine), typ, engine)
    if base == "jsonb_agg":
        one = first if given[0].kind == "jsonb" else document(first, given[0], engine)
        item = s.coalesce(one, s.text("null"))
        return j.array_of(s.mapped(rows, "cv0", item, engine), engine)
    j.duckdb(engine, "jsonb")
    value = s.coalesce(document(s.field(values, "f2"), given[1], engine), s.text("null"))
    pairs = s.mapped(rows, "cv0", s.struct(key=first, value=value), engine)
    keyed = s.lambda_(("cv1",), s.is_not_null(s.field(s.variable("cv1"), "key")))
    return j.object_of(s.call("LIST_FILTER", pairs, keyed))
