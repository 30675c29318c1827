"""The simulation finds every known-bad variant of persist and its stores."""

from __future__ import annotations

import pytest
from simulation_mutants import MUTANTS, mutated
from simulation_run import draw, play

WITHIN = 120
"""So many seeds find each mutant …"""
RARE: dict[str, int] = {}
"""… but for those that take a rare schedule, named here by its seed."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str) -> None:
    seeds = [RARE[name]] if name in RARE else range(WITHIN)
    for seed in seeds:
        try:
            with mutated(name):
                play(draw(seed))
        except Exception:
            play(draw(seed))  # which is the mutant's fault alone
            return
    raise AssertionError(f"{name}: not found within {WITHIN} seeds")
