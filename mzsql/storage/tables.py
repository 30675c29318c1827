"""Tables on shards, behind the write-ahead log (docs/architecture.md, decision 7).

Promise: a write is durable once it is in the log. A reader takes what the log has beyond the table's own shard from
the log (`ReadHandle.learn`), so a read needs no write. The shard follows some seconds later, with one append of
everything that it lacks, or at once if that is much. Applying is idempotent and can be done by anyone. A table's
logical upper is the log's, so an idle table costs nothing: its own shard's upper stays where its last write left it,
and a read at a later time is a read there. Columns are c0 … cn by position, so that they can be renamed. Trade-off:
what the shard lacks is kept in the log and in memory, up to `BEHIND_WRITES` and `BEHIND_BYTES`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Sequence

import pyarrow as pa

from mzsql.persist import (
    Batch,
    Clock,
    ExpiredHandle,
    Filters,
    PartRef,
    PersistClient,
    ReadHandle,
    ShardFinalized,
    SystemClock,
    UpperMismatch,
    WriteHandle,
)
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Frontier, Timestamp, contains
from mzsql.repr.types import ColumnType, arrow_schema
from mzsql.storage.wal import WalEntry, WalState, WriteAheadLog
from mzsql.storage.zeros import without_signs
from mzsql.threads import Supervised, wait_until_due

_log = logging.getLogger(__name__)

#: A table's shard follows this many seconds after the first write that it lacks was read here.
BEHIND_SECONDS = 5.0
#: It follows at once if it lacks more than this many writes, or `BEHIND_BYTES` of them.
BEHIND_WRITES = 64
BEHIND_BYTES = 1 << 20
_JOIN_SECONDS = 5.0
"""How long closing waits for an append that is under way; what it appends is in the log anyway."""

TIME_FIELDS = (pa.field("mz_time", pa.int64()), pa.field("mz_diff", pa.int64()))
#: Made once, as making one takes longer than repeating it does: the time that is not known yet, and multiplicities.
_NO_TIME = pa.scalar(0, pa.int64())
_DIFFS = {diff: pa.scalar(diff, pa.int64()) for diff in (1, -1)}


@functools.lru_cache(maxsize=4096)
def empty_updates(schema: pa.Schema) -> pa.Table:
    """No updates of a shard with this schema. Cached: most tables have none in most steps, and making it takes long."""
    for field in TIME_FIELDS:
        schema = schema.append(field)
    return schema.empty_table()


def as_updates(rows: pa.Table, diff: int = 1) -> pa.Table:
    """Rows (columns by position) as updates of multiplicity ``diff``, whose time is not known yet."""
    n = rows.num_rows
    rows = rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])
    # A table without columns has no length of its own in Arrow: its rows are counted by the caller through mz_diff.
    diffs = pa.repeat(_DIFFS.get(diff) or pa.scalar(diff, pa.int64()), n)
    return rows.append_column(TIME_FIELDS[0], pa.repeat(_NO_TIME, n)).append_column(
        TIME_FIELDS[1], diffs
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
        #: up to here what the log has retracted is known here (see `take`)
        self._looked: Timestamp = -1

    def _open(self) -> tuple[WriteHandle, ReadHandle]:
        return self._persist.open_shard(self.shard_id, self.schema, purpose="table")

    @property
    def reader(self) -> ReadHandle:
        """The reader that holds the shard's since back for this process."""
        return self._reader

    def batch(self, updates: pa.Table | pa.RecordBatchReader) -> Batch:
        """Write updates (all at time 0, which is replaced when they are applied) as a batch for the log."""
        # A writer of its own, so that a long COPY does not keep others from applying the log; opening one writes
        # nothing to Consensus.
        writer = self._persist.open_writer(self.shard_id, self.schema, purpose="table")
        try:
            return writer.batch(without_signs(updates), lower=0, upper=1)
        finally:
            writer.expire()

    def check(self, batches: Sequence[Batch]) -> None:
        """Check that batches that waited to be committed still exist.

        Raises:
            MissingPart: an object was deleted as unreferenced meanwhile.
        """
        with self._lock:
            writer = self._writer
        # Without the lock: Blob is asked for each object.
        writer.check_batch(batches)

    def discard(self, batch: Batch) -> None:
        """Delete the objects of a batch that will never be committed."""
        with self._lock:
            self._writer.delete_batch(batch)

    def take(self, state: WalState) -> bool:
        """Take note of all that the log has; entries with objects are applied to the shard instead. Returns whether the
        shard is behind.

        All of it, however early the time that is read: what is left out now may be retracted before the next look, which
        then would begin behind it.
        """
        with self._lock:
            tidied = state.tidied_until(self.shard_id)
            if self._looked < tidied and contains(self._reader.upper, tidied):
                # Entries that others have applied and retracted are only visible in the shard, if it was last asked
                # before the log was like this.
                self._reader.fetch_upper()
            known = self._reader.upper
            entries = state.live.get(self.shard_id, ())
            new = [e for e in entries if contains(known, e.ts)]
            batches = [Batch.from_bytes(entry.batch).rewrite_ts(entry.ts) for entry in new]
            # Objects are safe from deletion only where a state names them, so a batch with objects is not read ahead of the shard.
            if any(batch.blob_keys() for batch in batches):
                self.apply(entries)
                batches = []
            for batch in batches:
                assert known is not None
                self._reader.learn(batch.with_bounds(known, batch.upper))
                known = batch.upper
            # Not before all that is live is known: where that fails the shard is asked again.
            self._looked = max(self._looked, tidied)
            return self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether writes are known here that the shard lacks."""
        return self._writer.behind[0] > 0

    @property
    def is_far_behind(self) -> bool:
        """Whether these are many or large."""
        writes, size = self._writer.behind
        return writes > BEHIND_WRITES or size > BEHIND_BYTES

    def holds(self, ts: Timestamp) -> bool:
        """Whether the shard is known to contain what was written at ``ts``; no backend is called."""
        return not contains(self._reader.durable_upper, ts)

    def catch_up(self) -> None:
        """Write to the shard what is known here and it lacks, in one append. Idempotent."""
        # Without the lock, so that readers do not wait for an append.
        with contextlib.suppress(ShardFinalized):  # it was dropped
            self._writer.catch_up()

    def apply(self, entries: Sequence[WalEntry]) -> Frontier:
        """Append entries of the log to the shard, oldest first; return the shard's upper then."""
        with self._lock:
            upper: Frontier = self._writer.upper
            for entry in entries:
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
                # Another process was faster. The batch's objects must stay: they are the ones that it has appended.
                upper = other.current
            except ShardFinalized:
                return None
            else:
                upper = entry.ts + 1
        return upper

    def physical_as_of(self, as_of: Timestamp) -> Timestamp | None:
        """The time at which the shard, as known here, has the table's contents at ``as_of``; None if nothing was ever
        written.

        The log's entries must be known (`take`), past ``as_of``.
        """
        upper = self._reader.upper
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
        """The contents at ``as_of``, consolidated: columns, mz_time, mz_diff; only rows that ``filters`` allow."""
        at = self.physical_as_of(as_of)
        if at is None:
            empty = empty_updates(self.schema)
            return empty if columns is None else empty.select([*columns, "mz_time", "mz_diff"])
        return self._reader.snapshot_arrow(at, columns=columns, filters=filters)

    def written_until(self, upper: Timestamp) -> Timestamp | None:
        """How far the shard, as known here, has the table's updates of the times below ``upper``; there are none beyond. None if
        nothing was ever written.
        """
        at = self.physical_as_of(upper - 1)
        return None if at is None else min(upper, at + 1)

    def parts(self, as_of: Timestamp, *, filters: Filters | None = None) -> list[PartRef]:
        """The parts of a snapshot at ``as_of``; only those that may contain a row that ``filters`` allow."""
        at = self.physical_as_of(as_of)
        return [] if at is None else self._reader.parts(at, filters=filters)

    def reopen(self) -> None:
        """Open new handles after a lease has expired."""
        with self._lock:
            self._writer, self._reader = self._open()
            self._looked = -1

    def close(self) -> None:
        """Close the handles. Idempotent."""
        self._reader.expire()
        self._writer.expire()


