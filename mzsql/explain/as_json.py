"""Plans as JSON, for programs: two spaces a level, no final newline."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mzsql.explain.config import Humanizer
from mzsql.explain.json_physical import physical_plans
from mzsql.explain.json_relations import mir_plans, raw, relation
from mzsql.explain.json_scalars import Node
from mzsql.explain.mir import pushed_filters
from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import Relation
from mzsql.frontend import hir
from mzsql.lir import plan as lir
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId


def lir_json(desc: lir.DataflowDescription, humanizer: Humanizer) -> str:
    """EXPLAIN PHYSICAL PLAN AS JSON."""
    return _text(physical_plans(desc, humanizer))


def mir_json(
    df: MirDataflow,
    humanizer: Humanizer,
    pushed: Mapping[GlobalId, MapFilterProject | None] | None = None,
) -> str:
    """EXPLAIN OPTIMIZED PLAN AS JSON. `pushed`: what lowering pushes into the reads of its sources."""
    filters = {gid: pushed_filters(mfp) for gid, mfp in (pushed or {}).items()}
    return _text(mir_plans(df, humanizer, filters))


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
