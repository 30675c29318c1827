"""What dataflows share of an arrangement: updates are added once, whoever brings them, and flushed once; nothing waits that is durable."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mzsql.compute.replica.arrangements.hot import Hot
from mzsql.compute.replica.arrangements.merges import Merges
from mzsql.compute.replica.arrangements.run_files import RunFiles
from mzsql.compute.replica.arrangements.trace import FAN, MOST_RUNS, Trace
from mzsql.persist.consolidate import consolidate

_SCHEMA = pa.schema([(name, pa.int64()) for name in ("c0", "mz_time", "mz_diff")])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Shard:
    """A shard that takes what lies at or after its upper."""

    def __init__(self) -> None:
        self.upper = 1
        self.rows: list[tuple[int, int, int]] = []
        self.failing = False

    def append(self, updates: list[pa.Table], lower: int, upper: int | None) -> int:
        if self.failing:
            raise OSError("no space left")
        assert upper is not None
        assert lower < upper
        for table in updates:
            for row in table.to_pylist():
                if row["mz_time"] >= self.upper:
                    self.rows.append(tuple(row.values()))
        self.upper = max(self.upper, upper)
        return self.upper


def rows(*given: tuple[int, int]) -> pa.Table:
    """A key at a time."""
    table = [[key for key, _ in given], [time for _, time in given], [1] * len(given)]
    return pa.table([pa.array(column, pa.int64()) for column in table], schema=_SCHEMA)


def keys(shard: Shard) -> list[int]:
    return sorted(key for key, _, _ in shard.rows)


def test_the_same_updates_count_once_whoever_brings_them() -> None:
    hot, shard = Hot(1, Clock()), Shard()
    assert hot.add(rows((10, 1), (11, 2)), 1, 3) == 3
    # Another dataflow brings them with what comes after them, a third one only what is known.
    assert hot.add(rows((10, 1), (11, 2), (12, 3)), 1, 4) == 4
    assert hot.add(rows((10, 1)), 1, 2) == 4
    assert (hot.upper, hot.durable, hot.behind) == (4, 1, True)
    hot.flush(shard.append)
    assert keys(shard) == [10, 11, 12]
    assert (hot.upper, hot.durable, hot.behind) == (4, 4, False)


def test_what_fails_to_be_flushed_goes_on_waiting() -> None:
    clock = Clock()
    hot, shard = Hot(1, clock), Shard()
    hot.add(rows((10, 1)), 1, 2)
    assert not hot.due(5.0, 1 << 20)
    assert hot.due(5.0, 8)
    clock.now = 6.0
    assert hot.due(5.0, 1 << 20)
    shard.failing = True
    with pytest.raises(OSError, match="no space left"):
        hot.flush(shard.append)
    assert hot.due(5.0, 1 << 20)
    assert hot.durable == 1
    shard.failing = False
    hot.flush(shard.append)
    assert keys(shard) == [10]
    assert not hot.due(0.0, 0)
    hot.flush(shard.append)
    assert keys(shard) == [10]


def test_what_comes_after_the_shard_was_written_beside_a_flush_is_flushed() -> None:
    hot, shard = Hot(1, Clock()), Shard()

    def append(updates: list[pa.Table], lower: int, upper: int | None) -> int:
        # Another dataflow has a large step's updates written by themselves, and the next small step adds to them.
        shard.append([rows((10, 1), (11, 2))], 1, 3)
        hot.settled(3)
        hot.add(rows((12, 3)), 3, 4)
        return shard.append(updates, lower, upper)

    hot.add(rows((10, 1)), 1, 2)
    hot.flush(append)
    assert hot.behind
    hot.flush(shard.append)
    assert keys(shard) == [10, 11, 12]
    assert (hot.durable, shard.upper, hot.behind, hot.due(0.0, 0)) == (4, 4, False, False)


def test_a_shard_follows_without_updates_too() -> None:
    clock = Clock()
    hot, shard = Hot(1, clock), Shard()
    hot.add(rows(), 1, 7)
    assert not hot.due(5.0, 1)
    clock.now = 5.0
    assert hot.due(5.0, 1)
    hot.flush(shard.append)
    # What the updates up to there were made of need not be held any more.
    assert (hot.durable, shard.upper, hot.due(5.0, 1)) == (7, 7, False)


def test_a_shard_that_another_process_has_moved_is_not_gone_back_from() -> None:
    hot, shard = Hot(1, Clock()), Shard()
    shard.append([rows((10, 1), (11, 2))], 1, 3)
    hot.add(rows((10, 1)), 1, 2)
    hot.seen(3)
    # What this process knows is behind the shard: a restart would go on from there, not from the shard's upper.
    assert hot.durable == 2
    hot.add(rows((11, 2), (12, 3)), 2, 4)
    hot.flush(shard.append)
    assert keys(shard) == [10, 11, 12]
    assert hot.durable == 4


def test_a_trace_has_what_the_shard_has_and_what_waits(tmp_path) -> None:
    hot, loads = Hot(1, Clock()), []

    def load(durable):
        loads.append(durable)
        made = Trace(
            _SCHEMA,
            1,
            0,
            hasher=lambda _: None,
            consolidated=consolidate,
            files=RunFiles(None, lambda: tmp_path),
        )
        made.add(rows((9, 0)), 0)
        return made

    hot.add(rows((10, 1)), 1, 2)
    trace = hot.trace(1, 1, load)
    assert sorted(trace.all(1).rows()["c0"].to_pylist()) == [9, 10]
    hot.add(rows((11, 2)), 2, 3)
    assert sorted(hot.trace(1, 2, load).all(2).rows()["c0"].to_pylist()) == [9, 10, 11]
    assert loads == [1]
    hot.cool()
    assert hot.bytes == 0
    assert sorted(hot.trace(1, 2, load).all(2).rows()["c0"].to_pylist()) == [9, 10, 11]
    assert loads == [1, 1]


def test_a_trace_counts_once_what_another_process_has_made_durable(tmp_path) -> None:
    hot, shard = Hot(1, Clock()), Shard()
    shard.append([rows((10, 1), (11, 2), (12, 3))], 1, 4)
    hot.add(rows((10, 1)), 1, 2)
    hot.add(rows((11, 2)), 2, 3)
    hot.seen(4)

    def load(before):
        made = Trace(
            _SCHEMA,
            1,
            0,
            hasher=lambda _: None,
            consolidated=consolidate,
            files=RunFiles(None, lambda: tmp_path),
        )
        made.add(rows(*((key, time) for key, time, _ in shard.rows if time < before)), 0)
        return made

    assert sorted(hot.trace(1, 2, load).all(2).rows()["c0"].to_pylist()) == [10, 11]
    # The next step's own come as ever.
    hot.add(rows((12, 3)), 3, 4)
    assert sorted(hot.trace(1, 3, load).all(3).rows()["c0"].to_pylist()) == [10, 11, 12]


def test_a_trace_keeps_the_times_of_the_slowest_reader(tmp_path) -> None:
    hot = Hot(1, Clock())

    def load(_):
        return Trace(
            _SCHEMA,
            1,
            0,
            hasher=lambda _: None,
            consolidated=consolidate,
            files=RunFiles(None, lambda: tmp_path),
        )

    assert hot.trace(1, 0, load) is not None
    assert hot.trace(2, 0, load) is not None
    for time in range(1, 100):
        hot.add(rows((time, time)), time, time + 1)
        fast = hot.trace(1, time, load)
        assert fast.all(time).count == time
    hot.passed(2, 5)
    slow = hot.trace(2, 5, load)
    assert sorted(slow.all(5).rows()["c0"].to_pylist()) == [1, 2, 3, 4, 5]
    hot.left(2)
    for time in range(100, 200):
        hot.add(rows((time, time)), time, time + 1)
        hot.trace(1, time, load)
    assert hot.trace(3, 5, load) is None


def test_a_trace_is_sorted_and_its_runs_are_merged_when_it_suits(tmp_path) -> None:
    """Told of once for all that is due, and again when something was added; whoever reads before has all of it."""
    jobs: list[Any] = []
    merges = Merges(jobs.append)
    hots = [Hot(1, Clock(), merges.put) for _ in range(2)]

    def load(_):
        return Trace(
            _SCHEMA,
            1,
            0,
            hasher=lambda _: None,
            consolidated=consolidate,
            files=RunFiles(None, lambda: tmp_path),
        )

    def add(time: int) -> None:
        for reader, hot in enumerate(hots):
            hot.add(rows((time, time)), time, time + 1)
            trace = hot.trace(reader, time, load)
            assert sorted(trace.all(time).rows()["c0"].to_pylist()) == list(range(1, time + 1))

    for hot in hots:
        hot.trace(0, 0, load)
    for time in range(1, FAN + 3):
        add(time)
    assert len(jobs) == 1
    for time in range(FAN + 3, FAN + 5):
        for hot in hots:
            hot.add(rows((time, time)), time, time + 1)
    traces = [hot.trace(reader, FAN + 2, load) for reader, hot in enumerate(hots)]
    assert all(one.unsorted for one in traces)
    jobs.pop()()
    assert not any(one.unsorted for one in traces)
    assert all(one.updates == FAN + 4 and len(one.runs) < FAN for one in traces)
    for time in range(FAN + 5, MOST_RUNS * 3):
        add(time)
        if jobs and time % 5 == 0:
            jobs.pop()()
            assert not jobs


def test_a_merge_that_fails_keeps_no_other_from_being_merged(tmp_path) -> None:
    jobs: list[Any] = []
    merges = Merges(jobs.append)
    merged: list[str] = []

    def traced(name: str, *, fails: bool) -> Hot:
        def consolidated(updates: pa.Table) -> pa.Table:
            if fails:
                raise OSError(f"no space left for {name}")
            merged.append(name)
            return consolidate(updates)

        made = Hot(1, Clock(), merges.put)
        trace = Trace(
            _SCHEMA,
            1,
            0,
            hasher=lambda _: None,
            consolidated=consolidated,
            files=RunFiles(None, lambda: tmp_path),
        )
        assert made.trace(1, 0, lambda _: trace) is trace
        return made

    hots = [traced("a", fails=True), traced("b", fails=True), traced("c", fails=False)]
    for hot in hots:
        for time in range(1, FAN + 2):
            hot.add(rows((7, time)), time, time + 1)
    (job,) = jobs
    merged.clear()
    with pytest.raises(OSError, match="no space left for a"):
        job()
    assert merged == ["c"]


def test_a_merge_ends_on_what_is_there_then(tmp_path) -> None:
    """The trace may be dropped, or the arrangement begin anew, while it is made."""
    hot = Hot(1, Clock())
    begun: list[Any] = []

    def load(_):
        made = Trace(
            _SCHEMA,
            1,
            0,
            hasher=lambda _: None,
            consolidated=during,
            files=RunFiles(None, lambda: tmp_path),
        )
        begun.append(made)
        return made

    def during(updates: pa.Table) -> pa.Table:
        hot.settled(50)
        return consolidate(updates)

    assert hot.trace(1, 0, load) is not None
    for time in range(1, FAN + 2):
        hot.add(rows((7, time)), time, time + 1)
    hot.merge()
    assert not hot.loaded
    hot.merge()
    hot.add(rows((8, 50)), 50, 51)
    assert hot.upper == 51
