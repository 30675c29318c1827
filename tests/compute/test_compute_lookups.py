"""Ranges cover the keys, exactly where they can, and are never many."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mzsql.compute.replica.arrangements.ranges import merge_ranges
from mzsql.persist.stats import Lookup

KEYS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.none() | st.integers(-300, 300), max_size=400).map(
        lambda v: pa.array(v, pa.int32())
    ),
    st.lists(st.none() | st.text(max_size=3), max_size=200).map(lambda v: pa.array(v, pa.string())),
    st.lists(st.none() | st.dates(), max_size=200).map(lambda v: pa.array(v, pa.date32())),
    st.lists(st.none() | st.integers(-(10**20), 10**20)).map(
        lambda v: pa.array([None if x is None else Decimal(x) for x in v], pa.decimal128(38, 0))
    ),
)


def within(value, ranges):
    if value is None:
        return (None, None) in ranges
    return any(lo is not None and lo <= value <= hi for lo, hi in ranges)


@given(KEYS, st.integers(2, 64))
def test_every_key_is_covered_by_few_ranges(keys, limit):
    ranges = merge_ranges(keys, limit)
    values = keys.to_pylist()
    assert all(within(value, ranges) for value in values)
    assert len(ranges) <= limit + 1
    real = sorted(r for r in ranges if r != (None, None))
    assert all(a[1] < b[0] for a, b in pairwise(real))
    ends = {end for r in real for end in r}
    assert ends <= set(values)
    if len(set(values) - {None}) <= limit:
        assert all(lo == hi for lo, hi in real)


def test_the_widest_gaps_are_left_out():
    keys = pa.array([1, 2, 3, 100, 101, 5000], pa.int64())
    assert sorted(merge_ranges(keys, 3)) == [(1, 3), (100, 101), (5000, 5000)]
    days = pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2026, 1, 1)], pa.date32())
    assert sorted(merge_ranges(days, 2)) == [
        (dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
        (dt.date(2026, 1, 1), dt.date(2026, 1, 1)),
    ]


@pytest.mark.parametrize("typ", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")])
@pytest.mark.parametrize("limit", [1, 2, 64])
def test_ranges_cover_days_that_python_does_not_know(typ, limit):
    day = 1 if pa.types.is_date32(typ) else 86_400_000_000
    numbers = [-800_000 * day, -799_999 * day, 0, 19_000 * day, 2_932_897 * day, 3_000_000 * day]
    integer = pa.int32() if pa.types.is_date32(typ) else pa.int64()
    keys = pa.array([*numbers, None], integer).cast(typ)
    looked = Lookup("k", typ, merge_ranges(keys, limit))
    assert looked.filter(pa.table({"k": keys})).num_rows == len(keys)
