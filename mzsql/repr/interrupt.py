"""What ends a statement before its time: its `statement_timeout`, and a cancel from another thread.

Promise: every statement has one `Interrupt`, found by `current()` on the thread that runs it. Whoever waits in it waits by
`Interrupt.wait`, or registers by `Interrupt.on_interrupt` what ends the wait (DuckDB's ``interrupt()``, cancelling a Spark job group),
and both fall due the moment the statement is cancelled or its time is over; whoever works for long by itself says
`check_for_interrupts` now and then, which raises PostgreSQL's error (57014). Backends are told how long the statement has left
(`mzsql.location.deadlines`). A cancel that comes when no statement runs does nothing, as in PostgreSQL.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from mzsql.repr.errors import QueryCanceled

_log = logging.getLogger(__name__)

NO_LIMIT = 7 * 86_400.0
"""Seconds that `left` says of a statement without a timeout: more than any backend waits by itself, and fit for any wait."""

USER_REQUEST = "canceling statement due to user request"
TIMED_OUT = "canceling statement due to statement timeout"


def call_each(wakes: Iterable[Callable[[], None]]) -> None:
    """Make several calls: the failure of one is logged, as it must not keep the others from being made."""
    for wake in wakes:
        try:
            wake()
        except Exception:  # the others are to be called, too
            _log.exception("what a statement waits for could not be ended")


class Alarms(Protocol):
    """Calls back at deadlines; `mzsql.threads.ALARMS` are the process's."""

    def add(self, at: float, call: Callable[[], None]) -> object:
        """Have ``call`` called at ``at`` (of `time.monotonic`), unless it is taken back before; a key for `remove`."""
        ...

    def remove(self, key: object) -> None:
        """Take a call back; it may have been made, or be under way."""
        ...


