"""How long a backend's caller still waits: handed down beside the call, for backends that can end earlier than their own limits.

Promise: `seconds_left`, asked on the thread that a backend was called on, is what the caller has left of its timeout, its statement's
(`mzsql.repr.interrupt`) included, or `None` where there is none; inside of several callers' limits it is the shortest one. It never says
less than `LEAST_SECONDS`: an act that is begun at all has the time of a few round trips, also where its caller asks for no more than one
try. Trade-off: ambient, not a parameter of every operation, so that the protocols stay small and a backend that ignores it stays right,
only slower to give up. A backend that goes on on threads of its own asks first and takes the answer along.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from mzsql.repr.interrupt import limit as statement_limit

LEAST_SECONDS = 1.0

Left = Callable[[], float]

_left: ContextVar[Left | None] = ContextVar("mzsql_seconds_left", default=None)


def caller_left() -> float | None:
    """Seconds that the caller still waits, 0 or less when it is late; `None`: it set no limit. For whoever decides whether to try again."""
    left = caller_limit()
    return None if left is None else left()


def caller_limit() -> Left | None:
    """What `caller_left` asks, for whoever asks it again later, perhaps on another thread: a caller may cut its time short."""
    return _shorter(_left.get(), statement_limit())


def _shorter(one: Left | None, other: Left | None) -> Left | None:
    if one is None or other is None:
        return other if one is None else one
    return lambda: min(one(), other())


def seconds_left() -> float | None:
    """Seconds that the caller of the backend still waits, `LEAST_SECONDS` at least; `None`: it set no limit."""
    left = caller_left()
    return None if left is None else max(LEAST_SECONDS, left)


def at_most(seconds: float) -> float:
    """``seconds``, a limit of the backend's own, or what the caller has left where that is less."""
    left = seconds_left()
    return seconds if left is None else min(seconds, left)


class waiting:  # noqa: N801 (used as a block: ``with waiting(left):``)
    """Call backends, within the block and on this thread, for no longer than ``left()`` seconds from any moment."""

    def __init__(self, left: Left) -> None:
        self._outer: Left | None = None
        self._left = left

    def __enter__(self) -> None:
        self._outer = _left.get()
        _left.set(_shorter(self._outer, self._left))

    def __exit__(self, *failure: object) -> None:
        _left.set(self._outer)
