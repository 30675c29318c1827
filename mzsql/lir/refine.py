"""Refinements of a lowered dataflow, in order.

Promise: ids and shape stay. What changes is how much is filtered in source imports, whether a Union consolidates
and, for a dataflow that is computed at one time only, which nodes may assume that their input is monotonic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from mzsql.expr import scalar as sc
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.typing import column_type
from mzsql.lir import plan as lir
from mzsql.lir import reductions, rows
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType
from mzsql.transform.features import OptimizerFeatures


def refine(desc: lir.DataflowDescription, features: OptimizerFeatures) -> lir.DataflowDescription:
    """Apply all refinements."""
    desc = push_into_sources(desc)
    if features.enable_consolidate_after_union_negate:
        desc = _map_plans(desc, consolidate_unions)
    if isinstance(desc.export, lir.PeekExport):
        desc = _map_plans(desc, lambda plan: assume_single_time(plan, desc))
    return desc


def _map_plans(
    desc: lir.DataflowDescription, f: Callable[[lir.Plan], lir.Plan]
) -> lir.DataflowDescription:
    objects = tuple(msgspec.structs.replace(obj, plan=f(obj.plan)) for obj in desc.objects)
    return msgspec.structs.replace(desc, objects=objects)


def rewrite(plan: lir.Plan, f: Callable[[lir.Plan], lir.Plan]) -> lir.Plan:
    """Rewrite bottom-up, without recursion."""
    done: list[lir.Plan] = []
    stack: list[tuple[lir.Plan, bool]] = [(plan, False)]
    while stack:
        node, ready = stack.pop()
        kids = lir.children(node)
        if not ready and kids:
            stack.append((node, True))
            stack.extend((kid, False) for kid in reversed(kids))
            continue
        if kids:
            new = done[-len(kids) :]
            del done[-len(kids) :]
            if any(a is not b for a, b in zip(new, kids, strict=True)):
                node = lir.with_children(node, new)
        done.append(f(node))
    return done[0]


# --- filters and projections into the read of a source ------------------------------------------


def push_into_sources(desc: lir.DataflowDescription) -> lir.DataflowDescription:
    """Move what all Gets of a source have in common into its import."""
    readers: dict[GlobalId, list[lir.Get]] = {}
    for obj in desc.objects:
        for node in lir.walk(obj.plan):
            if isinstance(node, lir.Get) and not isinstance(node.id, int):
                readers.setdefault(node.id, []).append(node)
    pushed: dict[GlobalId, tuple[MapFilterProject, tuple[ColumnType, ...]]] = {}
    sources: list[lir.SourceImport] = []
    for source in desc.source_imports:
        mfps = _collection_mfps(readers.get(source.id, []))
        if not mfps:
            sources.append(source)
            continue
        shared = mfps[0] if len(set(mfps)) == 1 else common_part(mfps)
        if not shared.is_identity:
            pushed[source.id] = (shared, mfp_columns(shared, source.typ.columns))
        sources.append(msgspec.structs.replace(source, mfp=shared))

    def take(node: lir.Plan) -> lir.Plan:
        if not isinstance(node, lir.Get) or isinstance(node.id, int) or node.id not in pushed:
            return node
        assert isinstance(node.plan, lir.GetCollection)
        shared, columns = pushed[node.id]
        rest = remaining(node.plan.mfp, shared)
        return msgspec.structs.replace(node, plan=lir.GetCollection(rest), columns=columns)

    desc = msgspec.structs.replace(desc, source_imports=tuple(sources))
    return _map_plans(desc, lambda plan: rewrite(plan, take))


def _collection_mfps(gets: Sequence[lir.Get]) -> list[MapFilterProject]:
    """The MFPs of the Gets; empty if one of them reads everything."""
    mfps: list[MapFilterProject] = []
    for get in gets:
        # One that reads an arrangement needs the rows as they are arranged, so nothing may be left out of the source.
        if not isinstance(get.plan, lir.GetCollection):
            return []
        mfps.append(get.plan.mfp)
    return mfps


def common_part(mfps: Sequence[MapFilterProject]) -> MapFilterProject:
    """The filters on plain columns that all MFPs have, and the columns that any of them reads afterwards."""
    arity = mfps[0].input_arity
    shared = [
        (at, pred)
        for at, pred in mfps[0].predicates
        if all(column < arity for column in sc.support(pred))
        and all(any(p == pred for _, p in other.predicates) for other in mfps[1:])
    ]
    wanted: set[int] = set()
    for mfp in mfps:
        rest = [(at, pred) for at, pred in mfp.predicates if (at, pred) not in shared]
        wanted |= rows.demand(msgspec.structs.replace(mfp, predicates=tuple(rest)))
    return MapFilterProject(arity, (), tuple(shared), tuple(sorted(wanted)))


def remaining(whole: MapFilterProject, shared: MapFilterProject) -> MapFilterProject:
    """The rest of `whole` over the output of `shared`, its common part."""
    if whole == shared:
        return MapFilterProject.identity(shared.output_arity)
    done = {pred for _, pred in shared.predicates}
    rest = tuple((at, pred) for at, pred in whole.predicates if pred not in done)
    place = {column: position for position, column in enumerate(shared.projection)}
    left = msgspec.structs.replace(whole, predicates=rest)
    return rows.permuted(left, place, shared.output_arity)


def mfp_columns(mfp: MapFilterProject, columns: Sequence[ColumnType]) -> tuple[ColumnType, ...]:
    """The columns that an MFP outputs over rows of `columns`."""
    known = list(columns)
    for expr in mfp.expressions:
        known.append(column_type(expr, known))
    return tuple(known[column] for column in mfp.projection)


# --- unions -------------------------------------------------------------------------------------


def consolidate_unions(plan: lir.Plan) -> lir.Plan:
    """Let Unions with a Negate among their inputs consolidate their output."""

    def mark(node: lir.Plan) -> lir.Plan:
        # What is taken away mostly cancels rows of another input. Consolidated here, neither goes through all that is above.
        if isinstance(node, lir.Union) and any(isinstance(i, lir.Negate) for i in node.inputs):
            return msgspec.structs.replace(node, consolidate_output=True)
        return node

    return rewrite(plan, mark)


# --- one time only ------------------------------------------------------------------------------


def assume_single_time(plan: lir.Plan, desc: lir.DataflowDescription) -> lir.Plan:
    """At a single time every input is monotonic once it is consolidated. Recursive bindings see many times and stay as
    they are.
    """
    if isinstance(plan, lir.LetRec):
        return msgspec.structs.replace(plan, body=assume_single_time(plan.body, desc))
    if isinstance(plan, lir.Let):
        value = assume_single_time(plan.value, desc)
        return msgspec.structs.replace(plan, value=value, body=assume_single_time(plan.body, desc))
    monotonic = {s.id for s in desc.source_imports if s.monotonic}

    def refine_node(node: lir.Plan) -> lir.Plan:
        match node:
            case lir.Reduce(plan=reduce, input=child):
                consolidate = not physically_monotonic(child, monotonic, {})
                return msgspec.structs.replace(node, plan=_monotonic_reduce(reduce, consolidate))
            case lir.TopK(plan=topk, input=child) if topk.kind == "Basic":
                kind = reductions.top_k_kind(True, topk.limit, topk.offset)
                if kind == "Basic":
                    return node
                consolidate = not physically_monotonic(child, monotonic, {})
                new = msgspec.structs.replace(
                    topk, kind=kind, must_consolidate=consolidate, buckets=()
                )
                return msgspec.structs.replace(node, plan=new)
            case _:
                return node

    return rewrite(plan, refine_node)


def _monotonic_reduce(plan: lir.ReducePlan, consolidate: bool) -> lir.ReducePlan:
    match plan:
        case lir.ReduceHierarchical(buckets=buckets) if buckets is not None:
            return msgspec.structs.replace(plan, buckets=None, must_consolidate=consolidate)
        case lir.ReduceCollation(hierarchical=part) if part is not None:
            new = _monotonic_reduce(part, consolidate)
            assert isinstance(new, lir.ReduceHierarchical)
            return msgspec.structs.replace(plan, hierarchical=new)
        case _:
            return plan


def physically_monotonic(
    plan: lir.Plan, monotonic: set[GlobalId], locals_: Mapping[int, bool]
) -> bool:
    """Whether the node's output, as it comes, contains no retractions."""
    match plan:
        case lir.Constant(rows=constant):
            return all(diff >= 0 for _, diff in constant)
        case lir.Get(id=gid):
            return locals_.get(gid, False) if isinstance(gid, int) else gid in monotonic
        case lir.Mfp() | lir.FlatMap() | lir.ArrangeBy():
            return physically_monotonic(plan.input, monotonic, locals_)
        case lir.Join() | lir.Union():
            return all(physically_monotonic(i, monotonic, locals_) for i in plan.inputs)
        case lir.Threshold():
            return physically_monotonic(plan.input, monotonic, locals_)
        # DISTINCT over rows that never go only adds; every other aggregate takes back the value that it had before.
        case lir.Reduce(plan=lir.ReduceDistinct()):
            return physically_monotonic(plan.input, monotonic, locals_)
        case _:
            return False
