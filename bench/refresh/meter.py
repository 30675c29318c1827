"""What a stretch of work costs besides time: processor time, what it asks of Consensus and Blob, Spark's jobs.

Promise: whatever environment is opened after `Meter.install` is counted, on every thread, and counting changes nothing of what is asked.
What is asked on the way of a statement, a group commit or a step stands apart from what is made durable, compacted and followed behind
them, and what is asked within `Meter.aside`, by who measures, is not counted. Processor time is this process's: the JVM that Spark runs in
is another one, whose time is not in it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean
from time import process_time, thread_time
from typing import Any, TypeVar

from figures import median
from pyspark import SparkContext

from mzsql.adapter.environment import opening
from mzsql.location import blob_around, consensus_around, open_blob, open_consensus

T = TypeVar("T")

#: In the names of the threads that work behind.
_BEHIND = ("-flush-", "maintenance", "follow", "leader")
_WRITES = ("compare_and_set", "truncate")
_READS = ("head", "scan", "scan_many", "list_keys")


@dataclass(frozen=True)
class Cost:
    """What was asked for between two moments; `writes` and `reads` are Consensus operations."""

    cpu: float
    writes: int
    writes_behind: int
    reads: int
    reads_behind: int
    blob_bytes: int
    jobs: int


@dataclass(frozen=True)
class Mark:
    """A moment."""

    cpu: float
    jobs: int
    counts: Counter[tuple[str, str]]


class Meter:
    """Opens backends as the registry does, and counts what is asked of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._aside = threading.local()
        self._aside_cpu = 0.0

    def install(self) -> None:
        """Count in all environments that this process opens from now on."""
        opening.default_registry = lambda: self

    def open_blob(self, url: str) -> Any:
        return blob_around(open_blob(url), self._in_blob)

    def open_consensus(self, url: str) -> Any:
        return consensus_around(open_consensus(url), self._in_consensus)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What this thread asks and computes in here is not counted."""
        self._aside.now, begun = True, thread_time()
        try:
            yield
        finally:
            self._aside.now = False
            with self._lock:
                self._aside_cpu += thread_time() - begun

    def mark(self) -> Mark:
        with self._lock:
            return Mark(process_time() - self._aside_cpu, _jobs(), Counter(self._counts))

    def since(self, mark: Mark) -> Cost:
        now = self.mark()
        asked = now.counts - mark.counts

        def of(where: str, kinds: Sequence[str]) -> int:
            return sum(asked[where, kind] for kind in kinds)

        return Cost(
            cpu=now.cpu - mark.cpu,
            writes=of("path", _WRITES),
            writes_behind=of("behind", _WRITES),
            reads=of("path", _READS),
            reads_behind=of("behind", _READS),
            blob_bytes=asked["blob", "bytes"],
            jobs=now.jobs - mark.jobs,
        )

    def _in_consensus(self, operation: str, act: Callable[[], T]) -> T:
        name = threading.current_thread().name
        behind = any(one in name for one in _BEHIND)
        if not getattr(self._aside, "now", False):
            with self._lock:
                self._counts["behind" if behind else "path", operation] += 1
        return act()

    def _in_blob(self, operation: str, act: Callable[[], T]) -> T:
        found = act()
        aside = getattr(self._aside, "now", False)
        if operation in ("get", "get_range") and isinstance(found, bytes) and not aside:
            with self._lock:
                self._counts["blob", "bytes"] += len(found)
        return found


def _jobs() -> int:
    """How many jobs Spark has been given in this process; 0 while there is no Spark."""
    context = SparkContext._active_spark_context
    return 0 if context is None else int(context._jsc.sc().dagScheduler().numTotalJobs())


def columns(costs: Sequence[Cost]) -> dict[str, Any]:
    """Of costs a round: the mean of processor time, as what happens behind falls into some rounds only; of counts the median."""

    def pair(path: str, behind: str) -> str:
        return " + ".join(f"{median([getattr(c, one) for c in costs]):g}" for one in (path, behind))

    return {
        "cpu_ms": mean(c.cpu for c in costs) * 1000,
        "Consensus_writes": pair("writes", "writes_behind"),
        "reads": pair("reads", "reads_behind"),
        "jobs": f"{median([c.jobs for c in costs]):g}",
        "KiB_from_Blob": median([c.blob_bytes for c in costs]) / 1024,
    }
