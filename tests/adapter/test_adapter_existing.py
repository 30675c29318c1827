"""What rows about very many shards are computed from is fetched ahead of them."""

from __future__ import annotations

import pytest

from mzsql.adapter.system import existing
from mzsql.adapter.system.existing import FetchedAhead
from mzsql.repr.errors import DataError

SHARDS = [f"s{n}" for n in range(2000)]


class Store:
    """Shards of which every other one exists, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def shard_ids(self) -> frozenset[str]:
        return frozenset(SHARDS[::2])

    def fetch(self, shards):
        self.asked.append(len(shards))
        return {one: int(one[1:]) for one in shards if int(one[1:]) % 2 == 0}

    def ahead(self) -> FetchedAhead[int]:
        return FetchedAhead(self, SHARDS, self.fetch, -1)


def held(shard: str) -> int:
    return int(shard[1:]) if int(shard[1:]) % 2 == 0 else -1


def test_all_in_order_take_few_requests_of_bounded_size() -> None:
    store = Store()
    ahead = store.ahead()
    assert [ahead.of(one) for one in SHARDS] == [held(one) for one in SHARDS]
    assert len(store.asked) < 16
    assert max(store.asked) <= existing._MOST


def test_what_is_left_out_on_the_way_does_not_end_it() -> None:
    store = Store()
    ahead = store.ahead()
    wanted = [one for n, one in enumerate(SHARDS) if n % 5]
    assert [ahead.of(one) for one in wanted] == [held(one) for one in wanted]
    assert len(store.asked) < 16


def test_what_is_asked_for_here_and_there_is_fetched_alone() -> None:
    store = Store()
    ahead = store.ahead()
    wanted = SHARDS[1800::-300]
    assert [ahead.of(one) for one in [*wanted, "s77777", "s4"]] == [
        *(held(one) for one in wanted),
        -1,
        4,
    ]
    assert max(store.asked) <= 2


@pytest.mark.parametrize("few", [0, 10_000])
def test_whether_shards_exist_is_asked_at_once_or_one_by_one(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "_FEW", few)
    store = Store()
    ahead = store.ahead()
    assert [ahead.of(one) for one in SHARDS] == [held(one) for one in SHARDS]
    assert sum(store.asked) == (len(SHARDS) if few else len(SHARDS) // 2)


def test_one_that_cannot_be_read_keeps_no_other_from_being_told() -> None:
    class Damaged(Store):
        def fetch(self, shards):
            if "s1000" in shards:
                raise DataError("s1000 is damaged")
            return super().fetch(shards)

    store = Damaged()
    ahead = store.ahead()
    for one in SHARDS:
        if one == "s1000":
            with pytest.raises(DataError, match="s1000 is damaged"):
                ahead.of(one)
        else:
            assert ahead.of(one) == held(one)
    assert len(store.asked) < 60
