"""What a mirror is to hold is as if it had known from the start what an earlier process left, whenever it learns that."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mzsql.storage.managed import Append, Change, Delete, ManagedRow
from mzsql.storage.mirror import Mirror

_rows = st.tuples(st.integers(0, 1), st.integers(0, 2))
_groups = st.tuples(st.integers(0, 1))
_updates = st.lists(st.tuples(_rows, st.sampled_from([1, 1, -1])), max_size=3).map(tuple)
_changes = st.one_of(
    st.builds(Append, _updates, st.one_of(st.none(), _groups)),
    st.integers(0, 2).map(lambda k: Delete(lambda row: row[1] == k)),
)


def _model(left: Counter[ManagedRow], changes: list[Change]) -> Counter[ManagedRow]:
    held = Counter(left)
    for change in changes:
        if isinstance(change, Delete):
            held = Counter({row: n for row, n in held.items() if not change.predicate(row)})
            continue
        if change.anew is not None:
            held = Counter({row: n for row, n in held.items() if (row[0],) != change.anew})
        for row, diff in change.updates:
            held[row] += diff
    return held


def _there(rows: Counter[ManagedRow]) -> dict[ManagedRow, int]:
    return {row: n for row, n in rows.items() if n}


@given(st.lists(_rows, max_size=4), st.lists(_changes, max_size=5), st.lists(_changes, max_size=3))
def test_what_was_left_counts_whenever_it_is_learnt(
    left: list[ManagedRow], before: list[Change], after: list[Change]
) -> None:
    mirror = Mirror((0,))
    for change in before:
        mirror.apply(change)
    assert not mirror.seeded
    for _ in range(2):  # the second time nothing is new
        mirror.seed(Counter(left))
        assert mirror.seeded
        assert _there(mirror.desired()) == _there(_model(Counter(left), before))
    mirror.take()
    written = mirror.desired()
    for change in after:
        mirror.apply(change)
    assert _there(mirror.desired()) == _there(_model(Counter(left), [*before, *after]))
    taken = mirror.take()
    assert all(taken.values())
    written.update(taken)
    assert _there(written) == _there(mirror.desired())
    assert not mirror.take()


def test_without_rows_that_last_there_is_nothing_to_learn() -> None:
    assert Mirror(None).seeded
