"""Random queries that are kept up to date while their tables change are what PostgreSQL computes anew."""

from __future__ import annotations

import pytest
from fuzz_engines import Worlds
from fuzz_follow import followed


@pytest.mark.parametrize(
    "start",
    [
        *(pytest.param(start, marks=pytest.mark.long) for start in (0, 10)),
        *(pytest.param(start, marks=pytest.mark.soak) for start in (20, 30)),
    ],
)
def test_subscriptions_add_up_to_the_query_after_every_change(worlds: Worlds, start: int) -> None:
    found = [told for seed in range(start, start + 10) for told in followed(worlds, seed)]
    assert not found, f"{len(found)} differ\n\n" + "\n\n".join(found[:3])
