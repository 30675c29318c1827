"""The order of a keyed part's rows, against Python's own: by key column after column, NULLs last, rows with equal keys as they came."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.persist import KeySpec
from mzsql.persist.consolidate import sort_by_key

_UTC = dt.UTC
_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), -1, 0, 1, 2, 2**63 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.int8(): [-128, -1, 0, 127],
    pa.int32(): [-7, 0, 7],
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 1, 1)],
    pa.time64("us"): [dt.time(0), dt.time(23, 59, 59, 999999)],
    pa.timestamp("us"): [dt.datetime(1, 1, 1), dt.datetime(2020, 1, 1)],
    pa.timestamp("us", "UTC"): [dt.datetime(1960, 1, 1, tzinfo=_UTC), dt.datetime(2020, 1, 1, tzinfo=_UTC)],
    pa.string(): ["", "a", "b"],
    pa.decimal128(12, 2): [decimal.Decimal("-1.50"), decimal.Decimal("0.00")],
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_rows_come_in_the_order_of_their_keys(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 12))
    columns = {}
    for name in data.draw(st.sampled_from(["a", "ab", "abc"])):
        typ = data.draw(st.sampled_from(list(_VALUES)))
        some = data.draw(st.sampled_from([_VALUES[typ], [*_VALUES[typ], None]]))
        columns[name] = pa.array([data.draw(st.sampled_from(some)) for _ in range(rows)], typ)
    table = pa.table({**columns, "place": pa.array(range(rows))})
    key = tuple(data.draw(st.permutations(list(columns))))
    made = sort_by_key(table, KeySpec(columns=key, workers=1))
    wanted = sorted(
        table.to_pylist(),
        key=lambda row: [(True,) if row[name] is None else (False, row[name]) for name in key],
    )
    assert made.to_pylist() == wanted
    assert made.schema == table.schema


def test_what_is_in_order_already_is_not_copied() -> None:
    table = pa.table({"a": [1, 1, 2], "b": ["x", "y", "z"]})
    made = sort_by_key(table, KeySpec(columns=("a",), workers=1))
    assert made.column("b").chunk(0).buffers()[2].address == (
        table.column("b").chunk(0).buffers()[2].address
    )
