"""CanonicalizeMfp: each run of maps, filters and projections in one normal form: optimized, then map, filter, project."""

from __future__ import annotations

from mzsql.expr import relation as mir
from mzsql.expr.mfp import extract_mfp, to_relation
from mzsql.transform.visit import replace_inputs


def canonicalize_mfp(rel: mir.Relation) -> mir.Relation:
    """Normalize every run, top-down (a run is taken as a whole)."""
    mfp, below = extract_mfp(rel)
    kids = mir.inputs(below)
    new = replace_inputs(below, kids, [canonicalize_mfp(kid) for kid in kids])
    return new if mfp.is_identity else to_relation(mfp.optimize(), new)
