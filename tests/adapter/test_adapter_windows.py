"""Window functions from text to answer, compared with DuckDB's own windows over the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import mzsql
from mzsql.dbapi import Connection

_ROWS = [
    (1, "a", 3, 10),
    (2, "a", None, 20),
    (3, "a", 3, None),
    (4, "a", 1, 40),
    (5, "b", 7, 50),
    (6, "b", None, None),
    (7, None, 2, 70),
    (8, None, 2, 80),
]
_LAST = "ORDER BY x NULLS LAST, i"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    directory: Path = tmp_path_factory.mktemp("windows")
    con = mzsql.connect(str(directory))
    con.execute("CREATE TABLE t (i int, g text, x int, y int)")
    con.execute("INSERT INTO t VALUES " + ", ".join(_values(row) for row in _ROWS))
    yield con
    con.close()


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (i int, g text, x int, y int)")
    con.execute("INSERT INTO t VALUES " + ", ".join(_values(row) for row in _ROWS))
    return con


def _values(row: tuple[Any, ...]) -> str:
    return "(" + ", ".join("NULL" if v is None else repr(v) for v in row) + ")"


def _answer(con: Any, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in con.execute(sql).fetchall()]


@pytest.mark.parametrize(
    "call",
    [
        f"row_number() OVER (PARTITION BY g {_LAST})",
        "rank() OVER (ORDER BY x NULLS LAST)",
        "dense_rank() OVER (PARTITION BY g ORDER BY x DESC NULLS FIRST)",
        f"lag(y) OVER (PARTITION BY g {_LAST})",
        f"lag(y, 2, -1) OVER ({_LAST})",
        f"lag(y, NULL) OVER ({_LAST})",
        f"lead(y, -1, 0) OVER ({_LAST})",
        f"first_value(y) OVER ({_LAST} ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)",
        f"last_value(y) OVER (PARTITION BY g {_LAST} ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)",
        f"first_value(y) OVER ({_LAST} ROWS BETWEEN 1 PRECEDING AND 2 PRECEDING)",
        "CAST(sum(y) OVER (PARTITION BY g ORDER BY x NULLS LAST) AS bigint)",
        "count(y) OVER (ORDER BY x NULLS LAST)",
        f"max(y) OVER ({_LAST} ROWS 2 PRECEDING)",
        "CAST(avg(y) OVER (PARTITION BY g) AS double precision)",
        f"count(*) OVER ({_LAST} ROWS BETWEEN 1 PRECEDING AND 2 PRECEDING)",
        "count(*) FILTER (WHERE y > 20) OVER (PARTITION BY g)",
    ],
)
def test_a_window_function_answers_as_duckdb_does(
    ours: Connection, duck: duckdb.DuckDBPyConnection, call: str
) -> None:
    sql = f"SELECT i, {call} AS w FROM t ORDER BY i"
    assert _answer(ours, sql) == _answer(duck, sql)


def test_nulls_are_passed_over_where_that_is_asked_for(ours: Connection) -> None:
    sql = "SELECT i, lag(y) IGNORE NULLS OVER (ORDER BY i), lead(y, 2, -1) IGNORE NULLS OVER (ORDER BY i)"
    known = [(i, y) for i, _, _, y in _ROWS if y is not None]

    def expected(i: int) -> tuple[int, int | None, int]:
        before = [y for at, y in known if at < i]
        after = [y for at, y in known if at > i]
        return i, before[-1] if before else None, after[1] if len(after) > 1 else -1

    assert _answer(ours, f"{sql} FROM t ORDER BY i") == [expected(row[0]) for row in _ROWS]


def test_the_default_frame_ends_with_the_last_peer(ours: Connection) -> None:
    sql = "SELECT i, last_value(i) OVER (ORDER BY x) FROM t ORDER BY i"
    peers = {x: max(i for i, _, other, _ in _ROWS if other == x) for _, _, x, _ in _ROWS}
    assert _answer(ours, sql) == [(i, peers[x]) for i, _, x, _ in _ROWS]


def test_windows_stand_over_groups_and_in_correlated_subqueries(
    ours: Connection, duck: duckdb.DuckDBPyConnection
) -> None:
    for sql in (
        "SELECT g, count(*), rank() OVER (ORDER BY count(*) DESC) FROM t GROUP BY g ORDER BY g",
        "SELECT i, (SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY s.i) AS r FROM t s"
        " WHERE s.x = t.x) q) FROM t ORDER BY i",
    ):
        assert _answer(ours, sql) == _answer(duck, sql)


def test_equal_rows_are_counted_each(ours: Connection) -> None:
    sql = "SELECT row_number() OVER (ORDER BY v) FROM (SELECT 1 AS v FROM t WHERE i <= 3) q ORDER BY 1"
    assert _answer(ours, sql) == [(1,), (2,), (3,)]


def test_named_windows_build_on_each_other(
    ours: Connection, duck: duckdb.DuckDBPyConnection
) -> None:
    sql = (
        "SELECT i, count(*) OVER w, row_number() OVER v FROM t"
        " WINDOW w AS (PARTITION BY g), v AS (w ORDER BY i) ORDER BY i"
    )
    assert _answer(ours, sql) == _answer(duck, sql)


def test_a_sum_that_overflows_is_an_error(ours: Connection) -> None:
    with pytest.raises(mzsql.DataError, match="overflow"):
        ours.execute(
            f"SELECT sum(v) OVER () FROM (SELECT {'9' * 38} AS v FROM t WHERE i <= 3) q"
        ).fetchall()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "row_number() OVER (ROWS UNBOUNDED FOLLOWING)",
            "frame start cannot be UNBOUNDED FOLLOWING",
        ),
        ("sum(x) OVER (RANGE 1 PRECEDING)", "requires exactly one ORDER BY column"),
        ("sum(x) OVER (ROWS 1000001 PRECEDING)", "offsets greater than 1000000"),
        ("count(DISTINCT x) OVER ()", "DISTINCT in window aggregates not yet supported"),
        ("lower(g) OVER ()", "OVER clause not allowed on lower"),
        ("first_value(x) IGNORE NULLS OVER ()", "other than LAG and LEAD not yet supported"),
        ("rank() OVER nowhere", 'window "nowhere" does not exist'),
        ("lag(x, 1, g) OVER ()", "function lag\\(integer, integer, text\\) does not exist"),
    ],
)
def test_what_cannot_be_is_refused(ours: Connection, call: str, message: str) -> None:
    with pytest.raises(mzsql.Error, match=message):
        ours.execute(f"SELECT {call} FROM t").fetchall()


@pytest.mark.parametrize(
    ("call", "supported"),
    [
        ("sum(y) OVER (ORDER BY i RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)", True),
        ("sum(y) OVER (ORDER BY i RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)", False),
        ("sum(y) OVER (ORDER BY i GROUPS 1 PRECEDING)", False),
        ("nth_value(y, 2) OVER (ORDER BY i ROWS 1 PRECEDING)", True),
        (
            "first_value(y) OVER (ORDER BY i RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
            False,
        ),
    ],
)
def test_a_frame_that_spark_lacks_is_refused_where_it_would_run_there(
    ours: Connection, call: str, supported: bool
) -> None:
    assert ours.execute(f"SELECT {call} FROM t").fetchall()
    shown = f"EXPLAIN PHYSICAL PLAN AS SQL FOR SELECT {call} FROM t"
    if supported:
        assert " OVER (" in ours.execute(shown).fetchone()[0]
    else:
        with pytest.raises(mzsql.NotSupportedError, match="not supported over this much data"):
            ours.execute(shown)
