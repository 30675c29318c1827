"""EXPLAIN PHYSICAL PLAN AS JSON: LIR.

Promise: every node is ``{"lir_id": …, "node": {"<Kind>": {…}}}``, with Materialize's fields in Materialize's order; ids
are always included.
"""

from __future__ import annotations

from mzsql.explain import json_scalars as js
from mzsql.explain import variants
from mzsql.explain.config import Humanizer
from mzsql.explain.json_scalars import Node
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import as_stored
from mzsql.expr.dataflow import PeekExport
from mzsql.expr.functions.aggregate.aggregates import parse_ordered_key
from mzsql.expr.mfp import MapFilterProject
from mzsql.lir import plan as lir
from mzsql.lir.forms import form_by_key, forms_of
from mzsql.repr.depth import deep
from mzsql.repr.types import ColumnType

_TYPES = {"a": "Accumulable", "h": "Hierarchical", "b": "Basic"}


def physical_plans(desc: lir.DataflowDescription, humanizer: Humanizer) -> Node:
    """A dataflow: the plans of its objects, and what it reads."""
    is_peek = isinstance(desc.export, PeekExport)
    with deep():
        plans = [
            {
                "id": "Explained Query"
                if is_peek and obj is desc.objects[-1]
                else humanizer.name(obj.id),
                "plan": node(obj.plan),
            }
            for obj in reversed(desc.objects)
        ]
        sources = [
            {"id": js.global_id(s.id), "op": None if s.mfp is None else js.mfp(s.mfp)}
            for s in desc.source_imports
            if s.mfp is None or not s.mfp.is_identity
        ]
    return {"plans": plans, "sources": sources}


def node(plan: lir.Plan) -> Node:
    """A node and its inputs."""
    return {"lir_id": plan.lir_id, "node": {type(plan).__name__: _fields(plan)}}


def _fields(plan: lir.Plan) -> Node:
    match plan:
        case lir.Constant():
            return {"rows": _rows(plan)}
        case lir.Get(id=gid, keys=keys, plan=how):
            return {"id": js.any_id(gid), "keys": _forms(keys), "plan": _get(how)}
        case lir.Let(id=local, value=value, body=body):
            return {"id": local, "value": node(value), "body": node(body)}
        case lir.LetRec(ids=ids, values=values, limits=limits, body=body):
            return {
                "ids": list(ids),
                "values": [node(value) for value in values],
                "limits": js.limits(limits),
                "body": node(body),
            }
        case lir.Mfp(input=child, mfp=mfp, input_key=key):
            columns = () if plan.input_row is None else _key_columns(plan)
            row = None if plan.input_row is None else js.packed(plan.input_row, columns)
            read = None if key is None else [js.scalars(key), row]
            return {"input": node(child), "mfp": js.mfp(mfp), "input_key_val": read}
        case lir.FlatMap(input=child, func=func, output=output):
            return {
                "input": node(child),
                "func": variants.table_func(func, output),
                "exprs": js.scalars(plan.exprs),
                "mfp_after": js.mfp(plan.mfp_after),
                "input_key": _key(plan.input_key),
            }
        case lir.Join(inputs=inputs, plan=how_join):
            return {"inputs": [node(part) for part in inputs], "plan": _join(plan, how_join)}
        case lir.Reduce():
            return _reduce(plan)
        case lir.TopK(input=child, plan=topk):
            return {"input": node(child), "top_k_plan": _top_k(topk)}
        case lir.Negate(input=child):
            return {"input": node(child)}
        case lir.Threshold(input=child, ensure_arrangement=form):
            basic = {"Basic": {"ensure_arrangement": _arrangement(form)}}
            return {"input": node(child), "threshold_plan": basic}
        case lir.Union(inputs=inputs, consolidate_output=consolidate):
            return {"inputs": [node(part) for part in inputs], "consolidate_output": consolidate}
        case lir.ArrangeBy(input=child, forms=forms, input_key=key):
            return {
                "input": node(child),
                "forms": _forms(forms),
                "input_key": _key(key),
                "input_mfp": js.mfp(_read_back(plan)),
            }


def _rows(plan: lir.Constant) -> Node:
    if plan.error is not None:
        return {"Err": variants.error(plan.error)}
    rows = as_stored(plan.rows, plan.columns)
    return {"Ok": [[js.packed(row, plan.columns), 0, diff] for row, diff in rows]}


