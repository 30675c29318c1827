"""The simulation finds every known-bad variant of persist and its stores."""

from __future__ import annotations

import pytest
from simulation_mutants import MUTANTS, mutated
from simulation_run import draw, play

WITHIN = 200
"""So many seeds find each mutant; most of them take fewer than five."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str) -> None:
    for seed in range(WITHIN):
        try:
            with mutated(name):
                play(draw(seed))
        except Exception:
            play(draw(seed))  # which is the mutant's fault alone
            return
    raise AssertionError(f"{name}: not found within {WITHIN} seeds")
