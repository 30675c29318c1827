"""Hydration without Spark: a dataflow's arrangements and export filled by DuckDB, in this process.

Promise: the same stages as on Spark, in the same order, with the same statuses, errors and shards; what differs is who runs them. Inputs
are read a part at a time, of each the columns that some stage names, into a database that goes to disk beyond its memory; what a stage
makes goes from there to the shard in batches. No JVM is started. Trade-off: one machine's cores, so what is large is faster on a cluster.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.engines.jobs import JobCount, cancelled_when
from mzsql.compute.engines.recursion import LoopText, texts
from mzsql.compute.protocol import RefreshStats
from mzsql.compute.replica.arrangement import Arrangement
from mzsql.compute.replica.filling import Filling
from mzsql.compute.replica.fixpoints import fill
from mzsql.compute.replica.hydration import Hydration
from mzsql.compute.replica.inputs import Input
from mzsql.compute.replica.target import Target, with_time
from mzsql.compute.replica.transient import load
from mzsql.expr.engines import WIDE_SETTINGS, is_wide, locked_connection, to_sql
from mzsql.expr.functions.table import Engine
from mzsql.persist import DIFF_COLUMN, TIME_COLUMN, WORKER_COLUMN, Batch
from mzsql.render.recursion import Recursion
from mzsql.render.rendered import HydrationStage
from mzsql.render.statement import Ast, col
from mzsql.render.updates import difference
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Timestamp

_LOG = logging.getLogger(__name__)

#: The words of a text, the columns that it reads (c0, c1, …) among them.
_WORD = re.compile(r"\w+")

#: Rows of a batch on the way from a stage to its shard.
_BATCH_ROWS = 122_880


class HydrationHere(Hydration):
    """One attempt to fill what a dataflow lacks, in process."""

    _duck: duckdb.DuckDBPyConnection
    _used: frozenset[str]
    _texts: Mapping[int, str]
    _last_use: Mapping[str, int]

    def run(self) -> RefreshStats:
        """Run the stages that are not there yet; ends early, with nothing lost, once it is not wanted any more."""
        dataflow, started = self._dataflow, time.monotonic()
        missing = frozenset(desc.name for desc in dataflow.missing)
        stages = dataflow.rendered.hydration(Engine.DUCKDB, dataflow.as_of)
        texts = {id(stage): to_sql(stage.statement, Engine.DUCKDB) for stage in stages}
        wide = any(is_wide(text) for text in texts.values())
        recursive = [text for one in dataflow.rendered.recursions for text in _texts(one)]
        self._used = frozenset(
            name for text in [*texts.values(), *recursive] for name in _WORD.findall(text)
        )
        with tempfile.TemporaryDirectory(prefix="mzsql-hydrate-") as scratch:
            settings = {**(WIDE_SETTINGS if wide else {}), "temp_directory": scratch}
            self._duck = locked_connection(settings=settings)
            with contextlib.closing(self._duck):
                self._duck.execute("CREATE TABLE mz_errors (mz_error VARCHAR, mz_diff BIGINT)")
                self._run_stages(stages, texts, missing, Path(scratch))
        return RefreshStats(
            dataflow.gid,
            dataflow.as_of,
            dataflow.as_of + 1,
            0,
            self._rows_out,
            sum(self._sizes.values()),
            0,
            time.monotonic() - started,
            "hydration",
            Engine.DUCKDB.value,
            self._reason,
        )

    def _run_stages(
        self,
        stages: tuple[HydrationStage, ...],
        texts: Mapping[int, str],
        missing: frozenset[str],
        scratch: Path,
    ) -> None:
        self._texts = texts
        self._last_use = {name: id(stage) for stage in stages for name in stage.reads}
        jobs = JobCount(self._duck.interrupt)
        at: list[Callable[[], None]] = []
        with (
            self._publishing(),
            cancelled_when(self._stopped, jobs, lambda: at[-1]() if at else None),
        ):
            for stage in stages:
                if self._stopped():
                    return
                at.append(self._progress(stage, jobs))
                try:
                    self._fill(stage, missing, scratch)
                except Exception as error:
                    if not self._stopped():
                        raise
                    # most likely because its statement was interrupted
                    _LOG.info("the hydration of %s was given up: %s", self._dataflow.gid, error)
                    return

    def _only_errors(self, stage: HydrationStage, scratch: Path) -> None:
        del scratch
        self._load_all(stage)
        self._with_errors_kept(stage)
        self._forget(stage)

    def _load_all(self, stage: HydrationStage) -> None:
        for name in stage.reads:
            self._load(name)

    def _with_errors_kept(self, stage: HydrationStage) -> None:
        """Make the table "stage" of a stage's result, and remember its errors for the export."""
        self._duck.execute(f"CREATE OR REPLACE TABLE stage AS {self._texts[id(stage)]}")
        self._duck.execute(
            "INSERT INTO mz_errors SELECT mz_error, CAST(sum(mz_diff) AS BIGINT) FROM stage"
            " WHERE mz_error IS NOT NULL GROUP BY mz_error"
        )

    def _write(
        self,
        stage: HydrationStage,
        target: Target,
        upper: Timestamp,
        scratch: Path,
        *,
        corrected: str | None,
    ) -> None:
        del scratch
        self._load_all(stage)
        rows = self._rows_of(stage, target)
        if corrected is not None:
            rows = self._corrected(rows, target, upper)
        end = self._dataflow.as_of + 1
        arrangement = None if stage.target is None else target
        filling = None
        if isinstance(arrangement, Arrangement):
            filling = self._filling(arrangement)
        batch = self._batch(rows, target, upper, end, filling)
        _, written = target.adopt_batch(batch, end, exact=True)
        if isinstance(arrangement, Arrangement):
            self._written(arrangement, filling)
        if stage.target is None:
            self._rows_out = written
        self._forget(stage)

    def _rows_of(self, stage: HydrationStage, target: Target) -> str:
        """The query for what a stage makes; computed by it, or before it where others read it too."""
        text = self._texts[id(stage)]
        listed = "".join(f'"{name}", ' for name in target.schema.names if name != "mz_error")
        if stage.target is None:
            if "mz_error" not in target.schema.names:
                return f"SELECT {listed}mz_diff FROM ({text})"
            nulls = "".join(
                f'NULL AS "{name}", ' for name in target.schema.names if name != "mz_error"
            )
            return (
                f"SELECT {listed}mz_error, mz_diff FROM ({text})"
                f" UNION ALL SELECT {nulls}mz_error, mz_diff FROM mz_errors"
            )
        if stage.has_errors:
            self._with_errors_kept(stage)
            text = "SELECT * FROM stage WHERE mz_error IS NULL"
        if stage.target not in self._last_use:
            return f"SELECT {listed}mz_diff FROM ({text})"
        self._duck.execute(
            f'CREATE OR REPLACE TABLE "{stage.target}" AS'
            f" SELECT {listed}CAST({self._dataflow.as_of} AS BIGINT) AS mz_time, mz_diff FROM ({text})"
        )
        self._registered.add(stage.target)
        return f'SELECT {listed}mz_diff FROM "{stage.target}"'

    def _forget(self, stage: HydrationStage) -> None:
        """Drop what no later stage reads."""
        if stage.has_errors:
            self._duck.execute("DROP TABLE IF EXISTS stage")
        for name in stage.reads:
            if self._last_use[name] == id(stage):
                self._duck.execute(f'DROP TABLE IF EXISTS "{name}"')
                self._registered.discard(name)

    def _corrected(self, rows: str, target: Target, upper: Timestamp) -> str:
        """What must change in a shard that has contents already."""
        reader = self._persist.open_reader(target.shard_id, timeout=self._settings.timeout)
        try:
            before = reader.snapshot_arrow(upper - 1, timeout=self._settings.timeout)
        finally:
            reader.expire()
        load(self._duck, "mz_before", before.drop_columns([TIME_COLUMN]))
        listed = "".join(f'"{name}", ' for name in target.schema.names)
        self._duck.execute(
            f"CREATE OR REPLACE TEMP VIEW mz_after AS SELECT {listed}mz_diff FROM ({rows})"
        )
        row: list[Ast] = [col(name) for name in target.schema.names]
        return to_sql(difference("mz_after", "mz_before", row), Engine.DUCKDB)

    def _batch(
        self,
        rows: str,
        target: Target,
        lower: Timestamp,
        upper: Timestamp,
        filling: Filling | None,
    ) -> Batch:
        """The rows at as_of as a batch for the target's shard, handed to its trace on the way."""
        full = with_time(target.schema)
        diff = "CAST(0 AS BIGINT)" if _additive(target) else DIFF_COLUMN
        listed = "".join(f'"{name}", ' for name in target.schema.names)
        items = f"{listed}CAST({self._dataflow.as_of} AS BIGINT) AS {TIME_COLUMN}, {diff} AS {DIFF_COLUMN}"
        if not isinstance(target, Arrangement) or target.workers == 1:
            made = self._read(f"SELECT {items} FROM ({rows})", full, filling)
            return target.writer.batch(made, lower=lower, upper=upper)
        worker = to_sql(target.worker_ast(Engine.DUCKDB), Engine.DUCKDB)
        text = f"SELECT {items}, CAST({worker} AS INTEGER) AS {WORKER_COLUMN} FROM ({rows})"
        made = self._read(text, full.append(pa.field(WORKER_COLUMN, pa.int32())), filling)
        return target.writer.batch_with_workers(made, lower=lower, upper=upper)

    def _read(self, query: str, schema: pa.Schema, filling: Filling | None) -> pa.RecordBatchReader:
        """A query's result as it comes; until it was read, nothing else runs on the connection."""
        made = _cast(self._duck.sql(query).to_arrow_reader(_BATCH_ROWS), schema)
        if filling is not None:
            made = _handed(made, filling)
        return pa.RecordBatchReader.from_batches(schema, made)

    # --- what is read ---

    def _check(self) -> None:
        if self._stopped():
            raise InternalError("the hydration is not wanted any more")

    def _load(self, name: str) -> None:
        """Have a relation of a statement as a table."""
        if name in self._registered:
            return
        recursion = next(
            (r for r in self._dataflow.rendered.recursions if r.relation == name), None
        )
        if recursion is not None:
            for one in recursion.inputs:
                self._load(one)
            fill(self._duck, recursion, self._check, name)
            self._registered.add(name)
            self._sizes[name] = 0
            return
        as_of, dataflow = self._dataflow.as_of, self._dataflow
        source = next((one for one in dataflow.inputs if f"snap_{one.spec.id}" == name), None)
        arrangement = dataflow.readable().get(name)
        if source is None and arrangement is None:
            raise InternalError(f"hydration of {dataflow.gid} reads {name}, which is unknown")
        owner: Input | Arrangement | None = source if source is not None else arrangement
        assert owner is not None
        parts = list(owner.parts(as_of))
        self._sizes[name] = sum(part.bytes for part in parts)
        columns = [one for one in owner.schema.names if one in self._used or one == "mz_error"]
        schema = pa.schema([owner.schema.field(one) for one in columns])
        full = with_time(schema)

        def batches() -> Iterator[pa.RecordBatch]:
            for part in parts:
                table = part.to_arrow(columns=columns).select(full.names).cast(full)
                if part.time_max > as_of:
                    table = table.filter(pc.less_equal(table.column(TIME_COLUMN), as_of))
                if source is not None:
                    yield from table.drop_columns([TIME_COLUMN]).to_batches()
                    continue
                assert arrangement is not None
                times = pa.repeat(pa.scalar(as_of, pa.int64()), table.num_rows)
                table = table.set_column(len(columns), TIME_COLUMN, times)
                yield from arrangement.rows(table).select(full.names).to_batches()

        shown = full if source is None else full.remove(len(columns))
        load(self._duck, name, pa.RecordBatchReader.from_batches(shown, batches()))
        self._registered.add(name)


def _texts(made: Recursion) -> list[str]:
    """All that a recursion runs."""

    def within(loops: Sequence[LoopText]) -> list[str]:
        return [
            text
            for loop in loops
            for one in loop.bindings
            for text in (one.statement, *within(one.loops))
        ]

    return [to_sql(made.statement, Engine.DUCKDB), *within(texts(made.loops))]


def _additive(target: Target) -> bool:
    return isinstance(target, Arrangement) and bool(target.desc.additive)


def _cast(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield batch.cast(schema)


def _handed(batches: Iterator[pa.RecordBatch], filling: Filling) -> Iterator[pa.RecordBatch]:
    """The batches, handed on without their workers too."""
    for batch in batches:
        names = [name for name in batch.schema.names if name != WORKER_COLUMN]
        filling.add(batch.select(names))
        yield batch
