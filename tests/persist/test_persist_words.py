"""Words of values, against Arrow's own comparison of them; and small updates that are left as they are."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mzsql.persist.consolidate import consolidate
from mzsql.persist.words import all_distinct, integers_of, words_of

TYPES = {
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-3, 3),
    pa.int64(): st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**32]),
    pa.uint64(): st.sampled_from([0, 1, 2**64 - 1, 2**32]),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1)),
    pa.decimal128(38, 2): st.sampled_from(
        [
            Decimal(0),
            Decimal("0.01"),
            Decimal("-0.01"),
            Decimal("184467440737095516.16"),
            Decimal(2) ** 90,
        ]
    ),
}


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    typ = draw(st.sampled_from(list(TYPES)))
    values = draw(st.lists(TYPES[typ], min_size=0, max_size=12))
    begin = draw(st.integers(0, len(values)))
    return pa.array(values, typ)[begin:]


@given(columns())
def test_words_are_equal_where_values_are(column: pa.Array) -> None:
    words = words_of(column)
    if words is None:
        assert not len(column)  # Arrow keeps no values of no rows
        return
    for shift in range(1, len(column)):
        same = np.ones(len(column) - shift, np.bool_)
        for word in words:
            same &= word[shift:] == word[:-shift]
        assert same.tolist() == pc.equal(column[shift:], column[:-shift]).to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None]),
        pa.array([0.0, -0.0]),
        pa.array(["a", "b"]),
        pa.array([True, False]),
        pa.array([[1], [2]]),
    ],
)
def test_nothing_is_said_of_other_columns(column: pa.Array) -> None:
    assert words_of(column) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 2)), max_size=8))
def test_rows_that_are_told_to_be_distinct_are(rows: list[tuple[int, str, int]]) -> None:
    a, b, c = (list(one) for one in zip(*rows, strict=True)) if rows else ([], [], [])
    table = pa.table(
        {"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.string()), "c": pa.array(c, pa.int32())}
    )
    told = all_distinct(table)
    assert not told or len(set(rows)) == len(rows)
    # Numbers alone tell of these.
    assert told == (len({(x, z) for x, _, z in rows}) == len(rows))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from([None, "x"]), st.integers(0, 1), st.integers(-1, 1)
        ),
        max_size=7,
    )
)
def test_few_updates_are_consolidated_like_many(
    rows: list[tuple[int, str | None, int, int]],
) -> None:
    sums: dict[tuple[int, str | None, int], int] = {}
    for k, text, time, diff in rows:
        sums[k, text, time] = sums.get((k, text, time), 0) + diff
    ks, texts, times, diffs = (
        (list(one) for one in zip(*rows, strict=True)) if rows else ([], [], [], [])
    )
    table = pa.table(
        {
            "k": pa.array(ks, pa.int64()),
            "v": pa.array(texts, pa.string()),
            "mz_time": pa.array(times, pa.int64()),
            "mz_diff": pa.array(diffs, pa.int64()),
        }
    )
    found = [tuple(row.values()) for row in consolidate(table).to_pylist()]
    assert sorted(found, key=str) == sorted(
        [(*row, total) for row, total in sums.items() if total], key=str
    )


def test_floats_of_few_updates_get_their_one_form() -> None:
    table = pa.table({"v": [-0.0], "mz_time": [3], "mz_diff": [1]})
    assert str(consolidate(table)["v"][0].as_py()) == "0.0"


@pytest.mark.parametrize("typ", [pa.int8(), pa.uint8(), pa.int64(), pa.uint64()])
@pytest.mark.parametrize("pieces", [[[1, 2]], [[1], [], [2**6]], [[]], []])
def test_integers_are_those_of_the_column(typ: pa.DataType, pieces: list[list[int]]) -> None:
    column = pa.chunked_array([pa.array(one, typ) for one in pieces], typ)
    assert integers_of(column).tolist() == column.to_pylist()


def test_large_unsigned_integers_are_not_negative() -> None:
    assert integers_of(pa.chunked_array([pa.array([2**64 - 1], pa.uint64())])).tolist() == [
        2**64 - 1
    ]


@pytest.mark.parametrize(
    ("typ", "size"), [(pa.int64(), 20), (pa.decimal128(20, 2), 40), (pa.int32(), 9)]
)
def test_what_a_buffer_has_behind_the_values_does_not_matter(typ: pa.DataType, size: int) -> None:
    column = pa.Array.from_buffers(typ, 1, [None, pa.py_buffer(b"\1" + bytes(size - 1))])
    words = words_of(column)
    assert words is not None
    assert words[0].tolist() == [1]
    assert (
        integers_of(pa.chunked_array([column])).tolist() == [1]
        if pa.types.is_integer(typ)
        else True
    )
