"""Group commit: the writes of all sessions that wait at the same moment become one timestamp and one append to the log.

Promise: a write is acknowledged after it is durable and the oracle knows it (data durable → apply_write → answer, in this order).
A read-then-write commits only if nothing that it read was written after its read timestamp: else it is told so (`WriteConflict`), and
nothing of it was written. The trade-off: no thread of its own; whoever comes first while the log is busy commits for all who queue.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa

from mzsql.adapter.environment import Environment
from mzsql.persist import Batch, UpperMismatch
from mzsql.repr.errors import SqlError, TransactionError, UndefinedTable
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.storage import WalState

#: What is written to one table: updates (c0 …, mz_time 0, mz_diff), or a batch written before.
Write: TypeAlias = "pa.Table | Batch"


class WriteConflict(TransactionError):
    """Something that the write had read was written after it was read."""

    sqlstate = "40001"


class _Pending:
    """One session's write, while it waits."""

    def __init__(
        self,
        writes: Mapping[GlobalId, Sequence[Write]],
        reads: frozenset[GlobalId],
        read_ts: Timestamp | None,
    ) -> None:
        self.writes = writes
        self.reads = reads
        self.read_ts = read_ts
        self.done = False
        self.ts: Timestamp = 0
        self.error: BaseException | None = None


def merge(batches: Sequence[Batch]) -> Batch:
    """Batches of one shard, none of whose times are known yet, as one."""
    first = batches[0]
    if len(batches) == 1:
        return first
    return msgspec.structs.replace(first, parts=tuple(p for b in batches for p in b.parts))


class GroupCommit:
    """Commits the writes of one process. Thread-safe."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._queue: list[_Pending] = []
        self._queue_lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self.appends = 0
        self.commits = 0

    def commit(
        self,
        writes: Mapping[GlobalId, Sequence[Write]],
        *,
        reads: Iterable[GlobalId] = (),
        read_ts: Timestamp | None = None,
    ) -> Timestamp:
        """Commit writes to tables atomically; the timestamp at which they are visible.

        Args:
            writes: what is written, by table.
            reads: the tables that the writes were computed from, at ``read_ts``.
            read_ts: the time of those reads.

        Raises:
            WriteConflict: one of ``reads`` was written after ``read_ts``.
            UndefinedTable: a table was dropped meanwhile.
        """
        self._env.require_writable()
        pending = _Pending(writes, frozenset(reads), read_ts)
        with self._queue_lock:
            self._queue.append(pending)
        with self._commit_lock:
            if not pending.done:
                with self._queue_lock:
                    group, self._queue = self._queue, []
                self._commit_group(group)
        if pending.error is not None:
            raise pending.error
        return pending.ts

    def _commit_group(self, group: Sequence[_Pending]) -> None:
        try:
            self._append(group)
        except BaseException as failure:
            # Those who wait on other threads must hear of it too; each raises it for itself.
            for pending in group:
                if not pending.done:
                    pending.error = failure
        finally:
            for pending in group:
                pending.done = True

    def _append(self, group: Sequence[_Pending]) -> None:
        env = self._env
        wal = env.wal.follow()
        # The catalog is looked at after the log: what is done to it by somebody who then moves the log is seen, or the append fails.
        state = env.sync()
        batches: dict[int, dict[GlobalId, list[Batch]]] = {}
        for i, pending in enumerate(group):
            try:
                batches[i] = self._batches(pending, state.items)
            except SqlError as failure:
                pending.error = failure
                pending.done = True
        while True:
            ready = [i for i in batches if self._check(group[i], wal)]
            for i in set(batches) - set(ready):
                self._discard(batches.pop(i))
            if not ready:
                return
            ts = env.oracle.write_ts()
            if ts < wal.upper:
                # The log is ahead of the oracle where a writer died between the two: its commit counts.
                env.oracle.apply_write(wal.upper - 1)
                ts = env.oracle.write_ts()
            merged: dict[str, list[Batch]] = {}
            for i in ready:
                for gid, parts in batches[i].items():
                    merged.setdefault(env.collections.meta(gid).shard, []).extend(parts)
            try:
                env.wal.commit(
                    ts,
                    {shard: merge(parts) for shard, parts in merged.items()},
                    expected=wal,
                    register=merged,
                )
            except UpperMismatch:
                wal = env.wal.follow()
                env.sync()
                continue
            break
        env.oracle.apply_write(ts)
        self.appends += 1
        for i in ready:
            group[i].ts = ts
            group[i].done = True
            self.commits += 1
        env.collections.notify()

    def _check(self, pending: _Pending, wal: WalState) -> bool:
        """Whether the write's tables are all there, and nothing it had read was written since."""
        try:
            self._require_tables(pending, self._env.catalog.state.items)
        except UndefinedTable as dropped:
            pending.error = dropped
            pending.done = True
            return False
        if pending.read_ts is None:
            return True
        for gid in pending.reads:
            if wal.written_after(self._env.collections.meta(gid).shard, pending.read_ts):
                pending.error = WriteConflict(
                    "could not serialize access due to concurrent update",
                    hint="Run the transaction again.",
                )
                pending.done = True
                return False
        return True

    @staticmethod
    def _require_tables(pending: _Pending, items: Mapping[GlobalId, object]) -> None:
        for gid in pending.writes:
            if gid not in items:
                raise UndefinedTable(
                    f"unknown catalog item '{gid}'",
                    detail="The table was dropped while the transaction that writes to it was open.",
                )

    def _batches(
        self, pending: _Pending, items: Mapping[GlobalId, object]
    ) -> dict[GlobalId, list[Batch]]:
        self._require_tables(pending, items)
        result: dict[GlobalId, list[Batch]] = {}
        for gid, writes in pending.writes.items():
            table = self._env.collections.table(gid)
            updates = [w for w in writes if isinstance(w, pa.Table) and w.num_rows]
            batches = [w for w in writes if isinstance(w, Batch) and w.rows]
            if updates:
                whole = pa.concat_tables(updates, promote_options="default")
                batches.append(table.batch(whole.combine_chunks()))
            if batches:
                result[gid] = batches
        return result

    def _discard(self, batches: Mapping[GlobalId, Sequence[Batch]]) -> None:
        for gid, parts in batches.items():
            # A dropped table's objects go with its shard.
            with contextlib.suppress(UndefinedTable):
                for batch in parts:
                    self._env.collections.table(gid).discard(batch)
