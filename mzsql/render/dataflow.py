"""Rendering: from a dataflow's physical plan to the statements that hydrate it, maintain it or answer it as a query.

Promise: `render` is pure and runs nothing. Its result names every relation that a statement reads (`mzsql.render.rendered` has the
table), so a runner needs no knowledge of plans: it provides the relations, runs the statements, and writes their results. The result of
a step does not depend on how time is cut into steps, and no statement throws because of a value: errors are rows (docs/architecture.md,
decision 4).
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.relation import RowSetFinishing
from mzsql.lir import plan as lir
from mzsql.lir.plan import DataflowDescription
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.contents.contents import ContentsRenderer
from mzsql.render.contents.state import Unfilled
from mzsql.render.facts import Fact
from mzsql.render.kept import Kept
from mzsql.render.nodes.collection import Collection
from mzsql.render.nodes.naming import Shape
from mzsql.render.nodes.recursion import Loop, Recursion
from mzsql.render.rendered import (
    ArrangementSpec,
    HydrationStage,
    InputSpec,
    Lookup,
    Outline,
    Step,
)
from mzsql.render.rewrites.idle import read_without, without
from mzsql.render.rewrites.lean import Relation
from mzsql.render.rewrites.relevant import relevance
from mzsql.render.rewrites.templates import TEMPLATES, StepTemplate, at, live, needed
from mzsql.render.statement import (
    DIFF,
    ERROR,
    Ast,
    big,
    col,
    named,
    ordered,
    select,
    subquery,
)
from mzsql.render.step.step import StepRenderer, export_of
from mzsql.render.times import AS_OF, LOWER, UPPER
from mzsql.render.updates import consolidated, repeated
from mzsql.repr.frontier import Timestamp
from mzsql.repr.garbage import undisturbed
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import ColumnType


class RenderedDataflow:
    """A rendered dataflow.

    Attributes:
        sealed: its plan.
        outline: what is needed to resume it.
        inputs: what it reads: source imports, then index imports, in the description's order.
        arrangements: its state, each arrangement after those that it is filled from.
        lookups: one for each arrangement that a step reads (its own, and imported indexes), in an order in which one pass over them
            finds nearly all keys; the pass is repeated until no new keys appear.
        output_columns: the columns c0 … of the output. For an index: the key columns, then the thinned value.
        output_key_arity: number of leading output columns that are the index's key; None if the output is no index.
        temporal: whether rows appear and disappear as time passes, without updates.
        lir_ids: every node's id, ascending.
        recursions: recursive nodes, whose contents (in a step: changes) a runner computes before the statements that read them.
    """

    def __init__(
        self,
        sealed: SealedDataflow,
        errors_in: Callable[[GlobalId], bool],
        outline: Outline | None = None,
    ) -> None:
        self.sealed = sealed
        self._errors_in = errors_in
        self._hydrations: dict[Engine, tuple[HydrationStage, ...]] = {}
        self._steps: dict[tuple[Engine, bool], Step] = {}
        self._templates: OrderedDict[tuple[Engine, frozenset[str], bool], StepTemplate]
        self._templates = OrderedDict()
        self._lock = threading.RLock()
        self._made: _Rendered | None = None
        self.outline = outline if outline is not None else self._outlined()

    @property
    def desc(self) -> DataflowDescription:
        """The plan, decoded when it is first used."""
        return self.sealed.desc

    @lazy_property
    def _shape(self) -> Shape:
        return Shape(self.desc, self._errors_in)

    @property
    def is_rendered(self) -> bool:
        """Whether the statements of a step were made already."""
        return self._made is not None

    @property
    def _rendered(self) -> _Rendered:
        """The step for DuckDB, made when something of it is needed first."""
        with self._lock:
            if self._made is None:
                self._made = _rendered(self._shape)
            return self._made

    def _outlined(self) -> Outline:
        """Render the outline."""
        made, export = self._rendered, self.desc.export
        nodes = (node for built in self.desc.objects for node in lir.walk(built.plan))
        return Outline(
            self._shape.inputs,
            tuple(sorted(node.lir_id for node in nodes)),
            made.arrangements,
            made.step.outputs[0].columns,
            len(export.key) if isinstance(export, lir.IndexExport) else None,
            bool(made.events),
            bool(made.recursions),
        )

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """See the class."""
        return self.outline.inputs

    @property
    def lir_ids(self) -> tuple[int, ...]:
        """See the class."""
        return self.outline.lir_ids

    @property
    def output_key_arity(self) -> int | None:
        """See the class."""
        return self.outline.output_key_arity

    @property
    def arrangements(self) -> tuple[ArrangementSpec, ...]:
        """See the class."""
        return self.outline.arrangements

    @property
    def output_columns(self) -> tuple[ColumnType, ...]:
        """See the class."""
        return self.outline.output_columns

    @property
    def temporal(self) -> bool:
        """See the class."""
        return self.outline.temporal

    @property
    def recursions(self) -> tuple[Recursion, ...]:
        """See the class."""
        return self._rendered.recursions if self.outline.recursive else ()

    @lazy_property
    def lookups(self) -> tuple[Lookup, ...]:
        """See the class."""
        return self._among(self._changes())

    @undisturbed()
    def hydration(self, engine: Engine, as_of: Timestamp) -> tuple[HydrationStage, ...]:
        """The stages that fill every arrangement and finally the output at the time `as_of`, in the order in which they must run."""
        with self._lock:
            stages = self._hydrations.get(engine)
        if stages is None:
            stages = tuple(_stages(self._shape, engine, self))
            with self._lock:
                self._hydrations[engine] = stages
        if not self.temporal:
            return stages
        return tuple(
            replace(stage, kept=Kept(at(stage.statement, {AS_OF: as_of}))) for stage in stages
        )

    def warm(self, seconds: float) -> bool:
        """Whether `cool` would free something. False also while another thread renders, which is not waited for."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return any(one.warm(seconds) for one in self._kept())
        finally:
            self._lock.release()

    def cool(self, seconds: float) -> None:
        """Pack the statements that nobody has used for `seconds`, to save memory; they are unpacked when they are used."""
        with self._lock:
            kept = self._kept()
        for one in kept:
            one.cool(seconds)

    def _kept(self) -> list[Kept]:
        steps = [*self._steps.values(), *([] if self._made is None else [self._made.step])]
        of_templates = (one for made in self._templates.values() for one in made.kept())
        of_stages = (stage.kept for stages in self._hydrations.values() for stage in stages)
        return [*(step.kept for step in steps), *of_templates, *of_stages]

    def prepare(self) -> None:
        """Render what the first in-process step needs, for updates of a single time."""
        with self._lock:
            if not self.temporal:
                # Only this one: what comes first is a tick, whose updates have one time, and as a rule it is small.
                self._step(Engine.DUCKDB, at_once=True)
        _ = self.relevance

    def step(self, engine: Engine, lower: Timestamp, upper: Timestamp) -> Step:
        """The statement that processes the inputs' updates with times in ``[lower, upper)``."""
        assert lower < upper
        return self.template(engine).at(lower, upper)

    def template(
        self, engine: Engine, changed: Iterable[str] | None = None, *, at_once: bool = False
    ) -> StepTemplate:
        """A step that can be run at any times.

        Args:
            engine: runs it.
            changed: the relations ``delta_…``, and of recursions, that have rows; None if any may.
            at_once: whether all updates have the same time. Not for `temporal` dataflows, whose rows appear and disappear at times of
                their own.
        """
        assert not (at_once and self.temporal)
        if changed is None:
            changed = self._changes()
        key = engine, frozenset(changed), at_once
        with self._lock:
            known = self._templates.get(key)
            if known is not None:
                self._templates.move_to_end(key)
                return known
            made = self._templates[key] = self._template(*key)
            # A dataflow of n inputs may meet 2 ** n sets of changed ones; those that were used last stay.
            while len(self._templates) > TEMPLATES:
                self._templates.popitem(last=False)
            return made

    @undisturbed()
    def _template(self, engine: Engine, changed: frozenset[str], at_once: bool) -> StepTemplate:
        step = self._step(engine, at_once)
        # Spark reads updates that are too many for this process as they are.
        conditions = self.relevance if engine is Engine.DUCKDB else {}
        if changed >= self._changes():
            return StepTemplate(step, self.lookups, engine, conditions)
        lookups = self._among(changed)
        idle = set(step.reads) - changed - live(lookups, changed)
        left = read_without(step.statement, idle)
        if left is None:
            return StepTemplate(None, (), engine)
        read = left.intersection(step.reads)
        # Most steps run the text for all sets of changes, and never need this one.
        kept = Kept(functools.partial(_pruned, step, frozenset(idle)))
        pruned = replace(step, kept=kept, reads=tuple(sorted(read)))
        return StepTemplate(pruned, needed(lookups, read), engine, conditions)

    def _step(self, engine: Engine, at_once: bool = False) -> Step:
        if engine is Engine.DUCKDB and not at_once:
            return self._rendered.step
        key = engine, at_once
        if key not in self._steps:
            renderer = StepRenderer(self._shape, engine, LOWER, UPPER, at_once=at_once)
            self._steps[key] = renderer.step()
        return self._steps[key]

    @lazy_property
    @undisturbed()
    def relevance(self) -> dict[str, str]:
        """For inputs' deltas, by relation name, the condition under which an update can matter to a step; absent if every update may."""
        step = self._step(Engine.DUCKDB)
        return relevance(step.statement, (f"delta_{one.id}" for one in self.inputs))

    def _changes(self) -> frozenset[str]:
        """The relations that hold changes in a step."""
        inputs = (f"delta_{one.id}" for one in self.inputs)
        return frozenset([*inputs, *(one.relation for one in self.recursions)])

    def _among(self, changed: Iterable[str]) -> tuple[Lookup, ...]:
        """The lookups of a step in which only the given inputs have updates."""
        rows = self._rendered.events.union(changed)
        return tuple(one.among(rows) for one in self._rendered.lookups)


