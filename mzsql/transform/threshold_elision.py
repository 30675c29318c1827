"""ThresholdElision: removes Thresholds over what is never negative; one over what is never positive is empty.

Source: Materialize's transform `ThresholdElision`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.expr import relation as mir
from mzsql.expr.parts import kinds_of, part_of, parts
from mzsql.expr.typing import relation_type
from mzsql.transform.non_negative import non_negative, recursive_signs
from mzsql.transform.visit import replace_inputs

_WHERE = kinds_of(mir.Threshold)


def threshold_elision(rel: mir.Relation) -> mir.Relation:
    """Remove the Thresholds that do nothing, and make those empty that leave nothing."""
    return _visit(rel, {}) if part_of(rel, parts()).kinds & _WHERE else rel


def _visit(rel: mir.Relation, locals_: Mapping[int, bool]) -> mir.Relation:
    if isinstance(rel, mir.Let):
        value = _visit(rel.value, locals_)
        known = {**locals_, rel.id: non_negative(rel.value, locals_)}
        return mir.Let(rel.id, value, _visit(rel.body, known))
    if isinstance(rel, mir.LetRec):
        locals_ = {**locals_, **recursive_signs(rel, locals_)}
    kids = mir.inputs(rel)
    new = replace_inputs(rel, kids, [_visit(kid, locals_) for kid in kids])
    if isinstance(rel, mir.Threshold) and non_negative(rel.input, locals_):
        assert isinstance(new, mir.Threshold)
        return new.input
    match rel:
        case mir.Threshold(input=mir.Negate(input=inner)) if non_negative(inner, locals_):
            return mir.Constant((), relation_type(rel))
    return new
