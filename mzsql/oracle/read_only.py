"""Oracles for a read-only process: they read timestamps and move none.

Promise: nothing here writes, neither to the oracle's backend nor to a timeline's log. Where another process serves
timestamps from its memory, `FollowingOracle` reads at the upper bound of what that process may have handed out: at or
above every applied write, perhaps above future ones. So the reader takes the lesser of it and the time below the
write-ahead log's upper (`Environment.fresh_timestamp`).
"""

from __future__ import annotations

from typing import NoReturn

from mzsql.location import TimestampOracle
from mzsql.oracle.errors import OracleReadOnly
from mzsql.oracle.reservation import Ledger


def refuse(act: str) -> NoReturn:
    """Refuse what a read-only process was about to do; ``act`` names it.

    Raises:
        OracleReadOnly: always.
    """
    raise OracleReadOnly(
        f"cannot {act}: the environment was opened read-only",
        hint="Open the environment without read_only to write.",
    )


class ReadOnlyOracle:
    """An oracle that cannot be moved."""

    def __init__(self, oracle: TimestampOracle) -> None:
        self._oracle = oracle

    def write_ts(self) -> int:
        """Refuse to allocate a timestamp.

        Raises:
            OracleReadOnly: always.
        """
        refuse("allocate a timestamp")

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._oracle.peek_write_ts()

    def read_ts(self) -> int:
        """The read timestamp."""
        return self._oracle.read_ts()

    def apply_write(self, ts: int) -> None:
        """Refuse to move the oracle.

        Raises:
            OracleReadOnly: always.
        """
        refuse(f"apply a write at {ts}")

    def close(self) -> None:
        """Close the wrapped oracle."""
        self._oracle.close()


class FollowingOracle:
    """Reads from the implementation that the timeline's log names at each call; cannot be moved.

    Args:
        distributed: the distributed oracle; the caller closes it.
        ledger: the timeline's log.
    """

    def __init__(self, distributed: TimestampOracle, ledger: Ledger) -> None:
        self._distributed = distributed
        self._ledger = ledger

    def write_ts(self) -> int:
        """Refuse to allocate a timestamp.

        Raises:
            OracleReadOnly: always.
        """
        refuse("allocate a timestamp")

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp, or a later one."""
        _, entry = self._ledger.newest()
        if entry is None or entry.implementation == "distributed":
            return self._distributed.peek_write_ts()
        return entry.bound if entry.write_ts is None else entry.write_ts

    def read_ts(self) -> int:
        """The read timestamp, or an upper bound of what another process may have applied in its memory."""
        _, entry = self._ledger.newest()
        if entry is None or entry.implementation == "distributed":
            return self._distributed.read_ts()
        return entry.bound if entry.read_ts is None else entry.read_ts

    def apply_write(self, ts: int) -> None:
        """Refuse to move the oracle.

        Raises:
            OracleReadOnly: always.
        """
        refuse(f"apply a write at {ts}")

    def close(self) -> None:
        """Nothing to release."""
