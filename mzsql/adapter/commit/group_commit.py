"""Group commit: the writes of all sessions that wait at the same moment become one timestamp and one append to the log.

Promise: a write is acknowledged after it is durable and the oracle knows it (data durable → apply_write → answer, in this order). A
read-then-write commits only if nothing that it read was written after its read timestamp: else it is told so (`WriteConflict`), and
nothing of it was written. A write whose statement ends before its time is taken out of the queue; where its append is under way already
its session waits a moment more, and is then told that the outcome is unknown. The trade-off: one thread commits, so that no session's
deadline or Ctrl-C is another one's, for a hand-over of some tens of microseconds. It waits for company: when several wrote at once the
last time, it gives the others up to half of what a commit takes; a session that writes alone never waits.

Order within a group, all at one timestamp: first those that have read, as they came, each of which must not have read what one before
it writes; then those that have read nothing. All of them wait at the same moment, so any order agrees with real time.

Dropped tables. An attempt to commit reads, in this order: the log (its upper U), the catalog; then it appends where the upper is still U.
A DROP changes the catalog, then appends to the log. So (1) a DROP that was acknowledged before a statement began is in the catalog that
the statement and its commit see: the commit fails. (2) If a DROP's append came before U, the catalog read after it lacks the table: the
commit fails. (3) If it came after U, it is after the commit's append too, or that one fails and tries again. So whoever was told that a
row is in has it in the log before the DROP's append, which takes that table's rows out again: the order is write, then DROP, and both
were under way at the same time. A statement looks at the catalog when it starts; only where the log has moved since is it looked at once
more. What a DROP leaves in the log because its process died is taken out by the next commit that has seen a change of the catalog.
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
"""A statement that is over waits so long for an append that is under way, before its outcome is unknown."""
QUIET_LEAST, QUIET_MOST = 0.001, 0.010
"""Seconds without another write after which a commit no longer waits for company: half of what the last commit took, within these."""
GATHER_MOST = 0.050
"""Seconds that a commit waits for company in all."""
_RETRY_SECONDS = 0.2
"""The pause before a backend that fails is asked again what became of an append."""
_TELL_SECONDS = 60.0
"""So long the oracle is asked to take note of an append, beyond the retries of its own."""
_JOIN_SECONDS = 10.0
_OUTCOME_UNKNOWN = "Whether it was committed is not known: what it wrote may be there, now or a little later, or not at all."


class WriteConflict(TransactionError):
    """Something that the write had read was written after it was read."""

    sqlstate = "40001"


class _Pending:
    """One session's write, while it waits. Its states: new → queued → claimed ⇄ appending → done, or withdrawn."""

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
        """Whether nothing of it was written or ever will be."""
        if self.state == "done":
            return self.error is not None and not isinstance(self.error, CommitOutcomeUnknown)
        return self.state in ("new", "withdrawn")

    def finish(self, error: BaseException | None = None, ts: Timestamp = 0) -> None:
        """Answer whoever waits for it."""
        with self.changed:
            self.ts, self.error, self.state = ts, error, "done"
            self.changed.notify_all()