def _key_columns(plan: lir.Mfp) -> list[ColumnType]:
    types = forms_of(plan.input).types or ()
    return [ColumnType(sc.scalar_type(key, types)) for key in plan.input_key or ()]


def _key(key: tuple[sc.Scalar, ...] | None) -> list[Node] | None:
    return None if key is None else js.scalars(key)


def _arrangement(form: lir.ArrangementForm) -> list[object]:
    places = {str(i): place for i, place in enumerate(form.permutation)}
    return [js.scalars(form.key), places, list(form.thinning)]


def _forms(forms: lir.AvailableCollections) -> Node:
    known = forms.arranged and forms.types is not None
    return {
        "raw": forms.raw,
        "arranged": [_arrangement(form) for form in forms.arranged],
        "types": [variants.column_type(c) for c in forms.types or ()] if known else None,
    }


def _get(how: lir.GetPlan) -> object:
    match how:
        case lir.PassArrangements():
            return "PassArrangements"
        case lir.GetArrangement(key=key, mfp=mfp):
            return {"Arrangement": [js.scalars(key), None, js.mfp(mfp)]}
        case lir.GetCollection(mfp=mfp):
            return {"Collection": js.mfp(mfp)}


def _read_back(plan: lir.ArrangeBy) -> MapFilterProject:
    """The MFP that restores raw rows from an ArrangeBy's input."""
    if plan.input_key is not None:
        form = form_by_key(forms_of(plan.input), plan.input_key)
        if form is not None:
            width = len(form.key) + len(form.thinning)
            return MapFilterProject(width, (), (), form.permutation)
    return MapFilterProject.identity(output_arity(plan.input))


def output_arity(plan: lir.Plan) -> int:
    """The number of columns of a node's raw rows."""
    while isinstance(plan, lir.Let | lir.LetRec):
        plan = plan.body
    match plan:
        case lir.Constant(columns=columns):
            return len(columns)
        case lir.Get(plan=how, columns=columns):
            return len(columns) if isinstance(how, lir.PassArrangements) else how.mfp.output_arity
        case lir.Mfp(mfp=mfp):
            return mfp.output_arity
        case lir.FlatMap(mfp_after=after) | lir.Reduce(mfp_after=after):
            return after.output_arity
        case lir.Join():
            path = plan.plan if isinstance(plan.plan, lir.LinearJoin) else plan.plan.paths[0]
            return _path_arity(plan, path)
        case lir.TopK(plan=topk):
            return topk.arity
        case lir.Union(inputs=inputs):
            return output_arity(inputs[0])
        case _:
            return output_arity(plan.input)


def _path_arity(join: lir.Join, path: lir.LinearJoin | lir.DeltaPath) -> int:
    if path.final_closure is not None:
        return path.final_closure.output_arity
    if path.stages:
        return path.stages[-1].closure.output_arity
    if isinstance(path, lir.DeltaPath) and path.initial_closure is not None:
        return path.initial_closure.output_arity
    return output_arity(join.inputs[path.source_relation])


# --- joins ---------------------------------------------------------------------------------------


def _join(join: lir.Join, how: lir.JoinPlan) -> Node:
    match how:
        case lir.LinearJoin():
            return {"Linear": _path(how)}
        case lir.DeltaJoin(paths=paths):
            return {"Delta": {"path_plans": [_path(_explicit(join, path)) for path in paths]}}


def _explicit(join: lir.Join, path: lir.DeltaPath) -> lir.DeltaPath:
    """A delta path with its first and last closure written out, even where they do nothing."""
    width = output_arity(join.inputs[path.source_relation])
    form = form_by_key(forms_of(join.inputs[path.source_relation]), path.source_key)
    if form is not None:
        width = len(form.key) + len(form.thinning)
    last = MapFilterProject.identity(_path_arity(join, path))
    return lir.DeltaPath(
        path.source_relation,
        path.source_key,
        path.initial_closure or MapFilterProject.identity(width),
        path.stages,
        path.final_closure or last,
    )


