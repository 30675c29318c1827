"""Thousands of schedules, in two files, as test processes share the work by file: the second half."""

from __future__ import annotations

import pytest
from simulation_run import run_all

FIRST = 12_500
SCHEDULES = 2500
CHUNK = 250
LONG = 250
"""The others are soaked."""


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(n, marks=pytest.mark.long if n < FIRST + LONG else pytest.mark.soak)
        for n in range(FIRST, FIRST + SCHEDULES, CHUNK)
    ],
)
def test_many_schedules(start: int) -> None:
    run_all(range(start, start + CHUNK))
