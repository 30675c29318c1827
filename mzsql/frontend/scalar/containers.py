"""Containers: constructors, subscripts, record fields, and operators on them and on jsonb.

Promise: the elements of a constructor get a common type, as the branches of CASE do. A subscript depends on the type
before it: an array, a list (through all its layers), a map, or jsonb (all following subscripts form a path). A slice
keeps the type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.coerce import (
    Typed,
    call,
    cast,
    category,
    empty,
    explicit,
    operator_call,
    plain_name,
    require,
    settle,
    unify,
)
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import position_of, unparen
from mzsql.frontend.scalar.query_containers import gathered
from mzsql.frontend.scalar.rows import row_items
from mzsql.repr import types as t
from mzsql.repr.errors import SqlError, SqlSyntaxError, UndefinedColumn
from mzsql.repr.types import SqlType, type_name

_NAMES: dict[type[exp.Expr], str] = {exp.Array: "array", exp.List: "list", exp.ToMap: "map"}
#: Stands for an omitted upper bound of a slice.
_END = 2**31 - 1


def is_empty_constructor(node: exp.Expr) -> bool:
    """Whether a node is ``ARRAY[]``, ``LIST[]`` or ``MAP[]``, whose type only a cast can give, or an array of such
    arrays.
    """
    node = unparen(node)
    if isinstance(node, exp.Array) and node.expressions:
        return all(
            isinstance(unparen(e), exp.Array) and is_empty_constructor(e) for e in node.expressions
        )
    if isinstance(node, exp.ToMap):
        return isinstance(node.this, exp.Struct) and not node.this.expressions
    return isinstance(node, exp.Array | exp.List) and not node.expressions


def typed_list(ctx: ExprContext, node: exp.Expr, target: SqlType) -> Typed | None:
    """``LIST[…]`` under a cast, whose empty inner lists take their type from the cast; None for anything else."""
    node, inner = unparen(node), target.element
    if not isinstance(node, exp.List) or target.kind != "list" or inner is None:
        return None
    if not any(is_empty_constructor(part) for part in node.find_all(exp.List, exp.ToMap)):
        return None
    items: list[Typed] = []
    for part in node.expressions:
        if is_empty_constructor(part):
            items.append(empty(inner))
            continue
        nested = typed_list(ctx, part, inner)
        items.append(nested or explicit(ctx.plan(part), inner, position_of(part)))
    return call("list", items, target)


def _refuse_empty(node: exp.Expr) -> None:
    if is_empty_constructor(node) and not node.expressions:
        raise SqlError(
            f"cannot determine type of empty {_NAMES[type(node)]}",
            position=position_of(node),
            hint=f"Cast it to the type that is meant, as in {_NAMES[type(node)].upper()}[]::…",
            sqlstate="42P18",
        )


def _sequence(ctx: ExprContext, node: exp.Expr) -> Typed:
    kind = _NAMES[type(node)]
    _refuse_empty(node)
    values, element = unify(
        [ctx.plan(e) for e in node.expressions], kind.upper(), position_of(node)
    )
    done = call(kind, values, SqlType(kind, element=element))
    return Typed(done.expr, done.typ, False)


def _map(ctx: ExprContext, node: exp.Expr) -> Typed:
    if not isinstance(node.this, exp.Struct):
        return gathered(ctx, node.this, "map", position_of(node))
    _refuse_empty(node)
    entries = node.this.expressions
    keys = [
        require(ctx.plan(e.this), t.TEXT, "implicit", "map key", position_of(e.this))
        for e in entries
    ]
    values, element = unify([ctx.plan(e.expression) for e in entries], "MAP", position_of(node))
    pairs = [part for pair in zip(keys, values, strict=True) for part in pair]
    done = call("map", pairs, SqlType("map", element=element))
    return Typed(done.expr, done.typ, False)


def row(ctx: ExprContext, node: exp.Expr) -> Typed:
    """``(a, b)`` or ``ROW(a, b)``, a record."""
    values = [settle(value) for value in row_items(ctx, node)]
    fields = tuple(
        (f"f{i}", t.ColumnType(v.typ, v.nullable)) for i, v in enumerate(values, start=1)
    )
    done = call("row", values, SqlType("record", fields=fields))
    return Typed(done.expr, done.typ, False)


def of_query(ctx: ExprContext, node: exp.Expr, kind: str) -> Typed:
    """``ARRAY(query)``, ``LIST(query)``: the rows of the query's only column, in its order."""
    return gathered(ctx, node.expressions[0], kind, position_of(node))


