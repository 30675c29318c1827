"""The export log: makes the outputs of many dataflows (views and indexes) durable in one write.

Promise: one ``compare_and_append`` commits the updates and new uppers of all outputs that a tick has changed. Their
shards follow some seconds later, each with one append of everything that it lacks (`WriteHandle.catch_up`). A row of
the log contains, for several shards, the updates of a span ``[lower, upper)``. The updates of an output are
definite, so it does not matter who writes them, how often, or how time is cut: what a shard or an earlier row has is
left out. Thus a process that loses the compare_and_append drops what the winner had, anyone may advance a shard, and
a crash between two writes needs no repair.

- The process that maintains an output reads its updates at once: they are known there before they are committed
  (`WriteHandle.append_quietly`).
- Every other process follows the log while it waits for an output, and gives its handles what the log has beyond the
  shard (`ReadHandle.learn`), so its reads need no write. What the log no longer has is in the shard.
- Inputs are held back to where an output's *shard* is, so everything in the log can be computed again. A process
  that dies before the write has lost nothing, and a version of mzsql that does not know the log finds shards that are
  some seconds old, and goes on from there.

Trade-offs: a row is written a second time, as its retraction, with a later row; and each follower reads about all
outputs. What is too large for a row goes directly into its shard, and the log only says that the shard has moved.
While nothing moves, no backend is called.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from mzsql.location import ConsensusWait
from mzsql.persist import (
    Batch,
    Clock,
    ExpiredHandle,
    MissingPart,
    PersistClient,
    ReadHandle,
    ReadTimeout,
    ShardFinalized,
    SystemClock,
    UpperMismatch,
    WriteHandle,
)
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.storage.export_entries import (
    SCHEMA,
    LogState,
    Row,
    advance,
    changes_of,
    joined,
    lacking,
    of_shard,
    reach_of,
    row_of,
    spent,
    updates_of,
)
from mzsql.threads import Supervised, wait_until_due

_log = logging.getLogger(__name__)
#: How far a shard goes together with the log, given the shard and its own upper.
Reach: TypeAlias = Callable[[str, Frontier], Frontier]

_KEPT_MOVES = 16
"""History is given up after so many writes seen, because each time costs a write to Consensus."""
_LOOK_SECONDS = 1.0
"""How often a waiting reader checks the shard itself, in seconds, in case it moves without the log."""
_POLL_SECONDS = 0.1
"""How often a follower polls if Consensus cannot notify, in seconds."""
_JOIN_SECONDS = 5.0
"""How long closing waits for a commit that is under way; what it commits is in the shards by then, or is computed
again.
"""
_TOLD = 64
"""After so many batches a handle fetches its shard's upper, so that what it knows beyond the shard stays small."""
_QUIET_SHARDS = 100
"""New uppers of up to so many shards without updates are added to any write; those of more shards to one write a
second.
"""
_ORPHANED_SECONDS = 30.0
"""How often shards that nobody here has open are checked, in seconds, while the log contains something of them."""


def log_shard_of(wal_shard: str) -> str:
    """The shard of the export log of the environment whose write-ahead log is ``wal_shard``."""
    return f"s{uuid.uuid5(uuid.UUID(wal_shard[1:]), 'exports')}"


class Handle(Protocol):
    """A writer or a reader of an output's shard."""

    @property
    def shard_id(self) -> str:
        """The shard."""

    @property
    def durable_upper(self) -> Frontier:
        """The shard's upper, as last seen here."""

    def learn(self, batch: Batch) -> None:
        """Take note of a batch that is not in the shard yet."""

    def fetch_upper(self) -> Frontier:
        """Fetch the shard's upper."""


