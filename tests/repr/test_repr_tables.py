"""Rows repeated by their counts, in one piece and in several."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mzsql.repr.tables import repeated


@given(
    counts=st.lists(st.integers(0, 7), max_size=12),
    at_once=st.one_of(st.none(), st.integers(1, 9)),
)
def test_rows_are_repeated_in_order(counts: list[int], at_once: int | None) -> None:
    rows = pa.table(
        {"c0": [f"row {i}" for i in range(len(counts))]}, pa.schema({"c0": pa.string()})
    )
    pieces = list(repeated(rows, np.array(counts, dtype=np.int64), at_once))
    wanted = [f"row {i}" for i, count in enumerate(counts) for _ in range(count)]
    assert pa.concat_tables(pieces).column("c0").to_pylist() == wanted
    assert all(one.num_rows == at_once for one in pieces[:-1])
    assert at_once is not None or len(pieces) == 1


@pytest.mark.parametrize("at_once", [1, 1000])
def test_a_row_of_many_copies_is_cut(at_once: int) -> None:
    rows = pa.table({"c0": ["a", "b"]})
    pieces = repeated(rows, np.array([3_000_000_000, 2]), at_once)
    assert next(pieces).column("c0").to_pylist() == ["a"] * at_once
