"""The simulation finds every known-bad variant of persist and its stores."""

from __future__ import annotations

import pytest
from simulation_mutants import FOUND_BY, MUTANTS, is_found
from simulation_run import draw

WITHIN = 200
"""So many seeds find each mutant; most of them take fewer than five."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str) -> None:
    """By the seed that found it before; should persist have changed what that one does, by a search."""
    known = FOUND_BY.get(name, 0)
    if not any(is_found(name, draw, seed) for seed in (known, *range(WITHIN))):
        raise AssertionError(f"{name}: not found within {WITHIN} seeds")


def test_each_seed_is_of_a_mutant() -> None:
    assert set(FOUND_BY) <= set(MUTANTS)
    assert max(FOUND_BY.values()) < WITHIN