class ExportLog:
    """One process's handle of the export log. Thread-safe.

    Args:
        persist: the client of the environment's shards.
        shard_id: the log's shard; created with the first commit.
        clock: its monotonic time is used.
        delay: seconds after which queued batches are committed, even without `settle`.
        quiet: seconds after which new uppers without updates are committed.
    """

    def __init__(
        self,
        persist: PersistClient,
        shard_id: str,
        *,
        clock: Clock | None = None,
        delay: float = 5.0,
        quiet: float = 1.0,
    ) -> None:
        self._persist = persist
        self._shard_id = shard_id
        self._clock = clock or SystemClock()
        self._delay = delay
        self._quiet = quiet
        self._changed = threading.Condition(threading.RLock())
        self._committing = threading.Lock()
        self._reader: ReadHandle | None = None
        self._writer: WriteHandle | None = None
        self._kept_moves = _KEPT_MOVES - 1
        self._state = LogState()
        self._handles: dict[str, list[Handle]] = {}
        self._told: dict[str, int] = {}
        #: how far others have written the shards that are attached here, as far as was noticed since
        self._others: dict[str, Timestamp] = {}
        #: what this process is just committing, which is no news to it
        self._own: Row | None = None
        #: batches to be committed, by shard, in order of time
        self._waiting: dict[str, list[Batch]] = {}
        #: for each shard the empty span that its latest batches form, committed or not
        self._runs: dict[str, Batch] = {}
        self._updates_since: float | None = None
        self._quiet_since: float | None = None
        self._settled = False
        self._orphans_at = 0.0
        self._closing = False
        self._thread: Supervised | None = None

    # --- who has exports open -----------------------------------------------------------------

    def attach(self, handle: Handle) -> None:
        """Give a handle of an output's shard what the log has beyond the shard, now and later."""
        with self._changed:
            self._handles.setdefault(handle.shard_id, []).append(handle)
            known = of_shard(self._state.live, handle.shard_id)
        for one in known:
            handle.learn(one)

    def detach(self, handle: Handle) -> None:
        """End `attach`. Idempotent."""
        with self._changed:
            left = [one for one in self._handles.get(handle.shard_id, ()) if one is not handle]
            if left:
                self._handles[handle.shard_id] = left
            else:
                for known in (self._handles, self._told, self._others, self._runs):
                    known.pop(handle.shard_id, None)

    # --- committing ---------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        """Queue a batch of a shard's definite updates, or an empty span, to be committed soon; returns at once.

        Args:
            batch: has an upper and refers to no object. If its lower equals its upper, it says that the shard was
                written directly.
        """
        with self._changed:
            if self._closing:
                return
            now = self._clock.monotonic()
            shard, asleep = batch.shard_id, not self._waiting
            if batch.parts or batch.lower == batch.upper:
                self._runs.pop(shard, None)
                if self._updates_since is None:
                    self._updates_since, asleep = now, True
            else:
                [batch] = (
                    joined([self._runs[shard]], batch)[-1:] if shard in self._runs else [batch]
                )
                self._runs[shard] = batch
                self._quiet_since = now if self._quiet_since is None else self._quiet_since
            self._waiting[shard] = joined(self._waiting.get(shard, ()), batch)
            if self._thread is None:
                self._thread = self._persist.supervisor.start(
                    "export-log", self._work, thread_name="mzsql-export-log"
                )
            elif asleep:
                self._changed.notify_all()

    def settle(self) -> None:
        """No more batches are expected soon: commit what is queued, unless it is only uppers. Returns at once."""
        with self._changed:
            if self._updates_since is not None and not self._settled:
                self._settled = True
                self._changed.notify_all()

    def hasten(self) -> None:
        """Readers elsewhere wait for what is queued, though it may be only uppers: it is committed as soon as updates would be, but for
        uppers of very many shards. Returns at once.
        """
        with self._changed:
            if self._waiting and self._updates_since is None:
                self._updates_since = self._clock.monotonic()
                self._changed.notify_all()

    def _due(self) -> float | None:
        """Seconds until something must be committed; None if nothing is queued. The caller holds the lock."""
        if not self._waiting:
            return None
        if self._settled:
            return 0.0
        now = self._clock.monotonic()
        if self._updates_since is not None:
            # Uppers without updates are committed with the updates.
            return max(0.0, self._updates_since + self._delay - now)
        return 0.0 if self._quiet_since is None else max(0.0, self._quiet_since + self._quiet - now)

    def _work(self, thread: Supervised) -> None:
        while True:
            with self._changed:
                if not wait_until_due(self._changed, self._due, lambda: self._closing):
                    return
            self.flush(everything=False)
            thread.well()

    def flush(self, *, everything: bool = True) -> None:
        """Commit what is queued.

        Args:
            everything: also uppers that may still wait.

        Raises:
            LocationError: it may not have been committed. It stays queued, and committing it twice is harmless.
        """
        with self._committing:
            with self._changed:
                taken = self._take(everything)
            if not taken:
                return
            try:
                self._append([one for waited in taken.values() for one in waited])
            except BaseException:
                with self._changed:
                    for shard, waited in taken.items():
                        # In front of what came meanwhile: batches of a shard must stay in order of time.
                        self._waiting[shard] = waited + self._waiting.get(shard, [])
                    # As if it had come just now, so that the thread pauses before it tries again.
                    self._updates_since = self._quiet_since = self._clock.monotonic()
                    self._settled = True
                raise

    def _take(self, everything: bool) -> dict[str, list[Batch]]:
        """Take what must be committed now out of the queue, by shard. The caller holds the lock."""
        now = self._clock.monotonic()
        quiet = {
            shard
            for shard, waited in self._waiting.items()
            if not any(one.parts or one.lower == one.upper for one in waited)
        }
        late = self._quiet_since is not None and now - self._quiet_since >= self._quiet
        left: dict[str, list[Batch]] = {}
        if len(quiet) > _QUIET_SHARDS and not late and not everything:
            left = {shard: self._waiting[shard] for shard in quiet}
        taken = {shard: w for shard, w in self._waiting.items() if shard not in left}
        self._waiting = left
        self._updates_since, self._settled = None, False
        self._quiet_since = self._quiet_since if left else None
        return taken

    def _append(self, stretches: list[Batch]) -> None:
        while stretches:
            writer = self._open_writer()
            expected = self._state
            row = row_of(expected.upper, stretches)
            # As in the log of tables, old rows are retracted by a write that is made anyway.
            gone = spent((*expected.live, row), self._uppers())
            changes = [(row, 1), *((old, -1) for old in gone if old is not row)]
            self._own = row
            try:
                writer.compare_and_append(
                    updates_of(changes, expected.upper),
                    expected_upper=expected.upper,
                    new_upper=expected.upper + 1,
                )
            except UpperMismatch:
                # Another process has committed. What it has of ours is the same, since both compute definite updates: only the rest is
                # tried again.
                self._own = None
                stretches = lacking(self.follow().live, stretches)
                continue
            except ExpiredHandle:
                with self._changed:
                    self._reader = self._writer = None
                continue
            with self._changed:
                if self._state.upper == expected.upper:
                    self._move(advance(expected, changes, expected.upper + 1))
            return

    def _uppers(self) -> dict[str, Frontier]:
        """How far shards are known to be; those that nobody has open are asked now and then."""
        with self._changed:
            uppers = {shard: some[0].durable_upper for shard, some in self._handles.items()}
            live = self._state.live
        now = self._clock.monotonic()
        if live and now >= self._orphans_at:
            self._orphans_at = now + _ORPHANED_SECONDS
            named = {one.shard_id for row in live for one in row.stretches}
            # Their rows would stay in the log for good, as only whoever has a shard open knows that it has reached them.
            for shard in sorted(named - uppers.keys()):
                try:
                    uppers[shard] = self._caught_up(shard, live)
                except SqlError as failure:
                    _log.info("the log of exports keeps what it has of %s: %s", shard, failure)
        return uppers

    def _caught_up(self, shard: str, live: Sequence[Row]) -> Frontier:
        """Advance a shard that nobody here has open, because its output was dropped or runs nowhere now; return its
        upper, None if it has ended.
        """
        if not self._persist.exists(shard):
            return None
        try:
            writer = self._persist.open_writer(shard, purpose="catches up with the log of exports")
            try:
                for one in of_shard(live, shard):
                    writer.learn(one)
                return writer.catch_up()
            finally:
                writer.expire()
        except (ShardFinalized, MissingPart):
            return None

    # --- following ----------------------------------------------------------------------------

    @property
    def state(self) -> LogState:
        """The log as last seen; no backend is called."""
        return self._state

    @property
    def there(self) -> bool:
        """Whether the log is open here and Consensus notifies of changes."""
        return self._reader is not None and isinstance(self._persist.consensus, ConsensusWait)

    def begin(self) -> None:
        """Create the log if it does not exist, and read it; for a process that will write to it."""
        self._open_writer()
        self.follow()

    def look(self, reader: ReadHandle) -> None:
        """Fetch a reader's upper if the log continues beyond what the reader knows: then the part in between is in the
        shard.
        """
        upper = reader.upper
        if upper is not None and any(
            _beyond(one.upper, upper) for one in of_shard(self._state.live, reader.shard_id)
        ):
            reader.fetch_upper()

    def _open_writer(self) -> WriteHandle:
        with self._changed:
            if self._writer is None:
                self._writer = self._persist.open_writer(
                    self._shard_id, SCHEMA, purpose="log of exports"
                )
            if self._reader is None:
                self._open_reader()
            return self._writer

    def _open_reader(self) -> None:
        """Begin to follow the log from its present contents. The caller holds the lock."""
        reader = self._persist.open_reader(self._shard_id, SCHEMA, purpose="log of exports")
        # Opening begins at the shard's since, however old that is, and gives it up with the first change.
        self._kept_moves = _KEPT_MOVES - 1
        upper = reader.fetch_upper()
        assert upper is not None, "the log of exports is never sealed"
        changes = changes_of(reader.snapshot_arrow(upper - 1)) if upper else []
        self._reader = reader
        self._state = advance(LogState(), changes, upper)
        self._tell(changes, since=False)
        self._changed.notify_all()

    def follow(self) -> LogState:
        """Fetch the log's present state, with writes of other processes; empty if it was never written."""
        with self._changed:
            reader = self._reader
            if reader is None:
                if self._persist.exists(self._shard_id):
                    self._open_reader()
                return self._state
            try:
                upper = reader.fetch_upper()
                if upper is not None and upper > self._state.upper:
                    changes = changes_of(reader.updates(self._state.upper, upper))
                    self._move(advance(self._state, changes, upper))
                    self._tell(changes)
            except ExpiredHandle:
                # The process slept longer than its lease: what was compacted meanwhile is in a fresh snapshot.
                self._reader = None
                self._open_reader()
            return self._state

    def keep_up(self) -> None:
        """Hold no history back while others write the log and nobody here waits for anything. To be called now and
        then.
        """
        if self._reader is not None:
            self.follow()

    def _tell(self, changes: Sequence[tuple[Row, int]], *, since: bool = True) -> None:
        """Give changes to the handles of their shards; what was retracted since is true all the same. The caller holds
        the lock.

        Args:
            changes: rows with their diffs.
            since: whether they were committed after the log was opened here, so that it is known who has not.
        """
        look: dict[str, Handle] = {}
        for row, diff in changes:
            others = since and row != self._own
            for one in row.stretches if diff > 0 else ():
                if others and one.upper is not None and one.shard_id in self._handles:
                    known = self._others.get(one.shard_id, 0)
                    self._others[one.shard_id] = max(known, one.upper)
                for handle in self._handles.get(one.shard_id, ()):
                    told = self._told[one.shard_id] = self._told.get(one.shard_id, 0) + 1
                    if one.lower != one.upper:
                        handle.learn(one)
                    if one.lower == one.upper or told >= _TOLD:
                        look[one.shard_id] = handle
        for shard, handle in look.items():
            self._told[shard] = 0
            try:
                handle.fetch_upper()
            except SqlError as failure:
                # Whoever reads the shard will meet the failure.
                _log.info("the log of exports cannot look at %s: %s", shard, failure)

    def _move(self, state: LogState) -> None:
        self._kept_moves += state.upper - self._state.upper
        self._state = state
        self._changed.notify_all()
        reader = self._reader
        if reader is None or (self._kept_moves < _KEPT_MOVES and not reader.heartbeat_due()):
            return
        self._kept_moves = 0
        # The log's move is durable, so a failure to give up the times before it must not make it look failed.
        try:
            reader.downgrade_since(max(0, state.upper - 1))
        except ExpiredHandle:
            # The process slept longer than its lease, so updates may have been compacted; a fresh snapshot has them.
            self._reader = None
        except SqlError as failure:
            _log.warning("the log of exports keeps history a little longer: %s", failure)

    def others(self, shard: str) -> Timestamp:
        """How far other processes have written a shard that is attached here, as far as was noticed since; 0 if nothing was. No backend is
        called.
        """
        return self._others.get(shard, 0)

    def shards(self) -> frozenset[str]:
        """The shards of which the log, which is fetched, has updates that may not have reached them."""
        live = self.follow().live
        return frozenset(one.shard_id for row in live for one in row.stretches if one.parts)

    def reach(self, shard: str, upper: Frontier) -> Frontier:
        """How far a shard goes together with the log, which is fetched, given the shard's own upper."""
        return reach_of(of_shard(self.follow().live, shard), upper)

    def reaching(self) -> Reach:
        """As `reach`, for very many shards: the log is fetched once, by this call. Of shards whose uppers are fetched after it nothing
        is missed that there was at the call.
        """
        found: dict[str, list[Batch]] = {}
        for row in self.follow().live:
            for one in row.stretches:
                found.setdefault(one.shard_id, []).append(one)
        return lambda shard, upper: reach_of(found.get(shard, ()), upper)

    def next_move(self, seen: int, timeout: float) -> LogState:
        """Wait up to ``timeout`` seconds, or less, for the upper to move beyond ``seen``; return the state then.

        If Consensus can notify, it is not called while nothing happens, nor for what this process has committed.

        Raises:
            LocationError: Consensus fails, or was closed.
        """
        with self._changed:
            reader = self._reader
            if reader is not None:
                if self._state.upper > seen:
                    return self._state
                if reader.upper != self._state.upper:
                    return self.follow()
                before = reader.seqno
        notified = isinstance(self._persist.consensus, ConsensusWait)
        if reader is None or not notified:
            with self._changed:
                self._changed.wait(min(timeout, _POLL_SECONDS))
            return self.follow()
        changed = reader.await_change(timeout, before)
        with self._changed:
            if reader.upper != self._state.upper or (changed and reader.seqno == before):
                return self.follow()
            return self._state

    def wait(self, reader: ReadHandle, past: Timestamp, timeout: float) -> Frontier:
        """Wait until ``past`` is complete in an output's shard and the log together; return the upper then. The reader
        must be attached.

        Raises:
            ReadTimeout: it is not within ``timeout`` seconds.
            ExpiredHandle: the reader's lease has expired.
        """
        end = self._clock.monotonic() + timeout
        look_at = end - timeout
        while not _beyond(reader.upper, past):
            left = max(0.0, end - self._clock.monotonic())
            if reader.told_here:
                return reader.wait_for_upper(past, timeout=left)
            state = self.follow()
            now = self._clock.monotonic()
            if self._reader is None:
                try:
                    return reader.wait_for_upper(past, timeout=min(left, _LOOK_SECONDS))
                except ReadTimeout:
                    if now >= end:
                        raise
                    continue
            if not _beyond(reader.upper, past):
                known = of_shard(state.live, reader.shard_id)
                if now >= look_at or any(_beyond(one.upper, past) for one in known):
                    reader.fetch_upper(timeout=left)
                    look_at = now + _LOOK_SECONDS
            if _beyond(reader.upper, past):
                break
            if now >= end:
                raise ReadTimeout(reader.shard_id, past, reader.upper, timeout)
            self.next_move(state.upper, max(0.0, min(end, look_at) - now))
        return reader.upper

    def close(self) -> None:
        """Stop committing, and close the handles. Idempotent."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.stop()
            self._thread.join(_JOIN_SECONDS)
        for handle in (self._reader, self._writer):
            if handle is not None:
                handle.expire()


def _beyond(upper: Frontier, past: Timestamp) -> bool:
    return upper is None or upper > past