def _pruned(step: Step, empty: frozenset[str]) -> exp.Expression:
    statement = without(step.statement, empty)
    assert statement is not None
    return statement


@dataclass(frozen=True)
class _Rendered:
    """A rendered step, and what rendering found on the way."""

    step: Step
    recursions: tuple[Recursion, ...]
    arrangements: tuple[ArrangementSpec, ...]
    lookups: tuple[Lookup, ...]
    #: arrangements of temporal events
    events: frozenset[str]


@undisturbed()
def _rendered(shape: Shape) -> _Rendered:
    renderer = StepRenderer(shape, Engine.DUCKDB, LOWER, UPPER)
    step = renderer.step()
    read = set(step.reads)
    lookups = tuple(one for one in renderer.lookups.ordered() if one.arrangement in read)
    return _Rendered(
        step,
        tuple(renderer.recursions),
        tuple(renderer.specs.values()),
        lookups,
        frozenset(one.arrangement for one in lookups if one.due),
    )


class OneShot:
    """A dataflow as a query: its contents at one time. It keeps no state, so every kind of node can be rendered.

    Attributes:
        inputs: as in `RenderedDataflow`.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.desc = shape.desc
        self.inputs: tuple[InputSpec, ...] = shape.inputs

    @property
    def lir_ids(self) -> tuple[int, ...]:
        """Every node's id, ascending."""
        nodes = (node for built in self.desc.objects for node in lir.walk(built.plan))
        return tuple(sorted(node.lir_id for node in nodes))

    @property
    def output_columns(self) -> tuple[ColumnType, ...]:
        """The columns c0 … of the result."""
        renderer = ContentsRenderer(self._shape, Engine.DUCKDB)
        root = self.desc.root
        return export_of(renderer, renderer.render(root.plan), root.plan.lir_id).columns

    @undisturbed()
    def rendered(self, engine: Engine) -> tuple[exp.Expression, tuple[Loop, ...]]:
        """The statement for the contents: c0 …, mz_error, mz_diff, over the ``snap_…`` relations, not consolidated; and the recursions to
        run before.
        """
        renderer = ContentsRenderer(self._shape, engine)
        root = self.desc.root
        made = export_of(renderer, renderer.render(root.plan), root.plan.lir_id)
        statement, _, _ = renderer.statement(made, [query for query, _ in renderer.diverted])
        return statement, tuple(renderer.loops)


