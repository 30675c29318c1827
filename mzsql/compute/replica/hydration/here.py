"""Hydration without Spark: DuckDB, in this process, fills a dataflow's arrangements and output.

Promise: the stages are those that run on Spark, in the same order and with the same statuses, errors and shards.
A node that only reads an input is reported when that is read, each worker of the others when its files are written.
Inputs are read part by part, only columns that some stage names. A stage's result goes to its shard in batches as it
is produced, and is kept for the stages that read it: as Arrow up to `HELD_BYTES` for a hydration, beyond that in a
database that spills to disk (`compute.replica.hydration.relations`). No JVM is started. Trade-off: it uses one machine's cores, so
large inputs are faster on a cluster.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from mzsql.compute.engines.jobs import JobCount, cancelled_when
from mzsql.compute.engines.recursion import LoopText, texts
from mzsql.compute.protocol import RefreshStats
from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.dataflows.dataflow import Dataflow
from mzsql.compute.replica.dataflows.fixpoints import fill
from mzsql.compute.replica.dataflows.inputs import Input
from mzsql.compute.replica.dataflows.transient import given, load
from mzsql.compute.replica.hydration.filling import Filling
from mzsql.compute.replica.hydration.hydration import Hydration
from mzsql.compute.replica.hydration.relations import DuckDbRelations
from mzsql.compute.replica.target import Target, with_time
from mzsql.expr.engines import is_wide, to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.nodes import nodes
from mzsql.lir import plan as lir
from mzsql.persist import DIFF_COLUMN, TIME_COLUMN, WORKER_COLUMN, all_at, consolidate, until
from mzsql.render.nodes.recursion import Recursion
from mzsql.render.rendered import HydrationStage
from mzsql.render.statement import ERROR, Ast, col, named
from mzsql.render.updates import consolidated, difference
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Frontier, Timestamp

_LOG = logging.getLogger(__name__)

#: The words of a text, among them the columns that it reads (c0, c1, …).
_WORD = re.compile(r"\w+")

#: How many bytes of relations one hydration holds in memory as Arrow.
HELD_BYTES = 256 << 20

_WORKER = pa.field(WORKER_COLUMN, pa.int32())

#: The result of a stage that reads fewer rows than this is not streamed.
_FEW_ROWS = 100_000
#: Rows of a batch on the way from a stage to its shard (DuckDB's row group size).
_BATCH_ROWS = 122_880
#: Beyond this many bytes, error rows are summed up by text.
_ERROR_BYTES = 4 * 1024 * 1024


#: Functions of DuckDB that turn one row into several.
_MULTIPLIERS = frozenset(("UNNEST", "GENERATE_SERIES", "RANGE"))


def makes_no_rows(statement: exp.Expression) -> bool:
    """Whether each branch of a statement certainly puts out no more rows than it reads: nothing is joined, and no row becomes several."""
    if nodes(statement, exp.Join, exp.Lateral, exp.UDTF, exp.Values):
        return False
    return not any(
        str(call.this).upper() in _MULTIPLIERS for call in nodes(statement, exp.Anonymous)
    )


class HydrationHere(Hydration):
    """One attempt to fill what a dataflow lacks, in this process."""

    _duck: duckdb.DuckDBPyConnection
    _used: frozenset[str]
    _texts: Mapping[int, str]
    _last_use: Mapping[str, int]
    #: the nodes that pass on what each relation of an input has
    _gets: Mapping[str, frozenset[int]]
    _held: DuckDbRelations
    #: whether there are tables that do not go with the connection
    _has_tables: bool
    #: whether a stage had errors, which are in a table then
    _has_errors: bool

    def run(self) -> RefreshStats:
        """Run the stages that are missing. Ends early once the dataflow is not wanted any more; what was filled by then
        is kept.
        """
        dataflow, started = self._dataflow, time.monotonic()
        missing = frozenset(desc.name for desc in dataflow.missing)
        stages = dataflow.rendered.hydration(Engine.DUCKDB, dataflow.as_of)
        texts = {}
        for stage in stages:
            self._let_steps_pass()
            if self._stopped():
                break
            texts[id(stage)] = to_sql(stage.statement, Engine.DUCKDB)
        wide = any(is_wide(text) for text in texts.values())
        recursive = [text for one in dataflow.rendered.recursions for text in _texts(one)]
        self._used = frozenset(
            name for text in [*texts.values(), *recursive] for name in _WORD.findall(text)
        )
        with self._databases.one(wide=wide) as database:
            self._duck = database.connection
            self._held = DuckDbRelations(self._duck, HELD_BYTES)
            self._has_tables = self._has_errors = False
            done = self._run_stages(stages, texts, missing)
            database.clean = done and not self._has_tables and not self._held.has_tables
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
    ) -> bool:
        """Whether it got to the end."""
        self._texts = texts
        self._last_use = {name: id(stage) for stage in stages for name in stage.reads}
        self._gets = _gets(self._dataflow)
        jobs = JobCount(self._duck.interrupt)
        with self._publishing(), cancelled_when(self._stopped, jobs, self._progress.tell):
            for stage in stages:
                if self._stopped():
                    return False
                try:
                    self._fill(stage, missing)
                except Exception as error:
                    if not self._stopped():
                        raise
                    # most likely because its statement was interrupted
                    _LOG.info("the hydration of %s was given up: %s", self._dataflow.gid, error)
                    return False
        return True

    def _only_errors(self, stage: HydrationStage) -> None:
        self._load_all(stage)
        self._add_errors(
            f"SELECT mz_error, mz_diff FROM ({self._texts[id(stage)]}) WHERE mz_error IS NOT NULL"
        )
        self._forget(stage)

    def _load_all(self, stage: HydrationStage) -> None:
        for name in stage.reads:
            self._load(name)
            # What only passes rows on has put out all of them, however long the rest of the statement takes.
            gets = self._gets.get(name, frozenset())
            self._report.node_done(one for one in stage.completes if one in gets)

    def _write(
        self,
        stage: HydrationStage,
        target: Target,
        upper: Timestamp,
        *,
        corrected: str | None,
    ) -> None:
        self._load_all(stage)
        if stage.target is None:
            rows = self._exported(stage, target)
            if corrected is not None:
                rows = self._corrected(rows, target, upper)
            _, self._rows_out = self._appended(
                self._read(rows, target, stage), target, upper, stage.completes
            )
        else:
            assert isinstance(target, Arrangement)
            filling = self._filling(target)
            with self._kept_for_others(stage, target) as keeping:
                made = self._made(stage, target, keeping, filling)
                self._appended(made, target, upper, stage.completes)
            self._written(target, filling)
        self._forget(stage)

    def _appended(
        self,
        rows: pa.RecordBatchReader,
        target: Target,
        upper: Timestamp,
        completes: Sequence[int],
    ) -> tuple[Frontier, int]:
        """Append the rows at as_of to the target's shard, and report each worker of the nodes `completes` whose share is stored.

        Return the shard's upper and the number of rows.
        """
        end = self._dataflow.as_of + 1
        if WORKER_COLUMN in rows.schema.names:

            def written(worker: int) -> None:
                self._report.node_done(completes, [worker])

            batch = target.writer.batch_with_workers(rows, lower=upper, upper=end, written=written)
        else:
            batch = target.writer.batch(rows, lower=upper, upper=end)
        # Exactly at `upper`: these are contents, not updates. On top of what another process wrote meanwhile they would count twice.
        return target.adopt_batch(batch, end, exact=True)

    def _exported(self, stage: HydrationStage, target: Target) -> str:
        """The query for the output's rows, including the error rows of all stages."""
        text = self._texts[id(stage)]
        listed = _listed(target)
        if "mz_error" not in target.schema.names:
            return f"SELECT {listed}mz_diff FROM ({text})"
        good = f"SELECT {listed}mz_error, mz_diff FROM ({text})"
        if not self._has_errors:
            return good
        others = [name for name in target.schema.names if name != ERROR]
        shown = [*(named(exp.Null(), name) for name in others), col(ERROR)]
        errors = consolidated("mz_errors", [col(ERROR)], shown=shown)
        return f"{good} UNION ALL {to_sql(errors, Engine.DUCKDB)}"

    @contextlib.contextmanager
    def _kept_for_others(
        self, stage: HydrationStage, target: Arrangement
    ) -> Iterator[Callable[[pa.RecordBatch], None] | None]:
        """Yield a function that keeps a stage's rows for later stages; None if none reads them."""
        name = stage.target
        assert name is not None
        if name not in self._last_use:
            yield None
            return
        with self._held.keeping(name, with_time(target.schema)) as keep:
            yield keep
        self._registered.add(name)

    def _made(
        self,
        stage: HydrationStage,
        target: Arrangement,
        keep: Callable[[pa.RecordBatch], None] | None,
        filling: Filling | None,
    ) -> pa.RecordBatchReader:
        """A stage's rows without errors, at as_of and in the shard's form, with their workers if there are several.
        Errors are remembered.
        """
        full, (items, shard) = with_time(target.schema), self._items(target)
        errors_too = ", mz_error" if stage.has_errors else ""
        query = f"SELECT {items}{errors_too} FROM ({self._texts[id(stage)]})"
        errors: list[pa.RecordBatch] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self._asked(query, stage):
                self._let_steps_pass()
                good = _without_errors(batch, errors) if stage.has_errors else batch
                if not good.num_rows:
                    continue
                rows = good.select(full.names).cast(full)
                if keep is not None:
                    keep(rows)
                if target.desc.additive:
                    rows = _with_diff_0(rows)
                if filling is not None:
                    filling.add(rows)
                if target.workers > 1:
                    rows = _with_workers(rows, target, shard)
                self._counted(rows, keyed=True)
                yield rows
            self._remember(errors)

        return pa.RecordBatchReader.from_batches(shard, batches())

    def _remember(self, errors: list[pa.RecordBatch]) -> None:
        """Keep a stage's error rows for the output."""
        if errors:
            with given(self._duck, "given", pa.Table.from_batches(errors)):
                summed = consolidated("given", [col(ERROR)])
                self._add_errors(to_sql(summed, Engine.DUCKDB))

    def _add_errors(self, query: str) -> None:
        if not self._has_errors:
            # Of this connection alone, and gone with it.
            self._duck.execute("CREATE TEMP TABLE mz_errors (mz_error VARCHAR, mz_diff BIGINT)")
            self._has_errors = True
        self._duck.execute(f"INSERT INTO mz_errors {query}")

    def _forget(self, stage: HydrationStage) -> None:
        """Drop the relations that no later stage reads."""
        for name in stage.reads:
            if self._last_use[name] == id(stage):
                if not self._held.drop(name):
                    self._duck.execute(f'DROP TABLE IF EXISTS "{name}"')
                self._registered.discard(name)

    def _corrected(self, rows: str, target: Target, upper: Timestamp) -> str:
        """The query for the difference between what the output should be and what its shard already contains."""
        reader = self._persist.open_reader(target.shard_id, timeout=self._settings.timeout)
        try:
            before = reader.snapshot_arrow(upper - 1, timeout=self._settings.timeout)
        finally:
            reader.expire()
        self._has_tables = True
        load(self._duck, "mz_before", before.drop_columns([TIME_COLUMN]))
        listed = "".join(f'"{name}", ' for name in target.schema.names)
        self._duck.execute(
            f"CREATE OR REPLACE TEMP VIEW mz_after AS SELECT {listed}mz_diff FROM ({rows})"
        )
        row: list[Ast] = [col(name) for name in target.schema.names]
        return to_sql(difference("mz_after", "mz_before", row), Engine.DUCKDB)

    def _asked(self, query: str, stage: HydrationStage) -> pa.RecordBatchReader:
        """The rows of a stage's query. Streaming them binds the query twice, which costs more than a copy of few rows.

        A copy is outside DuckDB's memory limit, so only what is certainly few is copied. What `_corrected` compares with is not counted.
        """
        read = sum(self._held.rows.get(name, _FEW_ROWS) for name in stage.reads)
        if read < _FEW_ROWS and not self._has_tables and makes_no_rows(stage.statement):
            return self._duck.execute(query).to_arrow_reader(_BATCH_ROWS)
        return self._duck.sql(query).to_arrow_reader(_BATCH_ROWS)

    def _read(self, rows: str, target: Target, stage: HydrationStage) -> pa.RecordBatchReader:
        """The output's rows at as_of, as they come. Nothing else may run on the connection until they are read."""
        items, schema = self._items(target)
        full = with_time(target.schema)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self._asked(f"SELECT {items} FROM ({rows})", stage):
                self._let_steps_pass()
                made = batch.cast(full)
                if isinstance(target, Arrangement) and target.workers > 1:
                    made = _with_workers(made, target, schema)
                self._counted(made, keyed=isinstance(target, Arrangement))
                yield made

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _counted(self, rows: pa.RecordBatch, *, keyed: bool) -> None:
        """Count rows as put out by their workers; those that are not keyed have none."""
        if not rows.num_rows:
            return
        shares: list[tuple[int | None, int]] = [(0 if keyed else None, rows.num_rows)]
        if WORKER_COLUMN in rows.schema.names:
            found = pc.value_counts(rows.column(WORKER_COLUMN)).to_pylist()
            shares = [(one["values"], one["counts"]) for one in found]
        for worker, count in shares:
            self._progress.add(worker, count, rows.nbytes * count // rows.num_rows)

    def _items(self, target: Target) -> tuple[str, pa.Schema]:
        """The select list of a target's rows at as_of, and its schema, with their workers if there are several."""
        listed = "".join(f'"{name}", ' for name in target.schema.names)
        items = f"{listed}CAST({self._dataflow.as_of} AS BIGINT) AS {TIME_COLUMN}, {DIFF_COLUMN}"
        schema = with_time(target.schema)
        if not isinstance(target, Arrangement) or target.workers == 1:
            return items, schema
        return items, schema.append(_WORKER)

    # --- what is read ---

    def _check(self) -> None:
        if self._stopped():
            raise InternalError("the hydration is not wanted any more")

    def _load(self, name: str) -> None:
        """Make a relation of a statement readable."""
        if name in self._registered:
            return
        recursion = next(
            (r for r in self._dataflow.rendered.recursions if r.relation == name), None
        )
        if recursion is not None:
            for one in recursion.inputs:
                self._load(one)
            self._has_tables = True
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
                self._let_steps_pass()
                table = part.to_arrow(columns=columns).select(full.names).cast(full)
                if part.time_max > as_of:
                    table = until(table, as_of)
                if source is not None:
                    yield from table.drop_columns([TIME_COLUMN]).to_batches()
                    continue
                assert arrangement is not None
                yield from arrangement.rows(all_at(table, as_of)).select(full.names).to_batches()

        shown = full if source is None else full.remove(len(columns))
        with self._held.keeping(name, shown) as keep:
            for batch in batches():
                keep(batch)
        self._registered.add(name)


def _gets(dataflow: Dataflow) -> dict[str, frozenset[int]]:
    """By relation of an input the nodes that read it, and nothing else."""
    found: dict[str, set[int]] = {}
    for built in dataflow.spec.desc.desc.objects:
        for node in lir.walk(built.plan):
            if isinstance(node, lir.Get):
                found.setdefault(f"snap_{node.id}", set()).add(node.lir_id)
    return {name: frozenset(nodes) for name, nodes in found.items()}


def _texts(made: Recursion) -> list[str]:
    """All statements that a recursion runs."""

    def within(loops: Sequence[LoopText]) -> list[str]:
        return [
            text
            for loop in loops
            for one in loop.bindings
            for text in (one.statement, *within(one.loops))
        ]

    return [to_sql(made.statement, Engine.DUCKDB), *within(texts(made.loops))]


def _listed(target: Target) -> str:
    return "".join(f'"{name}", ' for name in target.schema.names if name != "mz_error")


def _without_errors(batch: pa.RecordBatch, errors: list[pa.RecordBatch]) -> pa.RecordBatch:
    """A batch's rows without errors; the errors of the others are appended to `errors`."""
    found = batch.column("mz_error")
    if found.null_count == len(found):
        return batch
    errors.append(batch.filter(pc.is_valid(found)).select(["mz_error", DIFF_COLUMN]))
    # The first batch is already folded: fold again only when as much has come since, so that the cost stays linear.
    if sum(one.nbytes for one in errors[1:]) > max(_ERROR_BYTES, errors[0].nbytes):
        errors[:] = _folded(errors)
    return batch.filter(pc.is_null(found))


def _folded(errors: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Add up error rows of the same text: there may be as many as input rows, but few different texts."""
    rows = consolidate(pa.Table.from_batches(errors))
    return cast("list[pa.RecordBatch]", rows.to_batches())


def _with_workers(rows: pa.RecordBatch, target: Arrangement, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the worker of each behind them."""
    table = pa.Table.from_batches([rows])
    workers = pa.array(target.workers_of(table) if rows.num_rows else [], pa.int32())
    return pa.RecordBatch.from_arrays([*rows.columns, workers], schema=schema)


def _with_diff_0(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Partial sums in the shard's form, with a diff of 0."""
    place = batch.schema.get_field_index(DIFF_COLUMN)
    zeros = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    return batch.set_column(place, batch.schema.field(place), zeros)
