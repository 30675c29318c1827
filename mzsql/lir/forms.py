"""The forms in which the nodes of a physical plan output their rows: raw, or arranged by which keys in which layout.

Promise: pure functions of the plan. Lowering uses them to decide, rendering to find what a lookup reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from mzsql.expr.scalar import Column, Scalar
from mzsql.lir import plan as lir

RAW = lir.AvailableCollections(raw=True)
#: The nodes that output their rows only arranged, in a form that they name, such as Threshold.
_ARRANGING: tuple[Any, ...] = tuple(
    node for node in get_args(lir.Plan) if "ensure_arrangement" in node.__struct_fields__
)


def arrangement_form(key: Sequence[Scalar], arity: int) -> lir.ArrangementForm:
    """The arrangement of a collection of `arity` columns by `key`. A column that is itself part of the key is not
    repeated in the value.
    """
    place: dict[int, int] = {}
    for position, expr in enumerate(key):
        if isinstance(expr, Column):
            place.setdefault(expr.index, position)
    thinning = tuple(column for column in range(arity) if column not in place)
    for offset, column in enumerate(thinning):
        place[column] = len(key) + offset
    return lir.ArrangementForm(tuple(key), tuple(place[c] for c in range(arity)), thinning)


def form_by_key(
    forms: lir.AvailableCollections, key: Sequence[Scalar]
) -> lir.ArrangementForm | None:
    """The arrangement by exactly `key`; None if there is none."""
    wanted = tuple(key)
    return next((form for form in forms.arranged if form.key == wanted), None)


def reduce_form(key_arity: int, output_arity: int) -> lir.ArrangementForm:
    """The arrangement of a Reduce's output: by its leading `key_arity` columns."""
    return arrangement_form([Column(i) for i in range(key_arity)], output_arity)


def forms_of(plan: lir.Plan) -> lir.AvailableCollections:
    """The forms in which `plan` outputs its rows."""
    while isinstance(plan, lir.Let | lir.LetRec):
        plan = plan.body
    match plan:
        case lir.Get(keys=keys, plan=how):
            return keys if isinstance(how, lir.PassArrangements) else RAW
        case lir.Reduce(key_val=key_val, mfp_after=after):
            form = reduce_form(key_val.key_plan.output_arity, after.output_arity)
            return lir.AvailableCollections(raw=False, arranged=(form,))
        case lir.ArrangeBy(forms=forms):
            return forms
        case _ if isinstance(plan, _ARRANGING):
            types = forms_of(plan.input).types
            return lir.AvailableCollections(False, (plan.ensure_arrangement,), types)
        case _:
            return RAW
