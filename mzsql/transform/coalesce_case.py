"""CoalesceCase: rewrites ``COALESCE`` of a ``CASE`` with a NULL branch as a ``CASE``.

Promise: ``COALESCE(CASE WHEN c THEN NULL ELSE x END, y)`` becomes ``CASE WHEN c THEN y ELSE COALESCE(x, y) END``,
and likewise with the branches exchanged. Nothing more is evaluated than before. An expression that would become much
larger stays. Off unless `enable_coalesce_case_transform` is set.
Source: Materialize's transform `CoalesceCase`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.transform.context import OptimizerContext
from mzsql.transform.visit import rewrite

#: The most nodes of an expression that the transform makes.
_LARGE = 1000


def coalesce_case(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Push every COALESCE into the CASEs that are its first arguments."""
    return rewrite(rel, _node) if ctx.features.enable_coalesce_case_transform else rel


def _node(rel: mir.Relation) -> mir.Relation:
    match rel:
        case mir.Map(scalars=scalars):
            return msgspec.structs.replace(rel, scalars=_all(scalars))
        case mir.Filter(predicates=predicates):
            return msgspec.structs.replace(rel, predicates=_all(predicates))
        case mir.FlatMap(exprs=exprs):
            return msgspec.structs.replace(rel, exprs=_all(exprs))
        case mir.Join(implementation=mir.Unplanned(), equivalences=classes):
            return msgspec.structs.replace(rel, equivalences=tuple(_all(cls) for cls in classes))
        case mir.Reduce(group_key=key, aggregates=aggregates):
            values = _all([a.expr for a in aggregates])
            return msgspec.structs.replace(
                rel,
                group_key=_all(key),
                aggregates=tuple(
                    msgspec.structs.replace(a, expr=value)
                    for a, value in zip(aggregates, values, strict=True)
                ),
            )
        case mir.TopK(limit=limit) if limit is not None:
            return msgspec.structs.replace(rel, limit=sc.transform(limit, _scalar))
        case _:
            return rel


def _all(exprs: Sequence[sc.Scalar]) -> tuple[sc.Scalar, ...]:
    return tuple(sc.transform(expr, _scalar) for expr in exprs)


def _scalar(expr: sc.Scalar) -> sc.Scalar:
    """Rewrite one call, whose arguments have been rewritten already."""
    if not isinstance(expr, sc.Call) or expr.func != "coalesce":
        return expr
    new = _coalesced(expr, expr.args)
    if new is expr:
        return expr
    for size, _ in enumerate(sc.walk(new)):
        if size > _LARGE:
            return expr
    return new


def _coalesced(call: sc.Call, args: tuple[sc.Scalar, ...]) -> sc.Scalar:
    """COALESCE of the arguments, as a CASE as far as possible."""
    first, *others = args
    if not others:
        return first
    rest = tuple(others)
    match first:
        case sc.If(condition=condition, then=then, otherwise=otherwise) if _is_null(then):
            return sc.If(condition, _coalesced(call, rest), _coalesced(call, (otherwise, *rest)))
        case sc.If(condition=condition, then=then, otherwise=otherwise) if _is_null(otherwise):
            return sc.If(condition, _coalesced(call, (then, *rest)), _coalesced(call, rest))
        case _:
            return call if args == call.args else sc.Call(call.func, args, call.typ)


def _is_null(expr: sc.Scalar) -> bool:
    return isinstance(expr, sc.Literal) and expr.value is None
