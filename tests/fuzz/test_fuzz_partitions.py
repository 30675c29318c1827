"""Ternary logic partitioning and NoREC: what must hold between mzsql's own answers to random queries."""

from __future__ import annotations

import pytest
from fuzz_engines import Worlds
from fuzz_partitions import broken, law_of, told
from fuzz_run import SHARED, tables_of

_EVERY_DAY = 20
#: Of three or four queries each.
_LONG, _PIECE = 150, 75


def _all_hold(worlds: Worlds, seeds: range) -> None:
    found = []
    tables = []
    for seed in seeds:
        if seed % SHARED == 0 or not tables:
            tables = tables_of(seed)
            worlds.load(tables)
        law = law_of(seed, tables)
        if broken(worlds, law):
            found.append(told(worlds, law, seed, tables))
    assert not found, f"{len(found)} do not hold\n\n" + "\n\n".join(found[:3])


def test_the_parts_of_a_relation_are_the_whole(worlds: Worlds) -> None:
    _all_hold(worlds, range(_EVERY_DAY))


@pytest.mark.long
@pytest.mark.parametrize("start", range(10_000, 10_000 + _LONG, _PIECE))
def test_the_parts_of_many_relations_are_the_whole(worlds: Worlds, start: int) -> None:
    _all_hold(worlds, range(start, start + _PIECE))
