"""Plans as JSON: the structs of a stage, under the names EXPLAIN uses.

Promise: every node of a physical plan is ``{"lir_id": …, "node": {"<Kind>": {…fields}}}``; ids are always there. No final newline.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mzsql.explain.config import Humanizer
from mzsql.expr.dataflow import MirDataflow, PeekExport
from mzsql.expr.relation import Relation
from mzsql.frontend.depth import deep
from mzsql.lir import plan as lir


def lir_json(desc: lir.DataflowDescription, humanizer: Humanizer) -> str:
    """EXPLAIN PHYSICAL PLAN AS JSON."""
    is_peek = isinstance(desc.export, PeekExport)
    with deep():
        plans = [
            {
                "id": "Explained Query" if is_peek else humanizer.name(obj.id),
                "plan": _node(obj.plan),
            }
            for obj in reversed(desc.objects)
        ]
    sources = [
        {"id": humanizer.name(source.id), "op": msgspec.to_builtins(source.mfp)}
        for source in desc.source_imports
    ]
    return _text({"plans": plans, "sources": sources})


def mir_json(df: MirDataflow, humanizer: Humanizer) -> str:
    """EXPLAIN OPTIMIZED PLAN AS JSON."""
    is_peek = isinstance(df.export, PeekExport)
    plans = [
        {
            "id": "Explained Query" if is_peek else humanizer.name(obj.id),
            "plan": msgspec.to_builtins(obj.plan),
        }
        for obj in reversed(df.objects)
    ]
    return _text({"plans": plans, "sources": [humanizer.name(s.id) for s in df.source_imports]})


def relation_json(rel: Relation) -> str:
    """EXPLAIN DECORRELATED PLAN AS JSON."""
    return _text(msgspec.to_builtins(rel))


def _text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _node(plan: lir.Plan) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in plan.__struct_fields__:
        if name == "lir_id":
            continue
        fields[name] = _field(getattr(plan, name))
    return {"lir_id": plan.lir_id, "node": {type(plan).__name__: fields}}


def _field(value: Any) -> Any:
    """A field: nodes as nodes, all else as plain data."""
    if isinstance(value, lir.Plan):
        return _node(value)
    if isinstance(value, tuple) and value and isinstance(value[0], lir.Plan):
        return [_node(part) for part in value]
    return msgspec.to_builtins(value)
