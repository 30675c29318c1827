"""Histories that real processes record on one environment, while they are killed, stopped and started, are strictly serializable."""

from __future__ import annotations

from pathlib import Path

import pytest
from history_run import (
    HOUR,
    YEAR,
    check_a_run,
    check_clocks,
    check_history,
    check_timeline,
    wrong_clocks,
)


@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_history_of_processes_that_come_and_go_is_strictly_serializable(
    env: str, tmp_path: Path
) -> None:
    assert check_a_run(env, tmp_path, 3.0, 1) >= 10


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("seed", "seconds"),
    [
        pytest.param(2, 20.0, marks=pytest.mark.long),
        *(pytest.param(n, 40.0, marks=pytest.mark.soak) for n in range(3, 7)),
    ],
)
def test_long_histories_of_processes_that_come_and_go_are_strictly_serializable(
    env: str, tmp_path: Path, seed: int, seconds: float
) -> None:
    assert check_a_run(env, tmp_path, seconds, seed) >= seconds / 4 * 3


@pytest.mark.timeout(600)
def test_processes_with_clocks_wrong_by_hours_are_stopped_and_spoil_nothing(tmp_path: Path) -> None:
    env = str(tmp_path / "env")
    processes = wrong_clocks(env, tmp_path, [(0,), (HOUR,), (0, HOUR, -HOUR, YEAR)])
    check_clocks(processes)
    check_timeline(env)
    assert check_history(processes) >= 10
    right, fast, _ = processes
    assert right.outcomes()["ok", True] > 0
    assert fast.outcomes()["skewed", True] > 0
    assert fast.outcomes()["ok", False] > 0  # what it reads is right


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["no-guard", "stops-others"])
def test_a_guard_that_stops_nobody_or_the_wrong_one_is_found(
    env: str, tmp_path: Path, fault: str
) -> None:
    processes = wrong_clocks(env, tmp_path, [(0,), (HOUR,)], fault)
    with pytest.raises(AssertionError, match=r"by a fast clock|was stopped"):
        check_clocks(processes)
    with pytest.raises(AssertionError, match="ahead of the time"):
        check_timeline(env)
