"""MFPs over rows with another layout: permuted to an arrangement's row, or split by the columns that exist so far.

Promise: pure functions. What an MFP computes stays the same; only the positions of its columns change.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.expr import scalar as sc
from mzsql.expr.mfp import MapFilterProject
from mzsql.lir import plan as lir


def permuted(mfp: MapFilterProject, place: Mapping[int, int], arity: int) -> MapFilterProject:
    """The same MFP over rows of `arity` columns in which input column i is at position ``place[i]``."""
    moved = dict(place)
    for offset in range(len(mfp.expressions)):
        moved[mfp.input_arity + offset] = arity + offset
    return MapFilterProject(
        arity,
        tuple(sc.permute(expr, moved) for expr in mfp.expressions),
        tuple(placed(sc.permute(pred, moved)) for _, pred in mfp.predicates),
        tuple(moved[column] for column in mfp.projection),
    )


def over_arrangement(mfp: MapFilterProject, form: lir.ArrangementForm) -> MapFilterProject:
    """The same MFP over the key ++ value rows of an arrangement."""
    width = len(form.key) + len(form.thinning)
    return permuted(mfp, dict(enumerate(form.permutation)), width)


def demand(mfp: MapFilterProject) -> frozenset[int]:
    """The input columns that the MFP reads."""
    seen: set[int] = set(mfp.projection)
    for expr in mfp.expressions:
        seen |= sc.support(expr)
    for _, pred in mfp.predicates:
        seen |= sc.support(pred)
    return frozenset(column for column in seen if column < mfp.input_arity)


def split(
    mfp: MapFilterProject, place: Mapping[int, int], arity: int
) -> tuple[MapFilterProject, MapFilterProject]:
    """Split an MFP into what can be computed when only the columns in `place` exist, and the rest.

    Args:
        mfp: the whole.
        place: input columns of `mfp` that exist, with their positions in rows of `arity` columns.
        arity: the width of these rows.

    Returns:
        `before`, over these rows, whose output is the row followed by what it computed; and `after`, over the input
            columns of `mfp` followed by what `before` computed. Expressions without columns (literals) stay in
            `after`, so that they are not carried.
    """
    known = dict(place)
    early: list[sc.Scalar] = []
    late: list[sc.Scalar] = []
    renamed: dict[int, int] = {column: column for column in range(mfp.input_arity)}
    late_columns: list[int] = []
    for offset, expr in enumerate(mfp.expressions):
        column = mfp.input_arity + offset
        reads = sc.support(expr)
        if reads and all(c in known for c in reads):
            renamed[column] = mfp.input_arity + len(early)
            known[column] = arity + len(early)
            early.append(sc.permute(expr, known))
        else:
            late_columns.append(column)
    width = mfp.input_arity + len(early)
    for offset, column in enumerate(late_columns):
        renamed[column] = width + offset
    for column in late_columns:
        late.append(sc.permute(mfp.expressions[column - mfp.input_arity], renamed))
    now: list[tuple[int, sc.Scalar]] = []
    later: list[tuple[int, sc.Scalar]] = []
    for _, pred in mfp.predicates:
        reads = sc.support(pred)
        if all(c in known for c in reads):
            now.append(placed(sc.permute(pred, known)))
        else:
            later.append(placed(sc.permute(pred, renamed)))
    before = MapFilterProject(arity, tuple(early), tuple(now), tuple(range(arity + len(early))))
    after = MapFilterProject(
        width, tuple(late), tuple(later), tuple(renamed[c] for c in mfp.projection)
    )
    return before, after


def placed(pred: sc.Scalar) -> tuple[int, sc.Scalar]:
    """A predicate, preceded by the earliest position at which it can be evaluated."""
    return max((c + 1 for c in sc.support(pred)), default=0), pred
