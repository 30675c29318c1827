"""EXPLAIN RAW, DECORRELATED, LOCALLY OPTIMIZED and OPTIMIZED PLAN AS JSON.

Promise: every operator is ``{"<Kind>": {…}}``, its fields under the names and in the order of Materialize's plans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mzsql.explain import json_scalars as js
from mzsql.explain import variants
from mzsql.explain.config import Humanizer
from mzsql.explain.json_scalars import Node
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.dataflow import MirDataflow, PeekExport
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.typing import relation_type
from mzsql.frontend import hir
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType

_USAGES: Mapping[str, Any] = {
    "*** full scan ***": "FullScan",
    "differential join": "DifferentialJoin",
    "delta join lookup": {"DeltaJoin": "Lookup"},
    "delta join 1st input (full scan)": {"DeltaJoin": "FirstInputFullScan"},
    "plan root (no new arrangement)": "PlanRootNoArrangement",
    "index export": "IndexExport",
    "fast path limit": "FastPathLimit",
}
_JOIN_KINDS = {"inner": "Inner", "left": "LeftOuter", "right": "RightOuter", "full": "FullOuter"}
_CODES = re.compile(r"(U?)(K*)(A?)(?:\|(\d+)\|)?([a-z]*)")


def mir_plans(
    df: MirDataflow, humanizer: Humanizer, pushed: Mapping[GlobalId, MapFilterProject | None]
) -> Node:
    """A dataflow: the plans of its objects and what it reads. `pushed`: the filters within reads."""
    is_peek = isinstance(df.export, PeekExport)
    with deep():
        plans = [
            {
                "id": "Explained Query"
                if is_peek and obj is df.objects[-1]
                else humanizer.name(obj.id),
                "plan": relation(obj.plan),
            }
            for obj in reversed(df.objects)
        ]
        sources: list[Node] = []
        for source in df.source_imports:
            op = pushed.get(source.id)
            sources.append(
                {"id": js.global_id(source.id), "op": None if op is None else js.mfp(op)}
            )
    return {"plans": plans, "sources": sources}


def relation(rel: mir.Relation) -> Node:
    """A relation of MIR."""
    return {type(rel).__name__: _fields(rel)}


def _fields(rel: mir.Relation) -> Node:
    match rel:
        case mir.Constant(rows=rows, typ=typ, error=error):
            shown = [[js.packed(row, typ.columns), diff] for row, diff in rows]
            data = {"Ok": shown} if error is None else {"Err": variants.error(error)}
            return {"rows": data, "typ": variants.relation_type(typ)}
        case mir.Get(id=gid, typ=typ, access=access):
            typed = variants.relation_type(typ)
            return {"id": js.any_id(gid), "typ": typed, "access_strategy": _access(access)}
        case mir.Let(id=local, value=value, body=body):
            return {"id": local, "value": relation(value), "body": relation(body)}
        case mir.LetRec(ids=ids, values=values, limits=limits, body=body):
            return {
                "ids": list(ids),
                "values": [relation(value) for value in values],
                "limits": js.limits(limits),
                "body": relation(body),
            }
        case mir.Join(inputs=inputs, equivalences=classes):
            return {
                "inputs": [relation(part) for part in inputs],
                "equivalences": [js.scalars(cls) for cls in classes],
                "implementation": _implementation(rel),
            }
        case mir.Union(inputs=inputs):
            first, *rest = (relation(part) for part in inputs)
            return {"base": first, "inputs": rest}
        case _:
            return {"input": relation(rel.input), **_own_fields(rel)}


def _own_fields(rel: mir.Relation) -> Node:
    """The fields of an operator with one input."""
    match rel:
        case mir.Project(outputs=outputs):
            return {"outputs": list(outputs)}
        case mir.Map(scalars=exprs):
            return {"scalars": js.scalars(exprs)}
        case mir.FlatMap(func=func, exprs=exprs, output=output):
            return {"func": variants.table_func(func, output), "exprs": js.scalars(exprs)}
        case mir.Filter(predicates=predicates):
            return {"predicates": js.scalars(predicates)}
        case mir.Reduce():
            return {
                "group_key": js.scalars(rel.group_key),
                "aggregates": [js.aggregate(aggr) for aggr in rel.aggregates],
                "monotonic": rel.monotonic,
                "expected_group_size": rel.expected_group_size,
            }
        case mir.TopK():
            return {
                "group_key": list(rel.group_key),
                "order_key": js.order(rel.order_key),
                "limit": None if rel.limit is None else js.scalar(rel.limit),
                "offset": rel.offset,
                "monotonic": rel.monotonic,
                "expected_group_size": rel.expected_group_size,
            }
        case mir.ArrangeBy(keys=keys):
            return {"keys": [js.scalars(key) for key in keys]}
        case _:
            return {}


def _access(access: mir.AccessPersist | mir.AccessIndex | mir.AccessLocal) -> Any:
    match access:
        case mir.AccessPersist():
            return "Persist"
        case mir.AccessIndex(uses=uses):
            return {"Index": [[js.global_id(index), _usage(index, use)] for index, use in uses]}
        case _:
            return "UnknownOrLocal"


def _usage(index: GlobalId, usage: str) -> Any:
    return {"Lookup": js.global_id(index)} if usage == "lookup" else _USAGES.get(usage, "Unknown")


def _implementation(join: mir.Join) -> Any:
    match join.implementation:
        case mir.Differential(start=start, start_key=key, order=order):
            listed = None if key is None else js.scalars(key)
            codes = _characteristics(
                start, len(key or ()), join.implementation.start_characteristics
            )
            return {"Differential": [[start, listed, codes], [_step(step) for step in order]]}
        case mir.DeltaQuery(orders=orders):
            return {"DeltaQuery": [[_step(step) for step in order] for order in orders]}
        case mir.IndexedFilter(coll=coll, index=index, key=key, rows=rows):
            columns = relation_type(join.inputs[1], {}).columns[: len(key)]
            shown = [js.packed(row, columns) for row in rows]
            return {
                "IndexedFilter": [js.global_id(coll), js.global_id(index), js.scalars(key), shown]
            }
        case _:
            return "Unimplemented"


def _step(step: mir.JoinInputOrder) -> list[Any]:
    codes = _characteristics(step.input, len(step.key), step.characteristics)
    return [step.input, js.scalars(step.key), codes]


def _characteristics(position: int, key_length: int, codes: str) -> Node:
    """What an input of a join was chosen for, from EXPLAIN's letters (``UKA|10|ef``)."""
    match = _CODES.match(codes)
    assert match is not None
    unique, _, arranged, cardinality, filters = match.groups()
    return {
        "V1": {
            "unique_key": bool(unique),
            "key_length": key_length,
            "arranged": bool(arranged),
            "cardinality": None if cardinality is None else int(cardinality),
            "filters": {
                "literal_equality": "e" in filters,
                "like": "l" in filters,
                "is_null": "n" in filters,
                "literal_inequality": filters.count("i"),
                "any_filter": "f" in filters,
            },
            "input": position,
        }
    }


