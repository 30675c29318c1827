"""A bound on how far timestamps may run ahead of the wall clock.

Promise: no write timestamp handed out is more than the bound ahead of the clock, and none further ahead is applied. A timestamp far in
the future would stall every strict read until the clock arrives there, so a clock that is wrong is stopped at the writer that has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mzsql.location import TimestampOracle, UsageError

MAX_AHEAD_MS = 10_000


class SkewGuard:
    """An oracle that waits, or refuses, rather than run ahead of the clock.

    Args:
        oracle: the oracle behind.
        now: the wall clock in milliseconds.
        sleep: pauses for seconds.
        max_ahead_ms: the bound.
    """

    def __init__(
        self,
        oracle: TimestampOracle,
        now: Callable[[], int],
        *,
        sleep: Callable[[float], None] = time.sleep,
        max_ahead_ms: int = MAX_AHEAD_MS,
    ) -> None:
        self._oracle = oracle
        self._now = now
        self._sleep = sleep
        self._max_ahead_ms = max_ahead_ms

    def write_ts(self) -> int:
        """Allocate a timestamp; returns once the clock is within the bound of it.

        Raises:
            UsageError: another writer has pushed the timeline more than twice the bound ahead: its clock is wrong, or ours.
        """
        ts = self._oracle.write_ts()
        ahead = ts - self._now()
        if ahead > 2 * self._max_ahead_ms:
            raise UsageError(
                f"the timeline is {ahead / 1000:.1f} s ahead of this machine's clock",
                hint="Set the clock; another machine's may be fast, or this one's slow.",
            )
        while ahead > self._max_ahead_ms:
            self._sleep((ahead - self._max_ahead_ms) / 1000)
            ahead = ts - self._now()
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
            UsageError: ``ts`` is further ahead of the clock than the bound; nothing was applied.
        """
        ahead = ts - self._now()
        if ahead > self._max_ahead_ms:
            raise UsageError(
                f"timestamp {ts} is {ahead / 1000:.1f} s ahead of the clock, "
                f"at most {self._max_ahead_ms / 1000:g} s are allowed",
                hint="Set the clock of the machine the timestamp comes from.",
            )
        self._oracle.apply_write(ts)

    def close(self) -> None:
        """Close the oracle behind."""
        self._oracle.close()
