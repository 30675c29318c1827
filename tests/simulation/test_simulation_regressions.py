"""Seeds that once found a bug, each by the bug's name."""

from __future__ import annotations

import pytest
from simulation_run import draw, play

FOUND = {
    "a lagging head names a rollup that is gone": 33,
    "a lagging head seen twice looks like a missing rollup": 3,
    "handles are visited in an order that a replay does not repeat": 6,
}


@pytest.mark.parametrize("bug", FOUND)
def test_it_stays_fixed(bug: str) -> None:
    play(draw(FOUND[bug]))
