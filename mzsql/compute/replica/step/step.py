"""One step of a dataflow: from the inputs' updates in ``[lower, upper)`` compute the updates of the output and of the
arrangements.

Promise: the statement runs once (on Spark in the pieces of `mzsql.render.rewrites.cut`), over exactly the deltas and the
arrangement rows that it can touch. If no input update matters and no row appears or disappears with time, no
statement runs and nothing is written: the output passes over the step's times (`Target.pass_over`). The arrangements
then pass over them too if there were updates, none of which mattered; if there were none, the arrangements stay
behind until the next step. Likewise a target without updates in a step passes over. Each shard is written by a
compare_and_append of its own, in the order of `Dataflow.targets`. After a crash between two of them the step is run
again from the lowest upper, and each shard takes what it lacks. What comes to the driver is bounded in rows and
bytes; past that Spark writes the result as Parquet and the shards adopt the files. docs/architecture.md, decision 4,
says why a step is one statement.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.jobs import named_jobs
from mzsql.compute.engines.relations import (
    VALUE_BYTES,
    arrow_frame,
    at_most,
    collectable_rows,
    parts_frame,
    spark_schema,
)
from mzsql.compute.engines.spark_session import STEP_POOL
from mzsql.compute.engines.statements import register
from mzsql.compute.protocol import RefreshStats
from mzsql.compute.replica.arrangements.lookups import Found, LookupRun
from mzsql.compute.replica.dataflows.dataflow import Dataflow
from mzsql.compute.replica.dataflows.engine_choice import Refusals, other_than
from mzsql.compute.replica.step.deltas import Delta, Deltas
from mzsql.compute.replica.step.refreshing import rounded, rounded_frame
from mzsql.compute.replica.step.result import StepResult, result_names
from mzsql.compute.replica.step.texts import Texts, empty_relation
from mzsql.compute.replica.target import Target, with_time
from mzsql.expr.functions.table import Engine
from mzsql.persist import DIFF_COLUMN, TIME_COLUMN
from mzsql.persist.words import integers_of
from mzsql.render.rendered import Step, StepOutput
from mzsql.render.rewrites.templates import Joins, StepTemplate, TextPiece
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.refresh import RefreshSchedule
from mzsql.repr.types import arrow_schema


def _now(work: Callable[[], None]) -> None:
    work()


@dataclass
class StepTools:
    """What the steps of one dataflow are run with."""

    #: Spark's session for steps over few rows
    session: Callable[[], SparkSession]
    #: Spark's session for steps over many rows
    large_session: Callable[[], SparkSession]
    driver: Driver
    settings: ComputeSettings
    deltas: Deltas
    #: which engine failed lately, and why
    refusals: Refusals = field(default_factory=Refusals)
    #: runs work that makes later steps faster
    later: Callable[[Callable[[], None]], None] = _now


def run_step(
    dataflow: Dataflow, lower: Timestamp, upper: Timestamp, tools: StepTools
) -> RefreshStats:
    """Process the updates of ``[lower, upper)``; `lower` is `Dataflow.lower`, `upper` at most the inputs' upper.

    Raises:
        Overtaken: another replica wrote into the middle of a large step; run it again from the new lower.
    """
    started = time.monotonic()
    deltas = {
        f"delta_{one.spec.id}": tools.deltas.of(
            one, lower, upper, tools.large_session, tools.settings
        )
        for one in dataflow.inputs
    }
    relevant = {
        name: tools.deltas.relevant(delta, dataflow.rendered) for name, delta in deltas.items()
    }
    rows_in = sum(delta.rows for delta in deltas.values())
    if dataflow.rendered.recursions and rows_in:
        made = _recursive(dataflow, deltas, lower, upper)
        deltas |= made
        relevant |= {name: delta.table for name, delta in made.items()}
    # A delta too large for the driver (None) has rows, without being counted.
    changed = [name for name, table in relevant.items() if table is None or table.num_rows]
    if not changed and not _due(dataflow, lower, upper):
        _pass_over(dataflow, lower, upper, among=rows_in > 0)
        seconds = time.monotonic() - started
        return RefreshStats(dataflow.gid, lower, upper, 0, 0, 0, 0, seconds, "empty")
    for arrangement in dataflow.readable().values():
        # What this step adds to the traces may then sum up what happened before, which this dataflow reads no more.
        arrangement.passed(lower - 1)
    more, read = _spare(relevant), sum(delta.bytes for delta in deltas.values())
    # Rows of a temporal filter come and go at times of their own, whatever the times of the updates.
    at_once = not dataflow.rendered.temporal and _have_one_time(relevant)
    while True:
        # What is looked up is the same for both engines; which of them runs the statement depends on what is found.
        found = LookupRun(
            dataflow.rendered.template(Engine.DUCKDB, changed, at_once=at_once).lookups,
            relevant,
            dataflow.readable(),
            lower - 1,
            upper,
            tools.driver,
            more,
            tools.settings,
        ).run()
        read += found.stats.bytes
        work = _Work(dataflow, lower, upper, tools, deltas=deltas, relevant=relevant, found=found)
        try:
            rows_out, jobs = work.run(changed, at_once=at_once)
            break
        except _TooFew as too_few:
            # Nothing is written yet, so the step can be repeated. Each time more rows are read, in the end whole groups.
            more = too_few.more
    return RefreshStats(
        dataflow.gid,
        lower,
        upper,
        rows_in,
        rows_out,
        read + sum(one.take_loaded() for one in dataflow.readable().values()),
        jobs,
        time.monotonic() - started,
        engine=work.engine.value,
        reason=work.reason,
    )


def _pass_over(dataflow: Dataflow, lower: Timestamp, upper: Timestamp, *, among: bool) -> None:
    """Record that a step has nothing to do. `among` tells whether there were updates, none of which matters.

    Without updates the arrangements stay behind: the next step reads the inputs from their uppers on, and finds no
    more. Where another deployment writes the view, however, the arrangements' uppers are the dataflow's frontier, so
    they advance.
    """
    assert dataflow.output is not None
    for target in dataflow.targets() if among or dataflow.only_follows else (dataflow.output,):
        target.pass_over(lower, upper)


def _due(dataflow: Dataflow, lower: Timestamp, upper: Timestamp) -> bool:
    """Whether a row appears or disappears in the step without any update. May say yes in vain: such an event may have
    been retracted.
    """
    if not dataflow.rendered.temporal:
        return False
    for lookup in dataflow.rendered.lookups:
        if lookup.due:
            arrangement = dataflow.arrangements[lookup.arrangement]
            trace = arrangement.trace(lower - 1)
            if trace is not None:
                with arrangement.hot.reading():
                    if trace.between(lower, upper - 1, lower - 1).count:
                        return True
                continue
            ranges = [(lower, upper - 1)]
            if not arrangement.fits_driver(arrangement.parts(lower - 1), ranges):
                return True
            if arrangement.read(lower - 1, key_ranges=ranges).num_rows:
                return True
    return False


def _have_one_time(relevant: Mapping[str, pa.Table | None]) -> bool:
    """Whether all updates that matter have the same time, as those of one tick do; False if some are not on the driver."""
    times = set[Timestamp]()
    for table in relevant.values():
        if table is None:
            return False
        if table.num_rows:
            # NumPy's loops are warm where a step runs; each function of Arrow's is code that after a pause comes from memory.
            found = integers_of(table.column(TIME_COLUMN))
            times |= {int(np.minimum.reduce(found)), int(np.maximum.reduce(found))}
    return len(times) == 1


#: The most spare rows with which a group's first rows are read; if a step removes more of them, groups are read whole.
_MOST_SPARE = 1024


def _spare(relevant: Mapping[str, pa.Table | None]) -> int | None:
    """How many of a group's first rows a step may take away, as far as the deltas tell; None: read groups whole."""
    gone = 0
    for table in relevant.values():
        if table is None:
            return None
        gone += int(np.count_nonzero(integers_of(table.column(DIFF_COLUMN)) < 0))
    # A guess: a join makes many retractions of one, a filter none. `_check_firsts` compares it with what the step
    # takes away.
    return min(gone, _MOST_SPARE)


