"""One arrangement as a dataflow has it open: its description, its shard handles, and the trace in which lookups find
keys.

Promise: each dataflow opens handles of its own, so each holds `since` back for itself and appends what the others
have not appended yet; whoever loses a compare_and_append drops what lies below the winner's upper (the updates are
definite, so they are the same).

The rows of an additive arrangement (partial sums) all have ``mz_diff = 1`` in statements. In the shard their diff is
0, so that persist, which adds the sums up as it adds diffs up, drops a key whose sums are all zero, and never
multiplies a row by its diff.

A lookup reads on the driver the row groups of the keys that a step can touch (if the whole key is known, only in the
parts of that key's worker), then keeps exactly the keys asked for. So the bytes read follow the size of the change,
not of the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sqlglot import expressions as exp

from mzsql.compute.dependencies import ComputeSettings, ExportLog
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.relations import KeyRange, collectable, parts_frame, row_width
from mzsql.compute.replica.arrangements.hot import Hot
from mzsql.compute.replica.arrangements.ordering import Ordering
from mzsql.compute.replica.arrangements.runs import Hashes, distinct, key_hashes
from mzsql.compute.replica.arrangements.trace import Trace
from mzsql.compute.replica.arrangements.workers import Workers, worker_ast, workers_of
from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.target import (
    Target,
    at_or_after,
    by_worker_and_key,
    no_updates,
)
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.scalar import ColumnOrder
from mzsql.persist import (
    DIFF_COLUMN,
    Batch,
    KeySpec,
    PartRef,
    PersistClient,
    ReadHandle,
    ReadStats,
    WriteHandle,
)
from mzsql.persist.consolidate import consolidate
from mzsql.persist.pushdown import Filters
from mzsql.persist.words import integers_of
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Frontier, Timestamp, less_than
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import ColumnType, SqlType, updates_schema

#: An arrangement with more stored bytes is not loaded into a trace: lookups read its shard.
_LOADED_BYTES = 2 << 30

#: The most stored updates that are consolidated when they are loaded into a trace.
_ADDED_UP_ROWS = 100_000

#: Most rows of a stored row group, which is the least that a lookup reads.
_GROUP_ROWS = 16 * 1024


class ArrangementDesc(msgspec.Struct, frozen=True):
    """What an arrangement holds.

    Attributes:
        name: the relation's name in the dataflow's statements.
        columns: the columns, key columns first.
        key_arity: number of key columns.
        additive: positions of columns that add up (partial sums).
        errors: whether rows carry `mz_error`; those of an index do.
        fingerprint: identifies equal arrangements, to find the shard again.
        order: the order in which the rows of a key are read.
    """

    name: str
    columns: tuple[ColumnType, ...]
    key_arity: int
    additive: tuple[int, ...]
    errors: bool
    fingerprint: str
    order: tuple[ColumnOrder, ...] = ()

    def schema(self) -> pa.Schema:
        """The shard's columns, without time and diff."""
        return updates_schema(self.columns, errors=self.errors)

    def workers(self, settings: ComputeSettings) -> int:
        """Number of workers that share it. Without key columns (a global aggregate's state) there is nothing to divide
        by, and it is 1.
        """
        return settings.workers if self.key_arity else 1

    def key_spec(self, settings: ComputeSettings) -> KeySpec:
        """The layout of the shard: sort columns, workers, additive columns."""
        # The first column of the order is sorted by too, so that what is first of a key is stored together.
        first = (one.column for one in self.order[:1])
        return KeySpec(
            columns=tuple(f"c{i}" for i in (*range(self.key_arity), *first)),
            workers=self.workers(settings),
            additive=tuple(f"c{i}" for i in self.additive),
        )


