"""Rewriting columns across the scopes of HIR.

Promise: `map_columns` and `map_relation_columns` are the only places that know where scopes open (at subqueries and at
the right sides of joins). ``depth`` counts the scopes between the relation that a rewrite is about and the place of a
column, so a column of that relation has ``level == depth``.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mzsql.frontend import hir

#: From a depth and a column to its replacement, whose levels are as seen from that place.
ColumnRewrite = Callable[[int, hir.Column], hir.Scalar]


def map_columns(scalar: hir.Scalar, rewrite: ColumnRewrite, depth: int = 0) -> hir.Scalar:
    """Rewrite every column of a scalar, including those in its subqueries."""
    match scalar:
        case hir.Column():
            return rewrite(depth, scalar)
        case hir.Call(func=func, args=args, typ=typ):
            return hir.Call(func, tuple(map_columns(a, rewrite, depth) for a in args), typ)
        case hir.If(condition=c, then=t, otherwise=o):
            return hir.If(
                map_columns(c, rewrite, depth),
                map_columns(t, rewrite, depth),
                map_columns(o, rewrite, depth),
            )
        case hir.Exists(relation=rel):
            return hir.Exists(map_relation_columns(rel, rewrite, depth + 1))
        case hir.Select(relation=rel):
            return hir.Select(map_relation_columns(rel, rewrite, depth + 1))
        case hir.Windowing():
            return map_window(scalar, lambda part: map_columns(part, rewrite, depth))
        case _:
            return scalar


def map_window(window: hir.Windowing, rewrite: Callable[[hir.Scalar], hir.Scalar]) -> hir.Windowing:
    """Rewrite every expression of a window function call."""
    return msgspec.structs.replace(
        window,
        args=tuple(rewrite(a) for a in window.args),
        partition_by=tuple(rewrite(a) for a in window.partition_by),
        order_by=tuple(
            hir.Ordering(rewrite(o.expr), o.desc, o.nulls_last) for o in window.order_by
        ),
    )


def map_windows(scalar: hir.Scalar, rewrite: Callable[[hir.Windowing], hir.Scalar]) -> hir.Scalar:
    """Rewrite every window function call of a scalar; those in its subqueries are not the scalar's own."""
    match scalar:
        case hir.Windowing():
            return rewrite(scalar)
        case hir.Call(func=func, args=args, typ=typ):
            return hir.Call(func, tuple(map_windows(a, rewrite) for a in args), typ)
        case hir.If(condition=c, then=t, otherwise=o):
            return hir.If(map_windows(c, rewrite), map_windows(t, rewrite), map_windows(o, rewrite))
        case _:
            return scalar


def _orderings(
    order: tuple[hir.Ordering, ...], rewrite: ColumnRewrite, depth: int
) -> tuple[hir.Ordering, ...]:
    return tuple(
        hir.Ordering(map_columns(o.expr, rewrite, depth), o.desc, o.nulls_last) for o in order
    )


def map_relation_columns(rel: hir.Relation, rewrite: ColumnRewrite, depth: int) -> hir.Relation:
    """Rewrite every column in a relation's scalars, where the relation's own input is at ``depth``."""

    def rec(r: hir.Relation) -> hir.Relation:
        return map_relation_columns(r, rewrite, depth)

    def scalars(many: tuple[hir.Scalar, ...]) -> tuple[hir.Scalar, ...]:
        return tuple(map_columns(s, rewrite, depth) for s in many)

    match rel:
        case hir.Constant() | hir.Get():
            return rel
        case hir.Let(name=name, id=local, value=value, body=body):
            return hir.Let(name, local, rec(value), rec(body))
        case hir.LetRec(bindings=bindings, limit=limit, body=body):
            done = tuple(msgspec.structs.replace(b, value=rec(b.value)) for b in bindings)
            return hir.LetRec(done, limit, rec(body))
        case hir.Map(input=inner, scalars=many):
            return hir.Map(rec(inner), scalars(many))
        case hir.CallTable(func=func, exprs=exprs, output=output):
            return hir.CallTable(func, scalars(exprs), output)
        case hir.Filter(input=inner, predicates=predicates):
            return hir.Filter(rec(inner), scalars(predicates))
        case hir.Join(left=left, right=right, on=on, kind=kind):
            deeper = map_relation_columns(right, rewrite, depth + 1)
            return hir.Join(rec(left), deeper, map_columns(on, rewrite, depth), kind)
        case hir.Reduce(input=inner, aggregates=aggregates):
            done_aggregates = tuple(
                msgspec.structs.replace(
                    a,
                    expr=map_columns(a.expr, rewrite, depth),
                    order_by=_orderings(a.order_by, rewrite, depth),
                )
                for a in aggregates
            )
            return msgspec.structs.replace(rel, input=rec(inner), aggregates=done_aggregates)
        case hir.TopK(input=inner, limit=limit):
            bound = None if limit is None else map_columns(limit, rewrite, depth)
            return msgspec.structs.replace(rel, input=rec(inner), limit=bound)
        case hir.Union(inputs=inputs):
            return hir.Union(tuple(rec(i) for i in inputs))
        case _:
            return msgspec.structs.replace(rel, input=rec(rel.input))


def shifted(scalar: hir.Scalar, by: int) -> hir.Scalar:
    """The scalar as seen from ``by`` scopes further in: levels of columns outside of it grow."""

    def rewrite(depth: int, column: hir.Column) -> hir.Scalar:
        if column.level < depth:
            return column
        return hir.Column(column.index, column.level + by)

    return map_columns(scalar, rewrite)


def visit_relation_columns(
    rel: hir.Relation, visit: Callable[[int, hir.Column], None], depth: int = 0
) -> None:
    """Call ``visit`` with the depth of every column in a relation, and the column."""

    def rewrite(at: int, column: hir.Column) -> hir.Scalar:
        visit(at, column)
        return column

    map_relation_columns(rel, rewrite, depth)
