"""ROLLUP, CUBE, GROUPING SETS and `grouping()` against PostgreSQL, asked once and kept in a materialized view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from answers_kit import expected, rows_of

import mzsql

SETUP = (
    "CREATE TABLE sales (region text, product text, year int, amount int)",
    "CREATE TABLE nothing (a int, b int)",
    "INSERT INTO sales VALUES ('n', 'pen', 2023, 150), ('n', 'ink', 2023, 225), ('s', 'pen', 2023, 300), "
    "('s', 'pen', 2024, 400), ('n', 'pen', 2024, 575), ('s', NULL, 2024, 100)",
)
QUERIES = (
    "SELECT region, product, sum(amount) FROM sales GROUP BY ROLLUP (region, product)",
    "SELECT region, product, sum(amount) FROM sales GROUP BY CUBE (region, product)",
    "SELECT region, year, sum(amount), grouping(region, year) FROM sales GROUP BY ROLLUP (region, year)",
    "SELECT region, product, year, count(*) FROM sales GROUP BY CUBE (region), ROLLUP (year, product)",
    "SELECT region, product, year, sum(amount) FROM sales GROUP BY ROLLUP ((region, product), year)",
    "SELECT region, year, count(*) FROM sales GROUP BY GROUPING SETS (ROLLUP (region, year), CUBE (year), (region))",
    "SELECT region, count(*) FROM sales GROUP BY DISTINCT GROUPING SETS ((region), (region))",
    "SELECT region, count(*) FROM sales GROUP BY GROUPING SETS ((region), (region))",
    "SELECT b, sum(a) FROM nothing GROUP BY GROUPING SETS ((b), ())",
    "SELECT b FROM nothing GROUP BY ROLLUP (b)",
    "SELECT sum(a) FROM nothing GROUP BY ()",
    "SELECT upper(region), grouping(upper(region)) FROM sales GROUP BY ROLLUP (1)",
    "SELECT region, sum(amount) FROM sales GROUP BY ROLLUP (region) HAVING grouping(region) = 1",
    "SELECT region, sum(amount), rank() OVER (PARTITION BY grouping(region) ORDER BY sum(amount)) "
    "FROM sales GROUP BY GROUPING SETS ((region), (year))",
    "SELECT grouping(region), region, count(*) FROM sales GROUP BY region",
)
REFUSED = (
    ("SELECT grouping(amount) FROM sales GROUP BY ROLLUP (region)", "42803"),
    ("SELECT grouping(region) FROM sales", "42803"),
    ("SELECT 1 FROM sales WHERE grouping(region) = 1", "42803"),
    ("SELECT amount FROM sales GROUP BY ROLLUP (region)", "42803"),
    (f"SELECT 1 FROM sales GROUP BY CUBE ({', '.join(['region'] * 13)})", "54011"),
)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    home: Path = tmp_path_factory.mktemp("grouping")
    with mzsql.connect(str(home)) as con:
        for statement in SETUP:
            con.execute(statement)
        yield con


@pytest.fixture(scope="module")
def judge(postgres: psycopg.Connection) -> psycopg.Connection:
    for statement in SETUP:
        postgres.execute(statement.encode())
    return postgres


@pytest.mark.parametrize("query", QUERIES)
def test_groupings_are_those_of_postgresql(
    con: mzsql.Connection, judge: psycopg.Connection, query: str
) -> None:
    assert sorted(map(repr, rows_of(con, query))) == sorted(map(repr, expected(judge, query)))


@pytest.mark.parametrize(("query", "state"), REFUSED)
def test_what_is_no_grouping_is_refused_as_by_postgresql(
    con: mzsql.Connection, judge: psycopg.Connection, query: str, state: str
) -> None:
    with pytest.raises(psycopg.Error) as theirs:
        judge.execute(query.encode())
    with pytest.raises(mzsql.Error) as ours:
        con.execute(query)
    assert theirs.value.sqlstate == ours.value.sqlstate == state


def test_a_view_keeps_its_groupings(con: mzsql.Connection, judge: psycopg.Connection) -> None:
    query = "SELECT region, year, sum(amount), grouping(region, year) FROM sales GROUP BY CUBE (region, year)"
    con.execute(f"CREATE MATERIALIZED VIEW cube AS {query}")
    change = "INSERT INTO sales VALUES ('w', 'pen', 2025, 7), (NULL, 'ink', 2023, 11)"
    con.execute(change)
    judge.execute(change.encode())
    kept = sorted(map(repr, rows_of(con, "SELECT * FROM cube")))
    assert kept == sorted(map(repr, expected(judge, query)))
