"""Retries of idempotent backend calls, within a deadline.

Trade-off: a loop of our own rather than tenacity's, because clock, pauses and randomness are passed in, which a
simulator needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from mzsql.location.errors import Determinate, Indeterminate
from mzsql.persist.clock import Clock, Deadline

T = TypeVar("T")

#: Called with failures after which something is tried again, if a caller on this thread has asked for it (`troubles`).
_tells: ContextVar[Callable[[BaseException], None] | None] = ContextVar(
    "mzsql_troubles", default=None
)


@contextmanager
def troubles(tell: Callable[[BaseException], None]) -> Iterator[None]:
    """Within the block, on this thread, have ``tell`` called with each failure that is tried again, so that a timeout
    can name its cause.
    """
    token = _tells.set(tell)
    try:
        yield
    finally:
        _tells.reset(token)


def troubled(failure: BaseException) -> None:
    """Report a failure that may be tried again to the caller on this thread that has asked for it (`troubles`)."""
    tell = _tells.get()
    if tell is not None:
        tell(failure)


_FIRST_PAUSE = 0.005
_LAST_PAUSE = 2.0


class Backoff:
    """Pauses that double, with full jitter, and end with the deadline.

    Source: AWS Architecture Blog, "Exponential Backoff And Jitter".
    """

    def __init__(self, clock: Clock, rng: random.Random, deadline: Deadline) -> None:
        self._clock = clock
        self._rng = rng
        self._deadline = deadline
        self._ceiling = _FIRST_PAUSE

    def pause(self) -> bool:
        """Sleep; return `False`, at once, if the deadline has passed."""
        remaining = self._deadline.remaining()
        if remaining <= 0:
            return False
        self._clock.sleep(min(remaining, self._rng.uniform(0, self._ceiling)))
        self._ceiling = min(self._ceiling * 2, _LAST_PAUSE)
        return True


def retrying(
    act: Callable[[], T],
    clock: Clock,
    rng: random.Random,
    deadline: Deadline,
    *,
    abandoned: Callable[[], bool],
    retried: Callable[[], None] | None = None,
) -> T:
    """Call ``act()``, again after each location error, until the deadline or ``abandoned()``; ``act`` must be
    idempotent.

    ``retried()`` is called before each further attempt.

    Raises:
        Determinate, Indeterminate: the last error, once the deadline has passed or the call was abandoned.
    """
    backoff = Backoff(clock, rng, deadline)
    while True:
        try:
            return act()
        except (Determinate, Indeterminate) as failure:
            troubled(failure)
            if abandoned() or not backoff.pause():
                raise
            if retried is not None:
                retried()