class Writing:
    """Whether a process writes, which may change while it runs: a deploy generation begins to when it is promoted."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.allowed = allowed


class Tables:
    """All tables of an environment, for one process. Thread-safe.

    Args:
        persist: the client of the environment's shards.
        wal: their log.
        clock: its monotonic time is used.
        writing: whether this process advances shards that are behind; one that only reads leaves that to others.
        delay: seconds after which a shard follows.
    """

    def __init__(
        self,
        persist: PersistClient,
        wal: WriteAheadLog,
        *,
        clock: Clock | None = None,
        writing: Writing | None = None,
        delay: float = BEHIND_SECONDS,
    ) -> None:
        self._persist = persist
        self.wal = wal
        self._clock = clock or SystemClock()
        self._writing = writing or Writing()
        self._delay = delay
        self._changed = threading.Condition()
        self._shards: dict[str, TableShard] = {}
        self._behind_since: float | None = None
        self._closing = False
        self._thread: Supervised | None = None

    def open(self, shard_id: str, columns: tuple[ColumnType, ...]) -> TableShard:
        """The table in shard ``shard_id``, opened at first use."""
        with self._changed:
            if shard_id not in self._shards:
                self._shards[shard_id] = TableShard(self._persist, shard_id, columns)
                self.wal.applied.opened(shard_id, self._shards[shard_id])
            return self._shards[shard_id]

    def forget(self, shard_id: str) -> None:
        """Close a dropped table."""
        with self._changed:
            shard = self._shards.pop(shard_id, None)
            self.wal.applied.closed(shard_id)
        if shard is not None:
            shard.close()

    def ensure_known(self, table: TableShard) -> None:
        """Ensure that reads of the table's shard include everything that the log, as last seen, has for it.

        The log must be known past the time that is read (`WriteAheadLog.wait_past`, `advance_past`).
        """
        try:
            behind = table.take(self.wal.state)
        except ExpiredHandle:
            table.reopen()
            behind = table.take(self.wal.state)
        if not behind or not self._writing.allowed:
            return
        if table.is_far_behind:
            table.catch_up()
        else:
            self._follow_later()

    def catch_up(self, table: TableShard) -> None:
        """Advance a table's shard now, if this process does that."""
        if table.is_behind and self._writing.allowed:
            table.catch_up()

    # --- shards follow ------------------------------------------------------------------------

    def _follow_later(self) -> None:
        with self._changed:
            if self._behind_since is not None or self._closing:
                return
            self._behind_since = self._clock.monotonic()
            self._changed.notify_all()
            if self._thread is None:
                self._thread = self._persist.supervisor.start(
                    "tables-follow", self._work, thread_name="mzsql-tables-follow"
                )

    def _work(self, thread: Supervised) -> None:
        while True:
            with self._changed:
                if not wait_until_due(self._changed, self._due, lambda: self._closing):
                    return
                self._behind_since = None
                shards = list(self._shards.values())
            failed = [shard for shard in shards if not self._caught_up(shard)]
            if failed:
                self._follow_later()
            thread.well()

    def _due(self) -> float | None:
        """Seconds until shards must follow; None if none is behind. The caller holds the lock."""
        if self._behind_since is None:
            return None
        return max(0.0, self._behind_since + self._delay - self._clock.monotonic())

    def _caught_up(self, table: TableShard) -> bool:
        try:
            if table.is_behind:
                table.catch_up()
        except ExpiredHandle:
            # A reader of the table opens it again, and finds in the log what the shard lacks.
            return True
        except (SqlError, OSError) as failure:
            _log.info("the log keeps what the shard of a table lacks: %s", failure)
            return False
        return True

    def close(self) -> None:
        """Close all handles; what the shards lack is in the log. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            shards, self._shards = list(self._shards.values()), {}
            thread = self._thread
        if thread is not None:
            thread.stop()
            thread.join(_JOIN_SECONDS)
        for shard in shards:
            shard.close()
