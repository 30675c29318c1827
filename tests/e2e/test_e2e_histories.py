"""Histories that real processes record on one environment, while they are killed, stopped and started, are strictly serializable."""

from __future__ import annotations

from pathlib import Path

import pytest
from history_run import check_a_run


@pytest.mark.timeout(180)
@pytest.mark.long
def test_a_history_of_processes_that_come_and_go_is_strictly_serializable(
    env: str, tmp_path: Path
) -> None:
    assert check_a_run(env, tmp_path, 3.0, 1) >= 10


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 7))
def test_long_histories_of_processes_that_come_and_go_are_strictly_serializable(
    env: str, tmp_path: Path, seed: int
) -> None:
    assert check_a_run(env, tmp_path, 40.0, seed) >= 30
