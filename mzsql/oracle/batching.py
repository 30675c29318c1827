"""Batching: the `read_ts` of many callers in one call.

Promise: each caller gets a read timestamp that was read after it called and before it returned, so its reads are
linearizable; nothing is cached. `mzsql.oracle.sharing` says how callers share, wait and time out. Source: Materialize's
distributed timestamp oracle design, "batching get_read_ts".
"""

from __future__ import annotations

from collections.abc import Callable

from mzsql.location import TimestampOracle
from mzsql.oracle.sharing import SharedCalls


class BatchingOracle:
    """An oracle whose `read_ts` is shared by concurrent callers; other operations pass through.

    Args:
        oracle: the wrapped oracle.
        observe: called with the number of callers of each call.
    """

    def __init__(
        self, oracle: TimestampOracle, *, observe: Callable[[int], None] | None = None
    ) -> None:
        self._oracle = oracle
        self._reads = SharedCalls[int]("the read timestamp", observe=observe)

    def read_ts(self) -> int:
        """The read timestamp, from a call to the oracle that began after this one.

        Raises:
            OracleTimeout: the caller's time was over first.
            LocationError: the shared call failed; each of its callers gets the error.
        """
        return self._reads.share(self._oracle.read_ts)

    @property
    def gathered(self) -> int:
        """The number of callers of `read_ts` that wait for a call that has not begun."""
        return self._reads.gathered

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
        """Close the wrapped oracle."""
        self._oracle.close()
