"""Plans as JSON, indented by two spaces, without a final newline."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mzsql.explain.config import Humanizer
from mzsql.explain.fast_path import fast_path_node
from mzsql.explain.json_physical import physical_plans
from mzsql.explain.json_raw import raw
from mzsql.explain.json_relations import mir_plans, relation
from mzsql.explain.json_scalars import Node
from mzsql.explain.mir import pushed_filters
from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import Relation
from mzsql.frontend import hir
from mzsql.lir import plan as lir
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId
from mzsql.transform.fast_path import FastPathPlan


def lir_json(desc: lir.DataflowDescription, humanizer: Humanizer) -> str:
    """EXPLAIN PHYSICAL PLAN AS JSON."""
    return _text(physical_plans(desc, humanizer))


def mir_json(
    df: MirDataflow,
    humanizer: Humanizer,
    pushed: Mapping[GlobalId, MapFilterProject | None] | None = None,
    *,
    arranged_first: bool = False,
) -> str:
    """EXPLAIN OPTIMIZED PLAN AS JSON.

    Args:
        df: the dataflow.
        humanizer: names ids.
        pushed: the MFPs that lowering pushes into the reads of sources.
        arranged_first: whether joins were ordered with arranged inputs first.
    """
    filters = {gid: pushed_filters(mfp) for gid, mfp in (pushed or {}).items()}
    return _text(mir_plans(df, humanizer, filters, arranged_first=arranged_first))


def fast_path_json(plan: FastPathPlan, humanizer: Humanizer) -> str:
    """EXPLAIN OPTIMIZED or PHYSICAL PLAN AS JSON of a query without a dataflow."""
    return _text(fast_path_node(plan, humanizer))


def relation_json(rel: Relation) -> str:
    """EXPLAIN DECORRELATED or LOCALLY OPTIMIZED PLAN AS JSON."""
    with deep():
        return _text(relation(rel))


def hir_json(query: hir.Query) -> str:
    """EXPLAIN RAW PLAN AS JSON."""
    with deep():
        return _text(raw(query.relation))


def _text(value: Node) -> str:
    with deep():
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
