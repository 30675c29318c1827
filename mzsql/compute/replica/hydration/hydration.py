"""Hydration on Spark: fills a dataflow's arrangements and output from nothing at one time, node by node and worker by worker.

Promise: each stage is one statement, which Spark runs under its node's name. What it fills is in the shard when it ends, and is kept if
a later stage fails: the next attempt continues from there. A worker of a node is reported hydrated when its share is written; if the
write or its publication then fails, the report is taken back. What exists already is reported at once. What it does, also while it waits
for Spark to start, is said about once a second, with what each worker has put out until then. When the dataflow is not wanted
any more (dropped, or the process closes) its Spark jobs are cancelled and unfinished shards deleted.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.engines.jobs import JobCount, cancelled_when, named_jobs
from mzsql.compute.engines.relations import (
    arrow_frame,
    collectable_rows,
    parts_frame,
    rows_at,
    spark_schema,
)
from mzsql.compute.engines.spark_session import HYDRATION_POOL
from mzsql.compute.engines.statements import run as run_statement
from mzsql.compute.engines.statements import run_over
from mzsql.compute.protocol import (
    RefreshStats,
)
from mzsql.compute.replica.arrangements.arrangement import Arrangement, ArrangementDesc
from mzsql.compute.replica.arrangements.arrangement_shards import ArrangementShards
from mzsql.compute.replica.dataflows.dataflow import Dataflow, arrangement_desc
from mzsql.compute.replica.dataflows.elapsed import Elapsed
from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.hydration.databases import HydrationDatabases
from mzsql.compute.replica.hydration.filling import Beside, Filling, Reading
from mzsql.compute.replica.hydration.progress import Progress
from mzsql.compute.replica.hydration.report import HydrationReport
from mzsql.compute.replica.target import Target, with_time
from mzsql.compute.replica.written_files import Files
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.location import LocationError
from mzsql.persist import PartRef, PersistClient, consolidate
from mzsql.render.rendered import HydrationStage
from mzsql.render.statement import ERROR, Ast, col
from mzsql.render.updates import consolidated, difference
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Timestamp
from mzsql.threads import PROCESS, Supervised

_LOG = logging.getLogger(__name__)

_ERRORS = pa.schema([pa.field("mz_error", pa.string()), pa.field("mz_diff", pa.int64())])

#: Pause between two listings of the files of a running write, in seconds.
_LOOK_SECONDS = 0.1


class Hydration:
    """One attempt to fill what a dataflow lacks."""

    def __init__(
        self,
        dataflow: Dataflow,
        report: HydrationReport,
        *,
        session: Callable[[], SparkSession],
        arrangements: ArrangementShards,
        persist: PersistClient,
        settings: ComputeSettings,
        stopped: Callable[[], bool],
        reason: str,
        doing: Callable[[str, int | None], None],
        elapsed: Elapsed,
        beside: Beside,
        databases: HydrationDatabases,
        let_steps_pass: Callable[[], None],
    ) -> None:
        """Prepare; `reason` says why this engine was chosen, `doing` takes progress and node, `elapsed` times, `beside` sorts for
        traces, `databases` are what DuckDB runs in, `let_steps_pass` is called between two parts of the work.
        """
        self._dataflow = dataflow
        self._report = report
        self._make_session = session
        self._session: SparkSession | None = None
        self._arrangements = arrangements
        self._persist = persist
        self._settings = settings
        self._stopped = stopped
        self._reason = reason
        self._doing = doing
        self._elapsed = elapsed
        self._beside = beside
        self._databases = databases
        self._let_steps_pass = let_steps_pass
        #: traces of what was filled, by arrangement name
        self._traces: dict[str, Filling | Reading] = {}
        self._looked_into = {one.arrangement for one in dataflow.rendered.lookups}
        self._registered: set[str] = set()
        self._alive: list[PartRef] = []  # parts that Spark may read are kept from being collected
        self._sizes: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._rows_out = 0
        self._jobs = 0
        #: error rows of the stages before the output's: (mz_error, mz_diff), or a folder of Parquet files if they are many
        self._errors: list[pa.Table | Path] = []
        #: reserved shard ids for what is missing
        self._reserved: list[str] = []
        #: filled arrangements that are not in the registry yet
        self._filled: list[Arrangement] = []
        #: the nodes that were reported hydrated with each arrangement
        self._completed: dict[str, tuple[int, ...]] = {}
        self._published_at = 0.0
        self._progress = Progress(doing, report)
        #: a directory for what Spark is to read, or left, until the run ends
        self._scratch: Path

    def run(self) -> RefreshStats:
        """Run the stages whose target is missing, in order, until the dataflow is not wanted any more. Returns the statistics."""
        dataflow, progress = self._dataflow, self._progress
        started = time.monotonic()
        missing = frozenset(desc.name for desc in dataflow.missing)
        with (
            tempfile.TemporaryDirectory(prefix="mzsql-hydration-") as scratch,
            self._publishing(),
            cancelled_when(self._stopped, JobCount(progress.cancel), progress.tell),
        ):
            self._scratch = Path(scratch)
            for stage in dataflow.rendered.hydration(Engine.SPARK, dataflow.as_of):
                if self._stopped():
                    break
                try:
                    self._fill(stage, missing)
                except Exception as error:
                    if not self._stopped():
                        raise
                    # most likely because its jobs were ended
                    _LOG.info("the hydration of %s was given up: %s", dataflow.gid, error)
                    break
        self._alive.clear()
        return RefreshStats(
            dataflow.gid,
            dataflow.as_of,
            dataflow.as_of + 1,
            0,
            self._rows_out,
            sum(self._sizes.values()),
            self._jobs,
            time.monotonic() - started,
            "hydration",
            "spark",
            self._reason,
        )

    def hand_over(self) -> None:
        """Give the filled arrangements their traces. Waits for those that are still being built."""
        traces, self._traces = self._traces, {}
        for name, one in traces.items():
            self._doing(f"sorts {name} for the steps to come", None)
            one.hand_over()

    def _filling(self, arrangement: Arrangement) -> Filling | None:
        """What collects the rows written to an arrangement for its trace; None if no step looks into it."""
        if arrangement.desc.name not in self._looked_into:
            return None
        as_of = self._dataflow.as_of
        return Filling(arrangement, as_of, self._most_made, self._beside, self._stopped)

    @property
    def _most_made(self) -> int:
        """Most updates of an arrangement whose trace is built here."""
        return min(self._settings.hot_rows, self._settings.warm_rows)

    def _written(self, arrangement: Arrangement, filling: Filling | None) -> None:
        """Record that the rows of an arrangement are in its shard."""
        if filling is not None:
            filling.end()
            self._traces[arrangement.desc.name] = filling

    def _fill(self, stage: HydrationStage, missing: frozenset[str]) -> None:
        self._let_steps_pass()
        to_fill = stage.target is None or stage.target in missing
        if to_fill:
            self._progress.anew()
            self._progress.begin(_computing(stage), stage.lir_id)
        if stage.target is not None:
            self._completed[stage.target] = stage.completes
        try:
            with self._elapsed.at(stage.lir_id) if to_fill else contextlib.nullcontext():
                self._fill_target(stage, missing)
        except BaseException:
            self._report.node_undone(stage.completes)
            raise
        if to_fill:
            self._progress.end(stage.lir_id)
        self._report.node_done(stage.completes)

    def _fill_target(self, stage: HydrationStage, missing: frozenset[str]) -> None:
        if stage.target is None:
            if self._dataflow.export_to_hydrate():
                self._fill_export(stage)
        elif stage.target in missing:
            self._fill_arrangement(stage, stage.target)
        elif stage.has_errors and self._dataflow.export_to_hydrate():
            # what it fills is there, the errors that belong to the export are not
            self._only_errors(stage)

    def _fill_arrangement(self, stage: HydrationStage, name: str) -> None:
        dataflow = self._dataflow
        (spec,) = (one for one in dataflow.rendered.arrangements if one.name == name)
        arrangement = self._begin(arrangement_desc(spec))
        try:
            self._write(stage, arrangement, 0, corrected=None)
        except BaseException:
            self._arrangements.release(arrangement, retire=True)
            raise
        self._filled.append(arrangement)
        order = [one.name for one in dataflow.rendered.arrangements]
        filled = {**dataflow.arrangements, name: arrangement}
        dataflow.arrangements = {one: filled[one] for one in order if one in filled}
        dataflow.missing = [desc for desc in dataflow.missing if desc.name != name]
        if time.monotonic() - self._published_at >= self._settings.publish_seconds:
            self._publish()

    def _begin(self, desc: ArrangementDesc) -> Arrangement:
        """Begin an arrangement on a reserved shard; the shards of all missing ones are reserved with one write."""
        if not self._reserved:
            export = self._dataflow.output_desc is not None and self._dataflow.export_to_hydrate()
            self._reserved = self._arrangements.reserve(len(self._dataflow.missing) + export)
        return self._arrangements.begin(desc, self._reserved.pop(), self._dataflow.as_of)

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        """Record what the stages have filled, however they end."""
        self._published_at = time.monotonic()
        try:
            yield
        finally:
            try:
                self._publish()
            finally:
                self._arrangements.give_back(self._reserved)

    def _publish(self) -> None:
        """Record what was filled in the registry; if that fails it counts as not filled."""
        filled, self._filled = self._filled, []
        try:
            if filled:
                self._arrangements.publish(filled, self._dataflow.as_of)
        except BaseException:
            dataflow = self._dataflow
            for one in filled:
                del dataflow.arrangements[one.desc.name]
                self._traces.pop(one.desc.name, None)
                dataflow.missing.append(one.desc)
                self._report.node_undone(self._completed.get(one.desc.name, ()))
            each_by_itself(partial(self._arrangements.release, one, retire=True) for one in filled)
            raise
        self._published_at = time.monotonic()

    def _fill_export(self, stage: HydrationStage) -> None:
        dataflow = self._dataflow
        self._publish()
        if dataflow.output_desc is None:
            output = dataflow.output
            assert output is not None
            upper = output.upper()
            if upper is None or upper > dataflow.as_of:
                return  # another replica did it
            self._write(stage, output, upper, corrected=output.shard_id if upper else None)
            return
        old = dataflow.output
        index = self._begin(dataflow.output_desc)
        try:
            self._write(stage, index, 0, corrected=None)
            self._arrangements.publish([index], dataflow.as_of)
        except BaseException:
            self._arrangements.release(index, retire=True)
            raise
        if isinstance(old, Arrangement):
            self._arrangements.release(old, retire=False)
        dataflow.output = index

    def _write(
        self,
        stage: HydrationStage,
        target: Target,
        upper: Timestamp,
        *,
        corrected: str | None,
    ) -> None:
        """Run a stage and append its result at as_of to a shard whose upper is `upper`.

        `corrected`: the shard has contents already; append the difference that makes it right from as_of on.
        """
        with self._running(stage) as (session, result):
            if stage.target is not None:
                assert isinstance(target, Arrangement)
                self._write_arrangement(stage, result, target, upper)
                return
            full = with_time(target.schema)
            frame = self._with_errors(session, self._shaped(result, full), full)
            if corrected is not None:
                frame = self._correction(session, frame, target, upper)
            self._rows_out = self._store(stage, frame, target, upper)

    def _shaped(self, rows: DataFrame, full: pa.Schema) -> DataFrame:
        """A stage's rows as updates at as_of, in the columns of `full`."""
        timed = rows.withColumn("mz_time", F.lit(self._dataflow.as_of).cast("bigint"))
        return timed.select(
            *(F.col(one.name).cast(one.dataType).alias(one.name) for one in spark_schema(full))
        )

    def _store(
        self, stage: HydrationStage, frame: DataFrame, target: Target, upper: Timestamp
    ) -> int:
        """Append the output's rows; return their number."""
        full = with_time(target.schema)
        rows = self._collect(stage, frame, full)
        if rows is None:
            return self._adopt(stage, frame, target, upper)
        # Exact, since contents, or the difference to what was there, are right only on top of what the shard had when
        # they were computed.
        target.append(rows.cast(full), upper, self._dataflow.as_of + 1, exact=True)
        return int(rows.num_rows)

    def _write_arrangement(
        self,
        stage: HydrationStage,
        result: DataFrame,
        target: Arrangement,
        upper: Timestamp,
    ) -> None:
        """Append a stage's rows without errors, and remember its error rows; a second Spark job runs only for many errors."""
        full = with_time(target.schema)
        with_error = full.insert(len(target.schema), pa.field("mz_error", pa.string()))
        rows = self._collect(stage, self._shaped(result, with_error), full)
        if rows is not None:
            errors = pc.is_valid(rows.column("mz_error"))
            self._errors.append(consolidate(rows.filter(errors).select(_ERRORS.names)))
            good = rows.filter(pc.invert(errors)).select(full.names).cast(full)
            target.append(good, upper, self._dataflow.as_of + 1, exact=True)
            filling = self._filling(target)
            if filling is not None:
                for batch in target.as_stored(good).to_batches():
                    filling.add(batch)
            self._written(target, filling)
            return
        counted = Observation()
        if stage.has_errors:
            seen = result.observe(counted, F.count("mz_error").alias("errors"))
            made = seen.where(F.col("mz_error").isNull())
        else:
            made = result
        written = self._adopt(stage, self._shaped(made, full), target, upper)
        if target.desc.name in self._looked_into and written <= self._most_made:
            as_of = self._dataflow.as_of
            self._traces[target.desc.name] = Reading(target, as_of, self._beside, self._stopped)
        if stage.has_errors and counted.get["errors"]:
            self._keep_errors(result)

    def _adopt(
        self, stage: HydrationStage, frame: DataFrame, target: Target, upper: Timestamp
    ) -> int:
        """Have Spark write a stage's rows; return their number."""
        running = _Watch(self._report, stage.completes, self._progress.seen).run
        # A join may make more rows than it reads, and a reduction fewer: that makes row groups somewhat smaller or larger, no more.
        about = max((self._rows[name] for name in stage.reads), default=None)
        end = self._dataflow.as_of + 1
        _, written = target.adopt(frame, upper, end, exact=True, running=running, rows=about)
        return written

    @contextlib.contextmanager
    def _running(self, stage: HydrationStage) -> Iterator[tuple[SparkSession, DataFrame]]:
        """Register what the stage reads, and yield the statement's result, whose jobs bear the node's name."""
        if self._session is None:
            self._progress.begin("waits until Spark has started", stage.lir_id)
            self._session = self._make_session()
            self._progress.begin(_computing(stage), stage.lir_id)
        session, gid = self._session, self._dataflow.gid
        with (
            named_jobs(session, gid, [stage.lir_id], "hydrate", HYDRATION_POOL) as count,
            self._progress.cancellable(count),
        ):
            for name in stage.reads:
                self._check_wanted()
                self._relation(session, name)
            self._check_wanted()
            yield session, run_statement(session, stage.statement)
        self._jobs += count.jobs

    def _check_wanted(self) -> None:
        if self._stopped():
            raise _Unwanted(f"{self._dataflow.gid} is not to be filled any more")

    def _only_errors(self, stage: HydrationStage) -> None:
        with self._running(stage) as (_, result):
            self._keep_errors(result)

    def _keep_errors(self, result: DataFrame) -> None:
        """Remember a stage's error rows for the output."""
        failed = [s.is_not_null(col(ERROR))]
        errors = consolidated("stage", [col(ERROR)], where=failed)
        summed = run_over(result.sparkSession, errors, stage=result)
        bound = collectable_rows(_ERRORS, self._settings)
        rows = summed.limit(bound + 1).toArrow().cast(_ERRORS)
        if rows.num_rows <= bound:
            self._errors.append(rows)
            return
        folder = self._scratch / f"errors-{len(self._errors)}"
        summed.write.parquet(str(folder))
        self._errors.append(folder)

    def _with_errors(self, session: SparkSession, frame: DataFrame, full: pa.Schema) -> DataFrame:
        """The output's rows and the error rows of the stages below it."""
        as_of = F.lit(self._dataflow.as_of).cast("bigint")
        for errors in self._errors:
            if isinstance(errors, Path):
                kept = session.read.schema(spark_schema(_ERRORS)).parquet(str(errors))
            elif errors.num_rows:
                kept = arrow_frame(session, errors)
            else:
                continue
            given = {"mz_error": F.col("mz_error"), "mz_diff": F.col("mz_diff"), "mz_time": as_of}
            frame = frame.unionAll(
                kept.select(
                    *(
                        given.get(one.name, F.lit(None)).cast(one.dataType).alias(one.name)
                        for one in spark_schema(full)
                    )
                )
            )
        return frame

    def _collect(self, stage: HydrationStage, frame: DataFrame, full: pa.Schema) -> pa.Table | None:
        """The rows of a small stage, at most as many as fit the driver's bounds for the schema; None if Spark has to write them."""
        size = sum(self._sizes[name] for name in stage.reads)
        if size > self._settings.small_hydration_bytes:
            return None
        bound = collectable_rows(full, self._settings)
        rows = frame.limit(bound + 1).toArrow()
        return None if rows.num_rows > bound else rows

    def _relation(self, session: SparkSession, name: str) -> None:
        if name in self._registered:
            return
        as_of, dataflow = self._dataflow.as_of, self._dataflow
        snaps = {f"snap_{one.spec.id}": one for one in dataflow.inputs}
        source = snaps.get(name)
        arrangement = dataflow.readable().get(name)
        if source is not None:
            parts, schema = list(source.parts(as_of)), source.schema
        elif arrangement is not None:
            parts, schema = arrangement.parts(as_of), arrangement.schema
        else:
            raise InternalError(f"hydration of {dataflow.gid} reads {name}, which is unknown")
        self._alive += parts
        self._sizes[name] = sum(part.bytes for part in parts)
        self._rows[name] = sum(part.rows for part in parts)
        if self._rows[name] <= self._settings.inline_rows:
            # few rows: reading them here is cheaper than a scan of files
            rows = rows_at(parts, with_time(schema), as_of)
            rows = rows if arrangement is None else arrangement.rows(rows)
            frame = arrow_frame(session, rows, scratch=self._scratch)
        elif arrangement is not None:
            frame = arrangement.frame(session, parts, as_of)
        else:
            frame = parts_frame(session, parts, schema, as_of=as_of)
        if source is not None:
            frame = frame.drop("mz_time")
        frame.createOrReplaceTempView(name)
        self._registered.add(name)

    def _correction(
        self, session: SparkSession, frame: DataFrame, target: Target, upper: Timestamp
    ) -> DataFrame:
        reader = self._persist.open_reader(target.shard_id, timeout=self._settings.timeout)
        try:
            parts = reader.parts(upper - 1, timeout=self._settings.timeout)
        finally:
            reader.expire()
        self._alive += parts
        before = parts_frame(session, parts, target.schema, as_of=upper - 1)
        names = target.schema.names
        row: list[Ast] = [col(name) for name in names]
        statement = difference("after", "before", row)
        changed = run_over(session, statement, after=frame, before=before)
        time_column = F.lit(self._dataflow.as_of).cast("bigint").alias("mz_time")
        return changed.select(*names, time_column, "mz_diff")