class Interrupt:
    """One statement's right to go on; `begin` opens the next statement of the same text.

    Args:
        timeout: seconds that the statement may take; None: no limit.
        alarms: make `on_interrupt` fall due when the time is over; without them that happens by a cancel alone.
    """

    def __init__(self, timeout: float | None = None, alarms: Alarms | None = None) -> None:
        self._alarms = alarms
        self._lock = threading.Lock()
        self._waking = threading.RLock()
        self._wakes: dict[object, Callable[[], None]] = {}
        self._cancelled = False
        self._deadline: float | None = None
        #: why what it waits for is not had, as far as somebody has said
        self.trouble: BaseException | None = None
        self.begin(timeout)

    def begin(self, timeout: float | None) -> None:
        """A new statement begins, with ``timeout`` seconds. A cancel that came before ends it at once."""
        self.trouble = None
        self._deadline = None if timeout is None else time.monotonic() + timeout

    # --- for the other thread -----------------------------------------------------------------

    def cancel(self) -> None:
        """End the statement: PostgreSQL's "canceling statement due to user request". From any thread; idempotent."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
        self._wake_all()

    def _wake_all(self) -> None:
        with self._waking:
            with self._lock:
                wakes = list(self._wakes.values())
            call_each(wakes)

    # --- for the statement ----------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled it (a timeout is no cancel)."""
        return self._cancelled

    @property
    def over(self) -> bool:
        """Whether it was cancelled or its time is over."""
        return self.left() <= 0

    def left(self) -> float:
        """Seconds it may still take: 0 once it is cancelled or late, `NO_LIMIT` where it has no limit."""
        if self._cancelled:
            return 0.0
        if self._deadline is None:
            return NO_LIMIT
        return max(0.0, self._deadline - time.monotonic())

    def error(self) -> QueryCanceled | None:
        """The error that it ends with, if it is over."""
        if not self.over:
            return None
        why = None if self.trouble is None else f"It waited for what failed: {self.trouble}."
        return QueryCanceled(USER_REQUEST if self._cancelled else TIMED_OUT, detail=why)

    def check(self) -> None:
        """Go on, unless the statement was cancelled or its time is over.

        Raises:
            QueryCanceled: it is to end; the message says why.
        """
        # Planning asks at every node, so what nearly always holds is found without a call of ours.
        if not self._cancelled and (self._deadline is None or time.monotonic() < self._deadline):
            return
        error = self.error()
        if error is not None:
            raise error

    @contextmanager
    def on_interrupt(self, wake: Callable[[], None]) -> Iterator[None]:
        """Within the block, have ``wake`` called when the statement is cancelled or its time is over: at once if it is already.

        It is called on another thread, perhaps more than once (make it idempotent), and never after the block. Enter and leave the block
        without a lock that ``wake`` takes. What the block ends with because of it is the caller's to translate: ``check()`` after it.
        """
        key = object()
        with self._lock:
            self._wakes[key] = wake
        deadline = self._deadline
        alarms = self._alarms
        due = None if deadline is None or alarms is None else alarms.add(deadline, self._wake_all)
        try:
            if self._cancelled:
                call_each([wake])
            yield
        finally:
            if alarms is not None and due is not None:
                alarms.remove(due)
            with self._lock:
                del self._wakes[key]
            # A wake that is under way is waited for, so that it never meets what the block has closed.
            with self._waking:
                pass

    def wait(
        self,
        condition: threading.Condition,
        ready: Callable[[], bool],
        timeout: float | None = None,
    ) -> bool:
        """Wait on ``condition``, which the caller does not hold, until ``ready()``, the statement is over or ``timeout`` seconds passed.

        Returns:
            ``ready()`` as it was last; raises nothing: `check` tells why it is False.
        """
        with condition:
            if ready():
                return True

        def wake() -> None:
            with condition:
                condition.notify_all()

        end = None if timeout is None else time.monotonic() + timeout
        with self._registered(wake), condition:
            while not ready():
                left = self.left()
                if end is not None:
                    left = min(left, end - time.monotonic())
                if left <= 0:
                    return ready()
                condition.wait(left)
            return True

    @contextmanager
    def _registered(self, wake: Callable[[], None]) -> Iterator[None]:
        """As `on_interrupt`, for those who know the deadline themselves."""
        key = object()
        with self._lock:
            self._wakes[key] = wake
        try:
            yield
        finally:
            with self._lock:
                del self._wakes[key]

    def sleep(self, seconds: float) -> None:
        """Pause, for no longer than the statement may go on; QueryCanceled when it is over."""
        self.wait(threading.Condition(), lambda: False, seconds)
        self.check()


_current: ContextVar[Interrupt | None] = ContextVar("mzsql_statement", default=None)


def current() -> Interrupt:
    """The interrupt of the statement that this thread runs; outside of one, one that never falls due."""
    found = _current.get()
    return Interrupt() if found is None else found


class _Running:
    """See `running`."""

    __slots__ = ("_interrupt", "_token")

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt

    def __enter__(self) -> Interrupt:
        self._token = _current.set(self._interrupt)
        return self._interrupt

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def running(interrupt: Interrupt) -> AbstractContextManager[Interrupt]:
    """Run a statement, on this thread: `current` finds it, and backends are called for no longer than it has left."""
    return _Running(interrupt)


def check_for_interrupts() -> None:
    """For work that goes on for long by itself: look whether it should.

    Raises:
        QueryCanceled: the statement that this thread runs is over.
    """
    found = _current.get()
    # As in `check`: planning asks at every node.
    if found is not None and (
        found._cancelled or ((due := found._deadline) is not None and time.monotonic() >= due)
    ):
        found.check()


def on_interrupt(wake: Callable[[], None]) -> AbstractContextManager[None]:
    """`Interrupt.on_interrupt` of the statement that this thread runs; outside of one ``wake`` is never called."""
    found = _current.get()
    return nullcontext() if found is None else found.on_interrupt(wake)


def limit() -> Callable[[], float] | None:
    """What tells the seconds left of the statement that this thread runs, also later and on other threads; None outside of one."""
    found = _current.get()
    return None if found is None else found.left
