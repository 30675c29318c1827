"""What wraps any timestamp oracle: batched reads, a bound on clock skew, metrics; and the names of timelines.

`open_oracle` opens one by URL with all of it. An oracle itself is a backend, see `mzsql.location`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from mzsql.location import TimestampOracle
from mzsql.location import open_oracle as open_bare_oracle
from mzsql.oracle.batching import BatchingOracle
from mzsql.oracle.metrics import MeteredOracle, OracleMetrics
from mzsql.oracle.skew import MAX_AHEAD_MS, SkewGuard
from mzsql.oracle.timeline import CATALOG, EPOCH_MS

__all__ = [
    "CATALOG",
    "EPOCH_MS",
    "MAX_AHEAD_MS",
    "BatchingOracle",
    "MeteredOracle",
    "OracleMetrics",
    "SkewGuard",
    "open_oracle",
    "wall_clock_ms",
    "wrap_oracle",
]


def wall_clock_ms() -> int:
    """The machine's wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@functools.cache
def process_metrics() -> OracleMetrics:
    """The metrics in prometheus_client's default registry, made at first use."""
    return OracleMetrics()


def wrap_oracle(
    oracle: TimestampOracle,
    timeline: str,
    now: Callable[[], int] = wall_clock_ms,
    *,
    metrics: OracleMetrics | None = None,
) -> TimestampOracle:
    """``oracle`` metered, guarded against skew (on wall-clock timelines), with batched reads."""
    metrics = process_metrics() if metrics is None else metrics
    metered: TimestampOracle = MeteredOracle(oracle, timeline, metrics)
    if timeline == EPOCH_MS:
        metered = SkewGuard(metered, now)
    return BatchingOracle(metered, observe=metrics.observe_batch(timeline))


def open_oracle(
    url: str,
    timeline: str = EPOCH_MS,
    now: Callable[[], int] = wall_clock_ms,
    *,
    metrics: OracleMetrics | None = None,
) -> TimestampOracle:
    """The oracle of ``timeline`` at ``url`` (``sqlite:./env/oracle.db``), wrapped as by `wrap_oracle`.

    Raises:
        UnknownScheme, InvalidUrl: no plugin serves the URL.
    """
    return wrap_oracle(open_bare_oracle(url, timeline, now), timeline, now, metrics=metrics)