def one_shot(
    desc: DataflowDescription, *, errors_in: Callable[[GlobalId], bool] = lambda _: True
) -> OneShot:
    """Render a query's dataflow, whose contents are wanted at one time only."""
    return OneShot(Shape(desc, errors_in))


def render(
    desc: DataflowDescription | SealedDataflow,
    *,
    errors_in: Callable[[GlobalId], bool] = lambda _: True,
    outline: Outline | None = None,
) -> RenderedDataflow:
    """Render a dataflow.

    Args:
        desc: the physical plan; a sealed one is decoded when its statements are rendered.
        errors_in: whether the relations of an input (by source id or index id) have a column mz_error.
        outline: the outline of an earlier rendering of the same plan; then statements are rendered only when they are used.

    Raises:
        Unsupported: the plan cannot be maintained; the message says why.
    """
    sealed = desc if isinstance(desc, SealedDataflow) else SealedDataflow.of(desc)
    return RenderedDataflow(sealed, errors_in, outline)


class _Progress:
    """Tracks which nodes are hydrated as arrangements are filled."""

    def __init__(self, rendered: RenderedDataflow) -> None:
        self._pending: dict[int, set[str]] = {}
        for spec in rendered.arrangements:
            self._pending.setdefault(spec.lir_id, set()).add(spec.name)
        self._joins = {
            node.lir_id
            for built in rendered.desc.objects
            for node in lir.walk(built.plan)
            if isinstance(node, lir.Join)
        }
        self._left = set(rendered.lir_ids)

    def stage(self, filled: str | None, ctes: set[str]) -> tuple[int, ...]:
        """The nodes that a stage completes, given the arrangement that it fills and the CTEs that it reads."""
        if filled is None:
            done = self._left
        else:
            for names in self._pending.values():
                names.discard(filled)
            done = {lir_id for lir_id in self._left if self._complete(lir_id, ctes)}
        self._left = self._left - done
        return tuple(sorted(done))

    def _complete(self, lir_id: int, ctes: set[str]) -> bool:
        pending = self._pending.get(lir_id)
        reached = f"lir_{lir_id}" in ctes
        if pending is None:
            return reached
        return not pending and (reached or lir_id not in self._joins)


