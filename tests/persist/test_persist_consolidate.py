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

from mzsql.persist import KeySpec
from mzsql.persist.consolidate import consolidate, sort_by_key
from mzsql.repr.errors import DataError

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


#: What additive columns may be, with values whose sums may or may not fit.
_ADDITIVE = {
    pa.int64(): [0, 1, -1, 2**62, -(2**62), 2**63 - 1],
    pa.int16(): [0, 7, -7, 2**14],
    pa.float64(): [0.0, 0.5, -0.5],
    pa.decimal128(38, 2): [_D("0.00"), _D("0.01"), _D("-0.01"), _D(10**36 - 1), _D(1 - 10**36)],
    pa.decimal128(9, 0): [_D(0), _D(5), _D(-(10**9 - 1))],
}


@pytest.mark.parametrize("type_", list(_ADDITIVE), ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_additive_columns(type_, data):
    """Added up beside the diffs; a row goes where all of it is nothing; what does not fit is an error and no other number."""
    update = st.tuples(
        st.integers(0, 1), st.sampled_from([None, *_ADDITIVE[type_]]), st.integers(-1, 1)
    )
    rows = data.draw(st.lists(update, max_size=8))
    schema = pa.schema(
        [("k", pa.int64()), ("s", type_), ("mz_time", pa.int64()), ("mz_diff", pa.int64())]
    )
    keys, values, diffs = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table([keys, pa.array(values, type_), [3] * len(rows), diffs], schema=schema)
    with decimal.localcontext(prec=80):
        wanted = {
            key: (
                sum(v or 0 for k, v, _ in rows if k == key),
                sum(d for k, _, d in rows if k == key),
            )
            for key in keys
        }
    limits = (-(2**63), 2**63 - 1) if type_ == pa.int64() else (-(2**15), 2**15 - 1)
    if pa.types.is_decimal(type_):
        most = _D(10) ** (type_.precision - type_.scale)
        fits = all(-most < total < most for total, _ in wanted.values())
    else:
        fits = pa.types.is_floating(type_) or all(
            limits[0] <= total <= limits[1] for total, _ in wanted.values()
        )
    spec = KeySpec(columns=("k",), workers=1, additive=("s",))
    if not fits:
        with pytest.raises(DataError, match="do not fit"):
            consolidate(table, spec)
        return
    result = consolidate(table, spec)
    assert result.schema.equals(schema)
    found = {row["k"]: (row["s"], row["mz_diff"]) for row in result.to_pylist()}
    assert len(found) == result.num_rows
    assert found == {key: total for key, total in wanted.items() if any(total)}


@pytest.mark.parametrize("rows", [1, 7, 8, 40])
def test_lists_are_consolidated_and_sorted_by_duckdb(rows: int) -> None:
    table = pa.table(
        {
            "items": pa.array([[n % 3, None] for n in range(rows)], pa.list_(pa.int64())),
            "mz_time": pa.array([n % 2 for n in range(rows)], pa.int64()),
            "mz_diff": pa.array([(-1) ** (n // 6) for n in range(rows)], pa.int64()),
        }
    )
    found = Counter[tuple[int, int]]()
    for row in table.to_pylist():
        found[row["items"][0], row["mz_time"]] += row["mz_diff"]
    made = consolidate(table)
    assert made.schema == table.schema
    assert made.num_rows == len({key for key, diff in found.items() if diff})
    assert all(found[row["items"][0], row["mz_time"]] == row["mz_diff"] for row in made.to_pylist())
    in_order = sort_by_key(table, KeySpec(("items",), workers=1)).column("items").to_pylist()
    assert in_order == sorted(in_order, key=lambda items: items[0])
