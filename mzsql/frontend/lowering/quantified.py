"""Conditions of a filter in forms that decorrelate well.

Promise: `certain` keeps the value of a scalar; of the predicates of `conjuncts` a row passes all exactly if it passed the given one.
``x = ANY (query)`` (so IN) becomes an EXISTS, ``x <> ALL`` (so NOT IN) and ALL the negation of one; that holds where no comparison is
unknown, and where NULL and false mean the same: for what AND and OR put together at the top of a filter.
"""

from __future__ import annotations

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.repr.types import BOOLEAN


def conjuncts(predicate: hir.Scalar) -> list[hir.Scalar]:
    """The predicate with `true` in place of every conjunct that has a subquery, then those, quantified comparisons as EXISTS."""
    found: list[hir.Scalar] = []

    def take(node: hir.Scalar) -> hir.Scalar:
        if isinstance(node, hir.Call) and node.func == "and":
            return hir.Call("and", tuple(take(arg) for arg in node.args), BOOLEAN)
        if not _has_subquery(node):
            return node
        found.append(_unquantified(node))
        return Literal(True, BOOLEAN)

    rest = take(predicate)
    return [rest, *found]


def certain(scalar: hir.Scalar) -> hir.Scalar:
    """The scalar with EXISTS in place of quantified comparisons whose answer is never unknown."""
    if not _has_subquery(scalar):
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


def _has_subquery(scalar: hir.Scalar) -> bool:
    return any(isinstance(node, hir.Exists | hir.Select) for node in hir.walk_scalar(scalar))


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
    """Quantifier, query and comparison of ``Reduce by any|all (Map the comparison)``."""
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
    """A quantified comparison as EXISTS; `certain`: no row compares unknown."""
    parts = _parts(reduce)
    if parts is None:
        return node
    func, query, comparison = parts
    if func == "any":
        return hir.Exists(hir.Filter(query, (comparison,)))
    # No row may compare false, or unknown.
    fails = hir.Call("not", (comparison,), BOOLEAN)
    return _none(query, fails if certain else _or_null(fails, comparison))


def _negative(node: hir.Scalar, reduce: hir.Reduce) -> hir.Scalar:
    parts = _parts(reduce)
    if parts is None:
        return node
    func, query, comparison = parts
    if func == "any":
        # No row may compare true, or unknown.
        return _none(query, _or_null(comparison, comparison))
    return hir.Exists(hir.Filter(query, (hir.Call("not", (comparison,), BOOLEAN),)))


def _none(query: hir.Relation, condition: hir.Scalar) -> hir.Scalar:
    return hir.Call("not", (hir.Exists(hir.Filter(query, (condition,))),), BOOLEAN)


def _or_null(condition: hir.Scalar, comparison: hir.Scalar) -> hir.Scalar:
    return hir.Call("or", (condition, hir.Call("is_null", (comparison,), BOOLEAN)), BOOLEAN)
