"""Answering a query at one time.

Promise: the answer is that of the plan over the inputs' contents at the timestamp, whichever engine runs it (architecture, decisions 10
and 11): constants need none; a row-wise read of one collection is evaluated over Arrow where that is exact; other queries over inputs that
are small enough for this process by DuckDB; the rest by Spark. Contents of small collections are kept while they do not change, so a
repeated small read asks no store for anything. Reads wait for their inputs within the statement's timeout and say what they waited for
when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.adapter import system_rows
from mzsql.adapter.builtin import builtins
from mzsql.adapter.constants import answered
from mzsql.adapter.duckdb_pool import DuckDbPool
from mzsql.adapter.environment import Environment
from mzsql.adapter.interrupt import current
from mzsql.adapter.plan_cache import PlannedQuery
from mzsql.adapter.results import expand
from mzsql.adapter.row_reads import RowRead, cut, evaluated, narrowed, placed
from mzsql.adapter.snapshots import ENTRY_BYTES, SnapshotCache, StoredContents
from mzsql.compute import ComputeSettings
from mzsql.compute.controller import ComputeController
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.scalar import support
from mzsql.persist import Filters, PartRef
from mzsql.render.dataflow import finish
from mzsql.repr.errors import NotReadable
from mzsql.repr.frontier import Timestamp, show
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import arrow_schema
from mzsql.storage import empty_updates

#: Updates, not committed yet, that a transaction's own reads see: by table, columns c0 …, mz_time, mz_diff.
Overlay: TypeAlias = Mapping[GlobalId, Sequence[pa.Table]]
#: Ranges that hold every error row.
_ERRORS: Filters = {"mz_error": [("", None)]}

#: While it waits for its inputs, a query looks so often whether it was cancelled, in seconds.
_LOOK_SECONDS = 0.25


class Limits(msgspec.Struct, frozen=True):
    """How much of its inputs a query may bring into this process."""

    rows: int = ComputeSettings().driver_rows
    bytes: int = ComputeSettings().driver_bytes


class Peeker:
    """Runs one-shot dataflows. Thread-safe.

    Args:
        env: the environment.
        source: what derived builtin relations are made from.
        spark: gives a controller that runs large queries on Spark; None where there is no Spark.
        replicas: who maintains views, for messages.
        limits: how much a query may bring into this process.
    """

    def __init__(
        self,
        env: Environment,
        source: system_rows.Source,
        spark: Callable[[], ComputeController | None],
        replicas: Callable[[GlobalId], str],
        limits: Limits | None = None,
    ) -> None:
        self._env = env
        self._source = source
        self._spark = spark
        self._replicas = replicas
        self.limits = limits or Limits()
        self.kept = SnapshotCache(entry_bytes=min(ENTRY_BYTES, self.limits.bytes))
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

    def _late(self, gid: GlobalId, as_of: Timestamp, timeout: float) -> NotReadable:
        meta, upper = self._env.collections.meta(gid), self._env.collections.upper(gid)
        return NotReadable(
            f'relation "{meta.name}" is not readable at {as_of}: within {timeout:g} s its write '
            f"frontier has only reached {show(upper)}",
            detail=self._replicas(gid) if meta.kind != "table" else None,
            hint="Wait for it to hydrate and ask again, or raise statement_timeout.",
        )

    # --- running ------------------------------------------------------------------------------

    def run(
        self,
        query: PlannedQuery,
        as_of: Timestamp,
        *,
        overlay: Overlay | None = None,
        timeout: float = 60.0,
    ) -> pa.Table:
        """The rows of a one-shot query: columns c0 … after the finishing, in its order.

        Args:
            query: the query.
            as_of: the time; every stored input is complete there.
            overlay: what the transaction itself has written.
            timeout: seconds Spark may take.

        Raises:
            DataError: a value could not be computed.
            QueryCanceled: the statement was cancelled, or its time was over.
        """
        constant = query.constant
        if constant is not None:
            rows = answered(constant, query.finishing)
            if rows is not None:
                return rows
        read = query.read
        if read is not None and query.columns and not overlay and read.id not in builtins():
            rows = self._rows_of(read, as_of)
            if rows is not None:
                return self._row_wise(query, read, rows)
        tables = self._inputs(query.inputs, as_of, overlay or {})
        if tables is None:
            controller = self._spark()
            if controller is not None:
                return self._on_spark(controller, query, as_of, timeout)
            tables = {gid: self.snapshot(gid, as_of) for gid in query.inputs}
        return self._here(query, tables)

    def _on_spark(
        self, controller: ComputeController, query: PlannedQuery, as_of: Timestamp, timeout: float
    ) -> pa.Table:
        finishing, columns = query.finishing, query.columns
        interrupt = current()
        try:
            return controller.peek(
                query.planned.plan,
                as_of,
                finish=lambda ast, engine: finish(ast, finishing, columns, engine),
                timeout=min(timeout, interrupt.left()),
                interruptible=interrupt.on_interrupt,
            )
        except Exception:
            # Cancelled jobs fail in Spark's words.
            interrupt.check()
            raise

    def look_up(self, query: PlannedQuery, rows: pa.Table) -> pa.Table:
        """The answer of a query over the rows that an index gave: c0 …, mz_diff."""
        read = query.read
        if read is not None and query.columns:
            return self._row_wise(query, read, rows)
        return self._here(query, dict.fromkeys(query.inputs, rows))

    def _row_wise(self, query: PlannedQuery, read: RowRead, rows: pa.Table) -> pa.Table:
        """A row-wise read of the rows of one collection that its conditions leave."""
        rows = narrowed(rows, read.conditions)
        done = evaluated(rows, read)
        if done is not None:
            done = placed(_good(done), query.finishing, query.columns)
        if done is None:
            return self._here(query, {read.id: rows})
        return cut(expand(done, "the result"), query.finishing)

    def _here(self, query: PlannedQuery, tables: Mapping[GlobalId, pa.Table]) -> pa.Table:
        """The answer by DuckDB, over the inputs' contents."""
        statement = query.statement(self._has_errors)
        relations = {f"snap_{gid}": tables[gid] for gid in statement.inputs}
        result = self._duckdb.query(statement.text, relations, statement.loops)
        if statement.finished:
            return _checked(result)
        return cut(expand(result, "the result"), query.finishing)

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

    def _too_much(self, parts: Sequence[PartRef]) -> bool:
        rows, size = sum(p.rows for p in parts), sum(p.bytes for p in parts)
        return rows > self.limits.rows or size > self.limits.bytes

    def _inputs(
        self, gids: Sequence[GlobalId], as_of: Timestamp, overlay: Overlay
    ) -> Mapping[GlobalId, pa.Table] | None:
        """The inputs' contents; None where they are too large for this process and Spark could read them all."""
        for_spark = not overlay and not any(gid in builtins() for gid in gids)
        tables: dict[GlobalId, pa.Table] = {}
        large: list[GlobalId] = []
        for gid in gids:
            kept = None
            if gid not in builtins():
                kept = self.kept.read(StoredContents(self._env.collections, gid), as_of)
            if kept is None:
                large.append(gid)
            else:
                tables[gid] = self._with(kept, overlay.get(gid, ()))
        if for_spark and large:
            parts = [part for gid in gids for part in self._env.collections.parts(gid, as_of)]
            if self._too_much(parts):
                return None
        for gid in large:
            current().check()
            tables[gid] = self.snapshot(gid, as_of, overlay.get(gid, ()))
        return tables

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
        if self._env.manager.is_registered(gid):
            self._env.manager.flush(gid)
        collections = self._env.collections
        upper = collections.upper(gid)
        if not upper:
            schema = arrow_schema(collections.meta(gid).columns)
            return empty_updates(schema).drop_columns(["mz_time"])
        return collections.snapshot(gid, upper - 1).drop_columns(["mz_time"])


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


def _checked(result: pa.Table) -> pa.Table:
    """The rows without the error column; fails with the first error there is."""
    ones = pa.array([1] * result.num_rows, pa.int64())
    return (
        expand(result.append_column("mz_diff", ones), "the result")
        if result.num_rows
        else (result.drop_columns(["mz_error"]) if "mz_error" in result.column_names else result)
    )
