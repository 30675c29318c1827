"""Batching, metrics and the skew guard, over a real oracle."""

from __future__ import annotations

import signal
import threading

import pytest
from prometheus_client import CollectorRegistry

from mzsql.location import Indeterminate, UsageError
from mzsql.location.mem import MemOracle
from mzsql.oracle import (
    EPOCH_MS,
    BatchingOracle,
    MeteredOracle,
    OracleMetrics,
    SkewGuard,
    open_oracle,
    wrap_oracle,
)
from mzsql.testing import OracleContract


class TestWrapped(OracleContract):
    """The wrappers keep the contract."""

    def open_oracle(self, place, timeline, now):
        return open_oracle(f"sqlite:{place}/o.db", timeline, now)


class _Gated(MemOracle):
    """A MemOracle whose reads wait at a gate, so that callers gather."""

    def __init__(self):
        super().__init__(lambda: 0)
        self.calls = 0
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.fail = False

    def read_ts(self):
        self.calls += 1
        self.entered.set()
        ts = (
            super().read_ts()
        )  # read before the gate: what comes in meanwhile must not be answered with it
        assert self.gate.wait(10)
        if self.fail:
            raise Indeterminate("lost")
        return ts


def _in_threads(count, act):
    results = []

    def run():
        try:
            results.append(act())
        except Exception as failure:
            results.append(failure)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, results


def test_callers_share_a_call_but_never_an_old_one():
    gated = _Gated()
    sizes = []
    oracle = BatchingOracle(gated, observe=sizes.append)
    first, early = _in_threads(1, oracle.read_ts)
    assert gated.entered.wait(10)
    oracle.apply_write(77)  # applied while the first call is under way
    rest, late = _in_threads(20, oracle.read_ts)
    while oracle._gathering.callers < 20:
        threading.Event().wait(0.001)
    gated.gate.set()
    for thread in first + rest:
        thread.join()
    assert early == [0]
    assert late == [77] * 20  # began after the write was applied, so they see it
    assert gated.calls == 2
    assert sizes == [1, 20]


def test_a_failed_call_fails_all_its_callers_and_no_others():
    gated = _Gated()
    oracle = BatchingOracle(gated)
    gated.fail = True
    first, outcome = _in_threads(1, oracle.read_ts)
    assert gated.entered.wait(10)
    gated.gate.set()
    first[0].join()
    assert isinstance(outcome[0], Indeterminate)
    gated.fail = False
    assert oracle.read_ts() == 0


def test_metrics_count():
    registry = CollectorRegistry()
    metrics = OracleMetrics(registry)
    oracle = wrap_oracle(MemOracle(lambda: 5), "t", metrics=metrics)
    oracle.apply_write(oracle.write_ts())
    assert oracle.read_ts() == 5
    with pytest.raises(UsageError):
        oracle.apply_write(-1)

    def value(name, op):
        return registry.get_sample_value(name, {"timeline": "t", "op": op})

    assert value("mz_ts_oracle_started_total", "apply_write") == 2
    assert value("mz_ts_oracle_succeeded_total", "apply_write") == 1
    assert value("mz_ts_oracle_failed_total", "apply_write") == 1
    assert value("mz_ts_oracle_seconds_count", "read_ts") == 1
    assert registry.get_sample_value("mz_ts_oracle_batches_count_total", {"timeline": "t"}) == 1


def test_skew_guard_refuses_far_ahead_writes():
    clock = [100_000]
    inner = MemOracle(lambda: clock[0])
    guard = SkewGuard(inner, lambda: clock[0])
    guard.apply_write(110_000)
    with pytest.raises(UsageError, match="ahead of the clock"):
        guard.apply_write(110_001)
    assert guard.read_ts() == 110_000


def test_skew_guard_waits_for_the_clock():
    clock, slept = [0], []

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += round(seconds * 1000)

    inner = MemOracle(lambda: clock[0])
    guard = SkewGuard(inner, lambda: clock[0], sleep=sleep)
    inner.apply_write(15_000)
    assert guard.write_ts() == 15_001
    assert slept == [pytest.approx(5.001)]
    inner.apply_write(1_000_000)
    with pytest.raises(UsageError, match="ahead of this machine's clock"):
        guard.write_ts()


def test_only_wall_clock_timelines_are_guarded():
    metrics = OracleMetrics(CollectorRegistry())
    assert isinstance(
        wrap_oracle(MemOracle(lambda: 0), EPOCH_MS, metrics=metrics)._oracle, SkewGuard
    )
    assert isinstance(
        wrap_oracle(MemOracle(lambda: 0), "catalog", metrics=metrics)._oracle, MeteredOracle
    )


def test_an_interrupted_leader_leaves_nobody_waiting():
    gated = _Gated()
    oracle = BatchingOracle(gated)
    first, _ = _in_threads(1, oracle.read_ts)
    assert gated.entered.wait(10)

    class Interrupt(BaseException):
        pass

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupt):
            oracle.read_ts()  # leads the second round, which waits for the first
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    later, results = _in_threads(2, oracle.read_ts)
    gated.gate.set()
    for thread in [*first, *later]:
        thread.join(10)
    assert results == [0, 0]
