"""One call shared by all who need what it says: rounds.

Promise: what a caller gets was found out by a call that began after the caller had come and ended before it left; nothing is cached.
Whoever comes first leads the next round, that is, makes the call for all who join until it begins. It begins when the round before is
over and its callers were let go, who are likely to be back at once; or, where a call takes long, beside it: two rounds at most are under
way, so that callers who come during a slow call need not wait for nearly two of them. A lone caller pays nothing extra. Each caller has
its own time (`mzsql.location.seconds_left`): one whose time is over leaves with `OracleTimeout`, and where it led, those who have more
time lead another round. An interrupt of one caller is its own: the others go on with another round.

No thread of its own, and no lock a caller: those who wait for a round pass one lock on from one to the next, so of hundreds only one or
two at a time are awake to compete for the interpreter. (Waking all at once, by an Event, gave a third of the rate with 512 callers.)
Source: the distributed timestamp oracle design, "batching get_read_ts".
"""

from __future__ import annotations

import copy
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mzsql.location import LocationError, seconds_left
from mzsql.location.deadlines import LEAST_SECONDS
from mzsql.oracle.errors import OracleTimeout
from mzsql.repr.errors import SqlError

T = TypeVar("T")

IN_FLIGHT = 2
_OVERLAP_SECONDS = 0.002
"""A round waits so long for the one before it. The answer of a backend nearby comes sooner, and then one call for all is cheaper."""
_LOOK_SECONDS = 0.25
"""Whoever waits looks so often how long its own caller still waits: that may have been cut short meanwhile."""


class Patience:
    """How long a caller waits: until the earliest end that it has ever named.

    Args:
        what: what is waited for, for the message.
    """

    __slots__ = ("_began", "_what", "end")

    def __init__(self, what: str) -> None:
        left = seconds_left()
        self._what = what
        self._began = time.monotonic()
        self.end = None if left is None else self._began + left

    def slice(self) -> float:
        """Seconds until the next look.

        Raises:
            OracleTimeout: the caller's time is over.
        """
        left = seconds_left()
        if left is None:
            return _LOOK_SECONDS
        now = time.monotonic()
        self.end = now + left if self.end is None else min(self.end, now + left)
        if now >= self.end:
            raise OracleTimeout(
                f"{self._what} did not come within {now - self._began:.1f} s",
                hint="The statement's time was over first. Look at the timestamp oracle's backend, or raise statement_timeout.",
            )
        return min(_LOOK_SECONDS, self.end - now)

    def acquire(self, lock: threading.Lock) -> None:
        """Take ``lock``; OracleTimeout where that takes too long."""
        while not lock.acquire(timeout=self.slice()):
            pass


class _Round(Generic[T]):
    """One call: those who joined before it began share its result.

    Attributes:
        leader: who makes the call.
        before: the rounds before that may not be over yet, the earliest first.
        turn: held until the round is over, then passed on from one waiter to the next.
        until: when the leader's time was over, where that may be why the call failed.
    """

    __slots__ = ("before", "callers", "failure", "leader", "over", "result", "turn", "until")

    def __init__(self, leader: object, before: list[_Round[T]]) -> None:
        self.leader = leader
        self.before = before
        self.turn = threading.Lock()
        self.turn.acquire()
        self.callers = 0
        self.over = False
        self.result: list[T] = []
        self.failure: Exception | None = None
        self.until: float | None = None

    def end(self) -> None:
        """Let everyone go who waits for the round."""
        self.over = True
        _free(self.turn)


def _free(lock: threading.Lock) -> None:
    """Release a lock that others may have released already."""
    # Not by contextlib.suppress, within whose calls an interrupt could come before the release.
    try:  # noqa: SIM105
        lock.release()
    except RuntimeError:
        pass


