"""Statistics of parts from Parquet footers: as those computed from the rows, and never narrower than the rows."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.persist.batch import KeySpec
from mzsql.persist.stats import footer_stats, key_stats, ordinal

_DAYS = [dt.date(1960, 2, 3), None, dt.date(2024, 2, 29), dt.date(1970, 1, 1)]
_NUMBERS = [decimal.Decimal("-3.50"), decimal.Decimal("1.25"), None, decimal.Decimal("0.00")]
_COLUMNS = {
    "bool": pa.array([True, False, None, True]),
    "int8": pa.array([1, -128, None, 127], pa.int8()),
    "uint32": pa.array([1, 2**32 - 1, None, 7], pa.uint32()),
    "uint64": pa.array([1, 2**64 - 1, None, 7], pa.uint64()),
    "int64": pa.array([-(2**63), 2**63 - 1, None, 7], pa.int64()),
    "text": pa.array(["b", "", None, "é"]),
    "long text": pa.array(["b" * 100, "a" * 99, None, "c" * 64 + "\U0010ffff" * 3]),
    "large text": pa.array(["b", "a", None, "c"], pa.large_string()),
    "bytes": pa.array([b"\xff\x01", b"", None, b"\x00"]),
    "fixed bytes": pa.array([b"\xff\x01", b"\x00\x00", None, b"\x00\x01"], pa.binary(2)),
    "date32": pa.array(_DAYS),
    "date64": pa.array(_DAYS, pa.date64()),
    "time s": pa.array([1, 86399, None, 5], pa.time32("s")),
    "time ns": pa.array([1, 86399 * 10**9, None, 5], pa.time64("ns")),
    "timestamp s": pa.array([-1, 2, None, 5], pa.timestamp("s")),
    "timestamp us": pa.array([-1, 2**55, None, 5], pa.timestamp("us")),
    "timestamp ns": pa.array([-1, 2**62, None, 5], pa.timestamp("ns")),
    "timestamptz": pa.array([-1, 2, None, 5], pa.timestamp("us", "UTC")),
    "duration": pa.array([-1, 2, None, 5], pa.duration("us")),
    "decimal 5": pa.array(_NUMBERS, pa.decimal128(5, 2)),
    "decimal 18": pa.array(_NUMBERS, pa.decimal128(18, 2)),
    "decimal 38": pa.array(_NUMBERS, pa.decimal128(38, 2)),
    "decimal 76": pa.array(_NUMBERS, pa.decimal256(76, 2)),
    "nulls": pa.nulls(4, pa.int32()),
    "float": pa.array([1.0, float("nan"), None, -0.0]),
    "float16": pa.array([1.0, 2.0, None, -1.0], pa.float16()),
    "list": pa.array([[1], None, [], [2]]),
}


def _footer(table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


@pytest.mark.parametrize("name", _COLUMNS)
@pytest.mark.parametrize("as_spark", [False, True])
def test_as_from_the_rows(name, as_spark):
    """With every type, in one row group or three, with and without Arrow's own schema in the footer."""
    table = pa.table({name: _COLUMNS[name]})
    [wanted] = key_stats(table, KeySpec((name,)))
    options = {"store_schema": False, "store_decimal_as_integer": True} if as_spark else {}
    for rows in (4, 2, 1):
        footer = _footer(table, row_group_size=rows, **options)
        [found] = footer_stats(footer, table.schema, [name])
        if wanted.known:
            assert found == wanted
        else:
            assert not found.known


def test_what_the_footer_lacks_is_unknown():
    table = pa.table({"a": [1, 2, 3], "b": ["x" * 5000, "y", "z"]})
    [a, b] = footer_stats(_footer(table), table.schema, ["a", "b"])
    assert (a.lo, a.hi, a.nulls, a.known) == (1, 3, 0, True)
    assert not b.known  # too long for the writer to leave it in the footer
    [a, b] = footer_stats(_footer(table, write_statistics=["b"]), table.schema, ["a", "b"])
    assert not a.known


def test_timestamps_as_int96_are_unknown():
    table = pa.table({"t": pa.array([1, 2], pa.timestamp("us"))})
    footer = _footer(table, use_deprecated_int96_timestamps=True)
    [found] = footer_stats(footer, table.schema, ["t"])
    assert not found.known


def test_a_leaf_that_reads_like_a_column():
    struct = pa.array([{"b": 1}, {"b": 2}])
    table = pa.table({"a.b": pa.array([7, 8]), "a": struct})
    [found] = footer_stats(_footer(table), table.schema, ["a.b"])
    assert not found.known
    alone = pa.table({"a.b": pa.array([7, 8])})
    [found] = footer_stats(_footer(alone), alone.schema, ["a.b"])
    assert (found.lo, found.hi) == (7, 8)


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(
        st.one_of(
            st.none(), st.text(max_size=80), st.text("\U0010ffffa", min_size=60, max_size=70)
        ),
        min_size=1,
        max_size=8,
    ),
    rows=st.integers(1, 8),
)
def test_bounds_hold_every_row(values, rows):
    table = pa.table({"c": pa.array(values, pa.string())})
    [found] = footer_stats(_footer(table, row_group_size=rows), table.schema, ["c"])
    present = [value for value in values if value is not None]
    assert found.known
    assert found.nulls == len(values) - len(present)
    if not present:
        assert found.lo is None
        assert found.hi is None
    for value in present:
        assert ordinal(found.lo, pa.string()) <= value <= ordinal(found.hi, pa.string())