def _stages(shape: Shape, engine: Engine, rendered: RenderedDataflow) -> list[HydrationStage]:
    filled: set[str] = set()
    emitted: set[str] = set()
    progress = _Progress(rendered)
    stages: list[HydrationStage] = []
    # Each round renders the plan again, with one more arrangement filled, until nothing stops it before the output.
    while True:
        renderer = ContentsRenderer(shape, engine, frozenset(filled), frozenset(emitted), AS_OF)
        root = shape.desc.root
        target: str | None = None
        lir_id = root.plan.lir_id
        try:
            made = export_of(renderer, renderer.render(root.plan), lir_id)
        except Unfilled as stop:
            target, lir_id = stop.arrangement, stop.lir_id
            made = Collection(stop.relation, stop.columns, stop.errors)
            emitted |= stop.carried
        failed = renderer.diverted
        if target is not None:
            ctes, _ = renderer.out.reached(select([], made.relation))
            # Errors of streams that this stage reads are returned by it, others by a later stage, so that each is counted once.
            failed = [pair for pair in failed if pair[1] in ctes and pair[1] not in emitted]
        statement, reads, ctes = renderer.statement(made, [query for query, _ in failed])
        emitted |= {relation for _, relation in failed}
        stages.append(
            HydrationStage(
                target,
                lir_id,
                progress.stage(target, ctes),
                Kept(statement),
                made.columns,
                reads,
                made.errors or bool(failed),
            )
        )
        if target is None:
            return stages
        filled.add(target)


