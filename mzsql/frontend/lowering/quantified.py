"""Rewriting quantified comparisons in filters to forms that decorrelate well.

Promise: `certain` keeps a scalar's value. A row passes all predicates of `conjuncts` exactly if it passes the given
predicate. ``x = ANY (query)`` (so IN) becomes an EXISTS; ``x <> ALL`` (so NOT IN) and ALL become a negated EXISTS. That
is valid where no comparison is NULL, or where NULL and false are equivalent, as for the AND and OR at the top of a
filter.
"""

from __future__ import annotations

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.lowering.shape import has_subquery
from mzsql.repr.types import BOOLEAN


def conjuncts(predicate: hir.Scalar) -> list[hir.Scalar]:
    """The predicate with `true` in place of every conjunct that has a subquery, then those conjuncts with quantified
    comparisons as EXISTS.
    """
    found: list[hir.Scalar] = []

    def take(node: hir.Scalar) -> hir.Scalar:
        if isinstance(node, hir.Call) and node.func == "and":
            return hir.Call("and", tuple(take(arg) for arg in node.args), BOOLEAN)
        if not has_subquery(node):
            return node
        found.append(_unquantified(node))
        return Literal(True, BOOLEAN)

    rest = take(predicate)
    return [rest, *found]


def certain(scalar: hir.Scalar) -> hir.Scalar:
    """The scalar with EXISTS in place of quantified comparisons whose result is never NULL."""
    if not has_subquery(scalar):
        return scalar
    match scalar:
        case hir.Select(relation=hir.Reduce(aggregates=(hir.Aggregate(nullable=False),)) as reduce):
            return _positive(scalar, reduce, certain=True)
        case hir.Call(func=func, args=args, typ=typ):
            return hir.Call(func, tuple(certain(arg) for arg in args), typ)
        case hir.If(condition=condition, then=then, otherwise=otherwise):
            return hir.If(certain(condition), certain(then), certain(otherwise))
        case _:
            return scalar


def _unquantified(node: hir.Scalar) -> hir.Scalar:
    match node:
        case hir.Call(func="and" | "or" as func, args=args, typ=typ):
            return hir.Call(func, tuple(_unquantified(arg) for arg in args), typ)
        case hir.Select(relation=hir.Reduce() as reduce):
            return _positive(node, reduce)
        case hir.Call(func="not", args=(hir.Select(relation=hir.Reduce() as reduce),)):
            return _negative(node, reduce)
        case _:
            return node


def _parts(reduce: hir.Reduce) -> tuple[str, hir.Relation, hir.Scalar] | None:
    """The quantifier, query and comparison of ``Reduce by any|all (Map the comparison)``; None for another Reduce."""
    match reduce:
        case hir.Reduce(
            input=hir.Map(input=query, scalars=(comparison,)),
            group_key=(),
            aggregates=(hir.Aggregate(func="any" | "all" as func),),
        ):
            return func, query, comparison
        case _:
            return None


def _positive(node: hir.Scalar, reduce: hir.Reduce, *, certain: bool = False) -> hir.Scalar:
    """A quantified comparison as EXISTS; ``certain``: no row's comparison is NULL."""
    parts = _parts(reduce)
    if parts is None:
        return node
    func, query, comparison = parts
    if func == "any":
        return hir.Exists(hir.Filter(query, (comparison,)))
    # ALL: no row's comparison may be false or NULL.
    fails = hir.Call("not", (comparison,), BOOLEAN)
    return _none(query, fails if certain else _or_null(fails, comparison))


def _negative(node: hir.Scalar, reduce: hir.Reduce) -> hir.Scalar:
    parts = _parts(reduce)
    if parts is None:
        return node
    func, query, comparison = parts
    if func == "any":
        # Negated ANY: no row's comparison may be true or NULL.
        return _none(query, _or_null(comparison, comparison))
    return hir.Exists(hir.Filter(query, (hir.Call("not", (comparison,), BOOLEAN),)))


def _none(query: hir.Relation, condition: hir.Scalar) -> hir.Scalar:
    return hir.Call("not", (hir.Exists(hir.Filter(query, (condition,))),), BOOLEAN)


def _or_null(condition: hir.Scalar, comparison: hir.Scalar) -> hir.Scalar:
    return hir.Call("or", (condition, hir.Call("is_null", (comparison,), BOOLEAN)), BOOLEAN)
