"""Backends that fail before or after they act, by a seeded choice, to run real code against.

Promise: `FaultyBlob` and `FaultyConsensus` wrap any backend. An operation fails *before* acting with `Determinate`, or *before or after*
acting with `Indeterminate`, each at the rate given; ``heal()`` makes them reliable again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from mzsql.location import Blob, Consensus, Determinate, Indeterminate, Versioned

T = TypeVar("T")


class Faults:
    """Decides which operations fail.

    Args:
        seed: of the choice.
        rate: the share of operations that fail.
    """

    def __init__(self, seed: int, rate: float) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - a schedule to replay, not a secret
        self._rate = rate
        self._lock = threading.Lock()
        self.injected = 0

    def heal(self) -> None:
        """No more failures."""
        self._rate = 0.0

    def run(self, act: Callable[[], T]) -> T:
        """``act()``, or a failure instead of, or after it."""
        with self._lock:
            fails = self._rng.random() < self._rate
            how = self._rng.choice(("determinate", "not done", "done"))
            self.injected += fails
        if not fails:
            return act()
        if how == "determinate":
            raise Determinate("injected: refused")
        if how == "done":
            act()
        raise Indeterminate("injected: timed out")


class FaultyBlob:
    """A Blob whose every operation may fail."""

    def __init__(self, blob: Blob, faults: Faults) -> None:
        self._blob = blob
        self._faults = faults

    def get(self, key: str) -> bytes | None:
        """The value of ``key``, or `None`."""
        return self._faults.run(lambda: self._blob.get(key))

    def set(self, key: str, value: bytes) -> None:
        """Map ``key`` to ``value``."""
        self._faults.run(lambda: self._blob.set(key, value))

    def delete(self, key: str) -> int | None:
        """Remove ``key``."""
        return self._faults.run(lambda: self._blob.delete(key))

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Each key that starts with ``prefix``, with its size."""
        return self._faults.run(lambda: iter(list(self._blob.list_keys_and_metadata(prefix))))

    def close(self) -> None:
        """Close the Blob behind."""
        self._blob.close()


class FaultyConsensus:
    """A Consensus whose every operation may fail."""

    def __init__(self, consensus: Consensus, faults: Faults) -> None:
        self._consensus = consensus
        self._faults = faults

    def head(self, key: str) -> Versioned | None:
        """The newest entry, or `None`."""
        return self._faults.run(lambda: self._consensus.head(key))

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        """Append ``new`` iff the newest seqno is ``expected``."""
        return self._faults.run(lambda: self._consensus.compare_and_set(key, expected, new))

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        """At most ``limit`` entries from ``from_seqno`` on."""
        return self._faults.run(lambda: self._consensus.scan(key, from_seqno, limit))

    def truncate(self, key: str, seqno: int) -> int:
        """Remove the entries below ``seqno``."""
        return self._faults.run(lambda: self._consensus.truncate(key, seqno))

    def list_keys(self) -> Iterator[str]:
        """Every key that has an entry."""
        return self._faults.run(lambda: iter(list(self._consensus.list_keys())))

    def close(self) -> None:
        """Close the Consensus behind."""
        self._consensus.close()
