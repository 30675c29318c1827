"""The metrics of persist, for Prometheus.

Promise: every public operation and every backend call is timed, and its failures are counted by kind; so are bytes,
retries, lost races, expired leases and the work of maintenance. Series are named ``mzsql_persist_…`` in base units
(seconds, bytes) and labelled only by operation, store and URL scheme, never by shard, key or URL. All clients that
share a registry share its collectors. Trade-off: an operation called by another one is not counted, so that no time
is counted twice.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, ParamSpec, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from mzsql.location import (
    Around,
    Blob,
    Consensus,
    Determinate,
    Indeterminate,
    UsageError,
    blob_around,
    consensus_around,
    split_url,
)
from mzsql.persist.batch import InlinePart, Part
from mzsql.persist.clock import Clock
from mzsql.persist.errors import CorruptPart, MissingPart, ReadTimeout, UpperMismatch

P = ParamSpec("P")
T = TypeVar("T")

ERROR_KINDS = (
    "usage",
    "upper_mismatch",
    "timeout",
    "determinate",
    "indeterminate",
    "damage",
    "other",
)
"""The values of the label ``kind``: an invalid request, a lost race for the upper, a read that timed out, a backend
that certainly did not act, one that may have, an object or entry that is missing or damaged, and anything else.
"""

_BUCKETS = (
    *(0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0),
)


def error_kind(error: BaseException) -> str:
    """Return which of `ERROR_KINDS` an error is."""
    match error:
        case UpperMismatch():
            return "upper_mismatch"
        case UsageError():
            return "usage"
        case ReadTimeout():
            return "timeout"
        case Determinate():
            return "determinate"
        case Indeterminate():
            return "indeterminate"
        case MissingPart() | CorruptPart():
            return "damage"
    return "other"


class Series(NamedTuple):
    """The series of one operation."""

    seconds: Histogram
    errors: dict[str, Counter]


class PersistMetrics:
    """The collectors of one registry; get them from `metrics_of`, which makes them once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        operation, call = ("operation",), ("store", "scheme", "operation")
        self.operation_seconds = self._histogram(
            "operation_seconds",
            "Seconds an operation of a shard took, failed ones included",
            operation,
        )
        self.operation_errors = self._counter(
            "operation_errors", "Operations of shards that failed, by kind", (*operation, "kind")
        )
        self.backend_seconds = self._histogram(
            "backend_seconds",
            "Seconds a call to Blob or Consensus took, failed ones included",
            call,
        )
        self.backend_errors = self._counter(
            "backend_errors", "Calls to Blob or Consensus that failed, by kind", (*call, "kind")
        )
        self.backend_read_bytes = self._counter(
            "backend_read_bytes", "Bytes that calls to Blob or Consensus read", call
        )
        self.backend_written_bytes = self._counter(
            "backend_written_bytes", "Bytes that calls to Blob or Consensus wrote", call
        )
        self._of_state_changes()
        self._of_maintenance()

    def _of_state_changes(self) -> None:
        self.retries = self._counter("retries", "Backend calls tried again after an error")
        self.lost_races = self._counter(
            "lost_compare_and_sets", "State changes made anew because another process was faster"
        )
        self.leases_expired = self._counter(
            "leases_expired", "Handles whose lease was found to have run out", ("handle",)
        )
        self.appended_updates = self._counter("appended_updates", "Updates appended to shards")
        self.appended_bytes = self._counter(
            "appended_bytes", "Encoded bytes appended to shards, inline or as objects", ("place",)
        )
        self.cache_requests = self._counter(
            "cache_requests", "Reads that asked the local cache of objects", ("outcome",)
        )
        self.cache_bytes = self._counter(
            "cache_bytes",
            "Bytes that the local cache gave, or that were read because it had them not",
            ("outcome",),
        )

    def _of_maintenance(self) -> None:
        self.merges = self._counter("merges", "Compactions that became part of a shard")
        self.batches_merged = self._counter("batches_merged", "Batches that compactions replaced")
        self.rollups = self._counter("rollups", "Whole states written to Blob")
        self.objects_deleted = self._counter(
            "garbage_deleted_objects", "Objects that garbage collection deleted"
        )
        self.entries_truncated = self._counter(
            "truncated_entries", "Consensus entries that garbage collection removed"
        )
        self.maintenance_failures = self._counter(
            "maintenance_failures",
            "Rounds of maintenance that failed, to be tried again",
            ("kind",),
        )
        self.leaks_deleted = self._counter(
            "leaked_deleted_objects",
            "Objects and uploads nobody refers to that the leak finder deleted",
        )

    def _counter(self, name: str, help_text: str, labels: Collection[str] = ()) -> Counter:
        return Counter(f"mzsql_persist_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, labels: Collection[str]) -> Histogram:
        return Histogram(
            f"mzsql_persist_{name}", help_text, labels, buckets=_BUCKETS, registry=self.registry
        )


def scheme_of(url: str | None, backend: object) -> str:
    """Return the label for a backend: its URL's scheme, or its class if it has no URL."""
    return type(backend).__name__ if url is None else split_url(url).scheme


_made: weakref.WeakKeyDictionary[CollectorRegistry, PersistMetrics] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def metrics_of(registry: CollectorRegistry | None = None) -> PersistMetrics:
    """Return the collectors in ``registry`` (prometheus_client's default one if `None`), made at first use."""
    registry = REGISTRY if registry is None else registry
    with _making:
        metrics = _made.get(registry)
        if metrics is None:
            metrics = _made[registry] = PersistMetrics(registry)
        return metrics


_inside: ContextVar[bool] = ContextVar("mzsql_persist_inside_an_operation", default=False)


class Meter:
    """One client's access to the metrics; measures time by the client's clock. Thread-safe."""

    def __init__(self, metrics: PersistMetrics, clock: Clock) -> None:
        self.metrics = metrics
        self._now = clock.monotonic
        self._operations: dict[str, Series] = {}

    def operation(self, name: str) -> Series:
        """Return the series of an operation of shards."""
        series = self._operations.get(name)
        if series is None:
            metrics = self.metrics
            errors = {k: metrics.operation_errors.labels(name, k) for k in ERROR_KINDS}
            series = Series(metrics.operation_seconds.labels(name), errors)
            self._operations[name] = series
        return series

    @contextmanager
    def timed(self, operation: str) -> Iterator[None]:
        """Count and time the block as ``operation``."""
        series, start = self.operation(operation), self._now()
        try:
            yield
        except Exception as error:
            series.errors[error_kind(error)].inc()
            raise
        finally:
            series.seconds.observe(self._now() - start)

    def appended(self, parts: Sequence[Part]) -> None:
        """Count updates that were appended."""
        metrics = self.metrics
        for part in parts:
            metrics.appended_updates.inc(part.rows)
            place = "inline" if isinstance(part, InlinePart) else "blob"
            metrics.appended_bytes.labels(place).inc(part.size)

    def cached(self, counts: Mapping[str, int]) -> None:
        """Count what a cache of objects did; keys as in `CacheStats`."""
        metrics = self.metrics
        for name, outcome in (
            ("memory_hits", "memory_hit"),
            ("directory_hits", "directory_hit"),
            ("misses", "miss"),
        ):
            if more := counts.get(name):
                metrics.cache_requests.labels(outcome).inc(more)
        for name, outcome in (("hit_bytes", "hit"), ("missed_bytes", "miss")):
            if more := counts.get(name):
                metrics.cache_bytes.labels(outcome).inc(more)

    def blob(self, inner: Blob, scheme: str) -> Blob:
        """Return ``inner`` with its calls counted and timed."""
        around, wrote = self._calls("blob", scheme)
        return blob_around(inner, around, wrote)

    def consensus(self, inner: Consensus, scheme: str) -> Consensus:
        """Return ``inner`` with its calls counted and timed."""
        around, wrote = self._calls("consensus", scheme)
        return consensus_around(inner, around, wrote)

    def _calls(self, store: str, scheme: str) -> tuple[Around, Callable[[str, int], None]]:
        metrics, now = self.metrics, self._now
        known: dict[str, tuple[Series, Counter, Counter]] = {}

        def made(operation: str) -> tuple[Series, Counter, Counter]:
            labels = (store, scheme, operation)
            errors = {k: metrics.backend_errors.labels(*labels, k) for k in ERROR_KINDS}
            known[operation] = (
                Series(metrics.backend_seconds.labels(*labels), errors),
                metrics.backend_read_bytes.labels(*labels),
                metrics.backend_written_bytes.labels(*labels),
            )
            return known[operation]

        def around(operation: str, act: Callable[[], T], /) -> T:
            series, read, _ = known.get(operation) or made(operation)
            start = now()
            try:
                result = act()
            except Exception as error:
                series.errors[error_kind(error)].inc()
                raise
            finally:
                series.seconds.observe(now() - start)
            if size := _bytes_in(operation, result):
                read.inc(size)
            return result

        def wrote(operation: str, size: int) -> None:
            (known.get(operation) or made(operation))[2].inc(size)

        return around, wrote


def _bytes_in(operation: str, result: Any) -> int:
    """Return the bytes of the values that a call returned."""
    if not result:
        return 0
    match operation:
        case "get" | "get_range":
            return len(result)
        case "head":
            return len(result.data)
        case "scan":
            return sum(len(versioned.data) for versioned in result)
        case "scan_many":
            return sum(len(versioned.data) for log in result.values() for versioned in log)
    return 0


def metered(operation: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a public method: count and time it as ``operation``, with the meter of its object's ``_context``."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(method)
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            if _inside.get():
                return method(*args, **kwargs)
            owner: Any = args[0]
            meter: Meter = owner._context.meter
            series = meter.operation(operation)
            # In a context of its own, so that whatever an interrupt (Ctrl-C) leaves set there ends with the call.
            context = copy_context()
            context.run(_inside.set, True)
            start = meter._now()
            try:
                return context.run(method, *args, **kwargs)
            except Exception as error:
                series.errors[error_kind(error)].inc()
                raise
            finally:
                series.seconds.observe(meter._now() - start)

        return timed

    return decorate
