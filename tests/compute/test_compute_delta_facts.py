"""What is told of a step's updates without measuring them for each dataflow is true of those that matter to it."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mzsql.compute.replica.step import deltas
from mzsql.compute.replica.step.deltas import Delta
from mzsql.compute.replica.step.relation_facts import fact_of, measured

_SCHEMA = pa.schema(
    [
        ("c0", pa.int64()),
        ("c1", pa.int32()),
        ("c2", pa.decimal128(38, 2)),
        ("c3", pa.date32()),
        ("c4", pa.string()),
        ("mz_time", pa.int64()),
        ("mz_diff", pa.int64()),
    ]
)


def _updates(seed: int, rows: int = 50) -> pa.Table:
    rng = random.Random(seed)

    def one(value: object) -> object:
        return None if rng.random() < 0.1 else value

    made = [
        [
            rng.randrange(10 ** rng.randrange(1, 18)),
            one(rng.randrange(-5, 5)),
            one(Decimal(rng.randrange(10**9)).scaleb(-2)),
            one(dt.date(1992, 1, 1) + dt.timedelta(days=rng.randrange(3000))),
            one("x"),
            7,
            rng.choice([1, -1]),
        ]
        for _ in range(rows)
    ]
    columns = zip(*made, strict=True)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_holds_for_all_updates_holds_for_some(seed: int) -> None:
    updates = _updates(seed)
    delta = Delta(SimpleNamespace(), updates.num_rows, updates.nbytes, updates)
    some = updates.filter(pc.greater(updates["c1"], 2))
    columns = set(_SCHEMA.names)
    told = measured(some, columns, delta.fact)
    assert told.covers(measured(some, columns))
    assert told.rows == measured(some, columns).rows
    assert delta.fact("c2") == fact_of(_SCHEMA.field("c2"), updates["c2"])


def test_a_column_is_measured_once_for_all_dataflows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(field: pa.Field, column: pa.ChunkedArray) -> object:
        asked.append(field.name)
        return fact_of(field, column)

    monkeypatch.setattr(deltas, "fact_of", counted)
    updates = _updates(1)
    delta = Delta(SimpleNamespace(), updates.num_rows, updates.nbytes, updates)
    for wanted in ({"c0", "c2"}, {"c2", "c3"}):
        measured(updates, wanted, delta.fact)
    assert sorted(asked) == ["c0", "c2", "c3"]


@pytest.mark.parametrize("seed", range(20))
def test_in_how_many_pieces_a_column_comes_does_not_matter(seed: int) -> None:
    whole = _updates(seed)
    pieces = pa.concat_tables([whole.slice(0, 20), whole.slice(20, 1), whole.slice(21)])
    assert pieces["c0"].num_chunks == 3
    assert measured(pieces, set(_SCHEMA.names)) == measured(whole, set(_SCHEMA.names))
