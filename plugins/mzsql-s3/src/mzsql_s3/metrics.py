"""How many requests went to S3, for whoever pays for them: the Prometheus counter ``mzsql_s3_requests_total{operation}``.

Promise: counting survives a fork at any moment; the counters of prometheus_client itself have locks that a fork leaves locked in the child
when another thread was counting. Trade-off: the process's numbers are our own, collected when somebody asks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class RequestCounts(Collector):
    """Requests of a process by operation, each try counted."""

    def __init__(self) -> None:
        self.forked()
        self._sent: Counter[str] = Counter()

    def forked(self) -> None:
        """In the child: nobody holds the lock."""
        self._lock = threading.Lock()

    def count(self, operation: str) -> None:
        """One more."""
        with self._lock:
            self._sent[operation] += 1

    def sent(self) -> dict[str, int]:
        """The numbers now."""
        with self._lock:
            return dict(self._sent)

    def describe(self) -> Iterator[Metric]:
        """The name alone, for the registry to see that nobody else has it."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        """As Prometheus wants it."""
        family = self._family()
        for operation, number in self.sent().items():
            family.add_metric([operation], number)
        yield family

    def _family(self) -> CounterMetricFamily:
        text = "HTTP requests sent to S3, each try counted"
        return CounterMetricFamily("mzsql_s3_requests", text, labels=["operation"])


REQUESTS = RequestCounts()
REGISTRY.register(REQUESTS)