class _Unwanted(Exception):
    """The dataflow is not wanted any more; never leaves this module."""


def _computing(stage: HydrationStage) -> str:
    what = "the export" if stage.target is None else "an arrangement"
    return f"computes and writes {what}"


class _Watch:
    """Lists the files of a running write, reports each worker whose file is complete, and gives `seen` their bytes by worker."""

    def __init__(
        self,
        report: HydrationReport,
        lir_ids: Sequence[int],
        seen: Callable[[Mapping[int | None, int]], None],
    ) -> None:
        self._report = report
        self._seen = seen
        self._lir_ids = tuple(lir_ids)

    def run(self, write: Callable[[], None], files: Callable[[], Files]) -> None:
        """Run the write on this thread, with a watcher beside it if nodes are reported."""
        if not self._report.tells_nodes:
            write()
            return
        ended = threading.Event()

        def look(thread: Supervised) -> None:
            while not ended.wait(_LOOK_SECONDS):
                try:
                    complete, sizes = files()
                except (OSError, LocationError):
                    # Spark moves files while they are listed; the next look, or the end of the write, will tell.
                    continue
                self._seen(sizes)
                self._report.node_done(self._lir_ids, sorted(complete))
                thread.well()

        watcher = PROCESS.start("hydration-watch", look, thread_name="mzsql-hydration-watch")
        try:
            write()
        finally:
            ended.set()
            watcher.stop()
            watcher.join()
