"""Tables on shards, behind the write-ahead log (docs/architecture.md, decision 7).

Promise: a write is durable once the log has it; applying it to the table's own shard is idempotent, done by anyone, and done
before anyone reads. A table's logical upper is the log's upper, so an idle table costs nothing: its own shard's upper stays where
its last write left it, and a read at a later time is a read there. Columns are c0 … cn by position, so that names may change.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from mzsql.persist import (
    Batch,
    ExpiredHandle,
    Filters,
    PartRef,
    PersistClient,
    ReadHandle,
    ShardFinalized,
    UpperMismatch,
    WriteHandle,
)
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.types import ColumnType, arrow_schema
from mzsql.storage.wal import WalEntry, WriteAheadLog
from mzsql.storage.zeros import without_signs

TIME_FIELDS = (pa.field("mz_time", pa.int64()), pa.field("mz_diff", pa.int64()))


def empty_updates(schema: pa.Schema) -> pa.Table:
    """No updates of a shard of ``schema``."""
    for field in TIME_FIELDS:
        schema = schema.append(field)
    return schema.empty_table()


def as_updates(rows: pa.Table, diff: int = 1) -> pa.Table:
    """Rows (columns by position) as updates whose time is not known yet, each with multiplicity ``diff``."""
    n = rows.num_rows
    rows = rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])
    # A table without columns has no length of its own in Arrow: its rows are counted by the caller through mz_diff.
    time = pa.repeat(pa.scalar(0, pa.int64()), n)
    return rows.append_column(TIME_FIELDS[0], time).append_column(
        TIME_FIELDS[1], pa.repeat(pa.scalar(diff, pa.int64()), n)
    )


class TableShard:
    """One table's shard: writes batches for the log, applies the log's entries, reads. Thread-safe."""

    def __init__(
        self, persist: PersistClient, shard_id: str, columns: tuple[ColumnType, ...]
    ) -> None:
        self.shard_id = shard_id
        self.schema = arrow_schema(columns)
        self._persist = persist
        self._lock = threading.RLock()
        self._writer, self._reader = self._open()

    def _open(self) -> tuple[WriteHandle, ReadHandle]:
        return self._persist.open_shard(self.shard_id, self.schema, purpose="table")

    @property
    def reader(self) -> ReadHandle:
        """The reader that holds the shard's since back for this process."""
        return self._reader

    def batch(self, updates: pa.Table | pa.RecordBatchReader) -> Batch:
        """Write updates (all at time 0: it is replaced on applying) as a batch for the log."""
        # A writer of its own: a long COPY must not keep others from applying the log, and it costs nothing in Consensus.
        writer = self._persist.open_writer(self.shard_id, self.schema, purpose="table")
        try:
            return writer.batch(without_signs(updates), lower=0, upper=1)
        finally:
            writer.expire()

    def discard(self, batch: Batch) -> None:
        """Delete the objects of a batch that will never be committed."""
        with self._lock:
            self._writer.delete_batch(batch)

    def apply(self, entries: tuple[WalEntry, ...], as_of: Timestamp) -> Frontier:
        """Bring the log's entries at or below ``as_of`` into the shard, oldest first; the shard's upper then."""
        with self._lock:
            upper = self._writer.upper
            for entry in entries:
                if entry.ts <= as_of:
                    upper = self._apply_one(entry, upper)
            return upper

    def _apply_one(self, entry: WalEntry, upper: Frontier) -> Frontier:
        batch = Batch.from_bytes(entry.batch).rewrite_ts(entry.ts)
        while upper is not None and upper <= entry.ts:
            try:
                self._writer.compare_and_append_batch(
                    batch.with_bounds(upper, entry.ts + 1),
                    expected_upper=upper,
                    new_upper=entry.ts + 1,
                )
            except UpperMismatch as other:
                # Another process was faster. The batch's objects stay: they are the ones it has appended.
                upper = other.current
            except ShardFinalized:
                return None
            else:
                upper = entry.ts + 1
        return upper

    def physical_as_of(self, as_of: Timestamp) -> Timestamp | None:
        """The time at which the shard holds what the table holds at ``as_of``; None while nothing was ever written.

        The log's entries up to ``as_of`` must have been applied.
        """
        upper = self._reader.upper
        if upper is not None and upper <= as_of:
            upper = self._reader.fetch_upper()
        if upper is None or upper > as_of:
            return as_of
        return upper - 1 if upper > 0 else None

    def snapshot(
        self,
        as_of: Timestamp,
        columns: list[str] | None = None,
        *,
        filters: Filters | None = None,
    ) -> pa.Table:
        """The contents at ``as_of``, consolidated: columns, mz_time, mz_diff; the rows that ``filters`` ask for."""
        at = self.physical_as_of(as_of)
        if at is None:
            empty = empty_updates(self.schema)
            return empty if columns is None else empty.select([*columns, "mz_time", "mz_diff"])
        return self._reader.snapshot_arrow(at, columns=columns, filters=filters)

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """All updates with ``lower <= mz_time < upper``."""
        at = self.physical_as_of(upper - 1)
        if at is None or at + 1 <= lower:
            return empty_updates(self.schema)
        return self._reader.updates(lower, min(upper, at + 1))

    def parts(self, as_of: Timestamp, *, filters: Filters | None = None) -> list[PartRef]:
        """The parts a snapshot at ``as_of`` consists of; those that may hold a row that ``filters`` ask for."""
        at = self.physical_as_of(as_of)
        return [] if at is None else self._reader.parts(at, filters=filters)

    def reopen(self) -> None:
        """Fresh handles, after a lease ran out."""
        with self._lock:
            self._writer, self._reader = self._open()

    def close(self) -> None:
        """Give the handles up. Idempotent."""
        self._reader.expire()
        self._writer.expire()


