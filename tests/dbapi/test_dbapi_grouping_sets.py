"""ROLLUP, CUBE, GROUPING SETS and `grouping()` against PostgreSQL, asked once and kept in a materialized view."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from answers_kit import check_same_rows, expected, rows_of, set_up

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
def con(
    tmp_path_factory: pytest.TempPathFactory, postgres: psycopg.Connection
) -> Iterator[mzsql.Connection]:
    with set_up(tmp_path_factory.mktemp("grouping"), postgres, SETUP) as con:
        yield con


@pytest.mark.parametrize("query", QUERIES)
def test_groupings_are_those_of_postgresql(
    con: mzsql.Connection, postgres: psycopg.Connection, query: str
) -> None:
    check_same_rows(con, postgres, query)


@pytest.mark.parametrize(("query", "state"), REFUSED)
def test_what_is_no_grouping_is_refused_as_by_postgresql(
    con: mzsql.Connection, postgres: psycopg.Connection, query: str, state: str
) -> None:
    with pytest.raises(psycopg.Error) as theirs:
        postgres.execute(query.encode())
    with pytest.raises(mzsql.Error) as ours:
        con.execute(query)
    assert theirs.value.sqlstate == ours.value.sqlstate == state


def test_a_view_keeps_its_groupings(con: mzsql.Connection, postgres: psycopg.Connection) -> None:
    query = "SELECT region, year, sum(amount), grouping(region, year) FROM sales GROUP BY CUBE (region, year)"
    con.execute(f"CREATE MATERIALIZED VIEW cube AS {query}")
    change = "INSERT INTO sales VALUES ('w', 'pen', 2025, 7), (NULL, 'ink', 2023, 11)"
    con.execute(change)
    postgres.execute(change.encode())
    kept = sorted(map(repr, rows_of(con, "SELECT * FROM cube")))
    assert kept == sorted(map(repr, expected(postgres, query)))
