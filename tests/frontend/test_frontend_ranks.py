"""ntile, percent_rank, cume_dist and nth_value from text to answer, over tables and over constants, compared with PostgreSQL's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import mzsql
from mzsql.dbapi import Connection

_COLUMNS = "i, g, x, y"
_VALUES = """(1, 'a', 3, 10), (2, 'a', NULL, 20), (3, 'a', 3, NULL), (4, 'a', 1, 40), (5, 'b', 7, 50), (6, 'b', NULL, NULL),
(7, NULL, 2, 70), (8, NULL, 2, 80), (9, 'a', 3, 90)"""

_CALLS = [
    "nth_value(y, 2) OVER (PARTITION BY g ORDER BY i)",
    "ntile(4) OVER (ORDER BY x, i)",
    "percent_rank() OVER (ORDER BY x)",
    "percent_rank() OVER (PARTITION BY g ORDER BY x DESC NULLS LAST)",
    "percent_rank() OVER (PARTITION BY i)",
    "percent_rank() OVER ()",
    "cume_dist() OVER (ORDER BY x)",
    "cume_dist() OVER (PARTITION BY g ORDER BY x DESC)",
    "cume_dist() OVER ()",
    "ntile(2) OVER (PARTITION BY g ORDER BY i DESC)",
    "ntile(100) OVER (ORDER BY i)",
    "ntile(1) OVER (ORDER BY i)",
    "ntile(NULL) OVER (ORDER BY i)",
    "ntile(i) OVER (PARTITION BY g ORDER BY i)",
    "nth_value(y, 3) OVER (ORDER BY x, i)",
    "nth_value(x, 2) OVER (ORDER BY x)",
    "nth_value(y, NULL) OVER (ORDER BY i)",
    "nth_value(y, x) OVER (ORDER BY i)",
    "nth_value(g, i) OVER (ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "nth_value(y, 2) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "nth_value(y, 1) OVER (ORDER BY i ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING)",
    "nth_value(y, 2) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
    "nth_value(i, 3) OVER (ORDER BY i RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "nth_value(i, 2) OVER (ORDER BY i GROUPS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "nth_value(y, 1) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND 2 PRECEDING)",
    "nth_value('k'::text, 2) OVER (ORDER BY i)",
]
#: A few of each are compared every day.
_STARTS = [
    pytest.param(start, marks=pytest.mark.long) if start else start
    for start in range(0, len(_CALLS), 3)
]
#: Those that need an engine, which measures the distance.
_TABLE_ONLY = ["nth_value(y, 2) OVER (ORDER BY i RANGE BETWEEN 1 PRECEDING AND 3 FOLLOWING)"]


@pytest.fixture(scope="module")
def postgres(postgres: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    postgres.execute("CREATE TABLE t (i int, g text, x int, y int)")
    postgres.execute(f"INSERT INTO t VALUES {_VALUES}")
    return postgres


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    con = mzsql.connect(str(tmp_path_factory.mktemp("ranks")))
    con.execute("CREATE TABLE t (i int, g text, x int, y int)")
    con.execute(f"INSERT INTO t VALUES {_VALUES}")
    yield con
    con.close()


def _rows(con: Any, calls: list[str], source: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT i, {', '.join(calls)} FROM {source} ORDER BY i"
    return [tuple(row) for row in con.execute(sql).fetchall()]


@pytest.mark.parametrize("start", _STARTS)
def test_rows_of_a_table_have_the_places_that_postgres_says(
    ours: Connection, postgres: psycopg.Connection[Any], start: int
) -> None:
    calls = [*_CALLS[start : start + 3], *_TABLE_ONLY]
    assert _rows(ours, calls, "t") == _rows(postgres, calls, "t")


@pytest.mark.parametrize("start", _STARTS)
def test_rows_of_constants_have_the_places_that_postgres_says(
    ours: Connection, postgres: psycopg.Connection[Any], start: int
) -> None:
    calls, source = _CALLS[start : start + 3], f"(VALUES {_VALUES}) AS t ({_COLUMNS})"
    assert _rows(ours, calls, source) == _rows(postgres, calls, source)


@pytest.mark.parametrize(
    "call",
    [
        "ntile(0) OVER ()",
        "ntile(-1) OVER (ORDER BY i)",
        "nth_value(i, 0) OVER ()",
        "nth_value(i, i - 3) OVER (ORDER BY i)",
        "ntile('x') OVER ()",
        "ntile() OVER ()",
        "ntile(1, 2) OVER ()",
        "ntile(g) OVER ()",
        "nth_value(i) OVER ()",
        "nth_value(i, g) OVER ()",
        "percent_rank(1) OVER ()",
        "ntile(2)",
    ],
)
@pytest.mark.parametrize("source", ["t", f"(VALUES {_VALUES}) AS t ({_COLUMNS})"])
def test_what_postgres_refuses_is_refused(
    ours: Connection, postgres: psycopg.Connection[Any], call: str, source: str
) -> None:
    with pytest.raises(psycopg.Error) as theirs:
        postgres.execute(f"SELECT {call} FROM {source}")
    with pytest.raises(mzsql.Error) as mine:
        ours.execute(f"SELECT {call} FROM {source}").fetchall()
    if "argument of" in str(theirs.value):
        assert str(theirs.value).splitlines()[0] in str(mine.value)


def test_no_row_is_no_failure(ours: Connection) -> None:
    assert ours.execute("SELECT ntile(0) OVER () FROM t WHERE i > 100").fetchall() == []


def test_nulls_are_not_passed_over_but_by_lag_and_lead(ours: Connection) -> None:
    with pytest.raises(mzsql.NotSupportedError, match="other than LAG and LEAD"):
        ours.execute("SELECT nth_value(y, 1) IGNORE NULLS OVER () FROM t")


def test_the_statement_of_a_windowed_query_is_shown(ours: Connection) -> None:
    sql = "EXPLAIN PHYSICAL PLAN AS SQL FOR SELECT nth_value(y, 2) OVER (ORDER BY i), ntile(3) OVER (ORDER BY i) FROM t"
    (shown,) = ours.execute(sql).fetchone()
    assert "NTH_VALUE(" in shown
    assert "ROW_NUMBER() OVER" in shown


def test_what_a_recursion_repeats_is_shown_before_its_query(ours: Connection) -> None:
    sql = """EXPLAIN PHYSICAL PLAN AS SQL FOR WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 7)
        n (x int) AS (SELECT i FROM t UNION SELECT x + 1 FROM n) SELECT * FROM n"""
    (shown,) = ours.execute(sql).fetchone()
    assert shown.startswith(
        "-- rec_0, from no rows, until a round changes nothing, 7 times at most:\n"
    )
    assert shown.count(";\n") == 1
