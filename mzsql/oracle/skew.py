"""A bound on how far timestamps may run ahead of the time: the machine whose clock is fast is the one that is stopped.

Promise: no timestamp is allocated or applied because of a clock that is more than `MAX_AHEAD_MS` ahead of what others know
(`mzsql.oracle.bounded_clock`). Whoever has such a clock gets `ClockSkew`, before anything was allocated; nobody else notices. A timestamp
far in the future would have everybody's time run ahead, and what depends on the time stand still until the clocks arrive there. A clock
that is slow, or has jumped back, stops nobody: timestamps follow the timeline then. Who allocates more than a timestamp a millisecond
waits for the time instead of running ahead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mzsql.location import TimestampOracle
from mzsql.oracle.bounded_clock import MAX_AHEAD_MS, BoundedClock


class SkewGuard:
    """An oracle that refuses, or waits, rather than run ahead of the time.

    Args:
        oracle: the oracle behind.
        now: the wall clock in milliseconds. A `BoundedClock` that the oracle was opened with bounds what the oracle sees, too: then no
            jump of the clock, at whatever moment, gets through.
        sleep: pauses for seconds.
        monotonic: seconds of the clock that never jumps, where ``now`` is no `BoundedClock`.
        max_ahead_ms: the bound, likewise.
    """

    def __init__(
        self,
        oracle: TimestampOracle,
        now: Callable[[], int],
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        max_ahead_ms: int = MAX_AHEAD_MS,
    ) -> None:
        self._oracle = oracle
        self._clock = (
            now
            if isinstance(now, BoundedClock)
            else BoundedClock(now, monotonic=monotonic, sleep=sleep, max_ahead_ms=max_ahead_ms)
        )
        self._clock.watch(oracle.peek_write_ts)

    def write_ts(self) -> int:
        """Allocate a timestamp; where this process allocates faster than time passes, returns once the time is within the bound of it.

        Raises:
            ClockSkew: this machine's clock is fast; nothing was allocated.
        """
        self._clock.check()
        ts = self._oracle.write_ts()
        self._clock.await_time(ts)
        return ts

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._oracle.peek_write_ts()

    def read_ts(self) -> int:
        """The read timestamp."""
        return self._oracle.read_ts()

    def apply_write(self, ts: int) -> None:
        """Mark the write at ``ts`` complete.

        Raises:
            ClockSkew: ``ts`` is further ahead of the time than the bound; nothing was applied.
        """
        self._clock.check_applied(ts)
        self._oracle.apply_write(ts)

    def check_applied(self, ts: int) -> None:
        """Find out that `apply_write` would take ``ts``, before anything else is moved there; raises what it would."""
        self._clock.check_applied(ts)

    def present_ms(self) -> int:
        """The time by this machine's clock, or, where that is fast, by what others know: for whatever moves time on without a write."""
        return self._clock.believed()

    def close(self) -> None:
        """Close the oracle behind."""
        self._oracle.close()
