"""Answering a query at one time.

Promise: the answer is that of the plan over the inputs' contents at the timestamp, whichever engine runs it (docs/architecture.md,
decisions 10 and 11): constants need none; a row-wise read of one collection is evaluated over Arrow where that is exact; other queries
over inputs that are small enough for this process by DuckDB; the rest by Spark, or, where there is none or it cannot see all that is read
(builtin relations, a transaction's own writes), by DuckDB over copies on disk. The rows come piece by piece, and none is made that nobody
takes. Contents of small collections are kept while they do not change, so a repeated small read asks no store for anything. Reads wait
for their inputs within the statement's timeout and say what they waited for when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.plan_cache import PlannedQuery
from mzsql.adapter.system import rows as system_rows
from mzsql.catalog.builtin import builtins
from mzsql.compute import Peeks
from mzsql.compute.engines.pool import DuckDbPool
from mzsql.compute.peek.constants import answered
from mzsql.compute.peek.outflow import Limits, finished
from mzsql.compute.peek.row_reads import RowRead, evaluated, narrowed, placed
from mzsql.compute.peek.rows import counted, expand
from mzsql.compute.peek.snapshots import ENTRY_BYTES, SnapshotCache, StoredContents
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.scalar import support
from mzsql.location import Determinate
from mzsql.persist import Filters, PartRef
from mzsql.repr.errors import NotReadable
from mzsql.repr.frontier import Timestamp, show
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import current
from mzsql.repr.types import arrow_schema
from mzsql.storage import empty_updates

#: Updates, not committed yet, that a transaction's own reads see: by table, columns c0 …, mz_time, mz_diff.
Overlay: TypeAlias = Mapping[GlobalId, Sequence[pa.Table]]
#: Ranges that hold every error row.
_ERRORS: Filters = {"mz_error": [("", None)]}

#: While it waits for its inputs, a query looks so often whether it was cancelled, in seconds.
_LOOK_SECONDS = 0.25


class Peeker:
    """Runs one-shot dataflows. Thread-safe.

    Args:
        env: the environment.
        source: what derived builtin relations are made from.
        spark: runs large queries; None where there is no Spark.
        replicas: who maintains views, for messages.
        limits: how much of its inputs a query may bring into this process's memory.
    """

    def __init__(
        self,
        env: Environment,
        source: system_rows.Source,
        spark: Peeks | None,
        replicas: Callable[[GlobalId], str],
        limits: Limits | None = None,
    ) -> None:
        self._env = env
        self._source = source
        self._spark = spark
        self._replicas = replicas
        self.limits = limits or Limits()
        self.kept = SnapshotCache(
            entry_bytes=min(ENTRY_BYTES, self.limits.bytes), entry_rows=self.limits.rows
        )
        self._duckdb = DuckDbPool()

    def close(self) -> None:
        """Release the engine; no query runs any more. Idempotent."""
        self._duckdb.close()

    # --- waiting ------------------------------------------------------------------------------

    def stored(self, gids: Sequence[GlobalId]) -> list[GlobalId]:
        """Those of the inputs that have contents at times: tables and materialized views."""
        return [gid for gid in gids if gid not in builtins()]

    def wait(self, gids: Sequence[GlobalId], as_of: Timestamp, timeout: float) -> None:
        """Wait until every stored input is complete at ``as_of``.

        Raises:
            NotReadable: one is not within ``timeout`` seconds; names it, its frontier, the time needed and the replicas there are.
        """
        interrupt = current()
        end = time.monotonic() + min(timeout, interrupt.left())
        collections = self._env.collections
        for gid in self.stored(gids):
            while True:
                known = collections.known_upper(gid)
                if known is None or known > as_of:
                    break
                if interrupt.cancelled:
                    interrupt.check()
                left = max(0.0, end - time.monotonic())
                try:
                    collections.wait_for_upper(gid, as_of, min(left, _LOOK_SECONDS))
                except NotReadable:
                    if left <= _LOOK_SECONDS:
                        raise self._late(gid, as_of, timeout) from None
                except Determinate:
                    # A look is short: what was not to be had within it (a busy Consensus, another call's turn) may be within the next.
                    if left <= _LOOK_SECONDS:
                        raise

    def _late(self, gid: GlobalId, as_of: Timestamp, timeout: float) -> NotReadable:
        meta, upper = self._env.collections.meta(gid), self._env.collections.upper(gid)
        return NotReadable(
            f'relation "{meta.name}" is not readable at {as_of}: within {timeout:g} s its write '
            f"frontier has only reached {show(upper)}",
            detail=self._replicas(gid) if meta.kind != "table" else None,
            hint="Wait for it to hydrate and ask again, or raise statement_timeout.",
        )

    # --- running ------------------------------------------------------------------------------

    def rows(
        self,
        query: PlannedQuery,
        as_of: Timestamp,
        *,
        overlay: Overlay | None = None,
        ordered: bool = True,
    ) -> Generator[pa.Table]:
        """The rows of a one-shot query, piece by piece: columns c0 … after the finishing, in its order.

        Args:
            query: the query.
            as_of: the time; every stored input is complete there.
            overlay: what the transaction itself has written.
            ordered: whether the order of many rows matters.

        Raises:
            DataError: a value could not be computed.
            QueryCanceled: the statement was cancelled, or its time was over.
        """
        constant = query.constant
        if constant is not None:
            rows = answered(constant, query.finishing)
            if rows is not None:
                yield rows
                return
        read = query.read
        if read is not None and query.columns and not overlay and read.id not in builtins():
            rows = self._rows_of(read, as_of)
            if rows is not None:
                yield from self._row_wise(query, read, rows)
                return
        tables = self._inputs(query.inputs, as_of, overlay or {})
        if tables is not None:
            yield from self._here(query, tables)
        elif self._on_spark(query, overlay):
            yield from self._by_spark(query, as_of, ordered=ordered)
        else:
            yield from self._on_disk(query, as_of, overlay or {}, ordered=ordered)

    def _on_spark(self, query: PlannedQuery, overlay: Overlay | None) -> bool:
        """Whether Spark can run a query: there is one, it can read all inputs, and there is no recursion."""
        return (
            self._spark is not None
            and not overlay
            and not any(gid in builtins() for gid in query.inputs)
            and not query.statement(self._has_errors).loops
        )

    def _by_spark(
        self, query: PlannedQuery, as_of: Timestamp, *, ordered: bool
    ) -> Generator[pa.Table]:
        assert self._spark is not None
        interrupt = current()
        try:
            found = self._spark.rows(
                query.planned.plan,
                as_of,
                finish=lambda ast, engine: query.finish(ast, engine, ordered=ordered),
                timeout=interrupt.left(),
                interruptible=interrupt.on_interrupt,
            )
            yield from self._as_rows(query, found)
        except GeneratorExit:
            raise
        except BaseException:
            # Cancelled jobs fail in Spark's words.
            interrupt.check()
            raise

    def _on_disk(
        self, query: PlannedQuery, as_of: Timestamp, overlay: Overlay, *, ordered: bool
    ) -> Generator[pa.Table]:
        """The answer by DuckDB, over copies of the inputs on disk."""
        statement = query.statement(self._has_errors, ordered=ordered)
        relations = {
            f"snap_{gid}": self._reader(gid, as_of, overlay.get(gid, ()))
            for gid in statement.inputs
        }
        found = self._duckdb.large(statement.text, relations, statement.loops)
        yield from self._as_rows(query, found)

    @staticmethod
    def _as_rows(query: PlannedQuery, found: Iterable[pa.Table]) -> Generator[pa.Table]:
        """The rows of what a statement gives."""
        if query.finished:
            for piece in found:
                yield counted(piece, "the result")[0]
        else:
            yield from finished(found, query.finishing)

    def look_up(self, query: PlannedQuery, rows: pa.Table) -> Generator[pa.Table]:
        """The answer of a query over the rows that an index gave: c0 …, mz_diff."""
        read = query.read
        if read is not None and query.columns:
            return self._row_wise(query, read, rows)
        return self._here(query, dict.fromkeys(query.inputs, rows))

    def over_indexes(
        self, query: PlannedQuery, arranged: Mapping[GlobalId, pa.Table], as_of: Timestamp
    ) -> Generator[pa.Table] | None:
        """The answer of a query whose inputs are complete, over the rows of indexes: c0 …, mz_diff; None where its inputs are too large."""
        tables = self._inputs(query.inputs, as_of, {})
        return None if tables is None else self._here(query, {**tables, **arranged})

    def _row_wise(self, query: PlannedQuery, read: RowRead, rows: pa.Table) -> Generator[pa.Table]:
        """A row-wise read of the rows of one collection that its conditions leave."""
        rows = narrowed(rows, read.conditions)
        done = evaluated(rows, read)
        if done is not None:
            done = placed(_good(done), query.finishing, query.columns)
        if done is None:
            return self._here(query, {read.id: rows})
        return finished([done], query.finishing)

    def _here(
        self, query: PlannedQuery, tables: Mapping[GlobalId, pa.Table]
    ) -> Generator[pa.Table]:
        """The answer by DuckDB, over the inputs' contents."""
        statement = query.statement(self._has_errors)
        relations = {f"snap_{gid}": tables[gid] for gid in statement.inputs}
        found = self._duckdb.pieces(statement.text, relations, statement.loops)
        return self._as_rows(query, found)

    # --- inputs -------------------------------------------------------------------------------

    def _rows_of(self, read: RowRead, as_of: Timestamp) -> pa.Table | None:
        """The rows of a collection that a row-wise read may want: what is kept of it, else what its conditions leave of the stored ones.

        None where even that is too much for this process.
        """
        kept = self.kept.read(StoredContents(self._env.collections, read.id), as_of)
        if kept is not None:
            return kept
        collections, gid = self._env.collections, read.id
        filters = read.filters
        if self._too_much(collections.parts(gid, as_of, filters=filters)):
            return None
        columns = None if read.rest else _wanted(read)
        found = collections.snapshot(gid, as_of, columns, filters=filters)
        if filters and collections.has_errors(gid):
            errors = collections.snapshot(gid, as_of, columns, filters=_ERRORS)
            found = pa.concat_tables([found, errors])
        return found.drop_columns(["mz_time"])

    def _too_much(self, parts: Iterable[PartRef]) -> bool:
        found = list(parts)
        return self.limits.exceeded(sum(p.rows for p in found), sum(p.bytes for p in found))

    def _inputs(
        self, gids: Sequence[GlobalId], as_of: Timestamp, overlay: Overlay
    ) -> Mapping[GlobalId, pa.Table] | None:
        """The inputs' contents; None where they are too large for this process."""
        tables: dict[GlobalId, pa.Table] = {}
        for gid in self.stored(gids):
            kept = self.kept.read(StoredContents(self._env.collections, gid), as_of)
            if kept is not None:
                tables[gid] = kept
        left = [gid for gid in gids if gid not in tables]
        if left and self._too_much(part for gid in gids for part in self._parts(gid, as_of)):
            return None
        for gid in left:
            current().check()
            tables[gid] = self.snapshot(gid, as_of)
        return {gid: self._with(rows, overlay.get(gid, ())) for gid, rows in tables.items()}

    def _parts(self, gid: GlobalId, as_of: Timestamp) -> Sequence[PartRef]:
        """The parts of an input's contents; a relation that is made of the catalog has none."""
        builtin = builtins().get(gid)
        if builtin is not None and system_rows.is_derived(builtin):
            return ()
        at = as_of if builtin is None else self._managed_at(gid)
        return () if at is None else self._env.collections.parts(gid, at)

    def _reader(
        self, gid: GlobalId, as_of: Timestamp, overlay: Sequence[pa.Table]
    ) -> pa.Table | pa.RecordBatchReader:
        """An input's contents and a transaction's own writes, as they come, not added up: c0 …, [mz_error], mz_diff."""
        builtin = builtins().get(gid)
        if builtin is not None and system_rows.is_derived(builtin):
            return self.snapshot(gid, as_of)
        collections = self._env.collections
        at = as_of if builtin is None else self._managed_at(gid)
        if at is None:
            return self.snapshot(gid, as_of)
        stored = collections.snapshot_reader(gid, at, consolidate=False)
        place = stored.schema.get_field_index("mz_time")
        schema = stored.schema.remove(place)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in stored:
                yield batch.drop_columns(["mz_time"])
            for one in overlay:
                yield from one.select(schema.names).cast(schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _has_errors(self, gid: GlobalId) -> bool:
        if gid in builtins():
            return False
        return self._env.collections.has_errors(gid)

    def snapshot(
        self, gid: GlobalId, as_of: Timestamp, overlay: Sequence[pa.Table] = ()
    ) -> pa.Table:
        """An input's contents: c0 …, [mz_error], mz_diff, consolidated; builtin relations as they are now."""
        builtin = builtins().get(gid)
        if builtin is None:
            table = self._env.collections.snapshot(gid, as_of).drop_columns(["mz_time"])
            return self._with(table, overlay)
        if system_rows.is_derived(builtin):
            rows = system_rows.derive(builtin, self._source)
            return rows.append_column("mz_diff", pa.array([1] * rows.num_rows, pa.int64()))
        return self._managed(gid)

    def _with(self, table: pa.Table, overlay: Sequence[pa.Table]) -> pa.Table:
        """Contents with a transaction's own writes."""
        if not overlay:
            return table
        written = [one.drop_columns(["mz_time"]) for one in overlay]
        # Rows read and rows made here may differ in what they say of NULLs, not in type.
        return self._consolidated(pa.concat_tables([table, *written], promote_options="default"))

    def _consolidated(self, updates: pa.Table) -> pa.Table:
        """Updates with equal rows added up."""
        keys = [c for c in updates.column_names if c != "mz_diff"]
        columns = [exp.column(c, quoted=True) for c in keys]
        total = exp.Sum(this=exp.column("mz_diff", quoted=True))
        query = (
            exp.select(*columns, exp.alias_(exp.cast(total, "bigint"), "mz_diff", quoted=True))
            .from_(exp.to_table("updates", quoted=True))
            .group_by(*columns)
            .having(exp.NEQ(this=total.copy(), expression=exp.Literal.number(0)))
        )
        result = self._duckdb.query(to_sql(query, Engine.DUCKDB), {"updates": updates})
        schema = pa.schema([updates.schema.field(c) for c in (*keys, "mz_diff")])
        return result.cast(schema)

    def _managed(self, gid: GlobalId) -> pa.Table:
        at = self._managed_at(gid)
        collections = self._env.collections
        if at is None:
            schema = arrow_schema(collections.meta(gid).columns)
            return empty_updates(schema).drop_columns(["mz_time"])
        return collections.snapshot(gid, at).drop_columns(["mz_time"])

    def _managed_at(self, gid: GlobalId) -> Timestamp | None:
        """The time of the present contents of what the system fills; None where there was never anything."""
        if self._env.manager.is_registered(gid):
            self._env.manager.flush(gid)
        upper = self._env.collections.upper(gid)
        return upper - 1 if upper else None


def _good(rows: pa.Table) -> pa.Table:
    """Rows without error rows and their column; fails with the first error there is."""
    if "mz_error" not in rows.column_names:
        return rows
    errors = rows.column("mz_error")
    if errors.null_count < len(errors):
        expand(rows, "the result")
    return rows.drop_columns(["mz_error"])


def _wanted(read: RowRead) -> list[int]:
    """The columns that a row-wise read looks at."""
    found = {c for c in read.mfp.projection if c < read.mfp.input_arity}
    found |= {condition.column for condition in read.conditions}
    for expr in read.mfp.expressions:
        found |= {c for c in support(expr) if c < read.mfp.input_arity}
    return sorted(found)
