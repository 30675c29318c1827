"""Random queries as materialized views, one of them with an index: after every change they are what PostgreSQL computes anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from fuzz_changes import random_change
from fuzz_engines import Worlds, bag
from fuzz_made import Options
from fuzz_queries import Queries
from fuzz_schema import Table, random_tables
from spark_kit import hydrated_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

_VIEWS, _CHANGES = 5, 5
#: What a dataflow maintains.
_MAINTAINED = Options(windows=False, rare=False, recursion=False, depth=2)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Worlds]:
    with hydrated_by_spark(), Worlds(tmp_path_factory.mktemp("fuzz") / "env", spark) as made:
        yield made


def _made(worlds: Worlds, rng: random.Random, tables: list[Table]) -> dict[str, str]:
    """Views by their names, each with its query."""
    views: dict[str, str] = {}
    while len(views) < _VIEWS:
        query = str(Queries(rng, tables, _MAINTAINED).top())
        name = f"view{len(views)}"
        worlds.ours.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        views[name] = query
    name, query = f"view{_VIEWS}", str(Queries(rng, tables, _MAINTAINED).top())
    worlds.ours.execute(f"CREATE VIEW {name} AS {query}")
    worlds.ours.execute(f"CREATE INDEX {name}_by_x0 ON {name} (x0)")
    return {**views, name: query}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(0, marks=pytest.mark.long),
        *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 3)),
    ],
)
def test_views_follow_every_change(worlds: Worlds, seed: int) -> None:
    rng = random.Random(f"views {seed}")
    tables = random_tables(rng, 2, rare=False)
    worlds.load(tables)
    views = _made(worlds, rng, tables)
    told = [s + ";" for table in tables for s in table.statements()]
    for number in range(_CHANGES + 1):
        if number:
            change = random_change(rng, tables)
            told.append(change + ";")
            worlds.both(change)
        for name, query in views.items():
            ours, theirs = worlds.mine(f"SELECT * FROM {name}"), worlds.theirs(query)
            assert isinstance(ours, list), (name, ours, query)
            assert isinstance(theirs, list), (name, theirs, query)
            assert bag(ours) == bag(theirs), "\n".join([*told, query, str(ours), str(theirs)])
