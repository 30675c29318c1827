"""The first rows of a trace's keys, against a list of updates that is sorted whole; and views that need no more than these."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.compute.engines.driver import Driver
from mzsql.compute.replica.arrangements import trace as traces
from mzsql.compute.replica.arrangements.ordering import Ordering
from mzsql.compute.replica.arrangements.run_files import RunFiles
from mzsql.compute.replica.arrangements.runs import key_hashes
from mzsql.compute.replica.arrangements.trace import Trace
from mzsql.expr.scalar import ColumnOrder
from mzsql.persist import KeySpec
from mzsql.persist.consolidate import consolidate

_driver = Driver()

_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [0, 1, -1, 7, None]),
    "double": (pa.float64(), [0.0, -0.0, -1.5, 1e300, float("-inf"), float("nan"), None]),
    "real": (pa.float32(), [0.0, -1.5, float("nan"), None]),
    "text": (pa.string(), ["", "a", "B", "ä", "\U0001f600", "\uffff", None]),
    "bool": (pa.bool_(), [True, False, None]),
}


def hasher(table: pa.Table) -> Any:
    return _driver.run('SELECT hash("c0") AS h FROM t', {"t": table})["h"].to_numpy()


def place(value: Any, order: ColumnOrder) -> tuple[Any, ...]:
    """Where a value stands in a column's order: NULLs as told, NaN above all, texts by bytes."""
    if value is None:
        return (1 if order.nulls_last else -1,)
    if isinstance(value, float):
        value = (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    return (0, value.encode() if isinstance(value, str) else value)


def before(one: tuple[Any, ...], other: tuple[Any, ...], orders: list[ColumnOrder]) -> int:
    for order in orders:
        a, b = place(one[order.column], order), place(other[order.column], order)
        if a != b:
            less = a < b if a[0] or b[0] or not order.desc else b < a
            return -1 if less else 1
    return 0


def row_key(row: tuple[Any, ...]) -> str:
    return repr([v + 0.0 if isinstance(v, float) else v for v in row])


@st.composite
def histories(draw: st.DrawFn) -> Any:
    keys = draw(st.integers(0, 1))
    types = ["int"] * keys + draw(
        st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=3)
    )
    row = st.tuples(*(st.sampled_from(_VALUES[name][1]) for name in types))
    batches = draw(
        st.lists(
            st.lists(st.tuples(row, st.sampled_from([1, 1, 2, -1])), max_size=12),
            min_size=1,
            max_size=40,
        )
    )
    flags = st.tuples(st.booleans(), st.booleans())
    orders = [ColumnOrder(keys + i, *draw(flags)) for i in range(len(types) - keys)]
    orders = orders[: draw(st.integers(1, len(orders)))]
    return types, keys, orders, batches


@settings(max_examples=80, deadline=None)
@given(histories(), st.integers(0, 6), st.booleans(), st.booleans(), st.randoms())
def test_first_rows_are_those_of_a_sorted_scan(
    history: Any, need: int, back: bool, mapped: bool, rng: Any
) -> None:
    types, keys, orders, batches = history
    fields = [pa.field(f"c{i}", _VALUES[name][0]) for i, name in enumerate(types)]
    schema = pa.schema([*fields, ("mz_time", pa.int64()), ("mz_diff", pa.int64())])
    spec = KeySpec(columns=tuple(f"c{i}" for i in range(keys)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "MAPPED_BYTES", 0 if mapped else 1 << 20)
        made = Trace(
            schema,
            keys,
            0,
            hasher=hasher,
            consolidated=lambda rows: consolidate(rows, spec),
            files=RunFiles(None, lambda: Path("/tmp")),
            order=Ordering(orders),
        )
        held: Counter[str] = Counter()
        rows_of: dict[str, tuple[Any, ...]] = {}
        for number, batch in enumerate(batches):
            good = []
            for row, diff in batch:
                # No row is there less than no times, as in any collection that is kept.
                name = row_key(row)
                if held[name] + diff >= 0:
                    held[name] += diff
                    rows_of[name] = row
                    good.append((*row, number + 1, diff))
            columns = list(zip(*good, strict=True)) if good else [()] * len(schema)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
            made.add(pa.Table.from_arrays(arrays, schema=schema), rng.randint(0, number + 1))
    as_of = len(batches)
    wanted = [0, 1, 7, None] if keys else [()]
    if keys:
        table = pa.table({"c0": pa.array(wanted, pa.int32())})
        hashes = np.unique(key_hashes(table, hasher))
    else:
        hashes = np.zeros(1, np.uint64)
    found = made.first(hashes, as_of, need, back=back)
    got: Counter[str] = Counter()
    for record in found.found.rows().to_pylist():
        *row, _, diff = record.values()
        rows_of.setdefault(row_key(tuple(row)), tuple(row))
        got[row_key(tuple(row))] += diff
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, count in held.items():
        if count and (not keys or rows_of[name][0] in wanted):
            groups[rows_of[name][0] if keys else ()].append(name)
    for names in groups.values():
        compare = functools.cmp_to_key(lambda a, b: before(rows_of[a], rows_of[b], orders))
        ordered = sorted(names, key=compare, reverse=back)
        taken = 0
        for position, name in enumerate(ordered):
            tied = position and before(rows_of[ordered[position - 1]], rows_of[name], orders) == 0
            if taken >= need and not tied:
                break
            # What is needed is there with all that it comes to, and what ties with it.
            assert got[name] == held[name] or (tied and taken >= need), (name, got, held)
            taken += held[name]
    # Nothing is there with less or more than it comes to.
    assert all(count == held[name] for name, count in got.items() if count)
    assert found.counts.sum() <= sum(held.values())