# --- subscripts and fields -----------------------------------------------------------------------


def _subscript(ctx: ExprContext, node: exp.Expr) -> Typed:
    """All brackets after a value; consecutive slices cut one layer each."""
    position = position_of(node)
    parts: list[exp.Expr] = []
    while isinstance(node, exp.Bracket):
        parts = [*node.expressions, *parts]
        node = node.this
    value = ctx.plan(node)
    if (element := t.VECTOR_ELEMENTS.get(value.typ)) is not None:
        value = explicit(value, SqlType("array", element=element), position)
        parts = [_one_more(part) for part in parts]
    if value.typ.kind == "array" and any(isinstance(part, exp.Slice) for part in parts):
        # In an array, a plain subscript among slices means a slice from 1.
        parts = [p if isinstance(p, exp.Slice) else exp.Slice(expression=p) for p in parts]
    for sliced, group in groupby(parts, key=lambda part: isinstance(part, exp.Slice)):
        if sliced:
            value = _slice(ctx, value, list(group), position)
            continue
        holder = value.typ.kind
        for part in (rest := iter(group)):
            holder = value.typ.kind
            if holder == "jsonb":
                value = _within(value, [ctx.plan(p) for p in (part, *rest)], position)
                break
            value = _at(value, ctx.plan(part), position)
        if holder == value.typ.kind == "array":
            # Fewer subscripts than dimensions give NULL, as in PostgreSQL.
            value = Typed(Literal(None, _innermost(value.typ)), _innermost(value.typ), True)
    return value


def _one_more(part: exp.Expr) -> exp.Expr:
    """A subscript of a vector, which counts from 0, as one of an array."""
    if isinstance(part, exp.Slice):
        ends = {name: _one_more(end) for name, end in part.args.items() if end is not None}
        return exp.Slice(**ends)
    return exp.Add(this=exp.paren(part), expression=exp.Literal.number(1))


def _innermost(typ: SqlType) -> SqlType:
    """An array's element type, below all dimensions."""
    while typ.kind == "array" and typ.element is not None:
        typ = typ.element
    return typ


def _at(value: Typed, index: Typed, position: int | None) -> Typed:
    kind = value.typ.kind
    if kind == "map":
        return operator_call("->", [value, index], position)
    if kind not in ("array", "list"):
        raise SqlError(
            f"cannot subscript type {type_name(value.typ)}", position=position, sqlstate="42804"
        )
    return call(f"{kind}_get", [value, _index(index, kind, position)])


def _within(value: Typed, steps: Sequence[Typed], position: int | None) -> Typed:
    """Subscripts of a jsonb value are a path of texts, as in PostgreSQL and Materialize."""
    path: list[Typed] = []
    for step in steps:
        number = category(step.typ) == "number"
        plain = cast(step, t.BIGINT if number else t.TEXT, "implicit")
        if plain is None:
            raise SqlError(
                "jsonb subscript type must be coercible to integer or text, "
                f"not {plain_name(step.typ)}",
                position=position,
                sqlstate="42804",
            )
        path.append(explicit(plain, t.TEXT, position))
    whole = call("array", path, SqlType("array", element=t.TEXT))
    return operator_call("#>", [value, whole], position)


def _index(index: Typed, kind: str, position: int | None) -> Typed:
    done = cast(index, t.BIGINT, "assignment")
    if done is None or index.typ.kind in ("boolean", "text"):
        raise SqlError(
            f"subscript (indexing) of {kind} must be of type bigint, not type {type_name(index.typ)}",
            position=position,
            sqlstate="42804",
        )
    return done


def _slice(
    ctx: ExprContext, value: Typed, parts: Sequence[exp.Expr], position: int | None
) -> Typed:
    kind = value.typ.kind
    if kind == "jsonb":
        raise SqlError(
            "jsonb subscript does not support slices", position=position, sqlstate="42804"
        )
    if kind not in ("array", "list"):
        raise SqlError(
            f"cannot slice type {type_name(value.typ)}", position=position, sqlstate="42804"
        )
    layers, typ = 0, value.typ
    while typ.kind == kind and typ.element is not None:
        layers, typ = layers + 1, typ.element
    if len(parts) > layers:
        raise SqlError(
            f"cannot slice into {layers + 1} layers; {kind} only has {layers} "
            f"layer{'' if layers == 1 else 's'}",
            position=position,
            sqlstate="42804",
        )
    bounds: list[Typed] = []
    for part in parts:
        assert isinstance(part, exp.Slice)
        for end, otherwise in ((part.this, 1), (part.expression, _END)):
            given = Typed(Literal(otherwise, t.BIGINT), t.BIGINT, False)
            bounds.append(_index(ctx.plan(end), kind, position) if end is not None else given)
    return call(f"{kind}_slice", [value, *bounds], value.typ)