# --- HIR -----------------------------------------------------------------------------------------


def raw(rel: hir.Relation) -> Node:
    """A relation of HIR."""
    return {type(rel).__name__: _raw_fields(rel)}


def _raw_fields(rel: hir.Relation) -> Node:
    match rel:
        case hir.Constant(rows=rows, typ=typ):
            shown = [js.packed(row, typ.columns) for row in rows]
            return {"rows": shown, "typ": variants.relation_type(typ)}
        case hir.Get(id=gid, typ=typ):
            return {"id": js.any_id(gid), "typ": variants.relation_type(typ)}
        case hir.Let(name=name, id=local, value=value, body=body):
            return {"name": name, "id": local, "value": raw(value), "body": raw(body)}
        case hir.LetRec(bindings=bindings, limit=limit, body=body):
            return {
                "limit": None if limit is None else js.limit(limit),
                "bindings": [
                    [b.name, b.id, raw(b.value), variants.relation_type(b.typ)] for b in bindings
                ],
                "body": raw(body),
            }
        case hir.CallTable(func=func, exprs=exprs, output=output):
            return {
                "func": variants.table_func(func, output),
                "exprs": [raw_scalar(e) for e in exprs],
            }
        case hir.Join(left=left, right=right, on=on, kind=kind):
            shown_on = raw_scalar(on)
            return {
                "left": raw(left),
                "right": raw(right),
                "on": shown_on,
                "kind": _JOIN_KINDS[kind],
            }
        case hir.Union(inputs=inputs):
            first, *rest = (raw(part) for part in inputs)
            return {"base": first, "inputs": rest}
        case _:
            return {"input": raw(rel.input), **_own_raw_fields(rel)}


def _own_raw_fields(rel: hir.Relation) -> Node:
    match rel:
        case hir.Project(outputs=outputs):
            return {"outputs": list(outputs)}
        case hir.Map(scalars=exprs):
            return {"scalars": [raw_scalar(e) for e in exprs]}
        case hir.Filter(predicates=predicates):
            return {"predicates": [raw_scalar(p) for p in predicates]}
        case hir.Reduce():
            return {
                "group_key": list(rel.group_key),
                "aggregates": [_raw_aggregate(aggr) for aggr in rel.aggregates],
                "expected_group_size": rel.expected_group_size,
            }
        case hir.TopK():
            return {
                "group_key": list(rel.group_key),
                "order_key": js.order(rel.order_key),
                "limit": None if rel.limit is None else raw_scalar(rel.limit),
                "offset": rel.offset,
                "expected_group_size": rel.expected_group_size,
            }
        case _:
            return {}


def _raw_aggregate(aggr: hir.Aggregate) -> Node:
    func = variants.aggregate_func(aggr.func)
    return {"func": func, "expr": raw_scalar(aggr.expr), "distinct": aggr.distinct}


def raw_scalar(expr: hir.Scalar) -> Node:
    """A scalar of HIR."""
    match expr:
        case hir.Column(index=index, level=level):
            return {"Column": {"level": level, "column": index}}
        case sc.Literal(value=value, typ=typ):
            column = ColumnType(typ, value is None)
            return {"Literal": [js.packed((value,), (column,)), variants.column_type(column)]}
        case sc.LiteralError() | sc.Unmaterializable():
            return js.scalar(expr)
        case hir.If(condition=c, then=t, otherwise=o):
            return {"If": {"cond": raw_scalar(c), "then": raw_scalar(t), "els": raw_scalar(o)}}
        case hir.Exists(relation=inner):
            return {"Exists": raw(inner)}
        case hir.Select(relation=inner):
            return {"Select": raw(inner)}
        case hir.Windowing():
            return {"Windowing": _windowing(expr)}
        case hir.Call():
            return js.call(expr, raw_scalar)


def _windowing(expr: hir.Windowing) -> Node:
    return {
        "func": {variants.camel(expr.kind): variants.camel(expr.func)},
        "args": [raw_scalar(arg) for arg in expr.args],
        "partition_by": [raw_scalar(e) for e in expr.partition_by],
        "order_by": [
            {"expr": raw_scalar(o.expr), "desc": o.desc, "nulls_last": o.nulls_last}
            for o in expr.order_by
        ],
        "ignore_nulls": expr.ignore_nulls,
    }
