"""ReduceReduction: splits a Reduce whose aggregates are kept in different ways into a join of Reduces, one for each
way.

Promise: off unless `enable_reduce_reduction` is set; otherwise lowering collates the kinds in one node. The parts
have the same groups, so joined on the whole key (NULLs included) each row meets one row of each.
Source: Materialize's transform `ReduceReduction`.
"""

from __future__ import annotations

import msgspec

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.transform.context import OptimizerContext
from mzsql.transform.visit import project, rewrite

#: The kinds of aggregates, in the order in which their parts are joined.
_KINDS = ("accumulable", "hierarchical", "basic")


def reduce_reduction(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Split the Reduces of several kinds everywhere, bottom-up."""
    return rewrite(rel, _split) if ctx.features.enable_reduce_reduction else rel


def _split(rel: mir.Relation) -> mir.Relation:
    if not isinstance(rel, mir.Reduce):
        return rel
    kinds = [functions.aggregate(a.func).kind for a in rel.aggregates]
    present = [kind for kind in _KINDS if kind in kinds]
    if len(present) < 2:
        return rel
    width = len(rel.group_key)
    parts: list[mir.Relation] = []
    place: dict[int, int] = {}
    starts: list[int] = []
    total = 0
    for kind in present:
        own = [n for n, of in enumerate(kinds) if of == kind]
        starts.append(total)
        place.update((n, total + width + i) for i, n in enumerate(own))
        total += width + len(own)
        aggregates = tuple(rel.aggregates[n] for n in own)
        parts.append(msgspec.structs.replace(rel, aggregates=aggregates))
    classes = tuple(tuple(sc.Column(start + column) for start in starts) for column in range(width))
    outputs = [*range(width), *(place[n] for n in range(len(kinds)))]
    return project(mir.Join(tuple(parts), classes), outputs)
