"""The time that a backend's caller will still wait, for backends that can give up before their own limits.

Promise: `seconds_left`, called on the thread that a backend was called on, is the remainder of its caller's timeout,
including that of its statement (`mzsql.repr.interrupt`), or `None` where there is none; with nested limits the
shortest. It is never less than `LEAST_SECONDS`: an operation that is started at all gets the time of a few round trips,
even for a caller that wants a single try. The trade-off: this is a context variable instead of a parameter of every
operation, so that the protocols stay small, and a backend that ignores it is still correct, only slower to give up. A
backend that continues on threads of its own must read it first and pass it along.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from mzsql.repr.interrupt import limit as statement_limit

LEAST_SECONDS = 1.0

Left = Callable[[], float]

_left: ContextVar[Left | None] = ContextVar("mzsql_seconds_left", default=None)


def caller_left() -> float | None:
    """Seconds that the caller still waits, 0 or less where it is late; `None`: no limit. For deciding whether to try
    again.
    """
    left = caller_limit()
    return None if left is None else left()


def caller_limit() -> Left | None:
    """The function that `caller_left` calls, for use later or on another thread: the caller may shorten its limit
    meanwhile.
    """
    return _shorter(_left.get(), statement_limit())


def _shorter(one: Left | None, other: Left | None) -> Left | None:
    if one is None or other is None:
        return other if one is None else one
    return lambda: min(one(), other())


def seconds_left() -> float | None:
    """Seconds that the backend's caller still waits, at least `LEAST_SECONDS`; `None`: no limit."""
    left = caller_left()
    return None if left is None else max(LEAST_SECONDS, left)


def at_most(seconds: float) -> float:
    """``seconds``, a limit of the backend's own, or the caller's remaining time if that is less."""
    left = seconds_left()
    return seconds if left is None else min(seconds, left)


class waiting:  # noqa: N801 (used as a block: ``with waiting(left):``)
    """Limit backend calls, within the block and on this thread, to ``left()`` seconds from any moment on."""

    def __init__(self, left: Left) -> None:
        self._outer: Left | None = None
        self._left = left

    def __enter__(self) -> None:
        self._outer = _left.get()
        _left.set(_shorter(self._outer, self._left))

    def __exit__(self, *failure: object) -> None:
        _left.set(self._outer)
