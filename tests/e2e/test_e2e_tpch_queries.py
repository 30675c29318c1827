"""TPC-H's 22 queries at scale factor 0.01, asked once and kept as views: DuckDB's answers over the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from tpch_answers import check, loaded
from tpch_scripts import NAMES, TABLES, query_of, script

import mzsql
from mzsql.cli.demo import generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = 0.01
#: What an order arriving and others leaving change.
_CHANGES = (
    "DELETE FROM lineitem WHERE l_orderkey % 11 = 3",
    "DELETE FROM orders WHERE o_orderkey % 11 = 3",
    "UPDATE partsupp SET ps_supplycost = ps_supplycost + 1 WHERE ps_partkey % 5 = 0",
    "UPDATE lineitem SET l_quantity = l_quantity + 9 WHERE l_orderkey < 1000",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The eight tables as Parquet."""
    made = tmp_path_factory.mktemp("tpch") / "files"
    generate(made, SCALE)
    return made


@pytest.fixture(scope="module")
def other(files: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the same tables."""
    made = duckdb.connect()
    for table in TABLES:
        made.execute(
            f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{files / table}.parquet')"
        )
    yield made
    made.close()


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[mzsql.Connection]:
    """An environment without Spark."""
    with mzsql.connect(tmp_path_factory.mktemp("tpch") / "env") as made:
        yield loaded(made, files)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_query_asked_once(
    con: mzsql.Connection, other: duckdb.DuckDBPyConnection, name: str
) -> None:
    mine = [tuple(row) for row in con.execute(query_of(name)).fetchall()]
    theirs = other.execute(query_of(name)).fetchall()
    check(name, mine, theirs)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3000)
def test_all_of_them_as_views(tmp_path: Path, files: Path, spark: SparkSession) -> None:
    duck = duckdb.connect()
    for table in TABLES:
        duck.execute(
            f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{files / table}.parquet')"
        )
    with mzsql.connect(tmp_path / "env", spark=spark) as con:
        loaded(con, files)
        for name in NAMES:
            con.execute(script(name))
        for statement in ("", *_CHANGES):
            if statement:
                con.execute(statement)
                duck.execute(statement)
            if statement in ("", _CHANGES[-1]):
                for name in NAMES:
                    mine = con.execute(f"SELECT * FROM q{int(name[1:])}").fetchall()
                    check(
                        name, [tuple(row) for row in mine], duck.execute(query_of(name)).fetchall()
                    )
