"""Which relations never have negative multiplicities.

Promise: True only if it is certain. A union that subtracts from a relation what is surely part of it is not negative
either. In a recursion a binding counts as non-negative as long as that follows from itself, because it starts empty.
Source: the analysis `NonNegative` of Materialize's `mz_transform`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.expr import relation as mir
from mzsql.expr.scalar import Column


def non_negative(rel: mir.Relation, locals_: Mapping[int, bool]) -> bool:
    """Whether no row of `rel` can have a negative multiplicity; `locals_` says the same of its bindings."""
    match rel:
        case mir.Constant(rows=rows):
            return all(diff >= 0 for _, diff in rows)
        case mir.Get(id=gid):
            return locals_.get(gid, False) if isinstance(gid, int) else True
        case mir.Negate():
            return False
        case mir.Threshold() | mir.Reduce() | mir.TopK():
            return True
        case mir.Let(id=local, value=value, body=body):
            return non_negative(body, {**locals_, local: non_negative(value, locals_)})
        case mir.LetRec(body=body):
            return non_negative(body, {**locals_, **recursive_signs(rel, locals_)})
        case mir.Union(inputs=inputs):
            return all(non_negative(part, locals_) for part in inputs) or _is_difference(
                inputs, locals_
            )
        case _:
            return all(non_negative(part, locals_) for part in mir.inputs(rel))


def recursive_signs(rel: mir.LetRec, locals_: Mapping[int, bool]) -> dict[int, bool]:
    """Which bindings of a recursion are never negative."""
    claimed = dict.fromkeys(rel.ids, True)
    while True:
        derived: dict[int, bool] = {}
        for local, value in zip(rel.ids, rel.values, strict=True):
            sign = claimed[local] and non_negative(value, {**locals_, **claimed, **derived})
            derived[local] = sign
        if derived == claimed:
            return claimed
        claimed = derived


def _is_difference(inputs: tuple[mir.Relation, ...], locals_: Mapping[int, bool]) -> bool:
    """Whether a union consists of a relation and the negation of a part of it."""
    match inputs:
        case (whole, mir.Negate(input=part)) | (mir.Negate(input=part), whole):
            return non_negative(whole, locals_) and is_subset(part, whole)
        case _:
            return False


def is_subset(part: mir.Relation, whole: mir.Relation) -> bool:
    """Whether `part` surely has at most the rows of `whole`, which is non-negative: it filters it or takes distinct
    rows of it.
    """
    while True:
        if part == whole:
            return True
        match part, whole:
            case mir.Project(input=a, outputs=x), mir.Project(input=b, outputs=y) if x == y:
                part, whole = a, b
            case mir.Map(input=a, scalars=x), mir.Map(input=b, scalars=y) if x == y:
                part, whole = a, b
            case (
                mir.Reduce(input=a, group_key=x, aggregates=()),
                mir.Reduce(input=b, group_key=y, aggregates=()),
            ) if x == y:
                part, whole = a, b
            case ((mir.Filter() | mir.TopK() | mir.Threshold()), _):
                part = part.input
            case mir.Reduce(aggregates=(), input=inner), _ if _keeps_all(part, inner):
                part = inner
            case _:
                return False


def _keeps_all(part: mir.Reduce, inner: mir.Relation) -> bool:
    """Whether a DISTINCT is over all columns unchanged, so that each of its rows is one of the input's."""
    return part.group_key == tuple(Column(i) for i in range(mir.arity(inner)))
