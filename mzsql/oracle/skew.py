"""A bound on how far timestamps may run ahead of the time: it stops the machine whose clock is fast, and no other.

Promise: no timestamp is allocated or applied because of a clock more than `MAX_AHEAD_MS` ahead of what others know
(`mzsql.oracle.bounded_clock`). Such a machine gets `ClockSkew` before anything is allocated; nobody else notices. A
timestamp far in the future would make everybody's time run ahead, and let what depends on the time stand still until
the clocks arrive there. A clock that is slow, or has jumped back, stops nobody: timestamps follow the timeline then. A
process that allocates more than one timestamp per millisecond waits for the time instead of running ahead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mzsql.location import TimestampOracle
from mzsql.oracle.bounded_clock import MAX_AHEAD_MS, BoundedClock


class SkewGuard:
    """An oracle that refuses, or waits, instead of running ahead of the time.

    Args:
        oracle: the wrapped oracle.
        now: the wall clock in milliseconds. With a `BoundedClock` that the oracle was opened with too, no jump of the
            clock gets through.
        sleep: pauses for seconds.
        monotonic: seconds of a clock that never jumps, where ``now`` is no `BoundedClock`.
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
        """Allocate a timestamp; where this process allocates faster than time passes, wait until the time is within the
        bound of it.

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
        """Check that `apply_write` would accept ``ts``, before anything else is advanced to it.

        Raises:
            ClockSkew: it would not.
        """
        self._clock.check_applied(ts)

    def present_ms(self) -> int:
        """The time by this machine's clock, or by what others know where the clock is fast; for advancing time without
        a write.
        """
        return self._clock.believed()

    def close(self) -> None:
        """Close the wrapped oracle."""
        self._oracle.close()
