"""UnionBranchCancellation: a branch of a union and its negation cancel out.

Source: Materialize's transform `UnionBranchCancellation`.
"""

from __future__ import annotations

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.parts import kinds_of
from mzsql.expr.typing import relation_type
from mzsql.transform.visit import rewrite

_WHERE = kinds_of(mir.Negate)


def union_branch_cancellation(rel: mir.Relation) -> mir.Relation:
    """Remove pairs of X and -X."""
    return rewrite(rel, _cancel, memo("union_branch_cancellation"), where=_WHERE)


def _cancel(rel: mir.Relation) -> mir.Relation:
    if not isinstance(rel, mir.Union):
        return rel
    kept: list[mir.Relation] = []
    for part in rel.inputs:
        opposite = _negation(part)
        if opposite in kept:
            kept.remove(opposite)
        else:
            kept.append(part)
    if len(kept) == len(rel.inputs):
        return rel
    if not kept:
        return mir.Constant((), relation_type(rel))
    return kept[0] if len(kept) == 1 else mir.Union(tuple(kept))


def _negation(part: mir.Relation) -> mir.Relation:
    """What cancels `part`: its negation, with the Negate where a normalized plan has it (also below row-wise
    operators).
    """
    match part:
        case mir.Negate(input=inner):
            return inner
        case mir.Project(input=inner, outputs=outputs) if _has_negate(inner):
            return mir.Project(_negation(inner), outputs)
        case mir.Map(input=inner, scalars=scalars) if _has_negate(inner):
            return mir.Map(_negation(inner), scalars)
        case mir.Filter(input=inner, predicates=predicates) if _has_negate(inner):
            return mir.Filter(_negation(inner), predicates)
        case _:
            return mir.Negate(part)


def _has_negate(part: mir.Relation) -> bool:
    while isinstance(part, mir.Project | mir.Map | mir.Filter):
        part = part.input
    return isinstance(part, mir.Negate)
