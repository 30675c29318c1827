"""Backends that fail before or after they act, or act slowly, by a seeded choice, to run real code against.

Promise: `FaultyBlob`, `FaultyConsensus` and `FaultyOracle` wrap any backend, and have its optional abilities and no other. An operation
fails *before* acting with `Determinate`, or *before or after* acting with `Indeterminate`, each at the rate given; ``heal()`` makes them
reliable and quick again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from mzsql.location import (
    Blob,
    Consensus,
    Determinate,
    Indeterminate,
    TimestampOracle,
    blob_around,
    consensus_around,
)

T = TypeVar("T")


class Faults:
    """Decides which operations fail, and which take long.

    Args:
        seed: of the choice.
        rate: the share of operations that fail.
        slow: the share of operations before which `slow_seconds` pass.
        slow_seconds: how long those take more.
        sleep: how they pass.
    """

    def __init__(
        self,
        seed: int,
        rate: float,
        *,
        slow: float = 0.0,
        slow_seconds: float = 0.01,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - a schedule to replay, not a secret
        self._rate = rate
        self._slow = slow
        self._slow_seconds = slow_seconds
        self._sleep = sleep
        self._lock = threading.Lock()
        self.injected = 0

    def heal(self) -> None:
        """No more failures, and nothing slow."""
        self._rate = self._slow = 0.0

    def run(self, act: Callable[[], T]) -> T:
        """``act()``, or a failure instead of, or after it.

        Raises:
            Determinate: injected; ``act`` was not called.
            Indeterminate: injected; ``act`` was called, or not.
        """
        with self._lock:
            fails = self._rng.random() < self._rate
            how = self._rng.choice(("determinate", "not done", "done"))
            lasts = self._slow > 0 and self._rng.random() < self._slow
            self.injected += fails
        if lasts:
            self._sleep(self._slow_seconds)
        if not fails:
            return act()
        if how == "determinate":
            raise Determinate("injected: refused")
        if how == "done":
            act()
        raise Indeterminate("injected: timed out")

    def around(self, operation: str, act: Callable[[], T], /) -> T:  # noqa: ARG002 - faults come to all alike
        """`run`, as `blob_around` and `consensus_around` take it."""
        return self.run(act)


def FaultyBlob(blob: Blob, faults: Faults) -> Blob:  # noqa: N802 - what it makes is a Blob
    """``blob`` whose every operation may fail."""
    return blob_around(blob, faults.around)


def FaultyConsensus(consensus: Consensus, faults: Faults) -> Consensus:  # noqa: N802 - what it makes is a Consensus
    """``consensus`` whose every operation may fail."""
    return consensus_around(consensus, faults.around)


class FaultyOracle:
    """A timestamp oracle whose every operation may fail."""

    def __init__(self, oracle: TimestampOracle, faults: Faults) -> None:
        self._oracle = oracle
        self._faults = faults

    def write_ts(self) -> int:
        """As `TimestampOracle.write_ts`."""
        return self._faults.run(self._oracle.write_ts)

    def peek_write_ts(self) -> int:
        """As `TimestampOracle.peek_write_ts`."""
        return self._faults.run(self._oracle.peek_write_ts)

    def read_ts(self) -> int:
        """As `TimestampOracle.read_ts`."""
        return self._faults.run(self._oracle.read_ts)

    def apply_write(self, ts: int) -> None:
        """As `TimestampOracle.apply_write`."""
        self._faults.run(lambda: self._oracle.apply_write(ts))

    def close(self) -> None:
        """Close the oracle behind."""
        self._oracle.close()
