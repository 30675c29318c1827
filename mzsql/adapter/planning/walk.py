"""Traversing MIR: which objects a relation reads, and rewriting its scalar expressions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mzsql.expr import relation as r
from mzsql.expr.scalar import AggregateExpr, Literal, Scalar, Unmaterializable, children, transform
from mzsql.repr.datum import Datum
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import SqlType


def global_gets(rel: r.Relation) -> frozenset[GlobalId]:
    """The catalog objects that a relation reads."""
    return frozenset(
        [node.id for node in r.walk(rel) if type(node) is r.Get and not isinstance(node.id, int)]
    )


_WITHOUT_SCALARS = frozenset(
    {r.Constant, r.Get, r.Let, r.LetRec, r.Project, r.Negate, r.Threshold, r.Union}
)


def node_scalars(rel: r.Relation) -> tuple[Scalar, ...]:
    """The scalar expressions of one node, without those of its inputs."""
    if type(rel) in _WITHOUT_SCALARS:
        return ()
    match rel:
        case r.Map(scalars=scalars):
            return scalars
        case r.Filter(predicates=predicates):
            return predicates
        case r.FlatMap(exprs=exprs):
            return exprs
        case r.Join(equivalences=classes):
            return tuple(e for c in classes for e in c)
        case r.Reduce(group_key=key, aggregates=aggregates):
            return (*key, *(a.expr for a in aggregates))
        case r.TopK(limit=limit) if limit is not None:
            return (limit,)
        case r.ArrangeBy(keys=keys):
            return tuple(e for k in keys for e in k)
        case _:
            return ()


def map_scalars(rel: r.Relation, f: Callable[[Scalar], Scalar]) -> r.Relation:
    """The relation with ``f`` applied to every whole scalar expression in it (not to subexpressions)."""
    kids = r.inputs(rel)
    new = tuple(map_scalars(kid, f) for kid in kids)
    if any(a is not b for a, b in zip(new, kids, strict=True)):
        rel = r.with_inputs(rel, new)
    match rel:
        case r.Map(scalars=scalars):
            return msgspec.structs.replace(rel, scalars=tuple(map(f, scalars)))
        case r.Filter(predicates=predicates):
            return msgspec.structs.replace(rel, predicates=tuple(map(f, predicates)))
        case r.FlatMap(exprs=exprs):
            return msgspec.structs.replace(rel, exprs=tuple(map(f, exprs)))
        case r.Join(equivalences=classes):
            mapped = tuple(tuple(map(f, c)) for c in classes)
            return msgspec.structs.replace(rel, equivalences=mapped)
        case r.Reduce(group_key=key, aggregates=aggregates):

            def aggregate(a: AggregateExpr) -> AggregateExpr:
                return msgspec.structs.replace(a, expr=f(a.expr))

            return msgspec.structs.replace(
                rel, group_key=tuple(map(f, key)), aggregates=tuple(map(aggregate, aggregates))
            )
        case r.TopK(limit=limit) if limit is not None:
            return msgspec.structs.replace(rel, limit=f(limit))
        case r.ArrangeBy(keys=keys):
            return msgspec.structs.replace(rel, keys=tuple(tuple(map(f, k)) for k in keys))
        case _:
            return rel


def unmaterializables(rel: r.Relation) -> frozenset[str]:
    """The session- and time-dependent functions that a relation calls, such as ``current_user`` or ``mz_now``."""
    found: set[str] = set()
    due: list[Scalar] = []
    for node in r.walk(rel):
        due += node_scalars(node)
    while due:
        part = due.pop()
        if type(part) is Unmaterializable:
            found.add(part.func)
        else:
            due += children(part)
    return frozenset(found)


def materialize(rel: r.Relation, value: Callable[[str, SqlType], Datum]) -> r.Relation:
    """Replace session- and time-dependent functions by their values."""

    def one(part: Scalar) -> Scalar:
        if isinstance(part, Unmaterializable):
            return Literal(value(part.func, part.typ), part.typ)
        return part

    if not unmaterializables(rel):
        return rel
    return map_scalars(rel, lambda scalar: transform(scalar, one))