class GroupCommit:
    """Commits the writes of one process. Thread-safe.

    Attributes:
        appends: durable appends that wrote to tables.
        commits: sessions' commits that were in them.
        locks: the tables' locks; those who write hold them around their commit.
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
        """Commit writes to tables atomically; the timestamp at which they are visible.

        Args:
            writes: what is written, by table.
            reads: the tables that the writes were computed from, at ``read_ts``.
            read_ts: the time of those reads.
            synced: a moment of the environment's clock (`monotonic`) after which the statement has looked at the catalog.

        Raises:
            WriteConflict: one of ``reads`` was written after ``read_ts``.
            UndefinedTable: a table was dropped meanwhile.
            QueryCanceled: the statement was over first; nothing was written.
            CommitOutcomeUnknown: it was over while the append was under way, or a backend cannot tell what became of it.
            LocationError: a backend failed; nothing was written.
        """
        self._env.require_writable()
        pending = _Pending(writes, frozenset(reads), read_ts, synced)
        try:
            self._enqueue(pending)
            self._await(pending, current())
        except BaseException:
            # Ctrl-C may come at any moment, also before anybody waits.
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
        """Wait for the answer; raises what it is, where it is an error."""
        try:
            done = interrupt.wait(pending.changed, pending.is_done)
        except BaseException as interrupted:
            # Ctrl-C: this statement's alone. A write that is in is told, for whoever catches it.
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
        """Take a write back, unless its append is under way; whether it surely is not in."""
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
        """Delete what was written ahead for a write that is not in and never will be."""
        for gid, writes in pending.writes.items():
            for write in writes:
                if isinstance(write, Batch):
                    discard_batch(self._env, gid, write)

    def close(self) -> None:
        """Commit what waits, and end the thread. Idempotent."""
        with self._queued:
            self._closed = True
            self._queued.notify_all()
        self._closing.set()
        if self._thread is not None:
            self._thread.finish()
            self._thread.join(_JOIN_SECONDS)

    # --- the committing thread --------------------------------------------------------------------

    def _thread_changed(self, status: ThreadStatus) -> None:
        """Those that wait for a thread that has ended for good are told so; nothing of theirs was written."""
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
            # Sessions were told of it; here it is shown.
            if self._bug is not None:
                thread.trouble(self._bug)
            else:
                thread.well()
            self._took = time.monotonic() - began
            with self._queued:
                self._expected = len(group) + len(self._queue)

    def _troubled(self, failure: BaseException) -> None:
        self._trouble = failure

    def _gather(self) -> list[_Pending]:
        """The writes of the next group; empty at the end."""
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
        # Those that have read something go first: see the module's text.
        rest: Sequence[_Pending] = sorted(group, key=lambda pending: not pending.reads)
        raced, built = self._raced, AttemptBatches(self._env)
        self._raced = False
        while rest:
            try:
                rest = self._attempt(rest, built, look=raced)
                raced = True
            except Exception as failure:
                built.discard()
                left = [p for p in rest if p.state in ("claimed", "appending")]
                if len(left) > 1 and not isinstance(failure, LocationError):
                    # What is wrong with one session's write must not fail the others.
                    self._put_back(left)
                    for pending in left:
                        self._commit_all([pending])
                else:
                    self._refuse(left, failure)
                return

    def _attempt(
        self, group: Sequence[_Pending], built: AttemptBatches, *, look: bool
    ) -> Sequence[_Pending]:
        """Commit what can be; those that must try again."""
        env = self._env
        if look:
            before = env.wal.state.upper
            self._raced = env.wal.follow().upper > before or self._raced
        wal, seen = env.wal.seen
        synced = any(pending.synced > seen for pending in group)
        if not synced:
            env.catalog.sync()
        # Before the state: one that is younger than its step is only swept by once more.
        step = env.catalog.step
        state = env.seen()
        ready = self._admitted(group, wal, state)
        if not ready:
            built.discard()
            return ()
        try:
            batches = built.of([pending.writes for pending in ready])
        except ShardFinalized:
            # A table was dropped since the catalog was looked at.
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
        """Append to the log; None: it is in. CommitOutcomeUnknown: it may be. Another error, returned or raised: it never will be."""
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
            # Whatever else it was may have come after the append.
            self._bug = bug
            return unknown_by_bug(ts, bug)
        return None

    def _acknowledge(self, group: Sequence[_Pending], ts: Timestamp) -> None:
        """Answer those whose append is in; nothing that fails here makes it undone."""
        try:
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
        """Those that may be appended to the log as it is in ``wal``: from here on they cannot be withdrawn. The others are told."""
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
            # It is the committing thread's to end by, not the session's.
            failure = InternalError(
                f"the group commit met {type(failure).__name__}: {failure}",
                detail="Nothing was written.",
            )
        for pending in group:
            # Each raises its own on its own thread.
            error = copy.copy(failure) if isinstance(failure, SqlError) else failure
            pending.finish(error)

    def _timestamp(self, wal: WalState) -> Timestamp:
        oracle = self._env.oracle
        ts = oracle.write_ts()
        if ts < wal.upper:
            # The log is ahead of the oracle where a writer died between the two: its commit counts.
            oracle.adopt(wal.upper - 1)
            ts = oracle.write_ts()
        if ts < wal.upper:
            raise InternalError(
                f"the timestamp oracle allocated {ts}, and the log is complete below {wal.upper}"
            )
        return ts

    def _dropped(self, wal: WalState, state: CatalogState, step: int) -> frozenset[str]:
        """Tables that the log still knows and the catalog, read after it, does not; looked for until a commit took them out at ``step``."""
        if step == self._swept_step:
            return frozenset()
        tables = {table.shard for table in state.of(Table)}
        return frozenset((wal.registered | wal.live.keys()) - tables)

    def _settled(self, ts: Timestamp, doubt: Indeterminate) -> SqlError | None:
        """The error of an append that ended without an answer; None where it turns out to be in."""
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
        """Have the oracle take note of an append; the error where it cannot."""
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
    """Why a write cannot be committed after those of its group that have ``written``, if it cannot."""
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
