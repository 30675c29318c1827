"""Schedules of refreshes, against all their refreshes written out."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mzsql.compute.replica.step.refreshing import rounded
from mzsql.repr.frontier import MAX_TIMESTAMP
from mzsql.repr.refresh import RefreshEvery, RefreshSchedule, done

_END = 400

everies = st.builds(RefreshEvery, st.integers(1, 90), st.integers(-500, 500))
schedules = st.builds(
    RefreshSchedule,
    st.lists(everies, max_size=3).map(tuple),
    st.lists(st.integers(0, 300), max_size=3).map(lambda ats: tuple(sorted(set(ats)))),
)


def written_out(schedule: RefreshSchedule) -> list[int]:
    found = set(schedule.ats)
    for one in schedule.everies:
        found |= {t for t in range(_END) if (t - one.aligned_to) % one.interval_ms == 0}
    return sorted(found)


@given(schedules, st.integers(0, 300))
def test_refreshes_are_found_from_any_time(schedule: RefreshSchedule, time: int) -> None:
    refreshes = written_out(schedule)
    assert schedule.round_up(time) == min((r for r in refreshes if r >= time), default=None)
    last = max((r for r in refreshes if r < time), default=None)
    assert schedule.last_before(time) == last
    assert schedule.done(time) == (0 if last is None else last + 1)
    assert done(None, time) == time
    assert schedule.done(None) is None


@given(schedules, st.lists(st.integers(0, 300)))
def test_updates_take_effect_at_the_next_refresh(
    schedule: RefreshSchedule, times: list[int]
) -> None:
    updates = pa.table(
        {
            "c0": pa.array(range(len(times)), pa.int32()),
            "mz_time": pa.array(times, pa.int64()),
            "mz_diff": pa.array([1] * len(times), pa.int64()),
        }
    )
    found = rounded(updates, schedule)
    expected = [(n, schedule.round_up(t)) for n, t in enumerate(times)]
    kept = [(n, at) for n, at in expected if at is not None]
    assert list(zip(*(found.column(c).to_pylist() for c in ("c0", "mz_time")), strict=True)) == kept
    assert found.schema == updates.schema


def test_the_last_of_times_is_no_refresh_too_far() -> None:
    every = RefreshSchedule((RefreshEvery(1000, 1),))
    assert every.round_up(MAX_TIMESTAMP) is None
    times = pa.table({"mz_time": pa.array([MAX_TIMESTAMP, 5], pa.int64())})
    assert rounded(times, every).to_pylist() == [{"mz_time": 1001}]
    assert every.last is None
    assert RefreshSchedule((), (3, 9)).last == 9
