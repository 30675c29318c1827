"""Schedules with buffered writers and caches of blobs, and the known-bad variants of both."""

from __future__ import annotations

import pytest
from simulation_mutants import BUFFERED_MUTANTS, is_found
from simulation_plans import draw_buffered
from simulation_run import run_all

FOUND_BY = {
    "what failed is not put back": 4,
    "what failed is put back twice": 4,
    "failed appends are acknowledged": 1,
    "doubtful appends are tried again": 10,
    "a flush does not wait": 1,
    "closing does not flush": 1,
    "pushes are not checked": 2,
    "a cache keeps ranges as objects": 1,
    "a cache takes all ranges for one": 1,
    "a cache keeps what came damaged": 742,
}
"""The first seed that finds a mutant: where to look before searching."""

MET = (
    "pushed", "flushed", "buffered done", "buffered failed", "buffered maybe", "buffer closed",
    "buffer broken", "buffer expired", "buffer with a thread", "buffer without a thread",
    "misuse of a buffer refused", "cache memory_hits", "cache directory_hits", "cache misses",
    "process killed", "a snapshot", "listened", "merge", "object deleted",
)  # fmt: skip

WITHIN = 60


@pytest.mark.long
@pytest.mark.parametrize("name", BUFFERED_MUTANTS)
def test_a_mutant_is_found(name: str) -> None:
    known = FOUND_BY[name]
    if not any(is_found(name, draw_buffered, seed) for seed in (known, *range(WITHIN))):
        raise AssertionError(f"{name}: not found within {WITHIN} seeds")


def test_some_schedules() -> None:
    met = run_all(range(5, 7), draw_buffered)
    assert met["pushed"]
    assert met["cache misses"]


@pytest.mark.long
def test_schedules_meet_everything() -> None:
    met = run_all(range(10_000, 10_060), draw_buffered)
    assert not [what for what in MET if not met[what]]
    assert met["buffered done"] > 2 * met["buffered maybe"]