def finish(
    statement: exp.Expression,
    finishing: RowSetFinishing,
    columns: tuple[ColumnType, ...],
    engine: Engine,
) -> exp.Expression:
    """Add a one-shot query's ORDER BY, LIMIT, OFFSET and projection, and expand multiplicities.

    The result has columns c0 … of `finishing.project`, then mz_error, in the order asked for. If there is an error row, it comes first
    and is never cut off by LIMIT, so that the reader fails with it. Rows that cancel out do not appear.
    """
    row: list[Ast] = [col(f"c{i}") for i in range(len(columns))]
    body = statement.copy()
    with_ = body.args.get("with_")
    body.set("with_", None)
    there = consolidated(subquery(body, "q"), [*row, col(ERROR)], positive=True)
    # Each row is repeated as often as its diff says; an error row once, whatever its diff.
    copies = s.case((s.is_null(col(ERROR)), col(DIFF)), otherwise=big(1, engine))
    expanded = repeated(subquery(there, "g"), [*row, col(ERROR)], copies, engine)
    # FALSE sorts first, so error rows come first. All columns break ties, so that the order is the same each time.
    order = [ordered(s.is_null(col(ERROR)))]
    order += [
        ordered(col(f"c{o.column}"), desc=o.desc, nulls_last=o.nulls_last)
        for o in finishing.order_by
    ]
    order += [ordered(c) for c in row]
    place = exp.Window(this=s.call("ROW_NUMBER"), order=exp.Order(expressions=order))
    # A running count of good rows only: OFFSET and LIMIT do not count error rows.
    good = exp.Window(
        this=exp.Sum(this=s.case((s.is_null(col(ERROR)), s.num(1)), otherwise=s.num(0))),
        order=exp.Order(expressions=[o.copy() for o in order]),
        spec=exp.WindowSpec(
            kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW"
        ),
    )
    placed = select(
        [*row, col(ERROR), named(place, "mz_place"), named(s.big(good), "mz_good")],
        subquery(expanded, "x"),
    )
    kept: list[Ast] = [s.gt(col("mz_good"), big(finishing.offset, engine))]
    if finishing.limit is not None:
        kept.append(s.lte(col("mz_good"), big(finishing.offset + finishing.limit, engine)))
    items = [named(col(f"c{c}"), f"c{i}") for i, c in enumerate(finishing.project)]
    result = select(
        [*items, col(ERROR)],
        subquery(placed, "p"),
        where=[s.or_(s.is_not_null(col(ERROR)), s.and_(*kept))],
    )
    result.set("order", exp.Order(expressions=[ordered(col("mz_place"))]))
    if with_ is not None:
        result.set("with_", with_)
    return result


def summed(
    statement: exp.Expression,
    finishing: RowSetFinishing,
    columns: tuple[ColumnType, ...],
    *,
    in_order: bool = True,
    known: Relation | None = None,
) -> exp.Expression:
    """Add up a one-shot query's equal rows: c0 …, [mz_error], [mz_diff], in the finishing's order, error rows first.

    For a reader that applies multiplicities, OFFSET, LIMIT and projection itself, which saves the engine the windows of `finish`. Rows
    that such a reader never reaches are left out. If all rows are wanted and not ``in_order``, nothing is sorted. What is ``known`` of
    the statement's rows saves more: without errors there is no mz_error, without retractions equal rows are not added up, and if every
    row occurs once there is no mz_diff.
    """
    row: list[Ast] = [col(f"c{i}") for i in range(len(columns))]
    errors = known is None or known.columns[ERROR].values
    whole: list[Ast] = [*row, col(ERROR)] if errors else row
    diff = Fact() if known is None else known.columns[DIFF]
    body = statement.copy()
    with_ = body.args.get("with_")
    body.set("with_", None)
    if diff.low is not None and diff.low >= 1 and not diff.nulls:
        # Without columns mz_diff stays, because a SELECT needs an item.
        items = whole if diff.constant == 1 and row else [*whole, named(s.big(col(DIFF)), DIFF)]
        result = select(items, subquery(body, "q"))
    else:
        result = consolidated(subquery(body, "q"), whole, positive=True)
    if in_order or finishing.limit is not None or finishing.offset:
        order = [ordered(s.is_null(col(ERROR)))] if errors else []
        order += [
            ordered(col(f"c{o.column}"), desc=o.desc, nulls_last=o.nulls_last)
            for o in finishing.order_by
        ]
        asked = {o.column for o in finishing.order_by}
        order += [ordered(c) for place, c in enumerate(row) if place not in asked]
        if order:
            result.set("order", exp.Order(expressions=order))
    cut = cut_at(finishing)
    if cut is not None:
        result = result.limit(cut)
    if with_ is not None:
        result.set("with_", with_)
    return result


def cut_at(finishing: RowSetFinishing) -> int | None:
    """The most rows that `summed` returns; None if it returns all."""
    # At least one row, even for LIMIT 0: if there is an error row, it comes first and the reader must see it.
    return None if finishing.limit is None else max(1, finishing.offset + finishing.limit)


__all__ = ["OneShot", "RenderedDataflow", "cut_at", "finish", "one_shot", "render", "summed"]