class Tables:
    """All tables of an environment, for one process. Thread-safe."""

    def __init__(self, persist: PersistClient, wal: WriteAheadLog) -> None:
        self._persist = persist
        self.wal = wal
        self._lock = threading.Lock()
        self._shards: dict[str, TableShard] = {}
        self._applied: dict[str, Timestamp] = {}
        wal.is_applied = self._is_applied

    def _is_applied(self, entry: WalEntry) -> bool:
        return entry.ts <= self._applied.get(entry.shard, -1)

    def open(self, shard_id: str, columns: tuple[ColumnType, ...]) -> TableShard:
        """The table of shard ``shard_id``, opened at first use."""
        with self._lock:
            if shard_id not in self._shards:
                self._shards[shard_id] = TableShard(self._persist, shard_id, columns)
            return self._shards[shard_id]

    def forget(self, shard_id: str) -> None:
        """Close a table that was dropped."""
        with self._lock:
            shard = self._shards.pop(shard_id, None)
            self._applied.pop(shard_id, None)
        if shard is not None:
            shard.close()

    def ensure_applied(self, table: TableShard, as_of: Timestamp) -> None:
        """Make sure that the table's shard holds all that the log has for it up to ``as_of``.

        The log must be known past ``as_of`` (`WriteAheadLog.wait_past`, `advance_past`).
        """
        entries = self.wal.state.live.get(table.shard_id, ())
        pending = tuple(e for e in entries if e.ts <= as_of and not self._is_applied(e))
        if not pending:
            return
        try:
            upper = table.apply(pending, as_of)
        except ExpiredHandle:
            table.reopen()
            upper = table.apply(pending, as_of)
        with self._lock:
            done = as_of if upper is None else upper - 1
            self._applied[table.shard_id] = max(self._applied.get(table.shard_id, -1), done)

    def close(self) -> None:
        """Give all handles up. Idempotent."""
        with self._lock:
            shards, self._shards = list(self._shards.values()), {}
        for shard in shards:
            shard.close()
