"""A map from strings to bytes on one shard, followed by every process.

Promise: `apply` is atomic and linearizable: the change is computed from the newest contents by a pure function, and
appended only if nobody appended since; after a lost race the other updates are read and the function is called again.
Times are integer steps, as in Materialize's durable cache. History is released soon, so that compaction keeps one row
per key: after some steps, and at once where half as many updates as there are entries have been replaced. The
trade-off: every process holds the whole map in memory.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from mzsql.persist import ExpiredHandle, PersistClient, UpperMismatch
from mzsql.repr.errors import InternalError, SqlError

_log = logging.getLogger(__name__)

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.binary())])

#: History is released every so many steps.
HELD_STEPS = 16
#: Everything is merged once so many updates, at least half as many as there are entries, are of no use any more.
REPLACED_UPDATES = 256

#: So many lost races in a row mean a bug or a livelock.
MOST_CONFLICTS = 1000

#: New values by key; None removes the key.
Change = Mapping[str, bytes | None]


class DurableMap:
    """One process's handle on a map. Thread-safe.

    Args:
        persist: the client of the environment's shards.
        shard_id: the map's shard, created where it does not exist.
        purpose: a description kept in the shard's state.
        max_conflicts: after so many lost races in a row `apply` fails; None: it never does, since every loser has seen
            the winner's progress.
    """

    def __init__(
        self,
        persist: PersistClient,
        shard_id: str,
        purpose: str,
        max_conflicts: int | None = MOST_CONFLICTS,
    ) -> None:
        self._persist = persist
        self._shard_id = shard_id
        self._purpose = purpose
        self._max_conflicts = max_conflicts
        self._lock = threading.RLock()
        self._entries: dict[str, bytes] = {}
        self._upper = 0
        self._lapsed = False
        # Whether a merge was begun, which may not be over.
        self._merges = False
        self._open()

    def _open(self) -> None:
        self._writer, self._reader = self._persist.open_shard(
            self._shard_id, SCHEMA, purpose=self._purpose
        )
        self._entries, self._upper, self._held, self._lapsed = {}, 0, 0, False
        # How many of the stored updates cancel each other, about.
        self._replaced = 0
        upper = self._reader.fetch_upper()
        if upper is None:
            raise InternalError(f"the shard of the {self._purpose} is sealed")
        if upper > 0:
            # Consolidated below: grouping by large values takes longer than reading them.
            table = self._reader.snapshot_arrow(upper - 1, consolidate=False)
            self._entries = self._contents(table)
            self._replaced = len(table) - len(self._entries)
        self._upper = upper
        self._hold()

    def _contents(self, table: pa.Table) -> dict[str, bytes]:
        """The map that a snapshot's updates add up to."""
        keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
        diffs = table.column("mz_diff")
        if pc.all(pc.equal(diffs, 1)).as_py():
            entries = dict(zip(keys, values, strict=True))
            sound = len(entries) == len(keys)
        else:
            counts: Counter[tuple[str, bytes]] = Counter()
            for key, value, diff in zip(keys, values, diffs.to_pylist(), strict=True):
                counts[key, value] += diff
            there = [pair for pair, count in counts.items() if count]
            entries = dict(there)
            sound = len(entries) == len(there) and all(counts[pair] == 1 for pair in there)
        if not sound:
            raise InternalError(f"the {self._purpose} holds a key more or less than once")
        return entries

    def _fold(self, table: pa.Table) -> None:
        rows = zip(
            table.column("mz_time").to_pylist(),
            table.column("mz_diff").to_pylist(),
            table.column("key").to_pylist(),
            table.column("value").to_pylist(),
            strict=True,
        )
        # Retractions of a step come first: an overwritten key has one retraction and one insertion.
        for _, diff, key, value in sorted(rows, key=lambda row: row[:3]):
            if diff == 1:
                self._entries[key] = value
            elif diff == -1 and self._entries.get(key) == value:
                del self._entries[key]
                self._replaced += 2
            else:
                raise InternalError(f"the {self._purpose} holds {key!r} {diff} times")

    def _hold(self) -> None:
        """Release history, only every `HELD_STEPS` steps since each time is a write to Consensus.

        The read or append before has succeeded, so a failure here is logged and retried with later changes; a handle
        that has expired is replaced at the next `sync`.
        """
        if self._upper >= self._held + HELD_STEPS:
            self._release()

    def _release(self) -> bool:
        """Release history now; see `_hold`. Whether it was released."""
        self._held = self._upper
        try:
            self._reader.downgrade_since(self._upper - 1)
        except ExpiredHandle:
            self._lapsed = True
        except SqlError as failure:
            _log.warning("the %s keeps history a little longer: %s", self._purpose, failure)
        else:
            return True
        return False

    def _compact(self) -> None:
        """Once half as many updates as there are entries have been replaced, have the shard hold one a key.

        Few batches, however large, are too few for the shard's own maintenance, and whoever opens the map reads them
        all. No statement waits for that, which may take seconds, but `close` does. As in `_hold` a failure is logged.
        """
        if not self._is_much(self._replaced):
            return
        self._replaced = 0
        if not self._release() or not self._persist.maintains:
            return
        self._merges = True
        self._maintain(beside=True)

    def _is_much(self, replaced: int) -> bool:
        """Whether so many updates are worth merging everything for."""
        return replaced >= max(REPLACED_UPDATES, len(self._entries) // 2)

    def _maintain(self, *, beside: bool) -> None:
        try:
            if not beside:
                state = self._persist.inspect(self._shard_id)
                stored = 0 if state is None else sum(one.rows for one in state.trace)
                if not self._is_much(stored - len(self._entries)):
                    return  # the thread had time for it
            self._persist.maintain(self._shard_id, full=True, all_due=False, beside=beside)
        except SqlError as failure:
            _log.warning("the %s is compacted later: %s", self._purpose, failure)

    @property
    def reader_id(self) -> str:
        """The id of this process's reader of the shard; another one after its lease had run out."""
        return self._reader.reader_id

    @property
    def upper(self) -> int:
        """The step up to which this process has read the map; asks no store."""
        return self._upper

    def entries(self) -> dict[str, bytes]:
        """The map as last read; asks no store."""
        with self._lock:
            return dict(self._entries)

    def get(self, key: str) -> bytes | None:
        """A key's value as last read; asks no store."""
        with self._lock:
            return self._entries.get(key)

    def sync(self) -> bool:
        """Read what others appended; whether there was anything. Threads that call at the same time share one request
        to Consensus.
        """
        reader = self._reader
        try:
            # Without the lock, so that concurrent callers share the request instead of making theirs one after another.
            upper = None if self._lapsed else reader.fetch_upper()
        except ExpiredHandle:
            upper = None
        with self._lock:
            try:
                if self._lapsed:
                    self._open()
                    return True
                if upper is None:
                    upper = self._reader.fetch_upper()
                assert upper is not None
                if upper <= self._upper:
                    return False
                self._fold(self._reader.updates(self._upper, upper))
                self._upper = upper
                self._hold()
            except ExpiredHandle:
                self._open()
            return True

    def await_change(self, timeout: float) -> bool | None:
        """Block until another process may have changed the map, or for ``timeout`` seconds; None at once where
        Consensus cannot notify.

        Sends no requests while nothing happens.

        Raises:
            LocationError: Consensus failed or was closed.
        """
        with self._lock:
            reader, before = self._reader, self._reader.seqno
            if self._behind():
                return True
        changed = reader.await_change(timeout, before)
        if changed is None:
            return None
        with self._lock:
            # This process's own changes are in the entries already; its maintenance may have noticed another's without
            # reading it.
            return self._behind() or (changed and reader.seqno == before)

    def _behind(self) -> bool:
        """Whether the reader knows of more steps than were read; the lock is held."""
        upper = self._reader.seen_upper
        return upper is None or upper > self._upper

    def apply(self, make: Callable[[Mapping[str, bytes]], Change]) -> int:
        """Append the change that ``make`` computes from the newest contents; the step at which it was appended.

        ``make`` may be called several times and must be pure; an exception from it passes through, and nothing is
        changed.

        Raises:
            InternalError: others appended first as often as ``max_conflicts`` says, or `MOST_CONFLICTS` times
                without a step that this process did not know.
        """
        with self._lock:
            lost = in_vain = 0
            while in_vain < MOST_CONFLICTS and lost != self._max_conflicts:
                change = make(self._entries)
                rows = list(_rows(self._entries, change))
                if not rows:
                    return self._upper
                step = self._upper
                try:
                    self._writer.compare_and_append(
                        _table(rows, step), expected_upper=step, new_upper=step + 1
                    )
                except UpperMismatch:
                    self.sync()
                    lost, in_vain = lost + 1, 0 if self._upper > step else in_vain + 1
                    continue
                except ExpiredHandle:
                    self._open()
                    lost, in_vain = lost + 1, in_vain + 1
                    continue
                self._upper = step + 1
                self._replaced += 2 * sum(diff < 0 for _, _, diff in rows)
                for key, value in change.items():
                    if value is None:
                        self._entries.pop(key, None)
                    else:
                        self._entries[key] = value
                self._hold()
                self._compact()
                return step
            raise InternalError(
                f"the {self._purpose} could not be changed: "
                f"{lost} times in a row somebody else was faster"
            )

    def close(self) -> None:
        """Close the handles, once what was to be merged is. Idempotent."""
        merges, self._merges = self._merges, False
        if merges:
            # The process may have had no time for it.
            self._maintain(beside=False)
        self._reader.expire()
        self._writer.expire()


def _rows(entries: Mapping[str, bytes], change: Change) -> Iterable[tuple[str, bytes, int]]:
    for key, value in change.items():
        old = entries.get(key)
        if old == value:
            continue
        if old is not None:
            yield key, old, -1
        if value is not None:
            yield key, value, 1


def _table(rows: list[tuple[str, bytes, int]], step: int) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([key for key, _, _ in rows], pa.string()),
            "value": pa.array([value for _, value, _ in rows], pa.binary()),
            "mz_time": pa.array([step] * len(rows), pa.int64()),
            "mz_diff": pa.array([diff for _, _, diff in rows], pa.int64()),
        }
    )