class SharedCalls(Generic[T]):
    """Calls to ``call`` shared by concurrent callers.

    Args:
        call: what is called; on the thread of one of the callers.
        what: what it finds out, for messages.
        observe: told the number of callers of each call.
    """

    def __init__(
        self, call: Callable[[], T], what: str, *, observe: Callable[[int], None] | None = None
    ) -> None:
        self._call = call
        self._what = what
        self._observe = observe
        self._renew()
        _forks.add(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._gathering: _Round[T] | None = None
        self._latest: list[_Round[T]] = []

    def share(self) -> T:
        """The result of a call that began after this one.

        Raises:
            OracleTimeout: the caller's time was over first.
            Exception: what the call raised.
        """
        patience: Patience | None = None
        while True:
            round_ = self._join(patience)
            if round_.result:
                return round_.result[0]
            patience = Patience(self._what) if patience is None else patience
            if round_.failure is not None and not _may_lead(patience, round_):
                raise _own(round_.failure)
            patience.slice()

    def _join(self, patience: Patience | None) -> _Round[T]:
        """Take part in the next round; it, once it is over. Nearly always it is before anyone need ask for the caller's time."""
        me = object()
        round_: _Round[T] | None = None
        try:
            with self._lock:
                round_ = self._gathering
                if round_ is None:
                    # Ours before anyone can see it: whatever interrupts this thread from here on, the round is ended.
                    round_ = _Round(me, self._latest)
                    self._gathering = round_
                    self._latest = [*self._latest[1 - IN_FLIGHT :], round_]
                round_.callers += 1
            if round_.leader is me:
                self._lead(round_, patience or Patience(self._what))
            else:
                # Every caller has more time than this.
                _pass_on(round_, _LOOK_SECONDS)
                if not round_.over:
                    _wait(round_, patience or Patience(self._what))
            return round_
        finally:
            if round_ is not None and round_.leader is me and not round_.over:
                self._end(round_)

    def _lead(self, round_: _Round[T], patience: Patience) -> None:
        if round_.before:
            last = round_.before[-1]
            _pass_on(last, min(_OVERLAP_SECONDS, patience.slice()))
            if not last.over and len(round_.before) == IN_FLIGHT:
                _wait(round_.before[0], patience)
            round_.before = []
        # From here on callers come too late: the call may see too old a state for them.
        with self._lock:
            if self._gathering is round_:
                self._gathering = None
        try:
            round_.result.append(self._call())
        except Exception as failure:
            if patience.end is not None and time.monotonic() >= patience.end - LEAST_SECONDS:
                round_.until = patience.end
            round_.failure = failure
        self._end(round_)
        if self._observe is not None:
            self._observe(round_.callers)

    def _end(self, round_: _Round[T]) -> None:
        try:
            with self._lock:
                round_.before = []
                if self._gathering is round_:
                    self._gathering = None
        finally:
            round_.end()

    @property
    def gathered(self) -> int:
        """How many callers wait for a call that has not begun."""
        with self._lock:
            return 0 if self._gathering is None else self._gathering.callers


def _wait(round_: _Round[T], patience: Patience) -> None:
    """Wait until the round is over."""
    while not round_.over:
        _pass_on(round_, patience.slice())


def _pass_on(round_: _Round[T], seconds: float) -> None:
    """Wait one's turn to go on after the round, for so long, and let the next one go on."""
    try:
        round_.turn.acquire(timeout=seconds)
    finally:
        # Also where an interrupt came between the lock and here: the chain of those who wait must not end.
        if round_.over:
            _free(round_.turn)


def _may_lead(patience: Patience, round_: _Round[T]) -> bool:
    """Whether the call may have failed only because its leader had less time than this caller."""
    if round_.until is None or not isinstance(round_.failure, LocationError):
        return False
    return patience.end is None or patience.end > round_.until


def _own(failure: Exception) -> Exception:
    """The failure for one of those who share it: what a thread does to its own, another's traceback does not show."""
    if not isinstance(failure, SqlError):
        return failure
    own = copy.copy(failure).with_traceback(None)
    own.__cause__ = failure.__cause__
    return own


_forks: weakref.WeakSet[SharedCalls[Any]] = weakref.WeakSet()


def _renew_all() -> None:
    """In the child of a fork: rounds whose leaders are threads of the parent never end."""
    for shared in list(_forks):
        shared._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
