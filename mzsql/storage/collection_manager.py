"""Storage-managed collections: what mzsql itself records (hydration statuses, histories), on shards, in the order of commands.

Promise: commands of one collection take effect in the order in which they were given, all that wait in one append; a deletion is a
predicate over rows and covers everything appended before it, by this process or an earlier one. Two kinds (reference facts 8.3):
a *differential* collection mirrors small state, whose desired contents stay in memory, so that on a conflict, and at the start, the
difference to what the shard holds is written; an *append-only* one is a history, appended blindly, but for deletions, which are
worked out anew from what it holds wherever another process wrote in between. Times are wall-clock milliseconds. Source: the unified
compute introspection design.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from mzsql.location import Determinate, Indeterminate, LocationError, caller_limit, waiting
from mzsql.persist import Clock, ExpiredHandle, PersistClient, SystemClock, UpperMismatch
from mzsql.repr.errors import InternalError, NotReadable, UndefinedTable
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, arrow_schema
from mzsql.storage.tables import empty_updates

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5
_NO_LIMIT = 7 * 86_400.0
"""Seconds that are more than any backend waits by itself."""

#: A row as Python values of the collection's Arrow types; these collections hold metadata, never a user's data.
ManagedRow: TypeAlias = tuple[Any, ...]


class _Append(msgspec.Struct, frozen=True):
    updates: tuple[tuple[ManagedRow, int], ...]


class _Delete(msgspec.Struct, frozen=True):
    predicate: Callable[[ManagedRow], bool]


class _Flush(msgspec.Struct, frozen=True):
    done: threading.Event


_Change: TypeAlias = _Append | _Delete
_Command: TypeAlias = _Change | _Flush


class ManagedCollection:
    """One collection and the thread that writes it.

    Args:
        persist: the client of the environment's shards.
        shard_id: its shard, made if it is not there.
        columns: the types of its columns.
        differential: whether it mirrors state (else it is a history).
        name: how a person calls it.
        clock: the clock that gives its times.
    """

    def __init__(
        self,
        persist: PersistClient,
        shard_id: str,
        columns: tuple[ColumnType, ...],
        *,
        differential: bool,
        name: str,
        clock: Clock,
    ) -> None:
        self._schema = arrow_schema(columns)
        self._differential = differential
        self._name = name
        self._clock = clock
        self._persist = persist
        self._shard_id = shard_id
        self._writer, self._reader = persist.open_shard(shard_id, self._schema, purpose=name)
        self._desired: Counter[ManagedRow] = Counter()
        self._queue: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._upper = 0
        self._reconcile = True
        self._closing = threading.Event()
        self._closer: Callable[[], float] | None = None
        self._thread = threading.Thread(target=self._run, name=f"mzsql-{name}", daemon=True)
        self._thread.start()

    def send(self, command: _Command) -> None:
        """Enqueue a command."""
        self._queue.put(command)

    def flush(self, timeout: float) -> None:
        """Wait until all commands given before are durable.

        Raises:
            NotReadable: they are not within ``timeout`` seconds.
            InternalError: the writer has failed.
        """
        done = threading.Event()
        self.send(_Flush(done))
        # The writer first notes its failure, then releases whoever waits: one of the two looks sees it.
        if self._failure is None and not done.wait(timeout):
            raise NotReadable(f"{self._name} was not written within {timeout:g} s")
        if self._failure is not None:
            raise InternalError(f"the writer of {self._name} failed: {self._failure}")

    def close(self) -> None:
        """Write what waits and stop. Idempotent. What a backend that fails now does not take is lost, and logged.

        The writer waits for its backends no longer than the caller does (`mzsql.location.waiting`).
        """
        if self._thread.is_alive():
            self._closer = caller_limit()
            self._closing.set()
            self._queue.put(None)
            self._thread.join()
            try:
                self._reader.expire()
                self._writer.expire()
            except LocationError as failure:
                _log.warning("the handles of %s are left to expire: %s", self._name, failure)

    # --- the writer's thread ------------------------------------------------------------------

    def _left(self) -> float:
        """Seconds that a backend may take: no limit but its own until somebody who has one closes this."""
        return _NO_LIMIT if self._closer is None else self._closer()

    def _run(self) -> None:
        with waiting(self._left):
            self._serve()

    def _serve(self) -> None:
        try:
            # The first write retracts what an earlier process left (a differential collection starts empty).
            if self._differential:
                self._write(())
            while True:
                commands, last = self._take()
                self._process(commands)
                if last:
                    return
        except BaseException as failure:
            # Kept for whoever waits on the collection: a thread has nobody to raise to.
            self._failure = failure
            _log.warning("the writer of %s has stopped: %s", self._name, failure)
            while not self._queue.empty():
                command = self._queue.get()
                if isinstance(command, _Flush):
                    command.done.set()

    def _take(self) -> tuple[list[_Command], bool]:
        """All commands that wait, at least one; and whether the writer shall stop."""
        commands: list[_Command] = []
        item = self._queue.get()
        while True:
            if item is None:
                return commands, True
            commands.append(item)
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return commands, False

    def _process(self, commands: Sequence[_Command]) -> None:
        changes = [c for c in commands if not isinstance(c, _Flush)]
        if changes:
            self._write(changes)
        for command in commands:
            if isinstance(command, _Flush):
                command.done.set()

    def _folded(self, changes: Sequence[_Change]) -> Counter[ManagedRow]:
        """What ``changes`` make of the contents, the desired ones or what the shard holds now, as a difference."""
        pending: Counter[ManagedRow] = Counter()
        held: Counter[ManagedRow] | None = None
        for change in changes:
            if isinstance(change, _Append):
                for row, diff in change.updates:
                    pending[row] += diff
                continue
            if held is None:
                held = self._desired if self._differential else self._read()
            for row in held.keys() | pending.keys():
                if held[row] + pending[row] and change.predicate(row):
                    pending[row] = -held[row]
        return pending

    def _reopen(self) -> None:
        """Fresh handles, after a lease ran out."""
        self._writer, self._reader = self._persist.open_shard(
            self._shard_id, self._schema, purpose=self._name
        )

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

    def _write(self, changes: Sequence[_Change]) -> None:
        """Append what ``changes`` come to; a backend that fails is tried again until it answers or the collection is closed."""
        delta: Counter[ManagedRow] = Counter()
        if self._differential:
            delta = self._folded(changes)
            merged = self._desired.keys() | delta.keys()
            self._desired = Counter(
                {row: n for row in merged if (n := self._desired[row] + delta[row])}
            )
        pending: Counter[ManagedRow] | None = None
        doubtful: tuple[str, Timestamp] | None = None
        while True:
            try:
                if doubtful is not None and self._wrote(*doubtful):
                    self._reconcile = True
                    if not self._differential:
                        return
                doubtful = None
                if pending is None or self._reconcile:
                    pending = self._pending(changes, delta)
                updates = [(row, n) for row, n in pending.items() if n]
                if not updates and (self._upper > 0 or not self._differential):
                    return
                at = max(self._clock.now_ms(), self._upper)
                writer_id = self._writer.writer_id
                try:
                    self._append(updates, at)
                except Indeterminate:
                    doubtful = writer_id, at
                    raise
                return
            except UpperMismatch:
                # Another process wrote: what there is to write is worked out anew.
                self._reconcile = True
            except (Determinate, Indeterminate) as failure:
                if self._closing.is_set():
                    raise
                _log.warning("%s is written later: %s", self._name, failure)
                self._closing.wait(_RETRY_SECONDS)

    def _wrote(self, writer_id: str, at: Timestamp) -> bool:
        """Whether the append of ``writer_id`` at ``at`` was committed, whose outcome was unknown."""
        state = self._persist.inspect(self._shard_id)
        if state is None:
            return False
        writer = state.writers.get(writer_id)
        if writer is None:
            # It did not write, or did and was silent for a whole lease since: then only the upper can tell.
            silent = state.walltime_ms - at >= self._persist.settings.writer_lease_ms
            return silent and state.upper == at + 1
        return writer.upper == at + 1

    def _pending(
        self, changes: Sequence[_Change], delta: Counter[ManagedRow]
    ) -> Counter[ManagedRow]:
        """What is to be appended at the shard's upper, which is looked up first where another process may have written."""
        if self._reconcile:
            self._upper = self._writer.fetch_upper() or 0
        if not self._differential:
            pending = self._folded(changes)
        elif self._reconcile:
            pending = Counter(self._desired)
            pending.subtract(self._read())
        else:
            pending = delta
        self._reconcile = False
        return pending

    def _append(self, updates: Sequence[tuple[ManagedRow, int]], at: Timestamp) -> None:
        self._writer.compare_and_append(
            self._table(updates, at) if updates else None,
            expected_upper=self._upper,
            new_upper=at + 1,
        )
        self._upper = at + 1
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
        differential: bool,
        name: str,
    ) -> None:
        """Take a collection over: from now on this process writes it. A differential one becomes empty."""
        with self._lock:
            if gid not in self._collections:
                self._collections[gid] = ManagedCollection(
                    self._persist,
                    shard_id,
                    columns,
                    differential=differential,
                    name=name,
                    clock=self._clock,
                )

    def append(self, gid: GlobalId, updates: Sequence[tuple[ManagedRow, int]]) -> None:
        """Append rows with their diffs, all at one time. Returns at once.

        Raises:
            UndefinedTable: this process does not write the collection.
        """
        self._written(gid).send(_Append(tuple(updates)))

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
            InternalError: the writer has failed.
        """
        self._written(gid).flush(timeout)

    def close(self) -> None:
        """Write what waits and stop. Idempotent."""
        with self._lock:
            collections, self._collections = list(self._collections.values()), {}
        for collection in collections:
            collection.close()
