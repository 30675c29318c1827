"""ReduceElision: a Reduce whose groups have one row each is a Map; a distinct of distinct rows is nothing."""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.typing import nullable
from mzsql.repr.types import BOOLEAN, ColumnType, RelationType
from mzsql.transform.visit import mapped, project, rewrite_typed


def reduce_elision(rel: mir.Relation) -> mir.Relation:
    """Replace the Reduces over unique keys."""
    return rewrite_typed(rel, _elide)


def _elide(rel: mir.Relation, types: Sequence[RelationType]) -> mir.Relation:
    if not isinstance(rel, mir.Reduce):
        return rel
    columns = {e.index for e in rel.group_key if isinstance(e, sc.Column)}
    if not any(set(key) <= columns for key in types[0].keys):
        return rel
    scalars: list[sc.Scalar] = list(rel.group_key)
    for aggregate in rel.aggregates:
        value = of_one_row(aggregate, types[0].columns)
        if value is None:
            return rel
        scalars.append(value)
    width = types[0].arity
    return project(mapped(rel.input, scalars), range(width, width + len(scalars)))


def of_one_row(aggregate: sc.AggregateExpr, columns: Sequence[ColumnType]) -> sc.Scalar | None:
    """The aggregate of a group of one row as a scalar of that row; None where there is no spelling for it."""
    func = functions.aggregate(aggregate.func)
    typ = sc.scalar_type(aggregate.expr, columns)
    match func.name:
        case "min" | "max" | "any" | "all" | "bool_or" | "bool_and":
            return aggregate.expr if typ == aggregate.typ else None
        case "count":
            if not nullable(aggregate.expr, columns):
                return sc.Literal(1, aggregate.typ)
            is_null = sc.Call("is_null", (aggregate.expr,), BOOLEAN)
            return sc.If(is_null, sc.Literal(0, aggregate.typ), sc.Literal(1, aggregate.typ))
        case "sum":
            if typ == aggregate.typ:
                return aggregate.expr
            casts = functions.find_cast(typ, aggregate.typ, "explicit")
            if casts is None or len(casts) != 1:
                return None
            return sc.Call(casts[0], (aggregate.expr,), aggregate.typ)
        case _:
            return None
