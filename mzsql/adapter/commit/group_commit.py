"""Group commit: the writes of all sessions that wait at the same moment become one timestamp and one append to the log.

Promise: a write is acknowledged after it is durable and applied to the oracle, in this order: append, apply_write, answer. A
read-then-write commits only if nothing that it read was written after its read timestamp; otherwise it fails with `WriteConflict`, and
nothing of it is written. A write whose statement times out or is canceled first is withdrawn from the queue. If its append is already under
way, its session waits `GRACE_SECONDS` more and is then told that the outcome is unknown.

The trade-off: a thread of its own commits, so that no session's deadline or Ctrl-C affects another session; handing over costs some tens of
microseconds. When several sessions wrote together the last time, the thread waits for the others, up to half of what a commit takes; a
session that writes alone never waits.

Order within a group, all at one timestamp: first the writes that have read something, in order of arrival, none of which may have read what
an earlier one writes; then the writes that have read nothing. All of them wait at the same moment, so any order is linearizable.

Dropped tables. An attempt to commit reads first the log (its upper U), then the catalog; it appends only if the upper still is U. A DROP
first changes the catalog, then appends to the log. So (1) a DROP acknowledged before a statement began is in the catalog that the statement
and its commit read: the commit fails. (2) If a DROP appended before U was read, the catalog read after it lacks the table: the commit
fails. (3) If it appended after U was read, then either the commit's append came first, or the commit's append fails and is tried again. So
a write that was acknowledged is in the log before the DROP's append, which removes that table's rows: the order is write, then DROP, and
both were under way at the same time. A statement reads the catalog when it starts; the commit reads it again only where the log has moved
since. What a DROP left in the log because its process died is removed by the next commit that sees a changed catalog.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from mzsql.adapter.commit.outcomes import unknown, unknown_by_bug, untold
from mzsql.adapter.commit.table_locks import TableLocks
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.session.commit_batches import AttemptBatches, Write, discard_batch
from mzsql.catalog.objects import Table
from mzsql.catalog.state import CatalogState
from mzsql.location import Determinate, Indeterminate, LocationError
from mzsql.location.deadlines import LEAST_SECONDS
from mzsql.persist import Batch, ShardFinalized, UpperMismatch, troubles
from mzsql.repr.errors import (
    CommitOutcomeUnknown,
    InternalError,
    SqlError,
    ThreadFailed,
    TransactionError,
    UndefinedTable,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import Interrupt, current
from mzsql.storage import WalState
from mzsql.threads import Backoff, Supervised, ThreadStatus

_log = logging.getLogger(__name__)

GRACE_SECONDS = LEAST_SECONDS
"""Seconds that a statement that is over waits for an append under way, before its outcome is reported as unknown."""
QUIET_LEAST, QUIET_MOST = 0.001, 0.010
"""Seconds without another write after which a commit no longer waits for company: half of what the last commit took, within these."""
GATHER_MOST = 0.050
"""Seconds that a commit waits for other writes in all."""
_RETRY_SECONDS = 0.2
"""Seconds before a failing backend is asked again what became of an append."""
_TELL_SECONDS = 60.0
"""Seconds for which applying an append to the oracle is retried, beyond the retries of the oracle itself."""
_JOIN_SECONDS = 10.0
_OUTCOME_UNKNOWN = "Whether it was committed is not known: what it wrote may be there, now or a little later, or not at all."


class WriteConflict(TransactionError):
    """A relation that the write had read was written after it was read (serialization failure)."""

    sqlstate = "40001"


class _Pending:
    """One session's waiting write. Its states: new → queued → claimed ⇄ appending → done, or withdrawn from queued and claimed."""

    def __init__(
        self,
        writes: Mapping[GlobalId, Sequence[Write]],
        reads: frozenset[GlobalId],
        read_ts: Timestamp | None,
        synced: float,
    ) -> None:
        self.writes = writes
        self.reads = reads
        self.read_ts = read_ts
        self.synced = synced
        self.state = "new"
        self.changed = threading.Condition()
        self.ts: Timestamp = 0
        self.error: BaseException | None = None

    def is_done(self) -> bool:
        return self.state == "done"

    def is_surely_out(self) -> bool:
        """Whether it certainly was not written and never will be."""
        if self.state == "done":
            return self.error is not None and not isinstance(self.error, CommitOutcomeUnknown)
        return self.state in ("new", "withdrawn")

    def finish(self, error: BaseException | None = None, ts: Timestamp = 0) -> None:
        """Set the outcome, and wake the session that waits for it."""
        with self.changed:
            self.ts, self.error, self.state = ts, error, "done"
            self.changed.notify_all()


