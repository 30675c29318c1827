"""An oracle that counts and times its operations, for Prometheus.

Promise: for each operation that reaches an implementation: how many were started, succeeded and failed, and how long
they took; how many requests its backend made for them, how many succeeded, failed and were retries; and for batched
reads how many callers shared how many calls, with a histogram of batch sizes. Operations are ``write_ts``,
``peek_write_ts``, ``read_ts``, ``apply_write`` and, where timestamps are served from memory, ``reserve`` (a range of
them), ``confirm_leadership`` and ``open``. Names are Materialize's where it has one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from mzsql.location import TimestampOracle
from mzsql.location.attempts import observing

T = TypeVar("T")

_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LABELS = ("timeline", "op")


class OracleMetrics:
    """The metrics of all oracles of a process; one instance per registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"mz_ts_oracle_{name}", text, _LABELS, registry=registry)

        self.started = counter("started", "Oracle operations started")
        self.succeeded = counter("succeeded", "Oracle operations that succeeded")
        self.failed = counter("failed", "Oracle operations that failed")
        self.retries = counter("retries", "Queries of a backend made again after one failed")
        self.queries_succeeded = counter("queries_succeeded", "Queries of a backend that succeeded")
        self.queries_failed = counter("queries_failed", "Queries of a backend that failed")
        self.seconds = Histogram(
            "mz_ts_oracle_seconds",
            "Seconds an oracle operation took",
            _LABELS,
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
        self.batch_size = Histogram(
            "mz_ts_oracle_batch_size",
            "Reads that shared a call",
            ("timeline",),
            buckets=_SIZES,
            registry=registry,
        )

    def observe_batch(self, timeline: str) -> Callable[[int], None]:
        """The function that a `BatchingOracle` of ``timeline`` calls with each batch's size."""
        ops, batches = self.batched_ops.labels(timeline), self.batches.labels(timeline)
        size = self.batch_size.labels(timeline)

        def observe(callers: int) -> None:
            ops.inc(callers)
            batches.inc()
            size.observe(callers)

        return observe

    def op(self, timeline: str, op: str, *, queries: bool = True) -> OpMetrics:
        """The metrics of one operation; see `OpMetrics`."""
        return OpMetrics(self, timeline, op, queries=queries)


class OpMetrics:
    """The metrics of one operation on one timeline, with labels resolved once.

    Args:
        metrics: the metrics.
        timeline: the timeline label.
        op: the operation label.
        queries: whether to count an operation as one request where the backend does not report its requests.
    """

    def __init__(
        self, metrics: OracleMetrics, timeline: str, op: str, *, queries: bool = True
    ) -> None:
        self._counts_itself = queries
        self._started = metrics.started.labels(timeline, op)
        self._succeeded = metrics.succeeded.labels(timeline, op)
        self._failed = metrics.failed.labels(timeline, op)
        self._seconds = metrics.seconds.labels(timeline, op)
        self._retries = metrics.retries.labels(timeline, op)
        self._queries_succeeded = metrics.queries_succeeded.labels(timeline, op)
        self._queries_failed = metrics.queries_failed.labels(timeline, op)

    def timed(self, act: Callable[[], T]) -> T:
        """Do ``act``, counting and timing it and the requests that it makes."""
        attempts: list[bool] = []
        self._started.inc()
        start = time.perf_counter()
        done = False
        try:
            with observing(attempts.append):
                result = act()
            done = True
        finally:
            self._seconds.observe(time.perf_counter() - start)
            (self._succeeded if done else self._failed).inc()
            self._queries(attempts or ([done] if self._counts_itself else []))
        return result

    def _queries(self, attempts: list[bool]) -> None:
        succeeded = sum(attempts)
        failed = len(attempts) - succeeded
        if succeeded:
            self._queries_succeeded.inc(succeeded)
        if failed:
            self._queries_failed.inc(failed)
            # A failed attempt that another attempt followed was retried.
            self._retries.inc(sum(not one for one in attempts[:-1]))


class MeteredOracle:
    """An oracle whose operations are counted and timed.

    Args:
        oracle: the wrapped oracle.
        timeline: the timeline label.
        metrics: where they are counted.
        queries: whether each operation asks a backend.
    """

    def __init__(
        self,
        oracle: TimestampOracle,
        timeline: str,
        metrics: OracleMetrics,
        *,
        queries: bool = True,
    ) -> None:
        self._oracle = oracle
        self._write_ts = metrics.op(timeline, "write_ts", queries=queries)
        self._peek_write_ts = metrics.op(timeline, "peek_write_ts", queries=queries)
        self._read_ts = metrics.op(timeline, "read_ts", queries=queries)
        self._apply_write = metrics.op(timeline, "apply_write", queries=queries)

    def write_ts(self) -> int:
        """Allocate a timestamp."""
        return self._write_ts.timed(self._oracle.write_ts)

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._peek_write_ts.timed(self._oracle.peek_write_ts)

    def read_ts(self) -> int:
        """The read timestamp."""
        return self._read_ts.timed(self._oracle.read_ts)

    def apply_write(self, ts: int) -> None:
        """Mark the write at ``ts`` complete."""
        self._apply_write.timed(lambda: self._oracle.apply_write(ts))

    def close(self) -> None:
        """Close the wrapped oracle."""
        self._oracle.close()
