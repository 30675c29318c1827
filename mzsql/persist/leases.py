"""The lease of a reader: what it may still read, which objects it keeps, and when it is to be renewed.

Promise: a read at a time that the reader has not given up never waits for a renewal under way, however long its
retries take; a read at a time that a downgrade is about to give up is refused as soon as the downgrade is requested.
Renewals run one after another, and never move since back.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterator

from mzsql.location import Determinate, Indeterminate, LocationError
from mzsql.persist.clock import Deadline
from mzsql.persist.commands import DowngradeSince, ExpireReader
from mzsql.persist.deciding import expired_reader
from mzsql.persist.errors import ExpiredHandle, ReadTimeout, ShardFinalized, SinceViolation
from mzsql.persist.leased_parts import Lease
from mzsql.persist.opened import Opened
from mzsql.persist.state import LeasedReader, ShardState
from mzsql.repr.frontier import Frontier, Timestamp, contains, join

_log = logging.getLogger(__name__)

_LEAST_WAIT = 0.05
_TURN_SECONDS = 0.5
_PASSING_SECONDS = 1.0
"""How long a read tries to renew a lease that has most of its time left."""


class ReaderLease:
    """The lease of one reader. Thread-safe.

    Args:
        opened: the shard.
        reader_id: the reader's id in the shard's state.
        registered: the reader as the state has it.
        asked_at: when its registration began, on the client's monotonic clock.
    """

    def __init__(
        self, opened: Opened, reader_id: str, registered: LeasedReader, asked_at: float
    ) -> None:
        self.reader_id = reader_id
        self.since: Frontier = registered.since
        self.expired = False
        self._opened = opened
        self._context = opened.context
        # The since being given up: it differs from `since` while a downgrade is under way or its outcome is not known.
        self._asked: Frontier = registered.since
        self._hold = registered.seqno_hold
        # On the monotonic clock: when the last successful renewal, and the last attempt, began. The beginning counts,
        # because the other processes may have seen the renewal that early.
        self._renewed_at = asked_at
        self._tried_at = asked_at
        self.lease_ms = registered.lease_ms
        self._lock = threading.Lock()
        self._renewal = threading.Lock()
        self._leases: dict[int, int] = {}
        self._released: deque[int] = deque()
        self._next = 0

    def take(self, owner: object, earliest: Timestamp) -> tuple[ShardState, Lease]:
        """Return the latest state seen, in which times from ``earliest`` on are exact, and a lease on the objects it
        names.

        Raises:
            SinceViolation, ShardFinalized, ExpiredHandle: as `check_since` and `check_live`.
        """
        with self._lock:
            state = self._opened.shard.state
            self.check_live(state)
            # Check again: another thread may have downgraded while this one waited for the upper.
            self.check_since(earliest)
            number = self._next
            self._next += 1
            self._take_back()
            # The lease is on a state, not on objects: whatever that state names stays until it is given back, without a list of it
            # anywhere.
            self._leases[number] = state.seqno
            return state, Lease(owner, self._released, number, state.seqno)

    def await_complete(self, past: Timestamp, deadline: Deadline) -> ShardState:
        """Return the state in which ``past`` is complete, waiting for it; renews the lease meanwhile, and ends if it is
        lost.

        Raises:
            ReadTimeout: it was not complete by the deadline.
            SinceViolation, ShardFinalized, ExpiredHandle: as `check_since` and `check_live`.
        """
        shard = self._opened.shard

        def over(state: ShardState) -> bool:
            return not contains(shard.upper_in(state), past) or self.lost(state)

        while True:
            patience = min(deadline.remaining(), max(self.seconds_until_due(), _LEAST_WAIT))
            try:
                state = shard.wait_until(over, Deadline(self._context.clock, patience))
            # This wait is over, or a backend failed meanwhile; as long as the caller has time the lease is kept alive and it waits on.
            except (Determinate, Indeterminate):
                if deadline.passed():
                    raise
            else:
                if not contains(shard.upper_in(state), past):
                    return state
                self.check_live(state)
                if deadline.passed():
                    raise ReadTimeout(shard.shard_id, past, state.upper, deadline.timeout)
            self.renew_if_due(deadline)

    def lost(self, state: ShardState) -> bool:
        """Whether nothing can be read any more as of ``state``."""
        return state.finalized or self.expired or self.reader_id not in state.readers

    def check_live(self, state: ShardState) -> None:
        """Raise unless the reader is registered in ``state``.

        Raises:
            ShardFinalized: the shard has ended.
            ExpiredHandle: the reader is not registered any more, or was closed.
        """
        shard_id = self._opened.shard_id
        if state.finalized:
            raise ShardFinalized(f"shard {shard_id} was finalized: there is nothing to read")
        if self.lost(state):
            raise expired_reader(state, self.reader_id)

    def check_since(self, as_of: Timestamp) -> None:
        """Raise unless the reader may read at ``as_of``.

        Raises:
            SinceViolation: it may not.
        """
        since = join(self.since, self._asked)
        if not contains(since, as_of):
            raise SinceViolation(self._opened.shard_id, as_of, since)

    def _take_back(self) -> None:
        """Forget the leases that have been released. The caller holds the lock."""
        while self._released:
            self._leases.pop(self._released.popleft(), None)

    def _outstanding(self) -> int:
        """Return the earliest state whose objects are being read here. The caller holds the lock."""
        self._take_back()
        return min(self._leases.values(), default=self._opened.shard.state.seqno)

    @contextlib.contextmanager
    def _turn(self, deadline: Deadline) -> Iterator[None]:
        """Hold the renewals' lock while the block runs; another renewal may take longer than the caller has time.

        Raises:
            Determinate: it was not free by the deadline.
        """
        patience = min(max(deadline.remaining(), _TURN_SECONDS), threading.TIMEOUT_MAX)
        if not self._renewal.acquire(timeout=patience):
            raise Determinate(
                f"shard {self._opened.shard_id}: another renewal of the reader {self.reader_id} was not over "
                f"within {deadline.timeout:g} s"
            )
        try:
            yield
        finally:
            self._renewal.release()

    def renew(self, since: Frontier, deadline: Deadline) -> None:
        """Renew the lease, and give up times below ``since``; if another thread has given up more, since stays there.

        Raises:
            ExpiredHandle: the lease ran out.
            Determinate, Indeterminate: not renewed, or not known to be, by the deadline.
        """
        with self._turn(deadline):
            self._renew(since, deadline)

    def _renew(self, since: Frontier, deadline: Deadline) -> None:
        with self._lock:
            if self.expired:
                self.check_live(self._opened.shard.state)
            hold = self._outstanding()
            before = self._asked
            since = join(self.since, since)
            # Given up here before it is asked for: no read may begin at a time that the shard is being allowed to forget.
            self._asked = join(before, since)
        began = self._context.clock.monotonic()
        others = self._opened.renewable(besides=self.reader_id)
        also = tuple(other.handle_id for other in others)
        try:
            self._opened.shard.apply(DowngradeSince(self.reader_id, since, hold, also), deadline)
        except Indeterminate:
            raise  # it may have been committed, so the times stay given up
        except Exception:
            with self._lock:
                self._asked = before
            raise
        with self._lock:
            self.since = since
            self._hold = max(hold, self._hold)
        self.renewed(began)
        for other in others:
            other.renewed(began)

    @property
    def handle_id(self) -> str:
        """The reader's id."""
        return self.reader_id

    def renewed(self, began: float) -> None:
        """Note that the lease was renewed by a change that began at ``began`` (monotonic seconds)."""
        self._renewed_at = max(began, self._renewed_at)

    def renewable(self) -> bool:
        """Whether to renew it along with another handle's: an eighth of the lease has passed."""
        return not self.expired and self._elapsed_ms() * 8 >= self.lease_ms

    def _elapsed_ms(self) -> float:
        return (self._context.clock.monotonic() - self._renewed_at) * 1000

    def due(self) -> bool:
        """Whether a quarter of the lease has passed since it was renewed."""
        return not self.expired and self._elapsed_ms() * 4 >= self.lease_ms

    def seconds_until_due(self) -> float:
        """Seconds until `due`; at least 0."""
        return max(0, self.lease_ms - self._elapsed_ms() * 4) / 4000

    def renew_if_due(self, deadline: Deadline) -> None:
        """Renew the lease within another call; that call waits for it, and fails with it, only once half of the lease
        has passed.

        Before that it tries briefly, and at most once per sixteenth of the lease, so that a slow backend does not
        slow down every read.
        """
        if not self.due():
            return
        if self._elapsed_ms() * 2 >= self.lease_ms:
            self.renew(self.since, deadline)
            return
        now = self._context.clock.monotonic()
        tried = self._tried_at > self._renewed_at
        if tried and (now - self._tried_at) * 16_000 < self.lease_ms:
            return
        if not self._renewal.acquire(blocking=False):
            return
        try:
            self._tried_at = now
            brief = min(_PASSING_SECONDS, deadline.remaining())
            self._renew(self.since, Deadline(self._context.clock, brief))
        except LocationError as failure:
            what = f"shard {self._opened.shard_id}: reader {self.reader_id}"
            _log.warning("%s not renewed yet: %s", what, failure)
        finally:
            self._renewal.release()

    def let_go(self, deadline: Deadline) -> None:
        """Move the hold on objects forward if it is behind; does nothing if the handle is expired, or a renewal is
        under way.
        """
        state = self._opened.shard.state
        if self.expired or self.reader_id not in state.readers:
            return
        with self._lock:
            behind = self._hold < self._outstanding()
        if not behind or not self._renewal.acquire(blocking=False):
            return
        try:
            self._renew(self.since, deadline)
        except ExpiredHandle as expired:
            # An expired reader holds nothing, and its user gets the error from the next call of its own.
            _log.info("%s", expired)
        finally:
            self._renewal.release()

    def expire(self, deadline: Deadline) -> None:
        """Give up the lease. Idempotent; a call after one that failed tries again."""
        with self._lock:
            self.expired = True
        if self.reader_id in self._opened.shard.state.readers:
            self._opened.shard.apply(ExpireReader(self.reader_id), deadline)


def exact_from(lower: Timestamp, upper: Frontier) -> Timestamp:
    """Return the latest since with which a read of ``[lower, upper)`` is exact.

    Times below since may have been advanced to it, so since itself is exact only if nothing lies below it.
    """
    if lower > 0:
        return lower - 1
    return 0 if upper is None else max(upper - 1, 0)