class GroupCommit:
    """Commits the writes of one process. Thread-safe.

    Attributes:
        appends: durable appends to the log that wrote to tables.
        commits: sessions' commits in those appends.
        locks: the tables' locks; a writer holds them around its commit.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._queued = threading.Condition()
        self._queue: list[_Pending] = []
        self._wanted = 1
        self._expected = 1
        self._took = 0.0
        self._raced = False
        self._swept_step = -1
        self._closed = False
        self._thread: Supervised | None = None
        self._bug: BaseException | None = None
        #: why a group is not committed yet
        self._trouble: BaseException | None = None
        self._closing = threading.Event()
        self.locks = TableLocks()
        self.appends = 0
        self.commits = 0

    # --- the session's thread -------------------------------------------------------------------

    def commit(
        self,
        writes: Mapping[GlobalId, Sequence[Write]],
        *,
        reads: Iterable[GlobalId] = (),
        read_ts: Timestamp | None = None,
        synced: float = float("-inf"),
    ) -> Timestamp:
        """Commit writes to tables atomically.

        Args:
            writes: the writes, by table.
            reads: the tables that the writes were computed from, read at ``read_ts``.
            read_ts: the timestamp of those reads.
            synced: a time of the environment's monotonic clock, before the statement read the catalog.

        Returns:
            The timestamp at which the writes are visible.

        Raises:
            WriteConflict: one of ``reads`` was written after ``read_ts``.
            UndefinedTable: a table was dropped meanwhile.
            QueryCanceled: the statement was canceled or timed out first; nothing was written.
            CommitOutcomeUnknown: it was over while the append was under way, or a backend cannot tell what became of the append.
            LocationError: a backend failed; nothing was written.
        """
        self._env.require_writable()
        pending = _Pending(writes, frozenset(reads), read_ts, synced)
        try:
            self._enqueue(pending)
            self._await(pending, current())
        except BaseException:
            # Ctrl-C may come at any moment, also between enqueuing and waiting. Batches are deleted only if no append can refer to them any
            # more.
            if self._withdraw(pending) or pending.is_surely_out():
                self._discard(pending)
            raise
        return pending.ts

    def _enqueue(self, pending: _Pending) -> None:
        with self._queued:
            if self._closed:
                raise SqlError("the environment was closed", sqlstate="57P01")
            if self._thread is None:
                self._thread = self._env.supervisor.start(
                    "group-commit",
                    self._run,
                    thread_name="mzsql-group-commit",
                    changed=self._thread_changed,
                    backoff=Backoff(QUIET_MOST, _RETRY_SECONDS),
                )
            self._thread.check("the group commit")
            pending.state = "queued"
            self._queue.append(pending)
            if len(self._queue) >= self._wanted:
                self._queued.notify()

    def _await(self, pending: _Pending, interrupt: Interrupt) -> None:
        """Wait for the outcome; raises it where it is an error."""
        try:
            done = interrupt.wait(pending.changed, pending.is_done)
        except BaseException as interrupted:
            # Ctrl-C ends this statement only. If the write is in all the same, the exception says so to whoever catches it.
            if not self._withdraw(pending) and self._is_soon_done(pending):
                interrupted.add_note(_outcome(pending))
            raise
        if not done:
            interrupt.trouble = self._trouble
            if self._withdraw(pending):
                interrupt.check()
            if not self._is_soon_done(pending):
                over, why = interrupt.error(), _OUTCOME_UNKNOWN
                assert over is not None
                raise CommitOutcomeUnknown(
                    f"{over.message}, while its commit was under way",
                    detail=why if over.detail is None else f"{over.detail} {why}",
                    hint="Look at the table before you write again.",
                )
        if pending.error is not None:
            raise pending.error

    def _withdraw(self, pending: _Pending) -> bool:
        """Withdraw a write, unless its append is under way.

        Returns:
            Whether it was withdrawn, and so is certainly not written.
        """
        with self._queued:
            if pending.state not in ("queued", "claimed"):
                return False
            if pending.state == "queued":
                self._queue.remove(pending)
            pending.state = "withdrawn"
            return True

    def _is_soon_done(self, pending: _Pending) -> bool:
        return Interrupt(GRACE_SECONDS).wait(pending.changed, pending.is_done)

    def _discard(self, pending: _Pending) -> None:
        """Delete the batches of a write that is not in and never will be."""
        for gid, writes in pending.writes.items():
            for write in writes:
                if isinstance(write, Batch):
                    discard_batch(self._env, gid, write)

    def close(self) -> None:
        """Commit what waits, then end the thread. Idempotent."""
        with self._queued:
            self._closed = True
            self._queued.notify_all()
        self._closing.set()
        if self._thread is not None:
            self._thread.finish()
            self._thread.join(_JOIN_SECONDS)

    # --- the committing thread --------------------------------------------------------------------

    def _thread_changed(self, status: ThreadStatus) -> None:
        """The committing thread failed for good: fail the writes that wait for it; nothing of them was written."""
        if status.status != "failed":
            return
        with self._queued:
            thread, left, self._queue = self._thread, self._queue, []
        assert thread is not None
        try:
            thread.check("the group commit")
        except ThreadFailed as failure:
            self._refuse(left, failure)

    def _run(self, thread: Supervised) -> None:
        while group := self._gather():
            began = time.monotonic()
            self._bug = self._trouble = None
            try:
                with troubles(self._troubled):
                    self._commit_all(group)
            except BaseException as bug:
                self._refuse([p for p in group if not p.is_done()], bug)
                raise
            # The sessions have got their errors; this reports the bug as the thread's status.
            if self._bug is not None:
                thread.trouble(self._bug)
            else:
                thread.well()
            self._took = time.monotonic() - began
            with self._queued:
                # Sessions that were just answered mostly come back with their next write at the same time.
                self._expected = len(group) + len(self._queue)

    def _troubled(self, failure: BaseException) -> None:
        self._trouble = failure

    def _gather(self) -> list[_Pending]:
        """The writes of the next group; empty once closed."""
        # Waiting for more writes pays only while it is short against what a commit takes.
        quiet = min(max(self._took / 2, QUIET_LEAST), QUIET_MOST)
        with self._queued:
            self._wanted = 1
            while not self._queue:
                if self._closed:
                    return []
                self._queued.wait()
            end = time.monotonic() + GATHER_MOST
            self._wanted = self._expected
            while len(self._queue) < self._expected and not self._closed:
                before = len(self._queue)
                self._queued.wait(min(quiet, max(0.0, end - time.monotonic())))
                if len(self._queue) == before or time.monotonic() >= end:
                    break
            group, self._queue = self._queue, []
            for pending in group:
                pending.state = "claimed"
            return group

    def _commit_all(self, group: Sequence[_Pending]) -> None:
        # Writes that have read something go first; the module's docstring says why.
        rest: Sequence[_Pending] = sorted(group, key=lambda pending: not pending.reads)
        # Whoever won a race lately probably writes still: a look at the log costs a read, a lost race a whole append.
        raced, built = self._raced, AttemptBatches(self._env)
        self._raced = False
        while rest:
            try:
                rest = self._attempt(rest, built, look=raced)
                raced = True
            except Exception as failure:
                built.discard()
                # The others have their outcome: a write is answered once.
                left = [p for p in rest if p.state in ("claimed", "appending")]
                if len(left) > 1 and not isinstance(failure, LocationError):
                    # An error in one session's write must not fail the others: commit each by itself.
                    self._put_back(left)
                    for pending in left:
                        self._commit_all([pending])
                else:
                    self._refuse(left, failure)
                return

    def _attempt(
        self, group: Sequence[_Pending], built: AttemptBatches, *, look: bool
    ) -> Sequence[_Pending]:
        """Try to commit a group once.

        Args:
            group: the writes.
            built: batches made in earlier attempts, which are reused.
            look: whether to read the log first, since the last attempt lost a race.

        Returns:
            The writes to try again; empty where all have an outcome.
        """
        env = self._env
        if look:
            before = env.wal.state.upper
            self._raced = env.wal.follow().upper > before or self._raced
        wal, seen = env.wal.seen
        # A statement that read the catalog after the log was last seen has brought it up to date for all of its
        # group.
        synced = any(pending.synced > seen for pending in group)
        if not synced:
            env.catalog.sync()
        # Read the step before the state: if the state is newer, tables dropped in between are only looked for once more.
        step = env.catalog.step
        state = env.seen()
        ready = self._admitted(group, wal, state)
        if not ready:
            built.discard()
            return ()
        try:
            batches = built.of([pending.writes for pending in ready])
        except ShardFinalized:
            # A table's shard is finalized: the table was dropped since the catalog was read. If the catalog still has all tables, this is a
            # bug.
            items = env.sync().items
            if all(gid in items for pending in ready for gid in pending.writes):
                raise
            self._put_back(ready)
            return ready
        writes = {state.shard(gid): batch for gid, batch in batches.items()}
        ts = self._timestamp(wal)
        try:
            failure = self._append(ts, wal, writes, self._dropped(wal, state, step))
        except UpperMismatch:
            self._raced = True
            self._put_back(ready)
            return ready
        if failure is not None:
            # Objects that the log may name are never deleted: one too many is found as leaked some day, one too few makes a table
            # unreadable.
            if isinstance(failure, CommitOutcomeUnknown):
                built.keep()
            else:
                built.discard()
            self._refuse(ready, failure)
            return ()
        built.keep()
        self._swept_step = step
        self.appends += 1
        self.commits += len(ready)
        self._acknowledge(ready, ts)
        return ()

    def _append(
        self,
        ts: Timestamp,
        wal: WalState,
        writes: Mapping[str, Batch],
        dropped: frozenset[str],
    ) -> SqlError | None:
        """Append to the log.

        Returns:
            None where it is in; CommitOutcomeUnknown where it may be; another error where it is not.

        Raises:
            UpperMismatch: another writer was first; nothing was written.
            LocationError, UndefinedTable: nothing was written.
        """
        try:
            self._env.wal.commit(ts, writes, expected=wal, register=writes, forget=dropped)
        except Indeterminate as doubt:
            try:
                return self._settled(ts, doubt)
            except BaseException as bug:
                self._bug = bug
                return unknown_by_bug(ts, bug)
        except (UpperMismatch, LocationError, UndefinedTable):
            raise
        except BaseException as bug:
            # Any other failure may have come after the append, so its outcome is unknown.
            self._bug = bug
            return unknown_by_bug(ts, bug)
        return None

    def _acknowledge(self, group: Sequence[_Pending], ts: Timestamp) -> None:
        """Apply the append to the oracle, then answer its writes. Nothing that fails here undoes the append."""
        try:
            # Before the answer: later reads, in any process, take their time from the oracle. A session that was answered first could
            # read, and not find what it wrote.
            unconfirmed = self._tell_oracle(ts)
        except BaseException as bug:
            self._bug = bug
            _log.exception("committed at %d, but the timestamp oracle could not be told", ts)
            unconfirmed = untold(ts, f"{type(bug).__name__}: {bug}")
        if unconfirmed is not None:
            self._refuse(group, unconfirmed)
        else:
            for pending in group:
                pending.finish(ts=ts)
        try:
            self._env.collections.notify()
        except Exception:  # what is committed is, whatever those fail with who are told
            _log.exception("a watcher failed after the commit at %d", ts)

    def _admitted(
        self, group: Sequence[_Pending], wal: WalState, state: CatalogState
    ) -> list[_Pending]:
        """The writes that may be appended to the log as of ``wal``; from here on they cannot be withdrawn. The others get their error."""
        ready: list[_Pending] = []
        written: set[GlobalId] = set()
        for pending in group:
            refusal = _refusal(pending, wal, state, written)
            if refusal is not None:
                pending.finish(refusal)
                continue
            with self._queued:
                if pending.state == "withdrawn":
                    continue
                pending.state = "appending"
            written |= pending.writes.keys()
            ready.append(pending)
        return ready

    def _put_back(self, group: Sequence[_Pending]) -> None:
        with self._queued:
            for pending in group:
                pending.state = "claimed"

    def _refuse(self, group: Sequence[_Pending], failure: BaseException) -> None:
        if not isinstance(failure, SqlError):
            self._bug = failure
        if not isinstance(failure, Exception):
            # SystemExit and the like end the committing thread, not the sessions: those get an internal error.
            failure = InternalError(
                f"the group commit met {type(failure).__name__}: {failure}",
                detail="Nothing was written.",
            )
        for pending in group:
            # Every session's thread raises its own copy: raising changes an exception's traceback.
            error = copy.copy(failure) if isinstance(failure, SqlError) else failure
            pending.finish(error)

    def _timestamp(self, wal: WalState) -> Timestamp:
        oracle = self._env.oracle
        ts = oracle.write_ts()
        if ts < wal.upper:
            # A writer died after its append and before it told the oracle; its commit counts, so later timestamps are above it.
            oracle.adopt(wal.upper - 1)
            ts = oracle.write_ts()
        if ts < wal.upper:
            raise InternalError(
                f"the timestamp oracle allocated {ts}, and the log is complete below {wal.upper}"
            )
        return ts

    def _dropped(self, wal: WalState, state: CatalogState, step: int) -> frozenset[str]:
        """Shards of tables that the log still has and the catalog, read after it, has not; empty once a commit removed them at this
        ``step``.
        """
        if step == self._swept_step:
            return frozenset()
        # The order of the two reads is what makes this safe: of a catalog read before the log, a table created in between would look
        # dropped, and its writes would be thrown away.
        tables = {table.shard for table in state.of(Table)}
        return frozenset((wal.registered | wal.live.keys()) - tables)

    def _settled(self, ts: Timestamp, doubt: Indeterminate) -> SqlError | None:
        """The outcome of an append whose answer was lost: None where it is in, else the error. Asks until the backend answers."""
        while True:
            try:
                found = self._env.wal.settle(ts)
            except LocationError as failure:
                if not self._closing.wait(_RETRY_SECONDS):
                    _log.warning("an append at %d is in doubt: %s", ts, failure.message)
                    continue
                found = None
            if found is None:
                return unknown(doubt.message)
            if not found:
                return Determinate(f"nothing was written: {doubt.message}", detail=doubt.detail)
            return None

    def _tell_oracle(self, ts: Timestamp) -> SqlError | None:
        """Apply an append to the oracle, with retries; the error where that fails."""
        end = time.monotonic() + _TELL_SECONDS
        while True:
            try:
                self._env.oracle.adopt(ts)
            except SqlError as failure:
                again = isinstance(failure, LocationError) and time.monotonic() < end
                if again and not self._closing.wait(_RETRY_SECONDS):
                    continue
                return untold(ts, failure.message)
            return None


def _refusal(
    pending: _Pending, wal: WalState, state: CatalogState, written: set[GlobalId]
) -> SqlError | None:
    """Why a write cannot be committed after the writes of its group to ``written``; None where it can."""
    for gid in (*pending.writes, *pending.reads):
        if gid not in state.items:
            return UndefinedTable(
                f"unknown catalog item '{gid}'",
                detail="The table was dropped while the transaction that writes to it was open.",
            )
    if pending.read_ts is None:
        return None
    for gid in pending.reads:
        shard = state.shard(gid)
        if gid in written or wal.written_after(shard, pending.read_ts):
            return WriteConflict(
                "could not serialize access due to concurrent update",
                hint="Run the transaction again.",
            )
    return None


def _outcome(pending: _Pending) -> str:
    if pending.error is None:
        return f"The statement was committed at {pending.ts} all the same."
    return f"The statement was not committed: {pending.error}"
