"""The loop that changes a shard's state: compute the change, compare-and-set it, and start over from the newer state if another won.

Promise: a command's answer is linearizable: a usage error is only raised from a state fetched after the call began. A lost race costs a
refetch, never a rewrite of batches. After an indeterminate error the same command is tried again; commands are idempotent, and
`CompareAndAppend` recognises its token. One `Shard` per process serves all handles, so a process contends only with other processes;
threads that ask for the current state at the same time share one look at Consensus, and a look fetches only the new entries. A shard
that a newer version of mzsql has changed is refused (`mzsql.persist.versions`). Source: Materialize's persist design, "Roughly speaking,
all users of the state machine follow this structure".
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from mzsql.location import (
    ConsensusWait,
    Determinate,
    Indeterminate,
    LocationError,
    UsageError,
    Versioned,
    waiting,
)
from mzsql.persist.ahead import Ahead, learned, reach
from mzsql.persist.batch import Batch
from mzsql.persist.clock import Deadline
from mzsql.persist.codec import Entry, encode_entry
from mzsql.persist.commands import Command, CompareAndAppend, InlineOverflow
from mzsql.persist.context import Context, Forgetful
from mzsql.persist.deciding import transition
from mzsql.persist.errors import (
    CorruptPart,
    ExpiredHandle,
    MissingPart,
    NewerVersion,
    UpperMismatch,
)
from mzsql.persist.logs import SCAN_LIMIT, decoded, followed, rollup
from mzsql.persist.retry import Backoff, troubled
from mzsql.persist.state import ShardState, StateDiff
from mzsql.persist.transitions import apply_diff
from mzsql.persist.versions import newer
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Frontier

T = TypeVar("T")

_WAIT_SLICE = 1.0
"""Seconds within which a waiting thread notices that the client was closed."""
_LOOK_SECONDS = 30.0
"""Seconds after which a waiting thread looks at Consensus by itself, in case the store failed to notify it."""
_TURN_SECONDS = 0.5
_OWN_CHANGES = 512
"""How many of its latest changes a process remembers as its own."""


def surely_not_committed(failure: BaseException) -> bool:
    """Whether, after this error of `Shard.apply`, the command is not and will never be part of the shard's history."""
    return isinstance(failure, SqlError) and not isinstance(failure, Indeterminate)