def _path(path: lir.LinearJoin | lir.DeltaPath) -> Node:
    return {
        "source_relation": path.source_relation,
        "source_key": _key(path.source_key),
        # A linear join's first stage streams the source unchanged.
        "initial_closure": _closure(
            path.initial_closure if isinstance(path, lir.DeltaPath) else None
        ),
        "stage_plans": [
            {
                "lookup_relation": stage.lookup_relation,
                "stream_key": js.scalars(stage.stream_key),
                "stream_thinning": list(stage.stream_thinning),
                "lookup_key": js.scalars(stage.lookup_key),
                "closure": _closure(stage.closure),
            }
            for stage in path.stages
        ],
        "final_closure": _closure(path.final_closure),
    }


def _closure(mfp: MapFilterProject | None) -> Node | None:
    if mfp is None:
        return None
    return {"ready_equivalences": [], "before": {"mfp": js.mfp(mfp)}}


# --- reductions ----------------------------------------------------------------------------------


def _reduce(plan: lir.Reduce) -> Node:
    basic = plan.plan.basic if isinstance(plan.plan, lir.ReduceCollation) else plan.plan
    expression = js.scalar
    if isinstance(basic, lir.ReduceBasic) and any(
        parse_ordered_key(aggr.func) for _, aggr in basic.aggregates
    ):
        expression = js.ordered_argument
    return {
        "input": node(plan.input),
        "key_val_plan": {
            "key_plan": {"mfp": js.mfp(plan.key_val.key_plan)},
            "val_plan": {"mfp": js.mfp(plan.key_val.val_plan, expression)},
        },
        "plan": _reduce_plan(plan.plan),
        "input_key": _key(plan.input_key),
        "mfp_after": js.mfp(plan.mfp_after),
    }


def _reduce_plan(plan: lir.ReducePlan) -> object:
    match plan:
        case lir.ReduceDistinct():
            return "Distinct"
        case lir.ReduceAccumulable():
            return {"Accumulable": _accumulable(plan)}
        case lir.ReduceHierarchical():
            return {"Hierarchical": _hierarchical(plan)}
        case lir.ReduceBasic():
            return {"Basic": _basic(plan)}
        case lir.ReduceCollation(accumulable=a, hierarchical=h, basic=b, aggregate_types=types):
            return {
                "Collation": {
                    "accumulable": None if a is None else _accumulable(a),
                    "hierarchical": None if h is None else _hierarchical(h),
                    "basic": None if b is None else _basic(b),
                    "aggregate_types": [_TYPES[kind] for kind in types],
                }
            }


def _accumulable(plan: lir.ReduceAccumulable) -> Node:
    def indexed(aggrs: tuple[lir.IndexedAggregate, ...]) -> list[object]:
        return [[a.kind_index, a.output_index, js.aggregate(a.expr)] for a in aggrs]

    return {
        "full_aggrs": [js.aggregate(aggr) for aggr in plan.full],
        "simple_aggrs": indexed(plan.simple),
        "distinct_aggrs": indexed(plan.distinct),
    }


def _hierarchical(plan: lir.ReduceHierarchical) -> Node:
    shared = {
        "aggr_funcs": [variants.aggregate_func(aggr.func) for aggr in plan.aggregates],
        "skips": list(plan.skips),
    }
    if plan.buckets is not None:
        return {"Bucketed": {**shared, "buckets": list(plan.buckets)}}
    return {"Monotonic": {**shared, "must_consolidate": plan.must_consolidate}}


def _basic(plan: lir.ReduceBasic) -> Node:
    if len(plan.aggregates) == 1:
        ((output, aggr),) = plan.aggregates
        fused = plan.fused_unnest_list
        return {"Single": {"index": output, "expr": js.aggregate(aggr), "fused_unnest_list": fused}}
    return {"Multiple": [[output, js.aggregate(aggr)] for output, aggr in plan.aggregates]}


def _top_k(plan: lir.TopKPlan) -> Node:
    fields: Node = {"group_key": list(plan.group_key), "order_key": js.order(plan.order_key)}
    if plan.kind != "MonotonicTop1":
        fields["limit"] = None if plan.limit is None else js.scalar(plan.limit)
    if plan.kind == "Basic":
        fields.update(offset=plan.offset, arity=plan.arity, buckets=list(plan.buckets))
        return {plan.kind: fields}
    if plan.kind == "MonotonicTopK":
        fields["arity"] = plan.arity
    fields["must_consolidate"] = plan.must_consolidate
    return {plan.kind: fields}
