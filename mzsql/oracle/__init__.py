"""Timestamp oracles, wrapped: batched reads, a bound on fast clocks, metrics; the oracle served from memory; switching
between implementations.

`open_oracle` opens an oracle by URL with all of it, `open_switching_oracle` one whose implementation a setting chooses.
The oracles themselves are backends, see `mzsql.location`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from mzsql.location import Clocked, Consensus, TimestampOracle
from mzsql.location import open_oracle as open_bare_oracle
from mzsql.oracle.batching import BatchingOracle
from mzsql.oracle.bounded_clock import MAX_AHEAD_MS, BoundedClock
from mzsql.oracle.errors import ClockSkew, OracleClosed, OracleFenced, OracleReadOnly, OracleTimeout
from mzsql.oracle.in_memory import InMemoryOracle, Serving
from mzsql.oracle.metrics import MeteredOracle, OracleMetrics
from mzsql.oracle.read_only import ReadOnlyOracle
from mzsql.oracle.reservation import Ledger
from mzsql.oracle.skew import SkewGuard
from mzsql.oracle.switching import IMPLEMENTATIONS, SwitchingOracle, Wish
from mzsql.oracle.timeline import CATALOG, EPOCH_MS, WALL_CLOCK

__all__ = [
    "CATALOG",
    "EPOCH_MS",
    "IMPLEMENTATIONS",
    "MAX_AHEAD_MS",
    "BatchingOracle",
    "BoundedClock",
    "ClockSkew",
    "InMemoryOracle",
    "Ledger",
    "MeteredOracle",
    "OracleClosed",
    "OracleFenced",
    "OracleMetrics",
    "OracleReadOnly",
    "OracleTimeout",
    "ReadOnlyOracle",
    "Serving",
    "SkewGuard",
    "SwitchingOracle",
    "Wish",
    "open_oracle",
    "open_switching_oracle",
    "wall_clock_ms",
    "wrap_oracle",
]


def wall_clock_ms() -> int:
    """The machine's wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@functools.cache
def process_metrics() -> OracleMetrics:
    """The metrics in prometheus_client's default registry, created at first use."""
    return OracleMetrics()


def _consult(clock: BoundedClock, bare: object, timeline: str, metrics: OracleMetrics) -> None:
    """Bound ``clock`` by the clock of a backend that has one."""
    if isinstance(bare, Clocked):
        asks = metrics.op(timeline, "clock")
        clock.consult(lambda: asks.timed(bare.clock_ms))


def wrap_oracle(
    oracle: TimestampOracle,
    timeline: str,
    now: Callable[[], int] = wall_clock_ms,
    *,
    metrics: OracleMetrics | None = None,
) -> TimestampOracle:
    """``oracle`` with metrics, a guard against fast clocks (on wall-clock timelines) and batched reads.

    With a `BoundedClock` that the oracle uses too, no jump of the clock gets past the guard.
    """
    metrics = process_metrics() if metrics is None else metrics
    metered: TimestampOracle = MeteredOracle(oracle, timeline, metrics)
    if timeline in WALL_CLOCK:
        clock = now if isinstance(now, BoundedClock) else BoundedClock(now)
        _consult(clock, oracle, timeline, metrics)
        metered = SkewGuard(metered, clock)
    return BatchingOracle(metered, observe=metrics.observe_batch(timeline))


def open_oracle(
    url: str,
    timeline: str = EPOCH_MS,
    now: Callable[[], int] = wall_clock_ms,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    read_only: bool = False,
    metrics: OracleMetrics | None = None,
) -> TimestampOracle:
    """The oracle of ``timeline`` at ``url`` (such as ``sqlite:./env/oracle.db``), wrapped as by `wrap_oracle`.

    Args:
        url: where it is.
        timeline: the timeline.
        now: the wall clock, in milliseconds since the epoch.
        monotonic: seconds of a clock that never jumps.
        read_only: whether it must not be moved; an existing timeline is then opened without a write.
        metrics: where to count; by default prometheus_client's default registry.

    Raises:
        UnknownScheme, InvalidUrl: no plugin serves the URL.
    """
    metrics = process_metrics() if metrics is None else metrics
    clock = BoundedClock(now, monotonic=monotonic)
    now = clock if timeline in WALL_CLOCK else now
    bare = open_bare_oracle(url, timeline, now)
    _consult(clock, bare, timeline, metrics)
    if read_only:
        bare = ReadOnlyOracle(bare)
    return wrap_oracle(bare, timeline, now, metrics=metrics)


def open_switching_oracle(
    url: str,
    consensus: Consensus,
    name: str,
    who: str,
    *,
    wish: Callable[[], Wish],
    ask: Callable[[], Wish],
    timeline: str = EPOCH_MS,
    now: Callable[[], int] = wall_clock_ms,
    read_only: bool = False,
    metrics: OracleMetrics | None = None,
) -> SwitchingOracle:
    """The oracle that the setting names: the one at ``url`` with batched reads, or this process's memory.

    It is not guarded against fast clocks: timestamps handed out before a switch must be carried over, whatever the
    clock says. Put a `SkewGuard` around it, with the `BoundedClock` that it was opened with.

    Args:
        url: where the distributed oracle is.
        consensus: the environment's Consensus store; the caller closes it, after the oracle.
        name: the environment's name, unique among those that the process opens.
        who: this process, for messages.
        wish: gives the setting as last seen, without IO.
        ask: reads the setting.
        timeline: the timeline.
        now: the wall clock, in milliseconds since the epoch.
        read_only: whether nothing may be moved.
        metrics: where to count; by default prometheus_client's default registry.
    """
    metrics = process_metrics() if metrics is None else metrics
    bare = open_bare_oracle(url, timeline, now)
    if isinstance(now, BoundedClock):
        _consult(now, bare, timeline, metrics)
    if read_only:
        bare = ReadOnlyOracle(bare)
    metered = MeteredOracle(bare, timeline, metrics)
    counted = metrics
    return SwitchingOracle(
        BatchingOracle(metered, observe=metrics.observe_batch(timeline)),
        Ledger(consensus, timeline, metrics),
        f"{name}/{timeline}",
        now,
        who,
        wish=wish,
        ask=ask,
        meter=lambda oracle: MeteredOracle(oracle, timeline, counted, queries=False),
        read_only=read_only,
    )