class Shard:
    """The state of one shard as this process knows it, and the operations that change it. Thread-safe."""

    def __init__(self, shard_id: str, context: Context) -> None:
        self.shard_id = shard_id
        self.context = context
        self._cached: ShardState | None = None
        self._lock = threading.RLock()
        # Looks at Consensus are numbered as they begin; `_seen` is the latest one whose result is cached.
        self._begun = 0
        self._seen = 0
        # The last backend error of the call that holds the lock, reported by calls that time out waiting for the lock.
        self._trouble: LocationError | None = None
        self.own: Callable[[], Collection[str]] = tuple
        """The ids of the handles open in this process, which are alive because this process is."""
        self.ahead: Ahead = ()
        """The updates known here beyond the state. Read it before the state: what is dropped from it is in the state by then."""
        self._quiet_writers = 0
        self._looked_at = 0.0
        self._moved = threading.Condition()
        self._own_seqnos: deque[int] = deque(maxlen=_OWN_CHANGES)
        self._own_batches: deque[int] = deque(maxlen=_OWN_CHANGES)

    @property
    def state(self) -> ShardState:
        """The latest state seen; only after something was fetched."""
        assert self._cached is not None
        return self._cached

    # --- frontiers that only this process knows ---

    def upper_in(self, state: ShardState) -> Frontier:
        """How far the shard is complete to this process, given ``state`` as its latest state."""
        return reach(self.ahead, state.upper)

    def learn(self, batch: Batch) -> None:
        """Add the definite updates of ``batch`` to those known ahead of the state, and notify the waiting threads."""
        with self._moved:
            self.ahead = learned(self.ahead, batch, self.state.upper)
            self._moved.notify_all()

    def quiet_writer(self, change: int) -> None:
        """Add ``change`` (1 or -1) to the number of open writers whose progress in this process is all that waiting readers need."""
        with self._moved:
            self._quiet_writers += change
            self._moved.notify_all()

    @property
    def told_here(self) -> bool:
        """Whether there is such a writer, see `quiet_writer`."""
        return self._quiet_writers > 0

    def _await_own(self, satisfied: Callable[[ShardState], bool], deadline: Deadline) -> bool:
        """Wait for progress by a quiet writer of this process, at most `_WAIT_SLICE`; return whether there is such a writer."""
        with self._moved:
            if not self._quiet_writers:
                return False
            self._moved.wait_for(
                lambda: (
                    not self._quiet_writers
                    or self.context.closing.is_set()
                    or satisfied(self.state)
                ),
                min(_WAIT_SLICE, deadline.remaining()),
            )
            return True

    def committed(self, seqno: int) -> bool:
        """Whether the change that led to ``seqno`` was made here; only the latest changes are remembered."""
        return seqno in self._own_seqnos

    def added(self, batch_id: int) -> bool:
        """Whether the batch was added here; only the latest batches are remembered."""
        return batch_id in self._own_batches

    def fetch(self, deadline: Deadline) -> ShardState | None:
        """Fetch the current state; `None` if the shard does not exist.

        Raises:
            Determinate: another call of this process held the lock until the deadline.
            LocationError: Consensus or Blob did not answer by the deadline.
            MissingPart, CorruptPart, NewerVersion: the state cannot be read.
        """
        asked = self._begun

        def look() -> ShardState | None:
            # Another thread may have looked at Consensus while this call waited for the lock: a look begun after ours is as good.
            return self._cached if self._seen > asked else self._refresh(deadline)

        return self._in_turn(deadline, look)

    def initialize(self, initial: Callable[[], ShardState], deadline: Deadline) -> ShardState:
        """Fetch the current state; make the shard from ``initial()`` if it does not exist.

        Raises:
            Determinate, LocationError, MissingPart, CorruptPart, NewerVersion: as `fetch`.
        """
        backoff = Backoff(self.context.clock, self.context.rng, deadline)

        def found_or_made() -> ShardState:
            while True:
                state = self._refresh(deadline)
                if state is not None:
                    return state
                first = initial()
                entry = encode_entry(Entry(state=first, version=first.applier_version))
                try:
                    # A lost race, or a doubtful attempt that was committed, needs no branch of its own: the next look finds the shard
                    # that is there.
                    self._set(None, Versioned(0, entry), deadline)
                except (Determinate, Indeterminate) as failure:
                    troubled(failure)
                    if not backoff.pause():
                        raise

        return self._in_turn(deadline, found_or_made)

    def apply(self, command: Command, deadline: Deadline, *, doubtful: int | None = None) -> Any:
        """Commit ``command``; return its result.

        Args:
            command: what to do.
            deadline: the end of all attempts.
            doubtful: the seqno of an earlier attempt, with a command of the same token, that may have been committed.

        Raises:
            UsageError: the command does not fit the current state.
            NewerVersion: a newer program has changed the shard.
            InlineOverflow: the command brings too many inline bytes; its ``doubtful`` names the attempt that may have been committed.
            MissingPart, CorruptPart: the state cannot be read.
            InternalError: it would break an invariant.
            Determinate: it was not committed by the deadline.
            Indeterminate: it may have been committed or not; after any other of these errors it certainly was not.
        """
        asked = self._begun
        return self._in_turn(deadline, lambda: self._apply(command, deadline, asked, doubtful))

    def _in_turn(self, deadline: Deadline, act: Callable[[], T]) -> T:
        """Run ``act()`` under the lock. Another thread may hold it, with retries, for longer than this caller has time.

        Raises:
            Determinate: the lock was not free by the deadline.
        """
        patience = min(max(deadline.remaining(), _TURN_SECONDS), threading.TIMEOUT_MAX)
        try:
            if not self._lock.acquire(timeout=patience):
                trouble = self._trouble
                raise Determinate(
                    f"shard {self.shard_id}: another call of this process was not over within {deadline.timeout:g} s"
                    + (self.context.awaited if trouble is None else f"; it met: {trouble.message}")
                ) from trouble
            self._trouble = None
            return act()
        finally:
            # Ctrl-C may come after the lock was acquired and before that is known here, so release unconditionally: an RLock itself knows
            # its owner. (`contextlib.suppress` would open more such moments.)
            try:  # noqa: SIM105
                self._lock.release()
            except RuntimeError:
                pass  # another thread owns it: this call did not get the lock

    def _apply(self, command: Command, deadline: Deadline, asked: int, doubtful: int | None) -> Any:
        clock = self.context.clock
        backoff = Backoff(clock, self.context.rng, deadline)

        def refetch() -> ShardState:
            try:
                return self._refetch(deadline)
            except Exception as failure:
                # Whether a doubtful attempt was committed is only known from the newer state, whichever error keeps us from it; if nothing
                # is in doubt, a failed look has changed nothing.
                if doubtful is None and not isinstance(failure, Indeterminate):
                    raise
                raise self._timed_out(command, doubtful, deadline, failure) from failure

        state, fresh = self._cached, self._seen > asked
        if state is None:
            state, fresh = refetch(), True
        while True:
            now = clock.now_ms()
            try:
                seen = self.context.watch.sightings(state, self.own())
                version, takes_over = self.context.version, self.context.takes_over.is_set()
                step = transition(state, command, now, version, seen, takes_over=takes_over)
                new = state if step.diff is None else apply_diff(state, step.diff)
            except InlineOverflow as full:
                if not fresh:
                    state, fresh = refetch(), True
                    continue
                full.doubtful = doubtful
                raise
            except SqlError as failure:
                # A refusal by a cached state may be outdated: refuse only by a state fetched after the call began.
                if not fresh:
                    state, fresh = refetch(), True
                    continue
                if doubtful is not None:
                    self._raise_if_ambiguous(state, command, failure, doubtful)
                raise
            # "Nothing to do" must come from a state fetched after the call began; a change is checked by the compare-and-set.
            if step.diff is None:
                if fresh:
                    return step.result
                state, fresh = refetch(), True
                continue
            entry = _entry(new, step.diff, self.context.version)
            # A commit proves that the new state is current at a moment after this one, so it counts as a look.
            look = self._look()
            try:
                committed = self._set(
                    state.seqno, Versioned(new.seqno, encode_entry(entry)), deadline
                )
            except LocationError as failure:
                self._trouble = failure
                troubled(failure)
                # The earliest doubt stays: whether the writer may have expired since (`_raise_if_ambiguous`) must be asked of the whole
                # time.
                if isinstance(failure, Indeterminate) and doubtful is None:
                    doubtful = new.seqno
                if not backoff.pause():
                    raise self._timed_out(command, doubtful, deadline, failure) from failure
                self.context.meter.metrics.retries.inc()
                state, fresh = refetch(), True
                continue
            if committed:
                # No refetch: the compare-and-set has proven that nobody came between `state` and `new`.
                self._cached, self._seen = new, look
                # Beside quiet writers threads wait here instead of looking at Consensus, so they have to be told of every change.
                if self._quiet_writers:
                    with self._moved:
                        self._moved.notify_all()
                self._own_seqnos.append(new.seqno)
                self._own_batches.extend(batch.id for batch in step.diff.added)
                self.context.watch.see(new)
                self._count_expired(step.diff)
                return step.result
            self.context.meter.metrics.lost_races.inc()
            if deadline.passed():
                raise self._timed_out(command, doubtful, deadline)
            state, fresh = refetch(), True

    def _set(self, expected: int | None, new: Versioned, deadline: Deadline) -> bool:
        """Try the compare-and-set once."""
        with waiting(deadline.remaining):
            return self.context.consensus.compare_and_set(self.shard_id, expected, new)

    def _look(self) -> int:
        """Return the number of a look at Consensus that begins now. The caller holds the lock."""
        self._begun += 1
        return self._begun

    def _count_expired(self, diff: StateDiff) -> None:
        """Count the leases that this change found to have run out, for the metrics."""
        gone_ids = {i for i, record in diff.expired.items() if record is not None}
        for handle, patch in (("reader", diff.readers), ("writer", diff.writers)):
            if gone := len(gone_ids.intersection(patch)):
                self.context.meter.metrics.leases_expired.labels(handle).inc(gone)

    def _timed_out(
        self,
        command: Command,
        doubtful: int | None,
        deadline: Deadline,
        failure: Exception | None = None,
    ) -> LocationError:
        """Return the error of a command that ran out of time; without ``failure`` it lost its races to other processes."""
        what = f"shard {self.shard_id}: {type(command).__name__}"
        limit = f"within {deadline.timeout:g} s"
        last = "others were faster each time" if failure is None else _told(failure)
        if doubtful is None:
            return Determinate(f"{what} was not committed {limit}: {last}")
        return Indeterminate(
            f"{what} was not confirmed {limit}, it may have been committed: {last}"
        )

    def _raise_if_ambiguous(
        self, state: ShardState, command: Command, failure: SqlError, doubtful: int
    ) -> None:
        """Raise Indeterminate unless the refusal of a retried command proves that the doubtful attempt was not committed.

        A refusal proves it as long as the writer's token cannot have expired since. An error that kept us from reading the state, such
        as a newer version, proves nothing.
        """
        if not isinstance(failure, UsageError):
            raise Indeterminate(
                f"shard {self.shard_id}: {type(command).__name__} may have been committed: {failure.message}"
            ) from failure
        if (
            isinstance(command, CompareAndAppend)
            and isinstance(failure, UpperMismatch | ExpiredHandle)
            and command.writer_id not in state.writers
            and (state.finalized or state.may_have_expired(command.writer_id, doubtful))
        ):
            raise Indeterminate(
                f"shard {self.shard_id}: an append may have been committed; its writer has expired since"
            ) from failure

    def wait_until(self, satisfied: Callable[[ShardState], bool], deadline: Deadline) -> ShardState:
        """Return the first state seen that is ``satisfied``, or the last one seen by the deadline.

        Raises:
            ExpiredHandle: the client was closed.
        """
        if self._cached is not None and satisfied(self._cached):
            return self._cached
        settings = self.context.settings
        pause = settings.poll_seconds
        consensus = self.context.consensus
        while True:
            if self.context.closing.is_set():
                raise ExpiredHandle(f"shard {self.shard_id}: the persist client was closed")
            own = self._await_own(satisfied, deadline)
            if own and satisfied(self.state):
                return self.state
            if own and self.context.clock.monotonic() - self._looked_at < _WAIT_SLICE:
                # However short the calls are, a thread that quiet writers notify looks at Consensus at most once a second.
                if deadline.passed():
                    return self.state
                continue
            asked = self._begun

            def look(asked: int = asked) -> ShardState:
                # What another thread has seen meanwhile may be enough.
                state = self._cached
                if state is None or not (self._seen > asked or satisfied(state)):
                    state = self._refetch(deadline)
                return state

            state = self._in_turn(deadline, look)
            if satisfied(state) or deadline.passed():
                return state
            if own:
                continue
            if isinstance(consensus, ConsensusWait):
                try:
                    self._await_entry(consensus, state, deadline)
                except LocationError:
                    # The refetch above retries and raises; a thread that cannot wait for a notification polls instead.
                    self.context.clock.sleep(min(pause, deadline.remaining()))
            else:
                self.context.clock.sleep(min(pause, deadline.remaining()))
                pause = min(pause * 2, settings.poll_max_seconds)

    def _await_entry(self, consensus: ConsensusWait, state: ShardState, deadline: Deadline) -> None:
        """Wait for an entry beyond ``state``, without further requests, or for another reason to look: closing, a deadline,
        `_LOOK_SECONDS`.
        """
        clock = self.context.clock
        look_at = clock.monotonic() + _LOOK_SECONDS
        while not self.context.closing.is_set():
            began = clock.monotonic()
            span = min(_WAIT_SLICE, deadline.remaining(), look_at - began)
            seen = self._cached
            if span <= 0 or seen is None or seen.seqno > state.seqno:
                return
            with waiting(deadline.remaining):
                there = consensus.wait(self.shard_id, state.seqno, span)
            if there:
                return
            waited = clock.monotonic() - began
            if waited == 0:
                # No time passed by our clock: the store waits by another clock (a simulation's). Without a sleep our deadline would never
                # come.
                clock.sleep(span)
            elif waited < span / 2:
                # The store ended the wait early, as a closed one does: a look finds out why.
                return

    def await_change(self, timeout: float, after: int | None = None) -> bool | None:
        """Block until Consensus has a state beyond number ``after``, or for ``timeout`` seconds; makes no other request.

        Args:
            timeout: in seconds.
            after: the number of a state; by default that of the last one seen here.

        Returns:
            Whether there is such a state; `None` at once if the store cannot notify. Ends early, with `False` or a LocationError, if the
                store is closed.
        """
        consensus, state = self.context.consensus, self._cached
        if state is None or not isinstance(consensus, ConsensusWait):
            return None
        with waiting(Deadline(self.context.clock, timeout).remaining):
            return consensus.wait(self.shard_id, state.seqno if after is None else after, timeout)

    def _refetch(self, deadline: Deadline) -> ShardState:
        state = self._refresh(deadline)
        if state is None:
            raise MissingPart(f"shard {self.shard_id} does not exist in this Consensus store")
        return state

    def _refresh(self, deadline: Deadline) -> ShardState | None:
        """Bring the cached state up to date; return it, or `None` if the shard does not exist. The caller holds the lock."""
        look = self._look()
        self._looked_at = self.context.clock.monotonic()
        state = self._cached
        backoff = Backoff(self.context.clock, self.context.rng, deadline)
        missing: int | None = None
        gap: tuple[int, int] | None = None
        head: Versioned | None = None
        while True:
            if state is None:
                head = self._head(deadline)
                if head is None:
                    return None
                state = self._load(head, deadline)
                # A head may lag; a scan does not.
                if (
                    state is None
                    and missing == head.seqno
                    and not self._scan(head.seqno + 1, deadline)
                ):
                    raise MissingPart(
                        f"shard {self.shard_id}: the whole state that entry {head.seqno} of its log names is missing from Blob",
                        hint="Blob and Consensus must be of the same environment; restore the object or the environment.",
                    )
                missing = head.seqno
            if state is not None:
                state, complete = self._follow(state, deadline)
                if complete:
                    self._cached, self._seen = state, look
                    self.context.watch.see(state)
                    return state
                if head is not None:
                    found = head.seqno, state.seqno
                    # As above; what was truncated lies before the whole state that the newest entry names.
                    if found == gap and not self._scan(head.seqno + 1, deadline):
                        raise MissingPart(
                            f"shard {self.shard_id}: entry {state.seqno + 1} of its log is missing from Consensus",
                            hint="The log was changed behind the shard's back; restore the environment.",
                        )
                    gap = found
                state = None
            # What we read pointed at something already collected: it was stale, so look again.
            if not backoff.pause():
                raise Determinate(
                    f"shard {self.shard_id}: its state could not be read within {deadline.timeout:g} s, so fast does it change"
                )

    def _follow(self, state: ShardState, deadline: Deadline) -> tuple[ShardState, bool]:
        """Return the state after all entries beyond ``state``, and whether that is complete: `False` if some entries were truncated
        meanwhile.
        """
        while True:
            entries = self._scan(state.seqno + 1, deadline)
            state, complete = followed(self.context.version, state, entries)
            if not complete or len(entries) < SCAN_LIMIT:
                return state, complete

    def _scan(self, start: int, deadline: Deadline) -> list[Versioned]:
        context = self.context
        return context.retrying(
            self._noting(lambda: context.consensus.scan(self.shard_id, start, SCAN_LIMIT)),
            deadline,
        )

    def _head(self, deadline: Deadline) -> Versioned | None:
        context = self.context
        return context.retrying(
            self._noting(lambda: context.consensus.head(self.shard_id)), deadline
        )

    def _noting(self, act: Callable[[], T]) -> Callable[[], T]:
        """Wrap ``act`` so that its backend error is kept for calls that wait for the lock."""

        def noted() -> T:
            try:
                return act()
            except LocationError as failure:
                self._trouble = failure
                raise

        return noted

    def _load(self, head: Versioned, deadline: Deadline) -> ShardState | None:
        """Return the whole state that the newest entry refers to; `None` if it is gone."""
        context = self.context
        entry = decoded(context.version, self.shard_id, head)
        if entry.state is not None:
            return entry.state
        if entry.rollup_key:
            try:
                return rollup(context, self.shard_id, entry, deadline)
            except (CorruptPart, NewerVersion):
                if not isinstance(context.blob, Forgetful):
                    raise
                # It may have been damaged once on its way and been cached so; the store itself may have it intact.
                context.blob.forget(entry.rollup_key)
            try:
                return rollup(context, self.shard_id, entry, deadline)
            except (CorruptPart, NewerVersion):
                context.blob.forget(
                    entry.rollup_key
                )  # so that the next reader asks the store again
                raise
        first = self._scan(entry.rollup_seqno, deadline)
        if not first or first[0].seqno != entry.rollup_seqno:
            return None
        return decoded(context.version, self.shard_id, first[0]).state


def _told(failure: Exception) -> str:
    return failure.message if isinstance(failure, SqlError) else repr(failure)


def _entry(new: ShardState, diff: StateDiff, ours: str) -> Entry:
    # Before this program has taken the shard over, its changes must stay readable by the shard's older version, and are marked as that.
    not_taken = new.applier_version and newer(ours, new.applier_version)
    version = new.applier_version if not_taken else ours
    if new.finalized:
        return Entry(rollup_seqno=new.seqno, state=new, version=version)
    # Name the newest rollup as of this change: so a rollup that an entry names was written before the entry.
    seqno = new.latest_rollup
    return Entry(
        rollup_seqno=seqno, rollup_key=new.rollups.get(seqno, ""), diff=diff, version=version
    )