def field(ctx: ExprContext, node: exp.Expr) -> Typed:
    """``(record).field``.

    Raises:
        SqlSyntaxError: the field is ``*``, which only a select list expands.
        SqlError: the value is no record (42809).
    """
    name = node.expression
    value = ctx.plan(node.this)
    position = position_of(node)
    if isinstance(name, exp.Star):
        raise SqlSyntaxError("wildcard in invalid position", position=position)
    if value.typ.kind != "record":
        raise SqlError(
            f"column notation .{fold(name)} applied to type {type_name(value.typ)}, which is not a composite type",
            position=position,
            sqlstate="42809",
        )
    return field_of(value, fold(name), position)


def field_of(value: Typed, name: str, position: int | None) -> Typed:
    """A record's field by its name.

    Raises:
        UndefinedColumn: the record has no such field.
    """
    for i, (field, column) in enumerate(value.typ.fields, start=1):
        if field == name:
            return call(f"record_get_{i}", [value], column.type)
    raise UndefinedColumn(f"field {name} not found in data type record", position=position)


def whole_row(ctx: ExprContext, table: tuple[str, ...], position: int | None) -> Typed | None:
    """A table's row as a record, by the table's name; None where no table in scope has the name."""
    found = ctx.scope.find_table(table, position)
    if found is None:
        return None
    level, scope = found
    of_table = [(i, item) for i, item in enumerate(scope.items) if item.is_of(table)]
    columns = [
        (item.name, Typed(hir.Column(i, level), item.typ.type, item.typ.nullable))
        for i, item in of_table
        if item.starred or item.table == table
    ]
    if level == 0:
        for i, _ in of_table:
            ctx.positions.setdefault(i, position)
    if len(columns) == 1 and of_table[0][1].scalar:
        return columns[0][1]
    ctx.planner.whole_rows.append(position)
    fields = tuple((name, t.ColumnType(c.typ, c.nullable)) for name, c in columns)
    done = call("row", [c for _, c in columns], SqlType("record", fields=fields))
    return Typed(done.expr, done.typ, False)


# --- operators -----------------------------------------------------------------------------------

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.JSONBExtract: "#>",
    exp.JSONBExtractScalar: "#>>",
    exp.JSONBContainsTopKey: "?",
    exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
    exp.JSONBDeleteAtPath: "#-",
    exp.ArrayOverlaps: "&&",
    exp.Adjacent: "-|-",
    exp.ExtendsLeft: "&<",
    exp.ExtendsRight: "&>",
}


def _operator(ctx: ExprContext, node: exp.Expr) -> Typed:
    args = [ctx.plan(node.this), ctx.plan(node.expression)]
    return operator_call(_OPERATORS[type(node)], args, position_of(node))


def elements_query(array: exp.Expr) -> exp.Expr:
    """``(SELECT mz_element FROM unnest(array))``: the query that ANY and ALL of an array compare with."""
    alias = exp.TableAlias(
        this=exp.to_identifier("mz_elements"), columns=[exp.to_identifier("mz_element")]
    )
    source = exp.Table(this=exp.Anonymous(this="unnest", expressions=[array.copy()]), alias=alias)
    element = exp.column(exp.to_identifier("mz_element"), table=exp.to_identifier("mz_elements"))
    return exp.Select(expressions=[element], from_=exp.From(this=source))


#: This module's handlers.
HANDLERS: dict[type[exp.Expr], Callable[[ExprContext, Any], Typed]] = {
    exp.Array: _sequence,
    exp.List: _sequence,
    exp.ToMap: _map,
    exp.Tuple: row,
    exp.Bracket: _subscript,
    **dict.fromkeys(_OPERATORS, _operator),
}
__all__ = [
    "HANDLERS",
    "elements_query",
    "field",
    "is_empty_constructor",
    "of_query",
    "row",
    "typed_list",
]
