"""The writer of one storage-managed collection.

Promise: commands take effect in the order in which they were given; all that are queued are written in one append. A
deletion is a predicate over rows and covers everything appended before it, by this process or an earlier one. After
a conflict, and at the start, the difference between a mirror's desired contents (`mzsql.storage.mirror`) and its
shard is written. A history is appended to without reading, except for deletions, which are recomputed from its
contents whenever another process has written in between; of those that delete what is old, it is read for those
alone that may meet a row. It may be bounded. Rows that are to be seen after those of another collection wait until those
are durable, where that works. The writer is a supervised thread:
whatever it fails with, it continues from there, and neither repeats nor loses anything. Commands queued meanwhile
take no more memory than a mirror's contents, or a bounded number of a history's commands, of which the oldest rows
are then dropped and counted.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from prometheus_client import Counter as Count

from mzsql.location import Determinate, LocationError, caller_limit, waiting
from mzsql.persist import (
    Clock,
    ExpiredHandle,
    PersistClient,
    ReadHandle,
    UpperMismatch,
    WriteHandle,
)
from mzsql.repr.errors import NotReadable
from mzsql.repr.frontier import Timestamp
from mzsql.repr.interrupt import NO_LIMIT
from mzsql.repr.types import ColumnType, arrow_schema
from mzsql.storage.managed import Append, Change, Delete, ManagedKind, ManagedRow
from mzsql.storage.mirror import Mirror
from mzsql.storage.tables import empty_updates
from mzsql.threads import Supervised, ThreadStatus

_Read: TypeAlias = Callable[[], Counter[ManagedRow]]

_log = logging.getLogger(__name__)

#: Default for how many commands of a history may be queued.
MOST_WAITING = 10_000
#: At most so many seconds a write waits for that of another collection that is to be seen before it.
FIRST_SECONDS = 5.0
#: Least time between two downgrades of since, in milliseconds: each is a write of its own, and with each append would
#: double the writes.
LET_GO_MS = 30_000

_DROPPED = Count(
    "mzsql_storage_dropped_rows",
    "Rows of a history that were dropped as its shard could not be written",
    ("collection",),
)


class ManagedCollection:
    """One collection and the thread that writes it.

    Args:
        persist: the client of the environment's shards, whose supervisor runs the thread.
        shard_id: its shard, created if it does not exist.
        columns: the types of its columns.
        kind: whether it is a mirror or a history, which rows last, and how often it is written.
        name: its name, for messages.
        clock: gives its times.
        most_waiting: how many commands of a history are queued while a backend fails; beyond that the oldest rows
            are dropped.
    """

    def __init__(
        self,
        persist: PersistClient,
        shard_id: str,
        columns: tuple[ColumnType, ...],
        *,
        kind: ManagedKind,
        name: str,
        clock: Clock,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._schema = arrow_schema(columns)
        self.kind = kind
        self._differential = kind.differential
        self._name = name
        self._clock = clock
        self._persist = persist
        self._shard_id = shard_id
        self._most_waiting = most_waiting
        # Used by the writer's thread only; opened when there is something to write or to read.
        self._opened: tuple[WriteHandle, ReadHandle] | None = None
        self._changed = threading.Condition()
        # Guarded by the condition: a mirror's desired contents, a history's queued commands, and the number of
        # commands of both kinds.
        self._mirror = Mirror(kind.lasting)
        self._waiting: deque[Change] = deque()
        self._given = 0
        self._written = 0
        self._hurried = 0
        self._first: dict[ManagedCollection, int] = {}
        self._pausing = False
        self._closing = False
        self.dropped = 0
        # Used by the writer's thread only: by what a mirror's shard differs from the desired contents as they were
        # when last taken, the commands of a history being written, and an append whose outcome is unknown.
        self._lacks: Counter[ManagedRow] = Counter()
        # The upper of a mirror's shard when its lasting rows were read, and all that it held; None once that was used.
        self._found: tuple[Timestamp, Counter[ManagedRow]] | None = None
        self._read_at = 0
        self._at_work: list[Change] = []
        self._taken = 0
        self._doubtful: tuple[str, Timestamp] | None = None
        self._upper = 0
        #: when since was last downgraded
        self._let_go_at = 0
        self._pause = kind.pause
        # About how many rows a bounded history has; None: not known yet.
        self._count: int | None = None
        # A value that no row of a history is older than, nothing where it has no rows, and the same once what is being written is;
        # None: not known.
        self._oldest: tuple[Any, ...] | None = None
        self._oldest_then: tuple[Any, ...] | None = None
        self._reconcile = True
        self._closer: Callable[[], float] | None = None
        self._thread = persist.supervisor.start(
            "status-writer",
            self._serve,
            thread_name=f"mzsql-{name}",
            object_id=name,
            changed=self._tell,
        )

    def send(self, command: Change, after: tuple[ManagedCollection, int] | None = None) -> None:
        """Queue a command; returns at once. Its memory does not grow without bound while a backend fails (see the
        module).

        Args:
            command: the command.
            after: another collection, which never waits for this one, and how many of its commands are to be durable before.

        Raises:
            Determinate: a history whose shard cannot be written has more deletions queued than it keeps.
        """
        with self._changed:
            if self._differential:
                self._mirror.apply(command)
            else:
                self._make_room()
                self._waiting.append(command)
            self._given += 1
            if after is not None:
                other, given = after
                self._first[other] = max(given, self._first.get(other, 0))
            if not self._pausing:
                self._changed.notify_all()

    @property
    def given(self) -> int:
        """How many commands were given."""
        return self._given

    def _make_room(self) -> None:
        """Drop the oldest rows of a history beyond the commands that may be queued. The caller holds the lock."""
        if len(self._waiting) < self._most_waiting:
            return
        oldest = next((n for n, c in enumerate(self._waiting) if isinstance(c, Append)), None)
        if oldest is None:
            raise Determinate(
                f"{self._name} cannot be written, and {len(self._waiting)} deletions wait for that"
            )
        gone = self._waiting[oldest]
        del self._waiting[oldest]
        assert isinstance(gone, Append)
        if not self.dropped:
            _log.warning(
                "%s cannot be written: more than %d commands wait, and the oldest rows are dropped",
                self._name,
                self._most_waiting,
            )
        self.dropped += len(gone.updates)
        _DROPPED.labels(self._name).inc(len(gone.updates))

    def hasten(self, given: int, timeout: float) -> bool:
        """Wait until so many commands are durable, for ``timeout`` seconds at most and as long as the writer works; whether they are."""

        def decided() -> bool:
            works = self._thread.is_alive() and self._thread.status.status == "running"
            return self._written >= given or not works

        with self._changed:
            self._hurried = max(self._hurried, given)
            self._changed.notify_all()
            self._changed.wait_for(decided, timeout)
            return self._written >= given

    def flush(self, timeout: float) -> None:
        """Wait until all commands given before are durable.

        Raises:
            NotReadable: they are not within ``timeout`` seconds; with the writer's failure, if it fails.
            ThreadFailed: the writer has ended for good.
        """
        with self._changed:
            given = self._hurried = self._given
            self._changed.notify_all()
            done = self._changed.wait_for(
                lambda: self._written >= given or self._thread.failed, timeout
            )
            written = self._written >= given
        if not written:
            self._thread.check(f"the writer of {self._name}")
        if not done:
            status = self._thread.status
            raise NotReadable(
                f"{self._name} was not written within {timeout:g} s",
                detail=f"Its writer fails: {status.error}" if status.error else None,
            )

    def close(self) -> None:
        """Write what is queued and stop. Idempotent. What a failing backend does not take now is lost, and logged.

        The writer waits for backends no longer than the caller does (`mzsql.location.waiting`).
        """
        with self._changed:
            if self._closing:
                return
            self._closer = caller_limit()
            self._closing = True
            self._changed.notify_all()
        self._thread.finish()
        self._thread.join()
        try:
            for handle in self._opened or ():
                handle.expire()
        except LocationError as failure:
            _log.warning("the handles of %s are left to expire: %s", self._name, failure)

    # --- the writer's thread ------------------------------------------------------------------

    def _tell(self, _: ThreadStatus) -> None:
        """Wake those who wait for the writer, so that they look again."""
        with self._changed:
            self._changed.notify_all()

    def _left(self) -> float:
        """Seconds that a backend call may take: unlimited here, until a caller with a limit closes the collection."""
        return NO_LIMIT if self._closer is None else self._closer()

    def _serve(self, thread: Supervised) -> None:
        """Write queued commands, all in one append; after a failure a restarted thread continues where this one failed."""
        with waiting(self._left):
            if not self._mirror.seeded:
                left = self._read()
                self._found = self._read_at, left
                with self._changed:
                    self._mirror.seed(left)
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing or self._has_work())
                    if not self._has_work():
                        return
                    if self._differential:
                        self._taken = self._given
                        _add(self._lacks, self._mirror.take())
                    elif not self._at_work:
                        # Commands of a failed write are not mixed with later ones: they may be in the shard.
                        self._at_work, self._taken = list(self._waiting), self._given
                        self._waiting.clear()
                    first, self._first = self._first, {}
                _hasten(first)
                self._write()
                self._at_work = []
                thread.well()
                with self._changed:
                    self._written = self._taken
                    self._changed.notify_all()
                    # Commands that come soon after a write are written with those that follow.
                    self._pausing = True
                    self._changed.wait_for(self._in_a_hurry, self._pause)
                    self._pausing = False
                    self._pause = self._next_pause()

    def _next_pause(self) -> float:
        """How long to pause after the next write. The caller holds the lock."""
        kind = self.kind
        if self._written == self._given:
            return kind.pause
        return max(kind.pause, min(2 * self._pause, kind.longest_pause))

    def _in_a_hurry(self) -> bool:
        return self._closing or self._hurried > self._written

    def _has_work(self) -> bool:
        # A mirror's first write retracts what an earlier process left.
        first = self._differential and self._upper == 0
        return first or self._written < self._given

    def _folded(self, changes: Sequence[Change], read: _Read) -> Counter[ManagedRow]:
        """What ``changes`` do to a history's present contents, as a difference."""
        pending: Counter[ManagedRow] = Counter()
        oldest = None if self._reconcile else self._oldest
        for change in changes:
            if isinstance(change, Append):
                for row, diff in change.updates:
                    pending[row] += diff
                if oldest is not None:
                    oldest = _least((*oldest, *(self._age(row) for row, _ in change.updates)))
                continue
            if change.before is not None and oldest is not None and not _any_older(oldest, change):
                continue
            held = read()
            for row in held.keys() | pending.keys():
                if held[row] + pending[row] and change.predicate(row):
                    pending[row] = -held[row]
            if change.before is not None:
                rows = held.keys() | pending.keys()
                oldest = _least(self._age(row) for row in rows if held[row] + pending[row])
        self._oldest_then = oldest
        return pending

    def _bounded(self, pending: Counter[ManagedRow], read: _Read) -> Counter[ManagedRow]:
        """What to append to a history, and the retractions of its oldest rows if it has too many."""
        most = self.kind.most_rows
        if most is None:
            return pending
        if self._count is None or self._reconcile:
            self._count = read().total()
        if self._count + pending.total() > 2 * most:
            after = Counter(read())
            after.update(pending)
            rows = sorted((row for row, n in after.items() if n), key=self._age, reverse=True)
            kept = 0
            for row in rows:
                if kept >= most:
                    pending[row] -= after[row]
                kept += after[row]
        return pending

    def _age(self, row: ManagedRow) -> Any:
        return row[self.kind.oldest_by]

    @property
    def _writer(self) -> WriteHandle:
        return self._handles()[0]

    @property
    def _reader(self) -> ReadHandle:
        return self._handles()[1]

    def _handles(self) -> tuple[WriteHandle, ReadHandle]:
        if self._opened is None:
            self._opened = self._persist.open_shard(
                self._shard_id, self._schema, purpose=self._name
            )
        return self._opened

    def _reopen(self) -> None:
        """Open new handles after a lease has expired."""
        self._opened = None
        self._handles()

    def _read(self) -> Counter[ManagedRow]:
        upper = self._reader.fetch_upper()
        self._read_at = upper or 0
        held: Counter[ManagedRow] = Counter()
        if upper:
            try:
                table = self._reader.snapshot_arrow(upper - 1)
            except ExpiredHandle:
                self._reopen()
                return self._read()
            rows = zip(
                *(table.column(name).to_pylist() for name in self._schema.names), strict=True
            )
            for row, diff in zip(rows, table.column("mz_diff").to_pylist(), strict=True):
                held[tuple(map(_freeze, row))] += diff
        return held

    def _write(self) -> None:
        """Append what a mirror's shard lacks, or the effect of a history's commands."""
        while True:
            if self._doubtful is not None:
                wrote = self._wrote(*self._doubtful)
                self._doubtful, self._reconcile = None, True
                if wrote and not self._differential:
                    return
            pending = self._pending()
            updates = [(row, n) for row, n in pending.items() if n]
            if not updates and (self._upper > 0 or not self._differential):
                self._oldest = self._oldest_then
                return
            at = max(self._clock.now_ms(), self._upper)
            # Set before the append and cleared when its outcome is known: any failure may come after it was committed.
            self._doubtful = self._writer.writer_id, at
            try:
                self._append(updates, at)
            except UpperMismatch:
                # Another process wrote: compute what to write anew.
                self._doubtful, self._reconcile = None, True
            except ExpiredHandle:
                self._doubtful, self._reconcile = None, True
                self._reopen()
            except Determinate:
                self._doubtful = None
                raise
            else:
                self._doubtful, self._lacks, self._oldest = None, Counter(), self._oldest_then
                if self._count is not None:
                    self._count += pending.total()
                return

    def _wrote(self, writer_id: str, at: Timestamp) -> bool:
        """Whether the append of ``writer_id`` at ``at``, whose outcome was unknown, was committed."""
        state = self._persist.inspect(self._shard_id)
        if state is None:
            return False
        writer = state.writers.get(writer_id)
        if writer is None:
            # Either it did not write, or it did and its registration has expired since; then only the upper can tell.
            return state.may_have_expired(writer_id) and state.upper == at + 1
        return writer.upper == at + 1

    def _pending(self) -> Counter[ManagedRow]:
        """What to append at the shard's upper, which is fetched first if another process may have written."""
        if not self._reconcile and any(
            isinstance(one, Delete) and one.before is not None for one in self._at_work
        ):
            # Whether some of it may be old is known only as long as no other process wrote.
            self._reconcile = self._upper != (self._writer.fetch_upper() or 0)
        if self._reconcile:
            self._upper = self._writer.fetch_upper() or 0
        if not self._differential:
            read = functools.cache(self._read)
            pending = self._bounded(self._folded(self._at_work, read), read)
        elif self._reconcile:
            found, self._found = self._found, None
            # What was there at first need not be read twice.
            held = found[1] if found is not None and found[0] == self._upper else self._read()
            with self._changed:
                # What was desired meanwhile is written with the rest.
                self._taken = self._given
                self._mirror.take()
                desired = self._mirror.desired()
                first, self._first = self._first, {}
            _hasten(first)
            desired.subtract(held)
            pending = self._lacks = Counter({row: n for row, n in desired.items() if n})
        else:
            pending = self._lacks
        self._reconcile = False
        return pending

    def _append(self, updates: Sequence[tuple[ManagedRow, int]], at: Timestamp) -> None:
        self._writer.compare_and_append(
            self._table(updates, at) if updates else None,
            expected_upper=self._upper,
            new_upper=at + 1,
        )
        self._upper = at + 1
        if at - self._let_go_at >= LET_GO_MS:
            self._let_go_at = at
            self._let_go(at)

    def _let_go(self, before: int) -> None:
        """Downgrade since to ``before``; what was written stands whether this succeeds or not."""
        try:
            try:
                self._reader.downgrade_since(before)
            except ExpiredHandle:
                self._reopen()
        except LocationError as failure:
            _log.warning("%s keeps history a little longer: %s", self._name, failure)

    def _table(self, updates: Sequence[tuple[ManagedRow, int]], time: int) -> pa.Table:
        if not updates:
            return empty_updates(self._schema)
        columns = [
            pa.array([row[i] for row, _ in updates], field.type)
            for i, field in enumerate(self._schema)
        ]
        times = pa.array([time] * len(updates), pa.int64())
        diffs = pa.array([diff for _, diff in updates], pa.int64())
        return pa.table([*columns, times, diffs], names=[*self._schema.names, "mz_time", "mz_diff"])


def _hasten(first: Mapping[ManagedCollection, int]) -> None:
    """Wait until other collections have written so many commands, where they can."""
    for other, given in first.items():
        other.hasten(given, FIRST_SECONDS)


def _add(to: Counter[ManagedRow], changes: Counter[ManagedRow]) -> None:
    """Add changes to others, and keep none that are undone."""
    for row, diff in changes.items():
        to[row] += diff
        if not to[row]:
            del to[row]


def _freeze(value: Any) -> Any:
    """A value read back from Arrow, in the hashable form in which it was appended."""
    if isinstance(value, list):
        return tuple(_freeze(v) for v in value)
    if isinstance(value, dict):
        return tuple(_freeze(v) for v in value.values())
    return value


def _least(ages: Iterable[Any]) -> tuple[Any, ...]:
    """The least of some values; nothing where there are none."""
    found = min(ages, default=None)
    return () if found is None else (found,)


def _any_older(oldest: tuple[Any, ...], deletion: Delete) -> bool:
    """Whether one of the rows, none of which is older than ``oldest``, may be one that a deletion of what is old is about."""
    return any(one < deletion.before for one in oldest)
