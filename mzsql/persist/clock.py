"""The clock, deadlines and identifiers of persist; time and randomness are passed in so that a simulator can provide
them.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Wall time for leases, monotonic time for timeouts, and sleeping."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never decreases."""

    def sleep(self, seconds: float) -> None:
        """Pause the calling thread."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never decreases."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Pause the calling thread."""
        time.sleep(seconds)


class Deadline:
    """The moment by which a call must end; made at its start from its timeout in seconds.

    Args:
        clock: measures the time.
        timeout: seconds from now.
        caller_left: returns the seconds the caller still waits; asked each time, because the caller may cut them
            short (`mzsql.location.deadlines`).
    """

    def __init__(
        self, clock: Clock, timeout: float, caller_left: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self.timeout = timeout
        self._end = clock.monotonic() + timeout
        self._caller_left = caller_left

    def remaining(self) -> float:
        """Return the seconds left; at least 0."""
        left = self._end - self._clock.monotonic()
        if self._caller_left is not None:
            left = min(left, self._caller_left())
        return max(0.0, left)

    def passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining() <= 0

    def progress(self) -> None:
        """Note that a step of the call was done; this does not extend the deadline."""


class Patience(Deadline):
    """A deadline for work of any length that nobody waits for: each step done starts the whole timeout again."""

    def progress(self) -> None:
        """Note that a step of the work was done; the timeout starts again."""
        self._end = self._clock.monotonic() + self.timeout


def new_id(rng: random.Random) -> str:
    """Return a random 128-bit identifier as a UUID's text."""
    h = f"{rng.getrandbits(128):032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def new_timed_id(now_ms: int, rng: random.Random) -> str:
    """Return an identifier that begins with the time (RFC 9562, UUID version 7), so that an object's name tells its
    age.
    """
    bits = (now_ms & (2**48 - 1)) << 80 | 0x7 << 76 | rng.getrandbits(12) << 64
    h = f"{bits | 0b10 << 62 | rng.getrandbits(62):032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def drawn_at(timed_id: str) -> int | None:
    """Return the milliseconds since the epoch at which `new_timed_id` made the identifier; `None` for any other text."""
    try:
        found = uuid.UUID(timed_id)
    except ValueError:
        return None
    return found.int >> 80 if found.version == 7 else None
