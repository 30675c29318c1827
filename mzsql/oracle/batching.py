"""Many callers' `read_ts` in one.

Promise: each caller gets a read timestamp that was read after it called and before it returned, so what it reads is linearizable;
nothing is cached. While one call to the oracle is under way, callers gather; when it returns, one of those waiting makes the next call
for all of them. So a lone caller pays nothing extra, and any number of callers costs two calls at most at a time's distance. Source: the
distributed timestamp oracle design, "batching get_read_ts".
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mzsql.location import Determinate, TimestampOracle


class _Round:
    """One call to the oracle: those who joined before it began share its result."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.callers = 0
        self.ts = 0
        self.failure: Exception | None = None


class BatchingOracle:
    """An oracle whose `read_ts` is shared by concurrent callers; everything else goes straight through.

    Args:
        oracle: the oracle behind.
        observe: told the number of callers of each round.
    """

    def __init__(
        self, oracle: TimestampOracle, *, observe: Callable[[int], None] | None = None
    ) -> None:
        self._oracle = oracle
        self._observe = observe
        self._lock = threading.Lock()
        self._gathering = _Round()
        self._calling = threading.Lock()

    def read_ts(self) -> int:
        """The read timestamp, by a call to the oracle that began after this one.

        Raises:
            LocationError: the shared call failed; each of its callers gets the error.
        """
        with self._lock:
            round_ = self._gathering
            leads = round_.callers == 0
            round_.callers += 1
        if leads:
            self._call(round_)
        round_.done.wait()
        if round_.failure is not None:
            raise round_.failure
        return round_.ts

    def _call(self, round_: _Round) -> None:
        try:
            with self._calling:
                self._end_gathering(round_)
                round_.ts = self._oracle.read_ts()
        except Exception as failure:
            round_.failure = failure
        except BaseException:
            # An interrupt is this thread's own; the others learn only that their call did not happen.
            round_.failure = Determinate("the shared read of the timestamp was interrupted")
            raise
        finally:
            # Also where an interrupt came while this thread waited for its turn: nobody may join a round that is over.
            self._end_gathering(round_)
            round_.done.set()
        if self._observe is not None:
            self._observe(round_.callers)

    def _end_gathering(self, round_: _Round) -> None:
        """From here on callers come too late for the round: its call may see too old a state for them."""
        with self._lock:
            if self._gathering is round_:
                self._gathering = _Round()

    def write_ts(self) -> int:
        """Allocate a timestamp."""
        return self._oracle.write_ts()

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._oracle.peek_write_ts()

    def apply_write(self, ts: int) -> None:
        """Mark the write at ``ts`` complete."""
        self._oracle.apply_write(ts)

    def close(self) -> None:
        """Close the oracle behind."""
        self._oracle.close()
