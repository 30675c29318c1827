"""How long a backend's caller still waits: handed down beside the call, for backends that can end earlier than their own limits.

Promise: `seconds_left`, asked on the thread that a backend was called on, is what the caller has left of its timeout, or `None` where it
set none; inside of several callers' limits it is the shortest one. It never says less than `LEAST_SECONDS`: an act that is begun at all
has the time of a few round trips, also where its caller asks for no more than one try. Trade-off: ambient, not a parameter of every
operation, so that the protocols stay small and a backend that ignores it stays right, only slower to give up. A backend that goes on
on threads of its own asks first and takes the answer along.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

from mzsql.location.errors import Determinate

LEAST_SECONDS = 1.0

Left = Callable[[], float]
OnInterrupt = Callable[[Callable[[], None]], AbstractContextManager[None]]

_left: ContextVar[Left | None] = ContextVar("mzsql_seconds_left", default=None)
_on_interrupt: ContextVar[OnInterrupt | None] = ContextVar("mzsql_on_interrupt", default=None)


def caller_left() -> float | None:
    """Seconds that the caller still waits, 0 or less when it is late; `None`: it set no limit. For whoever decides whether to try again."""
    left = _left.get()
    return None if left is None else left()


def caller_limit() -> Left | None:
    """What `caller_left` asks, for whoever asks it again later, perhaps on another thread: a caller may cut its time short."""
    return _left.get()


def seconds_left() -> float | None:
    """Seconds that the caller of the backend still waits, `LEAST_SECONDS` at least; `None`: it set no limit."""
    left = caller_left()
    return None if left is None else max(LEAST_SECONDS, left)


def check_caller() -> None:
    """For work that goes on for long by itself: raises Determinate where the caller does not wait for it any longer."""
    left = _left.get()
    if left is not None and left() <= 0:
        raise Determinate("the statement was over before it was planned")


def interruptible(wake: Callable[[], None]) -> AbstractContextManager[None]:
    """A block within which ``wake`` is called, on another thread and perhaps more than once, when the caller does not wait any longer."""
    on_interrupt = _on_interrupt.get()
    return nullcontext() if on_interrupt is None else on_interrupt(wake)


def at_most(seconds: float) -> float:
    """``seconds``, a limit of the backend's own, or what the caller has left where that is less."""
    left = seconds_left()
    return seconds if left is None else min(seconds, left)


class waiting:  # noqa: N801 (used as a block: ``with waiting(left):``)
    """Call backends, within the block and on this thread, for no longer than ``left()`` seconds from any moment.

    ``on_interrupt``, where given, is what `interruptible` asks.
    """

    def __init__(self, left: Left, on_interrupt: OnInterrupt | None = None) -> None:
        self._outer: tuple[Left | None, OnInterrupt | None] = (None, None)
        self._left = left
        self._on_interrupt = on_interrupt

    def __enter__(self) -> None:
        outer, left = _left.get(), self._left
        self._outer = outer, _on_interrupt.get()
        if self._on_interrupt is not None:
            _on_interrupt.set(self._on_interrupt)
        _left.set(left if outer is None else lambda: min(outer(), left()))

    def __exit__(self, *failure: object) -> None:
        left, on_interrupt = self._outer
        _left.set(left)
        _on_interrupt.set(on_interrupt)
