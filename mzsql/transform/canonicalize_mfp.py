"""CanonicalizeMfp: brings each run of maps, filters and projections into one normal form.

Promise: the run is optimized, then written as map, filter, project, below a Negate rather than above it. Cheap
predicates come first, but none that can fail before one that it followed (except casts of dates in years beyond
timestamps' range, which are treated as if they could not fail). Columns that are just an error are not part of a
run: they stay above the filter that says when there is one.
Source: Materialize's transform `CanonicalizeMfp`.
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
    """Normalize every run, top-down, since a run is treated as a whole."""
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
        # An MFP works row by row, so it may move below the Negate, where it joins the operators there.
        return mir.Negate(canonicalize_mfp(to_relation(mfp, below.input)))
    kids = mir.inputs(below)
    new = replace_inputs(below, kids, [canonicalize_mfp(kid) for kid in kids])
    return new if mfp.is_identity else to_relation(canonical(mfp), new)


def _puts_out_error(rel: mir.Relation) -> bool:
    return isinstance(rel, mir.Map) and any(isinstance(s, sc.LiteralError) for s in rel.scalars)


def canonical(mfp: MapFilterProject) -> MapFilterProject:
    """The optimized MFP, its predicates in the order that a Filter has."""
    known: dict[MapFilterProject, MapFilterProject] = memo("canonical")
    found = known.get(mfp)
    if found is None:
        done = mfp.optimize()
        preds = ordered([pred for _, pred in done.predicates], by_cost, _waits)
        found = msgspec.structs.replace(done, predicates=tuple(placed(pred) for pred in preds))
        known[mfp] = found
    return found


#: Casts that fail only for years that hardly any row has.
_LATE = frozenset({"date_to_timestamp", "date_to_timestamptz"})


def _waits(pred: sc.Scalar) -> bool:
    """Whether a predicate can fail for rows that earlier predicates are meant to drop."""
    return may_error(pred) and any(
        isinstance(node, sc.LiteralError)
        or (isinstance(node, sc.Call) and node.func not in _LATE and can_fail(node))
        for node in sc.walk(pred)
    )
