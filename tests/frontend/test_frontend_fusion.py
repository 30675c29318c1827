"""Window functions over one window are computed as one, with the answers that each has by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from rows_kit import rounded_rows

import mzsql
from mzsql.dbapi import Connection

_TABLE = "CREATE TABLE t (i int, g text, x int, y int, f double precision)"
_ROWS = """INSERT INTO t VALUES (1, 'a', 3, 10, 0.5), (2, 'a', NULL, 20, NULL), (3, 'a', 4, NULL, 1.5), (4, 'a', 1, 40, 4),
(5, 'b', 7, 50, 1.5), (6, 'b', NULL, NULL, NULL), (7, NULL, 2, 70, -3), (8, NULL, 5, 80, 1.25)"""

#: Select lists in which several functions share a window, and some do not.
_LISTS = [
    "lag(y) OVER w, lead(y, 2, -1) OVER w, first_value(y) OVER w, last_value(i) OVER w, nth_value(y, 2) OVER w, ntile(3) OVER w",
    "lag(y) OVER w, lead(y) OVER (ORDER BY i), lag(g) OVER w, lead(g) OVER (ORDER BY i)",
    "first_value(y) OVER r, last_value(g) OVER r, nth_value(y, 2) OVER r, lag(y) OVER (ORDER BY i)",
    "sum(y) OVER w, count(*) OVER w, min(g) OVER w, max(f) OVER w, string_agg(g, ',') OVER w, bool_and(x > 1) OVER w",
    "sum(y) OVER r, count(x) OVER r, array_agg(x) OVER r, sum(f) OVER r, avg(y) OVER r, stddev(x) OVER r",
    "sum(y) OVER e, max(y) OVER e, sum(i) OVER (ORDER BY i RANGE 2 PRECEDING), min(i) OVER (ORDER BY i RANGE 2 PRECEDING)",
    "string_agg(g, ',') OVER e, string_agg(g, '') FILTER (WHERE i > 1) OVER e, array_agg(x) OVER e, bool_or(x > 1) OVER e",
    "rank() OVER w, row_number() OVER w, lag(y) OVER w, lead(x) OVER w, sum(y) OVER w, count(y) OVER w, 1 + sum(y) OVER w",
    "CASE WHEN x > 2 THEN sum(y) OVER w END, lag(y) OVER w, lead(y) OVER w, coalesce(lag(y) OVER w, sum(y) OVER w)",
    "(SELECT max(u.i) FROM t AS u WHERE u.y < t.y), lag((SELECT max(u.i) FROM t AS u WHERE u.y < t.y)) OVER w, lead(y) OVER w",
]
_WINDOWS = """WINDOW w AS (PARTITION BY g ORDER BY i), r AS (ORDER BY i ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING),
e AS (ORDER BY i ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING)"""


@pytest.fixture(scope="module")
def postgres(postgres: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    postgres.execute(_TABLE)
    postgres.execute(_ROWS)
    return postgres


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    con = mzsql.connect(str(tmp_path_factory.mktemp("fusion")))
    con.execute(_TABLE)
    con.execute(_ROWS)
    yield con
    con.close()


@pytest.mark.parametrize("listed", _LISTS)
def test_functions_of_one_window_answer_as_postgres_does(
    ours: Connection, postgres: psycopg.Connection[Any], listed: str
) -> None:
    """Over a table, and over constants, which are folded."""
    query = f"SELECT i, {listed} FROM t {_WINDOWS} ORDER BY i"
    expected = rounded_rows(postgres, query)
    assert rounded_rows(ours, query) == expected
    constants = _ROWS.removeprefix("INSERT INTO t ")
    assert (
        rounded_rows(
            ours, f"WITH t (i, g, x, y, f) AS ({constants.replace('0.5', '0.5::float8')}) {query}"
        )
        == expected
    )


def test_a_view_of_fused_functions_follows_changes(
    ours: Connection, postgres: psycopg.Connection[Any]
) -> None:
    body = f"SELECT i, {_LISTS[0]} FROM u {_WINDOWS}"
    sums = f"SELECT i, sum(y) OVER w, count(*) OVER w, min(g) OVER w, avg(y) OVER r, max(x) OVER r FROM u {_WINDOWS}"
    for con in (ours, postgres):
        con.execute("CREATE TABLE u (i int, g text, x int, y int)")
        con.execute("INSERT INTO u SELECT i, g, x, y FROM t")
    columns = "i, a, b, c, d, e, f"
    ours.execute(f"CREATE MATERIALIZED VIEW shifted ({columns}) AS {body}")
    ours.execute(f"CREATE MATERIALIZED VIEW summed (i, a, b, c, d, e) AS {sums}")
    for change in (
        "INSERT INTO u VALUES (9, 'b', 1, 90), (0, 'a', 2, 5)",
        "DELETE FROM u WHERE i = 3",
        "UPDATE u SET y = y + 1 WHERE g = 'b'",
    ):
        for con in (ours, postgres):
            con.execute(change)
        assert rounded_rows(ours, "SELECT * FROM shifted ORDER BY i") == rounded_rows(
            postgres, f"{body} ORDER BY i"
        )
        assert rounded_rows(ours, "SELECT * FROM summed ORDER BY i") == rounded_rows(
            postgres, f"{sums} ORDER BY i"
        )


def test_an_error_of_one_function_is_the_query_s(ours: Connection) -> None:
    with pytest.raises(mzsql.DataError, match="numeric"):
        ours.execute(
            "SELECT sum(x) OVER (ORDER BY i), count(*) OVER (ORDER BY i) "
            "FROM (SELECT i, 4e37::numeric(38, 0) + i AS x FROM t) AS t"
        ).fetchall()


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        (
            "lag(y) OVER w, lead(y) OVER w",
            "fused_value_window_func[lag[order_by=[#0 asc nulls_last]], lead[order_by=[#0 asc nulls_last]] order_by=[#0 asc nulls_last]]",
        ),
        ("sum(y) OVER w, count(*) OVER w", "aggregates=[fused_window_agg("),
        ("avg(y) OVER w", "aggregates=[fused_window_agg("),
    ],
)
def test_explain_shows_one_function(ours: Connection, listed: str, shown: str) -> None:
    explained = (
        f"EXPLAIN OPTIMIZED PLAN FOR SELECT {listed} FROM t WINDOW w AS (PARTITION BY g ORDER BY x)"
    )
    ((text,),) = ours.execute(explained).fetchall()
    assert shown in text
    assert text.count("Reduce") == 1


@pytest.mark.parametrize(
    "listed",
    [
        "rank() OVER w, row_number() OVER w",
        "lag(y) OVER w, sum(y) OVER w",
        "lag(y) OVER w, lag(y) OVER (PARTITION BY g ORDER BY x DESC)",
        "sum(y) OVER w, sum(y) OVER (PARTITION BY g ORDER BY x ROWS 2 PRECEDING)",
        "lag(y) OVER w, lag(y) IGNORE NULLS OVER w",
    ],
)
def test_other_windows_and_kinds_stay_apart(ours: Connection, listed: str) -> None:
    explained = (
        f"EXPLAIN OPTIMIZED PLAN FOR SELECT {listed} FROM t WINDOW w AS (PARTITION BY g ORDER BY x)"
    )
    ((text,),) = ours.execute(explained).fetchall()
    assert "fused" not in text
    assert text.count("Reduce") == 2


@pytest.mark.parametrize(
    "listed", ["first_value(x) OVER w", "first_value(x) OVER w, nth_value(x, 2) OVER w"]
)
def test_frames_that_spark_lacks_are_refused_where_they_are_kept(
    ours: Connection, listed: str
) -> None:
    over = "PARTITION BY g ORDER BY x RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    names = ", ".join("ab"[: listed.count("OVER")])
    with pytest.raises(mzsql.NotSupportedError, match="not supported over this much data"):
        ours.execute(
            f"CREATE MATERIALIZED VIEW refused ({names}) AS SELECT {listed} FROM t WINDOW w AS ({over})"
        )


def test_equal_calls_are_one_column(ours: Connection) -> None:
    explained = (
        "EXPLAIN RAW PLAN FOR SELECT lag(y) OVER (ORDER BY i), x + lag(y) OVER (ORDER BY i) FROM t"
    )
    ((text,),) = ours.execute(explained).fetchall()
    assert text.count("lag(") == 1
