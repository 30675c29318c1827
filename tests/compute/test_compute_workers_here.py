"""The workers that this process finds are those that DuckDB's statement tells, one key at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import expressions as exp

from mzsql.compute.engines.driver import Driver
from mzsql.compute.replica.arrangements import workers as here
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine, Sql
from mzsql.render.worker import worker_of
from mzsql.repr import types as t


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.close()


def told(driver: Driver, keys: pa.Table, types: list[t.SqlType], workers: int) -> list[int]:
    """What the engine says, of each key."""
    columns = [Sql(exp.column(name, quoted=True), typ) for name, typ in zip(keys.column_names, types, strict=True)]  # fmt: skip
    worker = to_sql(worker_of(columns, workers, Engine.DUCKDB), Engine.DUCKDB)
    places = keys.append_column("n", pa.array(range(keys.num_rows)))
    found = driver.run(f'SELECT "n", {worker} AS "w" FROM "k" ORDER BY "n"', {"k": places})
    return [int(one) for one in found.column("w").to_pylist()]


@pytest.mark.parametrize("workers", [2, 3, 16, 254, 300])
@pytest.mark.parametrize(
    ("typ", "values"),
    [
        (t.INTEGER, [*range(300), 65535, 65536, 200_000, None]),
        (t.INTEGER, [-1, 0, 5]),
        (t.BIGINT, [None, None]),
        (t.BIGINT, [0, here.MOST - 1, here.MOST, 2**63 - 1, -(2**63)]),
        (t.SMALLINT, [-(2**15), -1, 0, 2**15 - 1]),
        (t.SMALLINT, [0, 1, 2**15 - 1, None]),
        (t.OID, [0, 1, 65536]),
        (t.TEXT, ["", "a", "12", None]),
        (t.BOOLEAN, [True, False, None]),
        (t.SqlType("numeric", scale=2), [None]),
    ],
    ids=str,
)
def test_one_column(driver: Driver, typ: t.SqlType, values: list[object], workers: int) -> None:
    keys = pa.table({"c0": pa.array(values, t.arrow_type(typ))})
    # So many rows that a table is worth it; in two chunks.
    many = pa.concat_tables([keys] * max(2, 100_000 // len(values)))
    wanted = told(driver, keys, [typ], workers)
    for some in (keys, many, keys):
        made = here.workers_of(some, [typ], workers, driver.simple)
        assert made.tolist() == wanted * (some.num_rows // keys.num_rows)


def test_several_columns(driver: Driver) -> None:
    rng = random.Random(5)
    numbers = [rng.choice([None, *range(20)]) for _ in range(200)]
    texts = [rng.choice([None, "", "x", "yy"]) for _ in range(200)]
    keys = pa.table({"c0": pa.array(numbers, pa.int32()), "c1": pa.array(texts)})
    types = [t.INTEGER, t.TEXT]
    made = here.workers_of(keys, types, 4, driver.simple)
    assert made.tolist() == told(driver, keys, types, 4)


def test_what_is_known_is_not_asked_for_again(driver: Driver) -> None:
    def refused(text: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        raise AssertionError(f"{text} over {list(relations)}")

    keys = pa.table({"c0": np.arange(100_000)})
    first = here.workers_of(keys, [t.BIGINT], 7, driver.simple)
    few = here.workers_of(keys.slice(70_000, 3), [t.BIGINT], 7, refused)
    assert few.tolist() == first[70_000:70_003].tolist()
    assert few.tolist() == told(driver, keys.slice(70_000, 3), [t.BIGINT], 7)
