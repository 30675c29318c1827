"""The skew guard, over a real oracle; and that all wrappers together keep the contract."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from mzsql.location import UsageError
from mzsql.location.mem import MemOracle
from mzsql.oracle import (
    CATALOG,
    EPOCH_MS,
    MAX_AHEAD_MS,
    OracleMetrics,
    OracleReadOnly,
    SkewGuard,
    open_oracle,
    wrap_oracle,
)
from mzsql.testing import OracleContract


class TestWrapped(OracleContract):
    """The wrappers keep the contract."""

    def open_oracle(self, place, timeline, now):
        return open_oracle(f"sqlite:{place}/o.db", timeline, now)


def test_the_bound_is_ten_seconds():
    assert MAX_AHEAD_MS == 10_000


def test_far_ahead_writes_are_refused():
    clock = [100_000]
    inner = MemOracle(lambda: clock[0])
    guard = SkewGuard(inner, lambda: clock[0])
    guard.apply_write(110_000)
    with pytest.raises(UsageError, match="ahead of the clock"):
        guard.apply_write(110_001)
    assert guard.read_ts() == 110_000


def test_an_allocation_waits_for_the_clock():
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


@pytest.mark.parametrize("timeline", [EPOCH_MS, CATALOG])
def test_wall_clock_timelines_are_guarded(timeline):
    oracle = wrap_oracle(
        MemOracle(lambda: 0), timeline, lambda: 0, metrics=OracleMetrics(CollectorRegistry())
    )
    with pytest.raises(UsageError, match="ahead of the clock"):
        oracle.apply_write(10**15)


def test_a_timeline_of_other_times_is_not_guarded():
    oracle = wrap_oracle(
        MemOracle(lambda: 0), "steps", lambda: 0, metrics=OracleMetrics(CollectorRegistry())
    )
    oracle.apply_write(10**15)
    assert oracle.read_ts() == 10**15


def test_timelines_have_their_own_timestamps(tmp_path):
    url = f"sqlite:{tmp_path}/o.db"
    tables, catalog = (open_oracle(url, name, lambda: 7) for name in (EPOCH_MS, CATALOG))
    tables.apply_write(tables.write_ts())
    assert (tables.read_ts(), catalog.read_ts()) == (7, 0)
    tables.close()
    catalog.close()


def test_a_read_only_process_moves_nothing(tmp_path):
    url = f"sqlite:{tmp_path}/o.db"
    writer = open_oracle(url, EPOCH_MS, lambda: 7)
    writer.apply_write(writer.write_ts())
    reader = open_oracle(url, EPOCH_MS, lambda: 1_000, read_only=True)
    with pytest.raises(OracleReadOnly, match="read-only") as refused:
        reader.write_ts()
    assert refused.value.sqlstate == "25006"
    with pytest.raises(OracleReadOnly):
        reader.apply_write(8)
    assert (reader.read_ts(), reader.peek_write_ts(), writer.peek_write_ts()) == (7, 7, 7)
    reader.close()
    writer.close()


def test_opening_read_only_asks_for_no_write(tmp_path):
    """The file may be one that the process has no right to change."""
    path = tmp_path / "o.db"
    writer = open_oracle(f"sqlite:{path}", EPOCH_MS, lambda: 7)
    writer.apply_write(writer.write_ts())
    before = writer.read_ts()
    version = _changes(path)
    reader = open_oracle(f"sqlite:{path}", EPOCH_MS, lambda: 9, read_only=True)
    assert reader.read_ts() == before
    assert _changes(path) == version
    reader.close()
    writer.close()


def _changes(path):
    """The size of the log that each commit to the database makes longer."""
    return path.with_name(path.name + "-wal").stat().st_size