def _recursive(
    dataflow: Dataflow, deltas: Mapping[str, Delta], lower: Timestamp, upper: Timestamp
) -> dict[str, Delta]:
    """The changes of the dataflow's recursive nodes in this step, in the form of input deltas."""
    updates = {name: one.table for name, one in deltas.items()}
    made = dataflow.fixpoints.changes(dataflow.inputs, updates, lower, upper)
    source = dataflow.inputs[0]
    return {name: Delta(source, rows.num_rows, rows.nbytes, rows) for name, rows in made.items()}


class _TooFew(Exception):
    """A step took away more of a group's first rows than were read beyond those it needs."""

    def __init__(self, more: int | None) -> None:
        super().__init__()
        #: how many it takes away at most; None: read groups whole
        self.more = more


class _Work:
    """The part of a step that runs the statement and writes its result."""

    def __init__(
        self,
        dataflow: Dataflow,
        lower: Timestamp,
        upper: Timestamp,
        tools: StepTools,
        *,
        deltas: Mapping[str, Delta],
        relevant: Mapping[str, pa.Table | None],
        found: Found,
    ) -> None:
        self.dataflow = dataflow
        self.lower = lower
        self.upper = upper
        self.tools = tools
        self.deltas = deltas
        self.relevant = relevant
        self.found = found
        many = [name for name, one in deltas.items() if one.table is None]
        large = [*many, *found.pushed]
        self.large = bool(large)
        self.joins = Joins.OPEN if many else Joins.STREAMED if large else Joins.TOGETHER
        #: on Spark times are counted from here
        self.base = 0
        self.engine, self.reason = self._chosen(large)

    def _chosen(self, large: Sequence[str]) -> tuple[Engine, str]:
        """Choose the engine; return it and the reason, for a person."""
        # What is not on the driver DuckDB cannot read, also where the cluster asks for it.
        asked = self.tools.settings.engine
        if large:
            what = f"more of {', '.join(sorted(large))} is touched than fits in process"
            return Engine.SPARK, what if asked != Engine.SPARK.value else "step_engine is spark"
        refused = {one: why for one in Engine if (why := self.tools.refusals.instead_of(one))}
        if asked == "auto" and refused:
            ((engine, why),) = refused.items()
            return other_than(engine), why
        deltas = sum(one.rows for one in self.deltas.values())
        looked_up = sum(table.num_rows for table in self.found.tables.values())
        touched = f"{deltas} updates touch {looked_up} rows of state"
        if asked != "auto":
            return Engine(asked), f"step_engine is {asked}; {touched}"
        return Engine.DUCKDB, touched

    def run(self, changed: Sequence[str], *, at_once: bool) -> tuple[int, int]:
        """Run the statement and write its result.

        Args:
            changed: the deltas that have rows.
            at_once: whether all of their rows have one time.

        Returns:
            The number of rows in the output's delta, and of Spark jobs.
        """
        rendered = self.dataflow.rendered
        template = rendered.template(self.engine, changed, at_once=at_once)
        if template.step is None:
            return self._write_nothing(), 0
        if self.engine is Engine.DUCKDB:
            whole = rendered.template(self.engine, at_once=at_once)
            known = {name: one.fact for name, one in self.deltas.items()}
            texts = Texts(template, whole, self.tools.driver, self.tools.later, known)
            return self._run_here(texts, template.step), 0
        return self._run_on_spark(template, template.step)

    def _run_here(self, texts: Texts, step: Step) -> int:
        own: dict[str, pa.Table] = {}
        for name in step.reads:
            table = self._table(name)
            assert table is not None
            own[name] = table
        chosen, tables = texts.choose(own, self._empty, goes_on=self.dataflow.goes_on)
        text = chosen.text
        rows: pa.Table | Mapping[int, pa.Table] | None = None
        if text is None and not chosen.straight:
            return self._write_nothing()
        tools = self.tools
        if text is not None:
            given = {name: tables[name] for name in chosen.reads}
            rows = tools.driver.in_arrays(text, self.lower, self.upper, given, self._columns(step))
            if rows is None:
                rows = tools.driver.step(text, self.lower, self.upper, given, tools.later)
        result = StepResult(rows, chosen.straight, tables)
        self._check_firsts(step, result)
        return self._write(step, result)

    def _columns(self, step: Step) -> dict[int, tuple[list[str], pa.Schema]]:
        """By output the names of its columns in the statement's result, and what they become."""
        made = {}
        for output in step.outputs:
            schema = self._target(output).updates_schema
            made[output.tag] = result_names(output, schema), schema
        return made

    def _check_firsts(self, step: Step, result: StepResult | None) -> None:
        """Check that enough rows of each group were read, now that it is known what the step takes away. A `result` of
        None is not on the driver.

        Raises:
            _TooFew: more rows are needed, or it cannot be told.
        """
        if not self.found.firsts:
            return
        if result is None:
            raise _TooFew(None)
        lacking = 0
        for output in step.outputs:
            firsts = self.found.firsts.get(output.arrangement or "")
            if firsts is not None:
                rows = self._rows_of(result, output)
                lacking = max(lacking, firsts.lacking(rows))
        if lacking:
            raise _TooFew(lacking if lacking <= _MOST_SPARE else None)

    def _rows_of(self, result: StepResult, output: StepOutput) -> pa.Table:
        """The updates of one output in a step's result."""
        rows = result.rows(output, self._target(output).updates_schema)
        refresh = self._refresh(output)
        return rows if refresh is None else rounded(rows, refresh)

    def _refresh(self, output: StepOutput) -> RefreshSchedule | None:
        """The schedule by which an output's changes take effect; None if they do at once."""
        return self.dataflow.spec.refresh if output.arrangement is None else None

    def _run_on_spark(self, template: StepTemplate, step: Step) -> tuple[int, int]:
        tools = self.tools
        session = tools.large_session() if self.large else tools.session()
        # Spark compiles code for each statement, and a number in the text is part of it: with absolute times it would
        # compile every step anew.
        if not self.large and template.timeless:
            self.base = self.lower - 1
        what = f"step [{self.lower}, {self.upper})"
        with (
            named_jobs(
                session, self.dataflow.gid, self.dataflow.rendered.lir_ids, what, STEP_POOL
            ) as count,
            tempfile.TemporaryDirectory(prefix="mzsql-step-") as scratch,
        ):
            self._register(session, step.reads, Path(scratch))
            views, kept = list(step.reads), list[DataFrame]()
            try:
                *parts, last = template.pieces(self.joins)
                for part in parts:
                    assert part.name is not None
                    self._keep(session, part, Path(scratch), kept)
                    views.append(part.name)
                rows = self._collect(session, step, last)
                result = None if rows is None else StepResult(rows)
                self._check_firsts(step, result)
                rows_out = (
                    self._write_by_spark(session, step, last)
                    if result is None
                    else self._write(step, result)
                )
            finally:
                for name in views:
                    session.catalog.dropTempView(name)
                for frame in kept:
                    frame.unpersist()
        return rows_out, count.jobs

    def _result(self, session: SparkSession, part: TextPiece) -> DataFrame:
        register(session, part.text.statement)
        return session.sql(part.text.at(self.lower - self.base, self.upper - self.base))

    def _table(self, name: str) -> pa.Table | None:
        """A relation of the statement that is on the driver; None if it is not."""
        if name in self.relevant:
            return self.relevant[name]
        return self.found.tables.get(name)

    def _empty(self, name: str) -> pa.Table:
        """A relation of the statement in which this step touches nothing."""
        table = self._table(name)
        if table is not None and not table.num_rows:
            return table
        return empty_relation(self.dataflow, name)

    def _register(self, session: SparkSession, reads: Sequence[str], scratch: Path) -> None:
        rows = self.tools.settings.inline_rows
        for name in reads:
            table = self._table(name)
            if table is not None:
                frame = arrow_frame(
                    session, _shifted(table, -self.base), scratch=scratch, inline_rows=rows
                )
            elif name in self.deltas:
                delta = self.deltas[name]
                between = (self.lower, self.upper)
                frame = parts_frame(session, delta.parts, delta.source.schema, between=between)
            elif name in self.found.pushed:
                pushed = self.found.pushed[name]
                frame = pushed.arrangement.frame(
                    session, pushed.parts, self.lower - 1, pushed.ranges
                )
            else:
                raise InternalError(f"a step of {self.dataflow.gid} reads {name}, which is unknown")
            self._show(frame, name)

    def _show(self, frame: DataFrame, name: str) -> None:
        """Register a relation. Few rows are put into one partition, so that Spark plans no shuffles for them."""
        shown = frame.coalesce(1) if self.joins is Joins.TOGETHER else frame
        shown.createOrReplaceTempView(name)

    def _keep(
        self, session: SparkSession, part: TextPiece, scratch: Path, kept: list[DataFrame]
    ) -> None:
        """Compute a piece that later pieces read: on the driver if it is small, else cached in Spark until the step is
        over.
        """
        frame = self._result(session, part)
        # A large step goes on where its rows are: fetching them to the driver and sending them back would cost more
        # than a cached frame.
        if not self.large:
            settings = self.tools.settings
            width = VALUE_BYTES * len(frame.columns)
            bound = max(1, min(settings.driver_rows, settings.driver_bytes // width))
            rows = at_most(frame, bound + 1).toArrow()
            if rows.num_rows <= bound:
                frame = arrow_frame(
                    session, rows, scratch=scratch, inline_rows=settings.inline_rows
                )
                assert part.name is not None
                self._show(frame, part.name)
                return
        frame = frame.persist()
        kept.append(frame)
        frame.createOrReplaceTempView(part.name)

    def _collect(self, session: SparkSession, step: Step, last: TextPiece) -> pa.Table | None:
        """The whole result, or None if it is too large for the driver."""
        if self.large:
            return None
        frame = self._result(session, last)
        bound = collectable_rows(with_time(arrow_schema(step.columns)), self.tools.settings)
        rows = at_most(frame, bound + 1).toArrow()
        return None if rows.num_rows > bound else _shifted(rows, self.base)

    def _target(self, output: StepOutput) -> Target:
        if output.arrangement is not None:
            return self.dataflow.arrangements[output.arrangement]
        assert self.dataflow.output is not None
        return self.dataflow.output

    def _in_order(self, step: Step) -> list[StepOutput]:
        """The arrangements first, the output last: whoever sees the output's upper may rely on everything it is made
        of.
        """
        return sorted(step.outputs, key=lambda output: output.arrangement is None)

    def _write_nothing(self) -> int:
        for target in self.dataflow.targets():
            target.pass_over(self.lower, self.upper)
        return 0

    def _write(self, step: Step, result: StepResult) -> int:
        rows_out = 0
        for output in self._in_order(step):
            target = self._target(output)
            rows = self._rows_of(result, output)
            if output.arrangement is None:
                rows_out = rows.num_rows
            if rows.num_rows:
                target.append(rows, self.lower, self.upper)
            else:
                target.pass_over(self.lower, self.upper)
        return rows_out

    def _write_by_spark(self, session: SparkSession, step: Step, last: TextPiece) -> int:
        """Let the executors write the result. Each output is a scan of it, so it is cached in Spark meanwhile to be
        computed once.
        """
        result = self._result(session, last)
        if self.base:
            result = result.withColumn("mz_time", F.col("mz_time") + F.lit(self.base))
        result = result.persist()
        rows_out = 0
        try:
            for output in self._in_order(step):
                target = self._target(output)
                # Asked for anew for each output: a run of the step that crashed, or another replica, has perhaps
                # written some of them.
                at: Frontier = target.upper()
                if at is None or at >= self.upper:
                    continue
                full = with_time(target.schema)
                frame = result.where(F.col("mz_tag") == F.lit(output.tag)).select(
                    *(
                        F.col(name).cast(one.dataType).alias(one.name)
                        for name, one in zip(
                            result_names(output, full), spark_schema(full), strict=True
                        )
                    )
                )
                refresh = self._refresh(output)
                if refresh is not None:
                    frame = rounded_frame(frame, refresh)
                # What the shard has of the span it has from the same inputs, so it is the same; only the rest is
                # lacking.
                rest = frame.where(F.col("mz_time") >= F.lit(at))
                _, rows = target.adopt(rest, at, self.upper)
                if output.arrangement is None:
                    rows_out = rows
        finally:
            result.unpersist()
        return rows_out


def _shifted(table: pa.Table, by: int) -> pa.Table:
    """A relation with its times moved by `by` milliseconds."""
    if not by or not table.num_rows:
        return table
    position = table.schema.get_field_index("mz_time")
    times = pc.add(table.column(position), by)
    return table.set_column(position, table.schema.field(position), times)
