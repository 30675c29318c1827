"""EXPLAIN DECORRELATED, LOCALLY OPTIMIZED and OPTIMIZED PLAN AS JSON: MIR.

Promise: every operator is ``{"<Kind>": {…}}``, with Materialize's fields in Materialize's order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from mzsql.explain import json_scalars as js
from mzsql.explain import variants
from mzsql.explain.config import Humanizer
from mzsql.explain.json_scalars import Node
from mzsql.expr import relation as mir
from mzsql.expr.dataflow import MirDataflow, PeekExport
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.typing import relation_type
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId

_USAGES: Mapping[str, Any] = {
    "*** full scan ***": "FullScan",
    "differential join": "DifferentialJoin",
    "delta join lookup": {"DeltaJoin": "Lookup"},
    "delta join 1st input (full scan)": {"DeltaJoin": "FirstInputFullScan"},
    "plan root (no new arrangement)": "PlanRootNoArrangement",
    "index export": "IndexExport",
    "fast path limit": "FastPathLimit",
}
_CODES = re.compile(r"(U?)(K*)(A?)(?:\|(\d+)\|)?([a-z]*)")


class Where(NamedTuple):
    """The dataflow that a relation is part of: the objects that it builds, and whether its joins put arranged inputs
    first.
    """

    built: frozenset[GlobalId]
    arranged_first: bool


NOWHERE = Where(frozenset(), False)


def mir_plans(
    df: MirDataflow,
    humanizer: Humanizer,
    pushed: Mapping[GlobalId, MapFilterProject | None],
    *,
    arranged_first: bool = False,
) -> Node:
    """A dataflow: the plans of its objects, and what it reads.

    Args:
        df: the dataflow.
        humanizer: names ids.
        pushed: the filters in reads.
        arranged_first: whether joins were ordered with arranged inputs first.
    """
    is_peek = isinstance(df.export, PeekExport)
    where = Where(frozenset(obj.id for obj in df.objects), arranged_first)
    with deep():
        plans = [
            {
                "id": "Explained Query"
                if is_peek and obj is df.objects[-1]
                else humanizer.name(obj.id),
                "plan": relation(obj.plan, where),
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


def relation(rel: mir.Relation, where: Where = NOWHERE) -> Node:
    """A relation of MIR; ``where`` is the dataflow that it is part of."""
    return {type(rel).__name__: _fields(rel, where)}


def _fields(rel: mir.Relation, where: Where) -> Node:
    def part(inner: mir.Relation) -> Node:
        return relation(inner, where)

    match rel:
        case mir.Constant(rows=rows, typ=typ, error=error):
            shown = [[js.packed(row, typ.columns), diff] for row, diff in rows]
            data = {"Ok": shown} if error is None else {"Err": variants.error(error)}
            return {"rows": data, "typ": variants.relation_type(typ)}
        case mir.Get(id=gid, typ=typ, access=access):
            typed = variants.relation_type(typ)
            strategy = "SameDataflow" if gid in where.built else _access(access)
            return {"id": js.any_id(gid), "typ": typed, "access_strategy": strategy}
        case mir.Let(id=local, value=value, body=body):
            return {"id": local, "value": part(value), "body": part(body)}
        case mir.LetRec(ids=ids, values=values, limits=limits, body=body):
            return {
                "ids": list(ids),
                "values": [part(value) for value in values],
                "limits": js.limits(limits),
                "body": part(body),
            }
        case mir.Join(inputs=inputs, equivalences=classes):
            return {
                "inputs": [part(inner) for inner in inputs],
                "equivalences": [js.scalars(cls) for cls in classes],
                "implementation": _implementation(rel, where),
            }
        case mir.Union(inputs=inputs):
            first, *rest = (part(inner) for inner in inputs)
            return {"base": first, "inputs": rest}
        case _:
            return {"input": part(rel.input), **_own_fields(rel)}


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


def _implementation(join: mir.Join, where: Where) -> Any:
    first = where.arranged_first
    match join.implementation:
        case mir.Differential(start=start, start_key=key, order=order):
            listed = None if key is None else js.scalars(key)
            codes = _characteristics(
                start, len(key or ()), join.implementation.start_characteristics, first
            )
            return {
                "Differential": [[start, listed, codes], [_step(step, first) for step in order]]
            }
        case mir.DeltaQuery(orders=orders):
            return {"DeltaQuery": [[_step(step, first) for step in order] for order in orders]}
        case mir.IndexedFilter(coll=coll, index=index, key=key, rows=rows):
            columns = relation_type(join.inputs[1], {}).columns[: len(key)]
            shown = [js.packed(row, columns) for row in rows]
            return {
                "IndexedFilter": [js.global_id(coll), js.global_id(index), js.scalars(key), shown]
            }
        case _:
            return "Unimplemented"


def _step(step: mir.JoinInputOrder, first: bool) -> list[Any]:
    codes = _characteristics(step.input, len(step.key), step.characteristics, first)
    return [step.input, js.scalars(step.key), codes]


def _characteristics(position: int, key_length: int, codes: str, arranged_first: bool) -> Node:
    """Why an input of a join was chosen, from EXPLAIN's letters (``UKA|10|ef``), the decisive property first."""
    match = _CODES.match(codes)
    assert match is not None
    unique, _, arranged, cardinality, filters = match.groups()
    key: Node = {"key_length": key_length, "arranged": bool(arranged)}
    if arranged_first:
        key = {"not_cross": key_length > 0, "arranged": bool(arranged), "key_length": key_length}
    found = {
        "unique_key": bool(unique),
        **key,
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
    return {"V2" if arranged_first else "V1": found}
