"""TPC-H's queries 1, 3 and 18 as views on Spark: equal to DuckDB over the same Parquet, after hydration and after each change."""

from __future__ import annotations

import math
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from spark_kit import hydrated_by_spark

import mzsql
from mzsql.cli.demo import generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
VIEWS = ("q01", "q03", "q18")
BIG_ORDER = (
    "INSERT INTO orders VALUES (1000001, 1, 'O', 250000.00, DATE '1995-03-01', '1-URGENT', 'Clerk#1', 0, 'new')",
    *(
        f"INSERT INTO lineitem VALUES (1000001, 1, 1, {n}, 50.00, 40000.00, 0.0{n}, 0.02, 'N', 'O', "
        "DATE '1995-03-20', DATE '1995-04-01', DATE '1995-04-05', 'NONE', 'MAIL', 'new')"
        for n in range(1, 8)
    ),
)
#: Each a transaction of several statements.
CHANGES = (
    BIG_ORDER,
    (
        "DELETE FROM lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM orders WHERE o_custkey % 7 = 1)",
        "DELETE FROM orders WHERE o_custkey % 7 = 1",
    ),
    ("UPDATE lineitem SET l_quantity = l_quantity + 7, l_discount = 0.10 WHERE l_orderkey < 200",),
    ("UPDATE customer SET c_mktsegment = 'BUILDING' WHERE c_custkey % 3 = 0",),
    (
        "DELETE FROM lineitem WHERE l_linenumber > 1",
        "DELETE FROM lineitem WHERE l_orderkey % 2 = 0",
    ),
)


def script(name: str) -> str:
    return (resources.files("mzsql.scripts") / "tpch" / f"{name}.sql").read_text()


def query_of(name: str) -> str:
    text = script(name)
    return text[text.index(" AS\n") + 4 :].strip().rstrip(";")


def same(mine: list[tuple], theirs: list[tuple]) -> bool:
    """Equal but for the last digits of averages, which DuckDB computes in binary."""
    if len(mine) != len(theirs):
        return False
    return all(
        math.isclose(float(a), float(b), rel_tol=1e-12)
        if isinstance(a, int | float | Decimal) and isinstance(b, int | float | Decimal)
        else str(a) == str(b)
        for left, right in zip(mine, theirs, strict=True)
        for a, b in zip(left, right, strict=True)
    )


def check(con: mzsql.Connection, other: duckdb.DuckDBPyConnection, when: str) -> None:
    for name in VIEWS:
        mine = con.execute(f"SELECT * FROM q{int(name[1:])}").fetchall()
        theirs = other.execute(query_of(name)).fetchall()
        assert theirs, "a view without rows proves nothing"
        # No two rows of an answer agree in their first four columns as printed.
        mine, theirs = (
            sorted(rows, key=lambda r: [str(v) for v in r[:4]]) for rows in (mine, theirs)
        )
        assert same(mine, theirs), (when, name, mine, theirs)


@pytest.mark.long
def test_views_equal_another_engine_after_every_change(
    tmp_path: Path, spark: SparkSession, env: str
) -> None:
    generate(tmp_path / "tpch", 0.002)
    other = duckdb.connect()
    with hydrated_by_spark(), mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute(script("schema"))
        for table in TABLES:
            path = tmp_path / "tpch" / f"{table}.parquet"
            con.execute(f"COPY {table} FROM '{path}' (FORMAT PARQUET)")
            other.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{path}')")
        # At this scale no order has more than 300 pieces: one that has, for query 18.
        for statement in BIG_ORDER:
            moved = statement.replace("1000001", "1000000")
            con.execute(moved)
            other.execute(moved)
        for name in VIEWS:
            con.execute(script(name))
        check(con, other, "hydrated")
        for number, change in enumerate(CHANGES):
            con.execute("BEGIN")
            for statement in change:
                con.execute(statement)
                other.execute(statement)
            con.execute("COMMIT")
            if number < len(CHANGES) - 1:
                check(con, other, f"change {number}")
        mine = con.execute("SELECT * FROM q18").fetchall()
        assert mine == other.execute(query_of("q18")).fetchall() == []
