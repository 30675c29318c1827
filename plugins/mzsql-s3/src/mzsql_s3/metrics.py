"""The number of requests to S3, which cost money: the Prometheus counter ``mzsql_s3_requests_total{operation}``.

Promise: counting survives a fork at any moment, whereas prometheus_client's counters have locks that a fork may leave
locked in the child. Trade-off: the process keeps its own numbers, which a collector reads.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class RequestCounts(Collector):
    """The requests of a process by operation, retries included."""

    def __init__(self) -> None:
        self.forked()
        self._sent: Counter[str] = Counter()

    def forked(self) -> None:
        """In a forked child, replace the lock, which nobody holds there."""
        self._lock = threading.Lock()

    def count(self, operation: str) -> None:
        """Count a request."""
        with self._lock:
            self._sent[operation] += 1

    def sent(self) -> dict[str, int]:
        """The current numbers."""
        with self._lock:
            return dict(self._sent)

    def describe(self) -> Iterator[Metric]:
        """The name alone, so that the registry can detect duplicates."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        """The numbers as Prometheus' metrics."""
        family = self._family()
        for operation, number in self.sent().items():
            family.add_metric([operation], number)
        yield family

    def _family(self) -> CounterMetricFamily:
        text = "HTTP requests sent to S3, each try counted"
        return CounterMetricFamily("mzsql_s3_requests", text, labels=["operation"])


REQUESTS = RequestCounts()
REGISTRY.register(REQUESTS)
