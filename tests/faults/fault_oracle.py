"""Callers of a timestamp oracle over failing connections, and what they may be told.

By real time: a timestamp is above every one allocated before it was asked for, no two are the same, and what is read is at least
whatever was applied before it was asked for. An allocation that failed may have taken a timestamp, which nobody gets then.
"""

from __future__ import annotations

import itertools
import threading
import time
from functools import partial

from fault_ledger import Ledger
from fault_place import BACKEND_SECONDS, Place

from mzsql.location import TimestampOracle, open_oracle

_TIMELINE = "fault"


class OracleLoad:
    """The workload: two handles and three threads."""

    def __init__(self, place: Place, ledger: Ledger) -> None:
        self._place = place
        self._ledger = ledger
        self._lock = threading.Lock()
        ticks = itertools.count(1)
        self._handles = [
            open_oracle(place.consensus, _TIMELINE, lambda: next(ticks)) for _ in range(2)
        ]
        self._allocated: set[int] = set()
        self._highest = 0
        self._applied = 0

    def start(self) -> None:
        """Begin."""
        for name, oracle in zip("abc", (self._handles[0], *self._handles), strict=True):
            self._ledger.run(name, partial(self._turn, name, oracle))

    def loops(self) -> list[str]:
        """The calls that each loop has to get done to be well."""
        return [
            f"{call} {name}" for call in ("write_ts", "apply_write", "read_ts") for name in "abc"
        ]

    def _turn(self, name: str, oracle: TimestampOracle) -> None:
        highest = self._highest
        found = self._ledger.call(f"write_ts {name}", BACKEND_SECONDS, oracle.write_ts)
        if found.ok:
            ts = found.get()
            with self._lock:
                assert ts > highest, "a timestamp is not above an earlier one"
                assert ts not in self._allocated, "a timestamp was given twice"
                self._allocated.add(ts)
                self._highest = max(self._highest, ts)
            if self._ledger.call(
                f"apply_write {name}", BACKEND_SECONDS, lambda: oracle.apply_write(ts)
            ).ok:
                with self._lock:
                    self._applied = max(self._applied, ts)
        applied = self._applied
        read = self._ledger.call(f"read_ts {name}", BACKEND_SECONDS, oracle.read_ts)
        if read.ok:
            assert read.get() >= applied, "a read timestamp is below a write that was applied"
            peeked = self._ledger.call(f"peek {name}", BACKEND_SECONDS, oracle.peek_write_ts)
            assert not peeked.ok or peeked.get() >= read.get()
        time.sleep(0.03)

    def judge(self) -> None:
        """Another handle sees all that was applied, and goes on above it."""
        oracle = open_oracle(self._place.direct_consensus, _TIMELINE, lambda: 0)
        try:
            assert oracle.read_ts() >= self._applied
            assert oracle.peek_write_ts() >= self._highest
            assert oracle.write_ts() > self._highest
        finally:
            oracle.close()

    def close(self) -> None:
        """Close the handles."""
        for oracle in self._handles:
            oracle.close()
