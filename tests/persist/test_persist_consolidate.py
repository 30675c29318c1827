"""Consolidation against a plain sum over Python values, for every type a shard may hold."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.persist.consolidate import consolidate

_D = decimal.Decimal
_VALUES = {
    pa.int64(): [0, 1, -(2**63)],
    pa.int16(): [0, 1],
    pa.bool_(): [True, False],
    pa.float64(): [0.0, -0.0, 1.5, float("nan"), -float("nan"), float("inf")],
    pa.float32(): [0.0, -0.0, 1.5, float("nan")],
    pa.string(): ["", "a", "A", "a "],
    pa.large_string(): ["", "b"],
    pa.binary(): [b"", b"\x00", b"\x00\x00"],
    pa.binary(2): [b"ab", b"cd"],
    pa.decimal128(38, 2): [_D("0.00"), _D("999999999999999999999999999999999999.99")],
    pa.date32(): [dt.date(1, 1, 1), dt.date(2020, 1, 1)],
    pa.time64("us"): [dt.time(0), dt.time(23, 59, 59, 999999)],
    pa.timestamp("us"): [dt.datetime(1, 1, 1), dt.datetime(2020, 1, 1)],
    pa.timestamp("us", "UTC"): [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
    pa.list_(pa.int64()): [[], [None], [1, 2]],
    pa.struct([("x", pa.string())]): [{"x": None}, {"x": "y"}],
    pa.map_(pa.string(), pa.int64()): [[("a", 1)], []],
}


def _plain(value):
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return repr(value)


@pytest.mark.parametrize("type_", list(_VALUES), ids=str)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_sums(type_, data):
    update = st.tuples(
        st.sampled_from([None, *_VALUES[type_]]), st.integers(0, 2), st.integers(-2, 2)
    )
    rows = data.draw(st.lists(update, max_size=12))
    schema = pa.schema([("v", type_), ("mz_time", pa.int64()), ("mz_diff", pa.int64())])
    columns = list(zip(*rows, strict=True)) if rows else [[], [], []]
    cut = data.draw(st.integers(0, len(rows)))
    whole = pa.table(
        [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )
    table = pa.concat_tables([whole.slice(0, cut), whole.slice(0, 0), whole.slice(cut)])
    result = consolidate(table)
    assert result.schema.equals(schema)
    wanted = Counter()
    for value, time, diff in zip(*(c.to_pylist() for c in whole.columns), strict=True):
        wanted[(_plain(value), time)] += diff
    found = [
        ((_plain(value), time), diff)
        for value, time, diff in zip(*(c.to_pylist() for c in result.columns), strict=True)
    ]
    assert len(found) == len(dict(found))
    assert dict(found) == {row: diff for row, diff in wanted.items() if diff}
