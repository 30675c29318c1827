"""Storage-managed collections: what mzsql itself records (hydration statuses, histories), on shards, in the order of commands.

Promise: commands of one collection take effect in the order in which they were given, all that wait in one append; a deletion is a
predicate over rows and covers everything appended before it, by this process or an earlier one. Two kinds:
a *differential* collection mirrors small state, whose desired contents stay in memory, so that on a conflict, and at the start, the
difference to what the shard holds is written; an *append-only* one is a history, appended blindly, but for deletions, which are
worked out anew from what it holds wherever another process wrote in between, and bounded where it says so. Rows of a mirror may be
*lasting*: those that an earlier process left stay, group by group, until the group is said anew, in the append that has the new ones; so
nobody sees a moment without them. Times are wall-clock milliseconds. The writer is a supervised
thread: whatever it fails with, it goes on from there, repeats nothing and loses nothing; commands that wait meanwhile take no more than a
mirror's contents, or a bounded number of a history's commands, whose oldest rows are then dropped and counted. Source: the unified compute
introspection design.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
from prometheus_client import Counter as Count

from mzsql.location import Determinate, LocationError, caller_limit, waiting
from mzsql.persist import (
    Clock,
    ExpiredHandle,
    PersistClient,
    ReadHandle,
    SystemClock,
    UpperMismatch,
    WriteHandle,
)
from mzsql.repr.errors import NotReadable, UndefinedTable
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import NO_LIMIT
from mzsql.repr.types import ColumnType, arrow_schema
from mzsql.storage.tables import empty_updates
from mzsql.threads import Supervised, ThreadStatus

_log = logging.getLogger(__name__)

MOST_WAITING = 10_000
#: Times are given up so often at most, in milliseconds: it is a write of its own, and what goes with each append would double them.
LET_GO_MS = 30_000

_DROPPED = Count(
    "mzsql_storage_dropped_rows",
    "Rows of a history that were dropped as its shard could not be written",
    ("collection",),
)

#: A row as Python values of the collection's Arrow types; these collections hold metadata, never a user's data.
ManagedRow: TypeAlias = tuple[Any, ...]


#: The values by which a mirror's rows are one group.
Group: TypeAlias = tuple[Any, ...]


class ManagedKind(msgspec.Struct, frozen=True):
    """What kind of collection one is, and how often it is written.

    Attributes:
        differential: whether it mirrors state; else it is a history.
        lasting: of a mirror, the columns by which its rows are groups that outlive the process that wrote them; None: none does.
        most_rows: of a history, about how many rows it keeps: once it has twice as many, those with the least values in `oldest_by` go.
            None: all.
        oldest_by: a column whose values grow with time.
        pause: so many seconds pass between two writes, unless somebody waits for them (`flush`) or it is closed.
        longest_pause: while changes keep coming each pause is twice the one before it, up to so many seconds.
    """

    differential: bool
    lasting: tuple[int, ...] | None = None
    most_rows: int | None = None
    oldest_by: int = 0
    pause: float = 0.0
    longest_pause: float = 0.0


#: A mirror whose rows go with the process, and a history of which all is kept.
MIRROR = ManagedKind(True)
HISTORY = ManagedKind(False)


class _Append(msgspec.Struct, frozen=True):
    updates: tuple[tuple[ManagedRow, int], ...]
    anew: Group | None = None


class _Delete(msgspec.Struct, frozen=True):
    predicate: Callable[[ManagedRow], bool]


_Change: TypeAlias = _Append | _Delete


class ManagedCollection:
    """One collection and the thread that writes it.

    Args:
        persist: the client of the environment's shards, whose supervisor runs the thread.
        shard_id: its shard, made if it is not there.
        columns: the types of its columns.
        kind: whether it mirrors state or is a history, what of it lasts, and how often it is written.
        name: how a person calls it.
        clock: the clock that gives its times.
        most_waiting: so many commands of a history wait for a backend that fails; then the oldest rows are dropped.
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
        self._kind = kind
        self._differential = kind.differential
        self._name = name
        self._clock = clock
        self._persist = persist
        self._shard_id = shard_id
        self._most_waiting = most_waiting
        # The writer's own, opened where it has something to write or to read.
        self._opened: tuple[WriteHandle, ReadHandle] | None = None
        self._changed = threading.Condition()
        # Guarded by the condition: what a mirror is to hold, a history's commands that wait, and the count of both kinds' commands.
        self._groups: dict[Group, Counter[ManagedRow]] = {}
        # Until what was left by an earlier process is known: the groups that were said anew, and what was deleted of the others.
        self._seeded = kind.lasting is None
        self._said: set[Group] = set()
        self._gone: list[Callable[[ManagedRow], bool]] = []
        self._waiting: deque[_Change] = deque()
        self._given = 0
        self._written = 0
        self._hurried = 0
        self._pausing = False
        self._closing = False
        self.dropped = 0
        # The writer's own: what a mirror's shard holds as far as known, a history's commands at work, an append of unknown outcome.
        self._held: Counter[ManagedRow] = Counter()
        self._at_work: list[_Change] = []
        self._taken = 0
        self._doubtful: tuple[str, Timestamp] | None = None
        self._upper = 0
        #: when times were given up last
        self._let_go_at = 0
        self._pause = kind.pause
        # Of a history that is bounded: about how many rows it holds; None: not known yet.
        self._count: int | None = None
        self._reconcile = True
        self._closer: Callable[[], float] | None = None
        self._thread = persist.supervisor.start(
            "status-writer",
            self._serve,
            thread_name=f"mzsql-{name}",
            object_id=name,
            changed=self._tell,
        )

    def send(self, command: _Change) -> None:
        """Give a command; returns at once. What it takes does not grow with the time that a backend fails (see the module's text).

        Raises:
            Determinate: a history whose shard cannot be written has more deletions waiting than it keeps.
        """
        with self._changed:
            if self._differential:
                self._apply(command)
            else:
                self._make_room()
                self._waiting.append(command)
            self._given += 1
            if not self._pausing:
                self._changed.notify_all()

    def _group(self, row: ManagedRow) -> Group:
        return tuple(row[i] for i in self._kind.lasting or ())

    def _apply(self, command: _Change) -> None:
        """Make a change to what a mirror is to hold; the lock is held."""
        if isinstance(command, _Delete):
            for group, rows in list(self._groups.items()):
                for row in [row for row in rows if command.predicate(row)]:
                    del rows[row]
                if not rows:
                    del self._groups[group]
            if not self._seeded:
                self._gone.append(command.predicate)
            return
        if command.anew is not None:
            self._groups.pop(command.anew, None)
            if not self._seeded:
                self._said.add(command.anew)
        for row, diff in command.updates:
            group = self._group(row)
            rows = self._groups.setdefault(group, Counter())
            rows[row] += diff
            if not rows[row]:
                del rows[row]
            if not rows:
                del self._groups[group]

    def _seed(self) -> None:
        """Take over what an earlier process left in a mirror whose rows last, but for what was said anew or deleted meanwhile."""
        left = self._read()
        with self._changed:
            if self._seeded:
                return
            for row, diff in left.items():
                group = self._group(row)
                if group not in self._said and not any(gone(row) for gone in self._gone):
                    self._groups.setdefault(group, Counter())[row] += diff
            self._seeded = True
            self._said, self._gone = set(), []

    def _make_room(self) -> None:
        """Drop the oldest rows of a history beyond those that may wait; the lock is held."""
        if len(self._waiting) < self._most_waiting:
            return
        oldest = next((n for n, c in enumerate(self._waiting) if isinstance(c, _Append)), None)
        if oldest is None:
            raise Determinate(
                f"{self._name} cannot be written, and {len(self._waiting)} deletions wait for that"
            )
        gone = self._waiting[oldest]
        del self._waiting[oldest]
        assert isinstance(gone, _Append)
        if not self.dropped:
            _log.warning(
                "%s cannot be written: more than %d commands wait, and the oldest rows are dropped",
                self._name,
                self._most_waiting,
            )
        self.dropped += len(gone.updates)
        _DROPPED.labels(self._name).inc(len(gone.updates))

    def flush(self, timeout: float) -> None:
        """Wait until all commands given before are durable.

        Raises:
            NotReadable: they are not within ``timeout`` seconds; with what the writer fails with, if it does.
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
        """Write what waits and stop. Idempotent. What a backend that fails now does not take is lost, and logged.

        The writer waits for its backends no longer than the caller does (`mzsql.location.waiting`).
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
        """Whoever waits for the writer looks again."""
        with self._changed:
            self._changed.notify_all()

    def _left(self) -> float:
        """Seconds that a backend may take: no limit but its own until somebody who has one closes this."""
        return NO_LIMIT if self._closer is None else self._closer()

    def _serve(self, thread: Supervised) -> None:
        """Write what is given, all of it that waits in one append; begun anew, it goes on where it failed."""
        with waiting(self._left):
            if not self._seeded:
                self._seed()
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing or self._has_work())
                    if not self._has_work():
                        return
                    desired: Counter[ManagedRow] = Counter()
                    for rows in self._groups.values():
                        dict.update(desired, rows)  # no two groups have a row in common
                    if self._differential or not self._at_work:
                        # What failed is not mixed with what came since: it may be in.
                        self._at_work, self._taken = list(self._waiting), self._given
                        self._waiting.clear()
                self._write(desired)
                self._at_work = []
                thread.well()
                with self._changed:
                    self._written = self._taken
                    self._changed.notify_all()
                    # What comes so soon after a write goes with what follows it.
                    self._pausing = True
                    self._changed.wait_for(self._in_a_hurry, self._pause)
                    self._pausing = False
                    self._pause = self._next_pause()

    def _next_pause(self) -> float:
        """How long to wait after the next write; the lock is held."""
        kind = self._kind
        if self._written == self._given:
            return kind.pause
        return max(kind.pause, min(2 * self._pause, kind.longest_pause))

    def _in_a_hurry(self) -> bool:
        return self._closing or self._hurried > self._written

    def _has_work(self) -> bool:
        # The first write of a mirror retracts what an earlier process left.
        first = self._differential and self._upper == 0
        return first or self._written < self._given

    def _folded(self, changes: Sequence[_Change]) -> Counter[ManagedRow]:
        """What ``changes`` make of what a history's shard holds now, as a difference."""
        pending: Counter[ManagedRow] = Counter()
        held: Counter[ManagedRow] | None = None
        for change in changes:
            if isinstance(change, _Append):
                for row, diff in change.updates:
                    pending[row] += diff
                continue
            if held is None:
                held = self._read()
            for row in held.keys() | pending.keys():
                if held[row] + pending[row] and change.predicate(row):
                    pending[row] = -held[row]
        return pending

    def _bounded(self, pending: Counter[ManagedRow]) -> Counter[ManagedRow]:
        """What is to be appended to a history, and the retractions of its oldest rows where it has too many."""
        most = self._kind.most_rows
        if most is None:
            return pending
        held: Counter[ManagedRow] | None = None
        if self._count is None or self._reconcile:
            held = self._read()
            self._count = held.total()
        if self._count + pending.total() > 2 * most:
            after = Counter(self._read() if held is None else held)
            after.update(pending)
            rows = sorted((row for row, n in after.items() if n), key=self._age, reverse=True)
            kept = 0
            for row in rows:
                if kept >= most:
                    pending[row] -= after[row]
                kept += after[row]
        return pending

    def _age(self, row: ManagedRow) -> Any:
        return row[self._kind.oldest_by]

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
        """Fresh handles, after a lease ran out."""
        self._opened = None
        self._handles()

    def _read(self) -> Counter[ManagedRow]:
        upper = self._reader.fetch_upper()
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

    def _write(self, desired: Counter[ManagedRow]) -> None:
        """Append what makes a mirror's shard hold ``desired``, or what a history's commands at work come to."""
        while True:
            if self._doubtful is not None:
                wrote = self._wrote(*self._doubtful)
                self._doubtful, self._reconcile = None, True
                if wrote and not self._differential:
                    return
            pending = self._pending(desired)
            updates = [(row, n) for row, n in pending.items() if n]
            if not updates and (self._upper > 0 or not self._differential):
                return
            at = max(self._clock.now_ms(), self._upper)
            # Until it is known to be in or out: whatever it fails with may have come after it.
            self._doubtful = self._writer.writer_id, at
            try:
                self._append(updates, at)
            except UpperMismatch:
                # Another process wrote: what there is to write is worked out anew.
                self._doubtful, self._reconcile = None, True
            except ExpiredHandle:
                self._doubtful, self._reconcile = None, True
                self._reopen()
            except Determinate:
                self._doubtful = None
                raise
            else:
                self._doubtful, self._held = None, desired
                if self._count is not None:
                    self._count += pending.total()
                return

    def _wrote(self, writer_id: str, at: Timestamp) -> bool:
        """Whether the append of ``writer_id`` at ``at`` was committed, whose outcome was unknown."""
        state = self._persist.inspect(self._shard_id)
        if state is None:
            return False
        writer = state.writers.get(writer_id)
        if writer is None:
            # It did not write, or did and has expired since: then only the upper can tell.
            return state.may_have_expired(writer_id) and state.upper == at + 1
        return writer.upper == at + 1

    def _pending(self, desired: Counter[ManagedRow]) -> Counter[ManagedRow]:
        """What is to be appended at the shard's upper, which is looked up first where another process may have written."""
        if self._reconcile:
            self._upper = self._writer.fetch_upper() or 0
        if not self._differential:
            pending = self._bounded(self._folded(self._at_work))
        else:
            if self._reconcile:
                self._held = self._read()
            pending = Counter(desired)
            pending.subtract(self._held)
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
        """Give up the times before ``before``; what was written stands whether this succeeds or not."""
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


