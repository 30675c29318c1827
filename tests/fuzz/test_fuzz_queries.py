"""Random queries over random tables have PostgreSQL's answers."""

from __future__ import annotations

import pytest
from fuzz_engines import Worlds
from fuzz_run import run

#: With the queries of test_fuzz_partitions, 200 of every day.
_EVERY_DAY = 120
_PIECE = 250
#: Where the pieces of larger queries begin: 500 of them in each change's run, 11,500 more before a release. More are a matter of
#: `make fuzz`, which makes tests of what it finds.
_LONG = range(10_000, 10_500, _PIECE)
_SOAK = [range(10_500, 11_000), *(range(n, n + 1_000) for n in range(11_000, 22_000, 1_000))]


def _all_agree(worlds: Worlds, seeds: range) -> None:
    found = [str(difference) for difference in run(worlds, seeds) if difference is not None]
    assert not found, f"{len(found)} differ\n\n" + "\n\n".join(found[:3])


def test_random_queries_have_the_answers_of_postgresql(worlds: Worlds) -> None:
    _all_agree(worlds, range(_EVERY_DAY))


@pytest.mark.long
@pytest.mark.parametrize("start", _LONG)
def test_many_random_queries_have_the_answers_of_postgresql(worlds: Worlds, start: int) -> None:
    _all_agree(worlds, range(start, start + _PIECE))


@pytest.mark.soak
@pytest.mark.parametrize("seeds", _SOAK, ids=lambda seeds: str(seeds.start))
def test_more_random_queries_have_the_answers_of_postgresql(worlds: Worlds, seeds: range) -> None:
    _all_agree(worlds, seeds)
