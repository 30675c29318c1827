"""Sharing one call among all callers who need its result: rounds.

Promise: a caller's result comes from a call that began after the caller arrived and ended before it left; nothing is
cached. The first to arrive leads the next round: it makes the call for all who join before the call begins. The call
begins when the previous round is over and its callers were released, who are likely to return at once; or, where a call
takes long, beside it. At most two rounds are under way, so that callers who arrive during a slow call need not wait for
nearly two calls. A lone caller pays nothing extra. Each caller has its own deadline (`mzsql.location.seconds_left`):
one whose time is over leaves with `OracleTimeout`, and where it led, those with more time start another round. An
interrupt hits one caller only; the others go on with another round.

There is no thread, and no lock per caller: the waiters of a round pass one lock on from one to the next, so that of
hundreds only one or two are awake at a time and compete for the GIL. (Waking all at once by an Event gave a third of
the rate with 512 callers.)

Source: Materialize's distributed timestamp oracle design, "batching get_read_ts".
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
"""Seconds that a round waits for the previous one. A nearby backend answers sooner, and then one call for all is
cheaper.
"""
_LOOK_SECONDS = 0.25
"""Seconds between a waiter's checks of its own deadline, which its caller may have shortened meanwhile."""


class Patience:
    """A caller's deadline: the earliest end that it has ever had.

    Args:
        what: what it waits for, for the message.
    """

    __slots__ = ("_began", "_what", "end")

    def __init__(self, what: str) -> None:
        left = seconds_left()
        self._what = what
        self._began = time.monotonic()
        self.end = None if left is None else self._began + left

    def slice(self) -> float:
        """Seconds until the next check of the deadline.

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
        """Acquire ``lock``.

        Raises:
            OracleTimeout: the caller's time is over first.
        """
        while not lock.acquire(timeout=self.slice()):
            pass


class _Round(Generic[T]):
    """One call: those who joined before it began share its result.

    Attributes:
        leader: the thread that makes the call.
        before: earlier rounds that may not be over yet, earliest first.
        turn: held until the round is over, then passed from one waiter to the next.
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
        """Release everyone who waits for the round."""
        self.over = True
        _free(self.turn)


def _free(lock: threading.Lock) -> None:
    """Release a lock that may have been released already."""
    # Not contextlib.suppress: an interrupt inside its methods could come before the release.
    try:  # noqa: SIM105
        lock.release()
    except RuntimeError:
        pass


class SharedCalls(Generic[T]):
    """Calls that find the same out, shared by concurrent callers.

    Args:
        what: what it finds out, for messages.
        observe: called with the number of callers of each call.
    """

    def __init__(self, what: str, *, observe: Callable[[int], None] | None = None) -> None:
        self._what = what
        self._observe = observe
        self._renew()
        _forks.add(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._gathering: _Round[T] | None = None
        self._latest: list[_Round[T]] = []

    def share(self, call: Callable[[], T]) -> T:
        """The result of a call that began after this one.

        Args:
            call: finds it out; called on this thread, unless another caller's is.

        Raises:
            OracleTimeout: the caller's time was over first.
            Exception: what the call raised.
        """
        patience: Patience | None = None
        while True:
            round_ = self._join(call, patience)
            if round_.result:
                return round_.result[0]
            patience = Patience(self._what) if patience is None else patience
            if round_.failure is not None and not _may_lead(patience, round_):
                raise _own(round_.failure)
            patience.slice()

    def _join(self, call: Callable[[], T], patience: Patience | None) -> _Round[T]:
        """Take part in the next round, and return it once it is over; usually before the caller's deadline need be
        looked at.
        """
        me = object()
        round_: _Round[T] | None = None
        try:
            with self._lock:
                round_ = self._gathering
                if round_ is None:
                    # Assign before publishing the round: wherever an interrupt hits this thread from here on, the round
                    # is ended.
                    round_ = _Round(me, self._latest)
                    self._gathering = round_
                    self._latest = [*self._latest[1 - IN_FLIGHT :], round_]
                round_.callers += 1
            if round_.leader is me:
                self._lead(round_, call, patience or Patience(self._what))
            else:
                # Every caller has more time than this, so the deadline is not looked at yet.
                _pass_on(round_, _LOOK_SECONDS)
                if not round_.over:
                    _wait(round_, patience or Patience(self._what))
            return round_
        finally:
            if round_ is not None and round_.leader is me and not round_.over:
                self._end(round_)

    def _lead(self, round_: _Round[T], call: Callable[[], T], patience: Patience) -> None:
        if round_.before:
            last = round_.before[-1]
            _pass_on(last, min(_OVERLAP_SECONDS, patience.slice()))
            if not last.over and len(round_.before) == IN_FLIGHT:
                _wait(round_.before[0], patience)
            round_.before = []
        # Later callers must not join: the call may read a state that is too old for them.
        with self._lock:
            if self._gathering is round_:
                self._gathering = None
        try:
            round_.result.append(call())
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
        """The number of callers that wait for a call that has not begun."""
        with self._lock:
            return 0 if self._gathering is None else self._gathering.callers


def _wait(round_: _Round[T], patience: Patience) -> None:
    """Wait until the round is over."""
    while not round_.over:
        _pass_on(round_, patience.slice())


def _pass_on(round_: _Round[T], seconds: float) -> None:
    """Wait up to ``seconds`` for one's turn after the round, and then let the next waiter go on."""
    try:
        round_.turn.acquire(timeout=seconds)
    finally:
        # Also if an interrupt came between the acquire and here: the chain of waiters must not break.
        if round_.over:
            _free(round_.turn)


def _may_lead(patience: Patience, round_: _Round[T]) -> bool:
    """Whether the call may have failed only because its leader had less time than this caller."""
    if round_.until is None or not isinstance(round_.failure, LocationError):
        return False
    return patience.end is None or patience.end > round_.until


def _own(failure: Exception) -> Exception:
    """A copy of the failure for one of those who share it, so that threads do not extend each other's traceback."""
    if not isinstance(failure, SqlError):
        return failure
    own = copy.copy(failure).with_traceback(None)
    own.__cause__ = failure.__cause__
    return own


_forks: weakref.WeakSet[SharedCalls[Any]] = weakref.WeakSet()


def _renew_all() -> None:
    """In the child of a fork: drop rounds whose leaders are threads of the parent, since they never end."""
    for shared in list(_forks):
        shared._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