def _freeze(value: Any) -> Any:
    """A value read back from Arrow in the hashable form in which it was appended."""
    if isinstance(value, list):
        return tuple(_freeze(v) for v in value)
    if isinstance(value, dict):
        return tuple(_freeze(v) for v in value.values())
    return value


class CollectionManager:
    """The storage-managed collections that this process writes."""

    def __init__(self, persist: PersistClient, *, clock: Clock | None = None) -> None:
        self._persist = persist
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._collections: dict[GlobalId, ManagedCollection] = {}

    def register(
        self,
        gid: GlobalId,
        shard_id: str,
        columns: tuple[ColumnType, ...],
        *,
        kind: ManagedKind,
        name: str,
    ) -> None:
        """Take a collection over: from now on this process writes it. A mirror becomes empty, but for rows that last."""
        with self._lock:
            if gid not in self._collections:
                self._collections[gid] = ManagedCollection(
                    self._persist,
                    shard_id,
                    columns,
                    kind=kind,
                    name=name,
                    clock=self._clock,
                )

    def append(
        self,
        gid: GlobalId,
        updates: Sequence[tuple[ManagedRow, int]],
        *,
        anew: Group | None = None,
    ) -> None:
        """Append rows with their diffs, all at one time. Returns at once.

        Args:
            gid: the collection.
            updates: the rows.
            anew: a group of a mirror's rows that goes at the same time, whoever wrote it.

        Raises:
            UndefinedTable: this process does not write the collection.
        """
        self._written(gid).send(_Append(tuple(updates), anew))

    def delete(self, gid: GlobalId, predicate: Callable[[ManagedRow], bool]) -> None:
        """Retract every row, appended before this call, for which ``predicate`` holds. Returns at once.

        Raises:
            UndefinedTable: this process does not write the collection.
        """
        self._written(gid).send(_Delete(predicate))

    def _written(self, gid: GlobalId) -> ManagedCollection:
        with self._lock:
            collection = self._collections.get(gid)
        if collection is None:
            raise UndefinedTable(
                f"unknown catalog item '{gid}'",
                detail="This process does not write a storage-managed collection of that id.",
                hint="Register the collection first; a manager that was closed has none.",
            )
        return collection

    def is_registered(self, gid: GlobalId) -> bool:
        """Whether this process writes the collection."""
        return gid in self._collections

    def flush(self, gid: GlobalId, timeout: float = 30.0) -> None:
        """Wait until all commands given before for the collection are durable.

        Raises:
            UndefinedTable: this process does not write the collection.
            NotReadable: they are not within ``timeout`` seconds.
            ThreadFailed: the writer has ended for good.
        """
        self._written(gid).flush(timeout)

    def close(self) -> None:
        """Write what waits and stop. Idempotent."""
        with self._lock:
            collections, self._collections = list(self._collections.values()), {}
        for collection in collections:
            collection.close()
