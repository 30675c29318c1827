"""Updates that were read lately: the same ones again, within bounds."""

from __future__ import annotations

import pyarrow as pa

from mzsql.repr.ids import GlobalId
from mzsql.storage.recent import RecentUpdates


def updates(number: int) -> pa.Table:
    return pa.table({"c0": pa.array(range(number), pa.int64())})


def test_a_span_is_known_by_its_collection_and_its_ends() -> None:
    recent = RecentUpdates()
    recent.keep(GlobalId("u1"), 3, 5, updates(2))
    recent.keep(GlobalId("u2"), 3, 5, updates(4))
    found = recent.get(GlobalId("u1"), 3, 5)
    assert found is not None
    assert found.num_rows == 2
    assert recent.get(GlobalId("u1"), 3, 6) is None
    assert recent.get(GlobalId("u1"), 2, 5) is None


def test_the_span_that_was_not_read_for_longest_goes_first() -> None:
    recent = RecentUpdates(spans=2)
    for time in (1, 2):
        recent.keep(GlobalId("u1"), time, time + 1, updates(1))
    assert recent.get(GlobalId("u1"), 1, 2) is not None
    recent.keep(GlobalId("u1"), 3, 4, updates(1))
    assert recent.get(GlobalId("u1"), 2, 3) is None
    assert recent.get(GlobalId("u1"), 1, 2) is not None


def test_bytes_are_bounded_and_given_back() -> None:
    recent = RecentUpdates(size=8 * 10)
    for _ in range(5):
        recent.keep(GlobalId("u1"), 1, 2, updates(6))
    recent.keep(GlobalId("u1"), 2, 3, updates(4))
    assert recent.get(GlobalId("u1"), 1, 2) is not None
    recent.keep(GlobalId("u1"), 3, 4, updates(1))
    assert recent.get(GlobalId("u1"), 2, 3) is None
    # What alone is too large is not kept, and takes nothing else's place for long.
    recent.keep(GlobalId("u1"), 4, 5, updates(11))
    assert recent.get(GlobalId("u1"), 4, 5) is None


def test_a_dropped_collection_leaves_nothing() -> None:
    recent = RecentUpdates(size=8 * 10)
    for time in (1, 2):
        recent.keep(GlobalId("u1"), time, time + 1, updates(4))
    recent.forget(GlobalId("u1"))
    assert recent.get(GlobalId("u1"), 1, 2) is None
    # Its bytes are free again.
    for time in (1, 2):
        recent.keep(GlobalId("u2"), time, time + 1, updates(5))
    assert recent.get(GlobalId("u2"), 1, 2) is not None
