"""Consolidation of sorted rows: as an engine that hashes, however the rows are cut into pieces."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.persist.compaction import sort_by_columns
from mzsql.persist.consolidate import consolidate
from mzsql.persist.sorted_consolidation import consolidate_sorted, has_comparable_rows
from mzsql.repr.errors import DataError

SCHEMA = pa.schema(
    [
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("mz_time", pa.int64()),
        ("mz_diff", pa.int64()),
    ]
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("-inf")]),
        st.sampled_from([None, "", "a", "a\0", "ä"]),
        st.sampled_from([None, True, False]),
        st.integers(0, 1),
        st.integers(-2, 2),
    ),
    max_size=60,
)


def table_of(rows):
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def shown(table):
    # 0.0 and -0.0 are one value.
    return sorted(repr((row[0] if row[0] != 0 else 0, *row[1:])) for row in _rows(table))


def _rows(table):
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@settings(deadline=None)
@given(ROWS, st.lists(st.integers(0, 60)))
def test_it_equals_a_hash_aggregation(rows, cuts):
    table = table_of(rows)
    in_order = sort_by_columns(table)
    ends = sorted({min(cut, table.num_rows) for cut in cuts} | {0, table.num_rows})
    pieces = [in_order.slice(a, b - a) for a, b in itertools.pairwise(ends)]
    found = pa.concat_tables([SCHEMA.empty_table(), *consolidate_sorted(pieces)])
    assert found.schema == SCHEMA
    assert shown(found) == shown(consolidate(table))


def test_sums_are_exact_beyond_their_type():
    most = 2**63 - 1
    row = (1.0, "a", True, 0)
    diffs = [most, most, -most, -most, 5]
    pieces = [table_of([(*row, diff)]) for diff in diffs]
    [found] = consolidate_sorted(pieces)
    assert _rows(found) == [(*row, 5)]
    [found] = consolidate_sorted([pa.concat_tables(pieces)])
    assert _rows(found) == [(*row, 5)]
    for given_ in (pieces[:2], [pa.concat_tables(pieces[:2])]):
        with pytest.raises(DataError, match="do not fit"):
            list(consolidate_sorted(given_))


def test_rows_that_cannot_be_compared_are_known():
    assert has_comparable_rows(SCHEMA)
    for type_ in (pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.float16()):
        assert not has_comparable_rows(SCHEMA.append(pa.field("x", type_)))