class Arrangement(Target):
    """One dataflow's handles of one arrangement. For one thread at a time."""

    workers: int

    def __init__(
        self,
        desc: ArrangementDesc,
        persist: PersistClient,
        shard_id: str,
        handles: tuple[WriteHandle, ReadHandle],
        *,
        hot: Hot,
        driver: Driver,
        settings: ComputeSettings,
        log: ExportLog | None = None,
    ) -> None:
        # Only an index is an output and goes through the export log.
        log = log if desc.errors else None
        super().__init__(persist, shard_id, desc.schema(), handles[0], settings.timeout, log)
        self.desc = desc
        self.reader = handles[1]
        self.hot = hot
        self._loaded = 0
        self._driver = driver
        self._hashes = _ValueHashes(driver)
        self._settings = settings
        self.workers = desc.workers(settings)

    def most_rows(self, settings: ComputeSettings | None = None) -> int:
        """Most of its rows that may be read into this process, by the given settings or by its own."""
        return collectable(self._width, settings or self._settings)

    @lazy_property
    def _width(self) -> int:
        """About how many bytes an update has."""
        return row_width(self.updates_schema)

    # --- what is shared ---

    def upper(self) -> Frontier:
        """How far its updates are known on this replica; its shard may be behind."""
        if self.log is not None and less_than(self.hot.upper, reached := super().upper()):
            # Another process has written updates that this one did not compute: what is kept here no longer matches
            # the shard.
            self.hot.settled(reached)
        return self.hot.upper

    @property
    def known_upper(self) -> Frontier:
        """As `upper`, without a call to a backend."""
        return self.hot.upper

    @property
    def durable_upper(self) -> Frontier:
        """The upper of its shard."""
        return self.hot.durable if self.log is None else self.writer.upper

    def append(
        self, updates: pa.Table, lower: Timestamp, upper: Frontier, *, exact: bool = False
    ) -> Frontier:
        """Add those updates of ``[lower, upper)`` that nobody has added yet; return the upper then.

        A step's updates become durable with the next `flush`. Those of an index, which others read from its shard,
        and those of a hydration (`exact`), which must end with a filled shard, are written at once.
        """
        if exact:
            reached = super().append(updates, lower, upper, exact=True)
            self.hot.settled(reached)
            return reached
        if self.desc.errors or upper is None:
            if not self.desc.errors:
                self.flush()
            reached = super().append(updates, lower, upper)
            self.hot.written(updates, lower, reached)
            return reached
        return self.hot.add(self.as_stored(updates), lower, upper)

    def pass_over(self, lower: Timestamp, upper: Timestamp) -> None:
        """See `Target.pass_over`."""
        if self.log is not None:
            super().pass_over(lower, upper)
            self.hot.written(no_updates(self.schema), lower, upper)
            return
        self.hot.add(no_updates(self.schema), lower, upper)
        if self.desc.errors:
            self.writer.pass_quietly(lower, upper)

    def late(self) -> float | None:
        """See `Target.late`."""
        return self.hot.late() if self.log is None else super().late()

    def adopt(
        self, frame: DataFrame, lower: Timestamp, upper: Timestamp, **how: Any
    ) -> tuple[Frontier, int]:
        """See `Target.adopt`."""
        self.flush()
        return super().adopt(frame, lower, upper, **how)

    def adopt_batch(
        self, batch: Batch, upper: Timestamp, *, exact: bool = False
    ) -> tuple[Frontier, int]:
        """See `Target.adopt_batch`."""
        reached, rows = super().adopt_batch(batch, upper, exact=exact)
        self.hot.settled(reached)
        return reached, rows

    def flush(self, keep_after: float | None = None) -> None:
        """Write to the shard what steps have added, and save the trace for a restart if it was last saved more than
        `keep_after` seconds ago.
        """
        if self.log is not None:
            super().flush()
            if keep_after is not None:
                self.hot.keep(keep_after)
            return

        def append(updates: list[pa.Table], lower: Timestamp, upper: Frontier) -> Frontier:
            rows = pa.concat_tables([no_updates(self.schema), *updates])
            # Another process may have advanced the shard since these updates were added.
            rows = at_or_after(rows, lower)
            return self.append_from(rows, lower, upper, at=lower)

        self.hot.flush(append, keep_after)

    def passed(self, as_of: Timestamp) -> None:
        """Record that this dataflow will not read at times before `as_of` any more."""
        self.hot.passed(id(self), as_of)

    def trace(self, as_of: Timestamp) -> Trace | None:
        """The trace, to look keys up at `as_of`; None if the arrangement is too large for one, or its trace does not
        reach back so far.
        """
        return self.hot.trace(id(self), as_of, partial(self._load, as_of))

    def _load(self, as_of: Timestamp, durable: Frontier) -> Trace | None:
        """Load a trace of the shard's updates that can be read from `as_of` on; None if it would be too large."""
        kept = self._load_kept(as_of, durable)
        made = self._load_stored(as_of, durable) if kept is None else kept
        if made is not None:
            # Sorted before it is shared, while it keeps nobody from looking into other traces.
            made.sort()
        return made

    def _load_kept(self, as_of: Timestamp, durable: Frontier) -> Trace | None:
        """As `_load`, from what was saved in files and the shard's updates since then; None if that cannot be done."""
        files = self.hot.files
        span = files.span
        if span is None or durable is None or span[0] > as_of:
            return None
        since, upper = span
        if durable < upper or (upper < durable and not less_than(self.reader.since, upper)):
            files.drop()
            return None
        loaded = files.load()
        if loaded is None or (loaded.since, loaded.upper) != span:
            return None
        if sum(run.rows.num_rows for run in loaded.runs) > self._settings.hot_rows:
            return None
        made = self.empty_trace(since)
        made.take(loaded.runs)
        if upper < durable:
            stats = ReadStats()
            made.add(self.reader.updates(upper, durable, stats=stats, timeout=self.timeout), since)
            self._loaded += stats.bytes
        return made

    def _load_stored(self, as_of: Timestamp, durable: Frontier) -> Trace | None:
        """As `_load`, from the shard alone."""
        base = as_of if durable is None else min(as_of, durable - 1)
        parts = self.reader.parts(base, timeout=self.timeout)
        rows = sum(part.rows for part in parts)
        if rows > self._settings.hot_rows or sum(part.bytes for part in parts) > _LOADED_BYTES:
            return None
        made = self.empty_trace(base)
        stats = ReadStats()
        # A trace consolidates as it merges. Doing it here as well, with the sort that it takes, would double the time
        # to load many rows.
        few = rows <= _ADDED_UP_ROWS
        contents = self.reader.snapshot_arrow(
            base, consolidate=few, stats=stats, timeout=self.timeout
        )
        made.add(contents, base)
        if durable is not None and base + 1 < durable:
            updates = self.reader.updates(base + 1, durable, stats=stats, timeout=self.timeout)
            made.add(updates, base)
        self._loaded += stats.bytes
        return made

    def empty_trace(self, since: Timestamp) -> Trace:
        """A trace without updates, which can be read from `since` on."""
        key = self.desc.key_spec(self._settings)
        return Trace(
            self.updates_schema,
            self.desc.key_arity,
            since,
            hasher=self._hashes.of,
            consolidated=partial(consolidate, key=key),
            files=self.hot.files,
            order=Ordering(self.desc.order) if self.desc.order else None,
            sums=bool(key.additive),
        )

    def take_loaded(self) -> int:
        """Stored bytes that this handle has read to load traces since the last call."""
        loaded, self._loaded = self._loaded, 0
        return loaded

    def hashes(self, keys: pa.Table) -> Hashes:
        """The hashes by which the trace finds keys: each once, sorted."""
        return distinct(key_hashes(keys, self._hashes.of))

    def hashes_in_order(self, keys: pa.Table) -> Hashes:
        """The hash of each of the whole keys, in the keys' order."""
        return key_hashes(keys, self._hashes.of)

    def hashes_of(self, rows: pa.Table) -> Hashes:
        """The hash of the key of each of the arrangement's rows; 0 if it has no key columns."""
        arity = self.desc.key_arity
        if not arity:
            return np.zeros(rows.num_rows, np.uint64)
        return key_hashes(rows.select(list(range(arity))), self._hashes.of)

    # --- the shard ---

    @property
    def since(self) -> Frontier:
        """The since of this handle's reader."""
        return self.reader.since

    def worker_ast(self, engine: Engine, prefix: str = "c") -> exp.Expression:
        """The expression for a row's worker over its key columns c0, c1, … (or with another `prefix`)."""
        return worker_ast(self._key_types, self.workers, engine, prefix)

    def split(self, updates: pa.Table) -> Mapping[int, pa.Table] | None:
        """Consolidate updates and divide them by worker; None if nothing is left."""
        updates = self._consolidated(updates)
        if updates.num_rows == 0:
            return None
        if self.workers == 1:
            return {0: updates}
        workers = self.workers_of(updates)
        order = np.argsort(workers, kind="stable")
        rows = updates.take(pa.array(order))
        ends = np.searchsorted(workers[order], np.arange(self.workers), "right").tolist()
        bounds = zip(range(self.workers), [0, *ends], ends, strict=False)
        return {
            number: rows.slice(begin, end - begin) for number, begin, end in bounds if end > begin
        }

    def workers_of(self, rows: pa.Table) -> Workers:
        """The worker of each of some of the arrangement's rows."""
        keys = rows.select(list(range(self.desc.key_arity)))
        return workers_of(keys, self._key_types, self.workers, self._driver.simple)

    @property
    def _key_types(self) -> tuple[SqlType, ...]:
        return tuple(column.type for column in self.desc.columns[: self.desc.key_arity])

    def as_stored(self, updates: pa.Table) -> pa.Table:
        """A step's updates in the shard's form: partial sums have a diff of 0.

        Raises:
            InternalError: partial sums came with another diff than 1 or 0.
        """
        if not self.desc.additive or not updates.num_rows:
            return updates
        diffs = integers_of(updates.column(DIFF_COLUMN))
        least, most = int(diffs.min()), int(diffs.max())
        if least == most == 0:
            return updates
        if not least == most == 1:
            raise InternalError(
                f"partial sums of {self.desc.name} with diffs from {least} to {most}"
            )
        return _with_diff(updates, 0)

    def _consolidated(self, updates: pa.Table) -> pa.Table:
        return consolidate(self.as_stored(updates), self.desc.key_spec(self._settings))

    def arrange(self, frame: DataFrame) -> DataFrame:
        """Partition a frame by worker, so that each worker gets one file, sorted by key."""
        single = self.workers == 1
        worker = "0" if single else to_sql(self.worker_ast(Engine.SPARK), Engine.SPARK)
        if self.desc.additive:
            frame = frame.withColumn(DIFF_COLUMN, F.lit(0).cast("bigint"))
        keys = list(self.desc.key_spec(self._settings).columns)
        return by_worker_and_key(frame, worker, self.workers, keys)

    def rows(self, table: pa.Table) -> pa.Table:
        """Rows of the shard in the form in which statements read them.

        Error rows of an index are left out: they belong to the output of each dataflow that reads it, not to the
        state of its nodes.
        """
        if self.desc.errors:
            table = table.filter(pc.is_null(table.column("mz_error"))).drop_columns(["mz_error"])
        return _with_diff(table, 1) if self.desc.additive else table

    def frame(
        self,
        spark: SparkSession,
        parts: Sequence[PartRef],
        as_of: Timestamp,
        ranges: Sequence[KeyRange] | None = None,
    ) -> DataFrame:
        """As `rows`, for parts that Spark reads."""
        frame = parts_frame(spark, parts, self.schema, as_of=as_of, key_ranges=ranges)
        if self.desc.errors:
            frame = frame.where(F.col("mz_error").isNull()).drop("mz_error")
        if self.desc.additive:
            frame = frame.withColumn(DIFF_COLUMN, F.lit(1).cast("bigint"))
        return frame

    def parts(self, as_of: Timestamp) -> list[PartRef]:
        """The parts of the contents at a time."""
        self._durable_at(as_of)
        return self.reader.parts(as_of, timeout=self.timeout)

    def _durable_at(self, as_of: Timestamp) -> None:
        """Flush if the shard is not yet complete at `as_of`. Not needed for an index, whose shard has all updates and
        whose readers know what it passed over.
        """
        if not self.desc.errors and not less_than(as_of, self.hot.durable):
            self.flush()

    def fits_driver(
        self,
        parts: Sequence[PartRef],
        ranges: Sequence[KeyRange] | None,
        settings: ComputeSettings | None = None,
    ) -> bool:
        """Whether the rows in the ranges may be read on the driver. Judged by an upper bound, from the parts' sizes and
        the number of ranges.
        """
        settings = settings or self._settings
        rows = touched = sum(part.rows for part in parts)
        if ranges is not None and all(lo == hi for lo, hi in ranges):
            touched = sum(min(part.rows, len(ranges) * _GROUP_ROWS) for part in parts)
        size = sum(part.bytes for part in parts) * touched // max(rows, 1)
        return touched <= settings.rows_here and size <= settings.bytes_here

    def read(
        self,
        as_of: Timestamp,
        *,
        key_ranges: Sequence[KeyRange] | None = None,
        workers: Sequence[int] | None = None,
        filters: Filters | None = None,
        stats: ReadStats | None = None,
    ) -> pa.Table:
        """The contents at `as_of`: columns, mz_time (all `as_of`), mz_diff.

        Args:
            as_of: the time.
            key_ranges: only rows in these ranges of the first key column; may return others.
            workers: only these workers' parts.
            filters: only rows that these let through.
            stats: counts what is read.
        """
        self._durable_at(as_of)
        return self.reader.snapshot_arrow(
            as_of,
            key_ranges=key_ranges,
            filters=filters,
            workers=workers,
            stats=stats,
            timeout=self.timeout,
        )

    def updates(
        self, lower: Timestamp, upper: Timestamp, stats: ReadStats | None = None
    ) -> pa.Table:
        """The updates with ``lower <= mz_time < upper``."""
        self._durable_at(upper - 1)
        return self.reader.updates(lower, upper, stats=stats, timeout=self.timeout)

    def small_updates(
        self, lower: Timestamp, upper: Timestamp, *, rows: int, size: int
    ) -> tuple[pa.Table, int] | None:
        """As `updates`, with the bytes of their parts, if these hold at most `rows` rows and `size` bytes; None if they hold more."""
        self._durable_at(upper - 1)
        return self.reader.small_updates(lower, upper, rows=rows, size=size, timeout=self.timeout)

    def parts_between(self, lower: Timestamp, upper: Timestamp) -> list[PartRef]:
        """The parts that may hold updates of ``[lower, upper)``."""
        self._durable_at(upper - 1)
        return self.reader.parts_between(lower, upper, timeout=self.timeout)

    def hold(self, since: Timestamp) -> None:
        """Allow times before `since` to be compacted, except those of updates that came after the saved trace, which a
        restart needs.
        """
        since = self.hot.held(since)
        if less_than(self.reader.since, since):
            self.reader.downgrade_since(since, timeout=self.timeout)

    def let_go(self) -> None:
        """Hold no times any more: nothing is read through these handles, and other readers of the shard have holds of
        their own.
        """
        if self.reader.since is not None:
            self.reader.downgrade_since(None, timeout=self.timeout)

    def close(self) -> None:
        """Close the handles; the shard stays."""
        self.hot.left(id(self))
        each_by_itself((super().close, self.reader.expire))


class _ValueHashes:
    """DuckDB's hashes of values of types without a fixed width."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def of(self, table: pa.Table) -> Hashes:
        """The hash of each value of the only column, c0."""
        places = pa.array(np.arange(table.num_rows))
        found = self._driver.simple(
            'SELECT mz_place, hash("c0") AS mz_hash FROM hashed',
            {"hashed": table.append_column("mz_place", places)},
        )
        made = np.empty(table.num_rows, np.uint64)
        made[found["mz_place"].to_numpy()] = found["mz_hash"].to_numpy()
        return made


def _with_diff(table: pa.Table, diff: int) -> pa.Table:
    position = table.schema.get_field_index(DIFF_COLUMN)
    diffs = pa.repeat(pa.scalar(diff, pa.int64()), table.num_rows)
    return table.set_column(position, table.schema.field(position), diffs)
