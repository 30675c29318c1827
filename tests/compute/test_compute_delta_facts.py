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
from mzsql.render.facts import LAST_DAY, coarse

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


@pytest.mark.parametrize("seed", range(20))
def test_numbers_and_days_are_between_the_ends_that_arrow_finds(seed: int) -> None:
    rng = random.Random(seed)
    size = 10 ** rng.randrange(1, 34)
    numbers = [Decimal(rng.randrange(-size, size)).scaleb(-4) for _ in range(30)]
    days: list[int | None] = [rng.randrange(8_000, 11_000) for _ in range(30)]
    days[rng.randrange(5, 25)] = rng.choice([None, LAST_DAY, LAST_DAY + 1])
    table = pa.table(
        {
            "c0": pa.array(numbers, pa.decimal128(38, 4)),
            "c1": pa.array(days, pa.int32()).cast(pa.date32()),
        }
    ).slice(5, 20)
    facts = measured(table, {"c0", "c1"}).columns
    ends = pc.min_max(table["c0"]).as_py()
    kind = facts["c0"].kind
    assert facts["c0"] == coarse(kind, ends["min"], ends["max"], nulls=False)
    far = LAST_DAY + 1 in days
    assert (facts["c1"].high is None) == far
    assert facts["c1"].nulls == (table["c1"].null_count > 0)


def test_relations_without_rows_are_not_measured_again() -> None:
    columns = set(_SCHEMA.names)
    none = measured(_SCHEMA.empty_table(), columns)
    assert none.rows == 0
    assert not any(fact.values for fact in none.columns.values())
    assert measured(_updates(1).slice(0, 0), columns) is none
