"""CanonicalizeMfp: each run of maps, filters and projections in one normal form.

Promise: optimized, then map, filter, project, and below a Negate rather than above; cheap predicates first, but none that can fail before
one that it stood behind (casts of dates beyond all years of timestamps aside: they are as cheap as they look). Columns that are nothing but
an error are no part of a run: they stay above the filter that says when there is one.
"""

from __future__ import annotations

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import by_cost, can_fail, ordered
from mzsql.expr.memo import memo
from mzsql.expr.mfp import MapFilterProject, extract_mfp, placed, to_relation
from mzsql.transform.scalars import may_error
from mzsql.transform.visit import kept, replace_inputs


def canonicalize_mfp(rel: mir.Relation) -> mir.Relation:
    """Normalize every run, top-down (a run is taken as a whole)."""
    known = memo("canonicalize_mfp")
    if id(rel) not in known:
        known[id(rel)] = rel, kept(rel, _canonicalized(rel))
    found: mir.Relation = known[id(rel)][1]
    return found


def _canonicalized(rel: mir.Relation) -> mir.Relation:
    if _puts_out_error(rel):
        return replace_inputs(rel, mir.inputs(rel), [canonicalize_mfp(k) for k in mir.inputs(rel)])
    mfp, below = extract_mfp(rel, until=_puts_out_error)
    if isinstance(below, mir.Negate) and not mfp.is_identity:
        # Row by row it is the same below, where it is one run with what stands there.
        return mir.Negate(canonicalize_mfp(to_relation(mfp, below.input)))
    kids = mir.inputs(below)
    new = replace_inputs(below, kids, [canonicalize_mfp(kid) for kid in kids])
    return new if mfp.is_identity else to_relation(canonical(mfp), new)


def _puts_out_error(rel: mir.Relation) -> bool:
    return isinstance(rel, mir.Map) and any(isinstance(s, sc.LiteralError) for s in rel.scalars)


def canonical(mfp: MapFilterProject) -> MapFilterProject:
    """The optimized MFP, its predicates in the order in which a Filter has them."""
    known: dict[MapFilterProject, MapFilterProject] = memo("canonical")
    found = known.get(mfp)
    if found is None:
        done = mfp.optimize()
        preds = ordered([pred for _, pred in done.predicates], by_cost, _waits)
        found = msgspec.structs.replace(done, predicates=tuple(placed(pred) for pred in preds))
        known[mfp] = found
    return found


#: Casts that fail for years that hardly any row has.
_LATE = frozenset({"date_to_timestamp", "date_to_timestamptz"})


def _waits(pred: sc.Scalar) -> bool:
    """Whether a predicate can fail for rows that those before it are there to drop."""
    return may_error(pred) and any(
        isinstance(node, sc.LiteralError)
        or (isinstance(node, sc.Call) and node.func not in _LATE and can_fail(node))
        for node in sc.walk(pred)
    )
