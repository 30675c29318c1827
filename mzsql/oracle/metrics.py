"""An oracle that counts and times its operations, for Prometheus.

Promise: for each operation (``write_ts``, ``peek_write_ts``, ``read_ts``, ``apply_write``) how many were started, succeeded and failed,
and how long they took; and for batched reads how many callers shared how many calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from mzsql.location import TimestampOracle

T = TypeVar("T")

_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class OracleMetrics:
    """The metrics of all oracles of a process; one instance per registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        labels = ("timeline", "op")
        self.started = Counter(
            "mz_ts_oracle_started", "Oracle operations started", labels, registry=registry
        )
        self.succeeded = Counter(
            "mz_ts_oracle_succeeded", "Oracle operations that succeeded", labels, registry=registry
        )
        self.failed = Counter(
            "mz_ts_oracle_failed", "Oracle operations that failed", labels, registry=registry
        )
        self.seconds = Histogram(
            "mz_ts_oracle_seconds",
            "Seconds an oracle operation took",
            labels,
            buckets=_BUCKETS,
            registry=registry,
        )
        self.batched_ops = Counter(
            "mz_ts_oracle_batched_op_count",
            "Reads answered by a shared call",
            ("timeline",),
            registry=registry,
        )
        self.batches = Counter(
            "mz_ts_oracle_batches_count", "Shared calls made", ("timeline",), registry=registry
        )

    def observe_batch(self, timeline: str) -> Callable[[int], None]:
        """What a `BatchingOracle` of ``timeline`` tells the size of each batch."""
        ops, batches = self.batched_ops.labels(timeline), self.batches.labels(timeline)

        def observe(callers: int) -> None:
            ops.inc(callers)
            batches.inc()

        return observe


class MeteredOracle:
    """An oracle whose operations are counted and timed."""

    def __init__(self, oracle: TimestampOracle, timeline: str, metrics: OracleMetrics) -> None:
        self._oracle = oracle
        self._timeline = timeline
        self._metrics = metrics

    def _timed(self, op: str, act: Callable[[], T]) -> T:
        metrics, labels = self._metrics, (self._timeline, op)
        metrics.started.labels(*labels).inc()
        start = time.perf_counter()
        try:
            result = act()
        except BaseException:
            metrics.failed.labels(*labels).inc()
            raise
        finally:
            metrics.seconds.labels(*labels).observe(time.perf_counter() - start)
        metrics.succeeded.labels(*labels).inc()
        return result

    def write_ts(self) -> int:
        """Allocate a timestamp."""
        return self._timed("write_ts", self._oracle.write_ts)

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._timed("peek_write_ts", self._oracle.peek_write_ts)

    def read_ts(self) -> int:
        """The read timestamp."""
        return self._timed("read_ts", self._oracle.read_ts)

    def apply_write(self, ts: int) -> None:
        """Mark the write at ``ts`` complete."""
        self._timed("apply_write", lambda: self._oracle.apply_write(ts))

    def close(self) -> None:
        """Close the oracle behind."""
        self._oracle.close()
