"""EXPLAIN PHYSICAL PLAN as text, in Materialize's format.

Promise: a node's attribute lines come first, then its children; ids are shown only on request. Nothing is computed here
that is not in the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.explain import constants, scalars
from mzsql.explain.config import ExplainConfig, Humanizer
from mzsql.explain.lines import Lines
from mzsql.expr import functions
from mzsql.expr.canonical import as_stored
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import Scalar
from mzsql.lir import plan as lir
from mzsql.repr.ids import GlobalId


class PhysicalPrinter:
    """Prints the plans of one dataflow."""

    def __init__(self, humanizer: Humanizer, config: ExplainConfig) -> None:
        self._humanizer = humanizer
        self._config = config
        self._scalars = scalars.ScalarPrinter(redacted=config.redacted)
        self._out = Lines()

    def plan(self, plan: lir.Plan, finishing: RowSetFinishing | None, arity: int) -> Lines:
        """The body of a plan, under its header."""
        level = 1
        if finishing is not None and not finishing.is_trivial(arity):
            self._out.add(level, finish(finishing), node=True)
            level += 1
        self._node(plan, level)
        return self._out

    # --- shared pieces --------------------------------------------------------------------------

    def _name(self, gid: GlobalId | int) -> str:
        return f"l{gid}" if isinstance(gid, int) else self._humanizer.name(gid)

    def _head(self, level: int, text: str, plan: lir.Plan) -> None:
        if self._config.node_identifiers:
            text = f"{text} // {{ node_id: {plan.lir_id} }}"
        self._out.add(level, text, node=True)

    def _mfp(self, level: int, mfp: MapFilterProject) -> None:
        for line in self._scalars.mfp_lines(mfp):
            self._out.add(level, line)

    def _mfp_block(self, level: int, name: str, mfp: MapFilterProject | None) -> None:
        """A nested MFP; omitted where it does nothing."""
        if mfp is not None and not mfp.is_identity:
            self._out.add(level, name)
            self._mfp(level + 1, mfp)

    def _mfp_or_id(self, level: int, name: str, mfp: MapFilterProject) -> None:
        if mfp.is_identity:
            self._out.add(level, f"{name}=id")
        else:
            self._mfp_block(level, name, mfp)

    def _arrangement(self, form: lir.ArrangementForm) -> str:
        return (
            f"{{ key={self._scalars.key(form.key)}, permutation={permutation(form)}, "
            f"thinning=({scalars.columns(form.thinning)}) }}"
        )

    def _forms(self, level: int, forms: lir.AvailableCollections) -> None:
        self._out.add(level, f"raw={'true' if forms.raw else 'false'}")
        for number, form in enumerate(forms.arranged):
            self._out.add(level, f"arrangements[{number}]={self._arrangement(form)}")
        if forms.arranged and forms.types is not None:
            self._out.add(level, f"types=[{', '.join(str(column) for column in forms.types)}]")

    def _input_key(self, level: int, key: Sequence[Scalar] | None) -> None:
        if key is not None:
            self._out.add(level, f"input_key={self._scalars.scalars(key)}")

    # --- nodes ----------------------------------------------------------------------------------

    def _node(self, plan: lir.Plan, level: int) -> None:
        match plan:
            case lir.Constant():
                self._constant(plan, level)
            case lir.Get():
                self._get(plan, level)
            case lir.Let():
                self._let(plan, level)
            case lir.LetRec():
                self._let_rec(plan, level)
            case lir.Join():
                self._join(plan, level)
            case lir.Reduce():
                self._reduce(plan, level)
            case _:
                self._simple(plan, level)
        if not isinstance(plan, lir.Let | lir.LetRec):
            for child in lir.children(plan):
                self._node(child, level + 1)

    def _simple(self, plan: lir.Plan, level: int) -> None:
        """Nodes with few attributes."""
        match plan:
            case lir.Mfp(mfp=mfp, input_key=key):
                self._head(level, "Mfp", plan)
                self._mfp(level + 1, mfp)
                self._input_key(level + 1, key)
            case lir.FlatMap(func=func, exprs=exprs, mfp_after=after, input_key=key):
                args = self._scalars.scalars(exprs)
                self._head(level, f"FlatMap {functions.table_func(func).name}({args})", plan)
                self._mfp_block(level + 1, "mfp_after", after)
                self._input_key(level + 1, key)
            case lir.TopK(plan=topk):
                self._head(level, self._top_k(topk), plan)
            case lir.Negate():
                self._head(level, "Negate", plan)
            case lir.Threshold(ensure_arrangement=form):
                text = f"Threshold::Basic ensure_arrangement={self._arrangement(form)}"
                self._head(level, text, plan)
            case lir.Union(consolidate_output=consolidate):
                self._head(level, f"Union{' consolidate_output=true' if consolidate else ''}", plan)
            case lir.ArrangeBy(input_key=key, forms=forms):
                self._head(level, "ArrangeBy", plan)
                if key is not None:
                    self._out.add(level + 1, f"input_key=[{self._scalars.scalars(key)}]")
                self._forms(level + 1, forms)

    def _constant(self, plan: lir.Constant, level: int) -> None:
        if plan.error is not None:
            text = scalars.REDACTED if self._config.redacted else constants.quoted(plan.error)
            self._head(level, f"Error {text}", plan)
            return
        self._head(level, "Constant" if plan.rows else "Constant <empty>", plan)
        for row, diff in as_stored(plan.rows, plan.columns):
            text = self._scalars.row(row, plan.columns)
            self._out.add(level + 1, f"- {text}" if diff == 1 else f"- ({text} x {diff})")

    def _get(self, plan: lir.Get, level: int) -> None:
        name = self._name(plan.id)
        match plan.plan:
            case lir.PassArrangements():
                self._head(level, f"Get::PassArrangements {name}", plan)
            case lir.GetArrangement(key=key, mfp=mfp):
                self._head(level, f"Get::Arrangement {name}", plan)
                self._mfp(level + 1, mfp)
                self._out.add(level + 1, f"key={self._scalars.scalars(key)}")
            case lir.GetCollection(mfp=mfp):
                self._head(level, f"Get::Collection {name}", plan)
                self._mfp(level + 1, mfp)
        self._forms(level + 1, plan.keys)

    def _let(self, plan: lir.Let, level: int) -> None:
        self._head(level, "Return", plan)
        bindings: list[lir.Let] = []
        body: lir.Plan = plan
        while isinstance(body, lir.Let):
            bindings.append(body)
            body = body.body
        self._node(body, level + 1)
        self._out.add(level, "With")
        for let in reversed(bindings):
            self._out.add(level + 1, f"cte l{let.id} =", node=True)
            self._node(let.value, level + 2)

    def _let_rec(self, plan: lir.LetRec, level: int) -> None:
        self._head(level, "Return", plan)
        self._node(plan.body, level + 1)
        self._out.add(level, "With Mutually Recursive")
        for local, value, limit in reversed(
            list(zip(plan.ids, plan.values, plan.limits, strict=True))
        ):
            self._out.add(level + 1, f"cte{recursion_limit(limit)} l{local} =", node=True)
            self._node(value, level + 2)

    # --- joins ----------------------------------------------------------------------------------

    def _join(self, plan: lir.Join, level: int) -> None:
        match plan.plan:
            case lir.LinearJoin() as linear:
                self._head(level, "Join::Linear", plan)
                self._path(linear, "linear_stage", level + 1)
            case lir.DeltaJoin(paths=paths):
                self._head(level, "Join::Delta", plan)
                for number, path in enumerate(paths):
                    self._out.add(level + 1, f"plan_path[{number}]")
                    self._path(path, "delta_stage", level + 2)

    def _path(self, path: lir.LinearJoin | lir.DeltaPath, stage_name: str, level: int) -> None:
        self._mfp_block(level, "final_closure", path.final_closure)
        for number in range(len(path.stages) - 1, -1, -1):
            stage = path.stages[number]
            self._out.add(level, f"{stage_name}[{number}]")
            self._mfp_block(level + 1, "closure", stage.closure)
            lookup_key = self._scalars.key(stage.lookup_key)
            stream_key = self._scalars.key(stage.stream_key)
            thinning = scalars.columns(stage.stream_thinning)
            self._out.add(
                level + 1, f"lookup={{ relation={stage.lookup_relation}, key={lookup_key} }}"
            )
            self._out.add(level + 1, f"stream={{ key={stream_key}, thinning=({thinning}) }}")
        if isinstance(path, lir.DeltaPath):
            self._mfp_block(level, "initial_closure", path.initial_closure)
        key = "" if path.source_key is None else f", key={self._scalars.key(path.source_key)}"
        self._out.add(level, f"source={{ relation={path.source_relation}{key} }}")

    # --- reductions -----------------------------------------------------------------------------

    def _reduce(self, plan: lir.Reduce, level: int) -> None:
        self._head(level, f"Reduce::{type(plan.plan).__name__.removeprefix('Reduce')}", plan)
        self._reduce_plan(plan.plan, level + 1)
        self._mfp_or_id(level + 1, "val_plan", plan.key_val.val_plan)
        self._mfp_or_id(level + 1, "key_plan", plan.key_val.key_plan)
        self._mfp_block(level + 1, "mfp_after", plan.mfp_after)
        self._input_key(level + 1, plan.input_key)

    def _reduce_plan(self, plan: lir.ReducePlan, level: int) -> None:
        match plan:
            case lir.ReduceDistinct():
                pass
            case lir.ReduceAccumulable(simple=simple, distinct=distinct):
                for name, group in (("simple_aggrs", simple), ("distinct_aggrs", distinct)):
                    for number, aggr in enumerate(group):
                        text = self._scalars.aggregate(aggr.expr)
                        line = f"({aggr.kind_index}, {aggr.output_index}, {text})"
                        self._out.add(level, f"{name}[{number}]={line}")
            case lir.ReduceHierarchical():
                self._hierarchical(plan, level)
            case lir.ReduceBasic(aggregates=aggregates, fused_unnest_list=fused):
                single = len(aggregates) == 1
                for number, (output, expr) in enumerate(aggregates):
                    name = "aggr" if single else f"aggrs[{number}]"
                    suffix = ", fused_unnest_list=true" if fused else ""
                    line = f"({output}, {self._scalars.aggregate(expr)}{suffix})"
                    self._out.add(level, f"{name}={line}")
            case lir.ReduceCollation():
                self._out.add(level, f"aggregate_types=[{', '.join(plan.aggregate_types)}]")
                parts: list[tuple[str, lir.ReducePlan | None]] = [
                    ("accumulable", plan.accumulable),
                    ("hierarchical", plan.hierarchical),
                    ("basic", plan.basic),
                ]
                for name, part in parts:
                    if part is not None:
                        self._out.add(level, name)
                        self._reduce_plan(part, level + 1)

    def _hierarchical(self, plan: lir.ReduceHierarchical, level: int) -> None:
        names = ", ".join(functions.aggregate(a.func).name for a in plan.aggregates)
        self._out.add(level, f"aggr_funcs=[{names}]")
        self._out.add(level, f"skips=[{', '.join(str(skip) for skip in plan.skips)}]")
        if plan.buckets is not None:
            self._out.add(level, f"buckets=[{', '.join(str(size) for size in plan.buckets)}]")
            return
        self._out.add(level, "monotonic")
        if plan.must_consolidate:
            self._out.add(level, "must_consolidate")

    def _top_k(self, plan: lir.TopKPlan) -> str:
        parts = [f"TopK::{plan.kind}"]
        if plan.group_key:
            parts.append(f"group_by=[{scalars.columns(plan.group_key)}]")
        if plan.order_key:
            parts.append(f"order_by=[{scalars.order(plan.order_key)}]")
        if plan.limit is not None and plan.kind != "MonotonicTop1":
            parts.append(f"limit={scalars.ScalarPrinter().scalar(plan.limit)}")
        if plan.offset:
            parts.append(f"offset={scalars.REDACTED if self._config.redacted else plan.offset}")
        if plan.must_consolidate:
            parts.append("must_consolidate")
        return " ".join(parts)


def recursion_limit(limit: tuple[int, bool] | None) -> str:
    """The limit of a recursive binding, with a leading space."""
    if limit is None:
        return ""
    return f" [recursion_limit={limit[0]}{', return_at_limit' if limit[1] else ''}]"


def permutation(form: lir.ArrangementForm) -> str:
    """``id``, or the position of each column in key ++ value."""
    if form.permutation == tuple(range(len(form.permutation))):
        return "id"
    return f"{{{', '.join(f'#{i}: #{j}' for i, j in enumerate(form.permutation))}}}"


def finish(finishing: RowSetFinishing, printer: scalars.ScalarPrinter | None = None) -> str:
    """The line of a row set finishing. Its numbers are not data, so they are shown even where constants are redacted.

    Args:
        finishing: the finishing.
        printer: names the columns of its ORDER BY.
    """
    parts = ["Finish"]
    if finishing.order_by:
        order = scalars.order if printer is None else printer.order
        parts.append(f"order_by=[{order(finishing.order_by)}]")
    if finishing.limit is not None:
        parts.append(f"limit={finishing.limit}")
    if finishing.offset:
        parts.append(f"offset={finishing.offset}")
    parts.append(f"output=[{scalars.columns(finishing.project)}]")
    return " ".join(parts)
