"""WITH MUTUALLY RECURSIVE from text to answer, compared with DuckDB's recursion or a plain model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import mzsql
from mzsql.dbapi import Connection

_EDGES = [(1, 2), (2, 3), (3, 1), (4, 5), (6, 6)]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    directory: Path = tmp_path_factory.mktemp("recursion")
    made = mzsql.connect(str(directory))
    made.execute("CREATE TABLE edges (a int, b int)")
    made.execute("INSERT INTO edges VALUES " + ", ".join(map(str, _EDGES)))
    yield made
    made.close()


def test_a_closure_over_a_cycle_ends(con: Connection) -> None:
    duck = duckdb.connect()
    duck.execute("CREATE TABLE edges (a int, b int)")
    duck.execute("INSERT INTO edges VALUES " + ", ".join(map(str, _EDGES)))
    found = con.execute(
        "WITH MUTUALLY RECURSIVE reach (a int, b int) AS ("
        "SELECT a, b FROM edges UNION SELECT r.a, e.b FROM reach r, edges e WHERE r.b = e.a)"
        " SELECT a, b FROM reach ORDER BY a, b"
    ).fetchall()
    expected = duck.execute(
        "WITH RECURSIVE reach (a, b) AS ("
        "SELECT a, b FROM edges UNION SELECT r.a, e.b FROM reach r, edges e WHERE r.b = e.a)"
        " SELECT a, b FROM reach ORDER BY a, b"
    ).fetchall()
    assert [tuple(row) for row in found] == expected


def test_bindings_see_what_those_before_them_have_come_to(con: Connection) -> None:
    # One round: `even` from nothing, `odd` from that round's `even`.
    sql = (
        "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 1)"
        " even (n int) AS (SELECT 0 UNION SELECT n + 1 FROM odd),"
        " odd (n int) AS (SELECT n + 1 FROM even)"
        " SELECT (SELECT count(*) FROM even), (SELECT max(n) FROM odd)"
    )
    assert con.execute(sql).fetchall() == [(1, 1)]


def test_what_is_retracted_on_the_way_is_gone_at_the_end(con: Connection) -> None:
    # A row stays only while there are fewer than three rounds' worth of others.
    sql = (
        "WITH MUTUALLY RECURSIVE"
        " n (x int) AS (SELECT 1 UNION SELECT x + 1 FROM n WHERE x < 5),"
        " small (x int) AS (SELECT x FROM n WHERE (SELECT max(x) FROM n) < 5)"
        " SELECT count(*) FROM small"
    )
    assert con.execute(sql).fetchall() == [(0,)]


def test_recursions_nest_and_stand_in_correlated_subqueries(con: Connection) -> None:
    sql = (
        "SELECT a, (WITH MUTUALLY RECURSIVE up (n int) AS (SELECT 0 UNION SELECT n + 1 FROM up"
        " WHERE n < edges.a) SELECT count(*) FROM up) FROM edges ORDER BY a"
    )
    found = con.execute(sql).fetchall()
    assert found == [(a, a + 1) for a, _ in sorted(_EDGES)]


def test_a_limit_ends_it_with_an_error_or_with_what_there_is(con: Connection) -> None:
    count = "n (x int) AS (SELECT 1 UNION SELECT x + 1 FROM n) SELECT max(x) FROM n"
    at = f"WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT = 7) {count}"
    assert con.execute(at).fetchall() == [(7,)]
    with pytest.raises(mzsql.DataError, match="Recursive query exceeded the recursion limit 7"):
        con.execute(f"WITH MUTUALLY RECURSIVE (RECURSION LIMIT 7) {count}").fetchall()


def test_an_error_inside_fails_the_query_only_where_it_lasts(con: Connection) -> None:
    sql = "WITH MUTUALLY RECURSIVE n (x int) AS (SELECT 1 UNION SELECT 10 / (x - 1) FROM n) SELECT x FROM n"
    with pytest.raises(mzsql.DataError, match="division by zero"):
        con.execute(sql).fetchall()


def test_a_recursion_that_never_ends_is_ended_by_the_timeout(con: Connection) -> None:
    con.execute("SET statement_timeout = '1 s'")
    try:
        with pytest.raises(mzsql.Error, match=r"timeout|cancel"):
            con.execute(
                "WITH MUTUALLY RECURSIVE n (x bigint) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
                " SELECT count(*) FROM n"
            ).fetchall()
    finally:
        con.execute("RESET statement_timeout")


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("RECURSION LIMIT 0", "Recursion limit has to be greater than 0"),
        ("RECURSION LIMIT x", "cannot use value as number"),
        ("RECURSION LIMIT 1, RECURSION LIMIT 2", "RECURSION LIMIT specified more than once"),
        ("RECURSION LIMIT 1, ERROR AT RECURSION LIMIT 2", "More than one recursion limit given"),
    ],
)
def test_bad_limits_are_refused(con: Connection, limit: str, message: str) -> None:
    with pytest.raises(mzsql.Error, match=message):
        con.execute(f"WITH MUTUALLY RECURSIVE ({limit}) n (x int) AS (SELECT 1) SELECT 1")


def test_declared_types_are_kept(con: Connection) -> None:
    with pytest.raises(
        mzsql.Error, match=r"declared types \(integer\), but query returns types \(text\)"
    ):
        con.execute("WITH MUTUALLY RECURSIVE n (x int) AS (SELECT 'a'::text) SELECT * FROM n")


def test_with_recursive_is_maintained(con: Connection) -> None:
    query = (
        "WITH RECURSIVE reach (b, steps) AS (SELECT b, 1 FROM links WHERE a = 1"
        " UNION ALL SELECT l.b, steps + 1 FROM reach r JOIN links l ON l.a = r.b) SELECT * FROM reach"
    )
    con.execute("CREATE TABLE links (a int, b int)")
    con.execute("INSERT INTO links VALUES (1, 2), (1, 3), (2, 4), (3, 4)")
    con.execute(f"CREATE MATERIALIZED VIEW reached AS {query}")
    con.execute("INSERT INTO links VALUES (4, 5)")
    con.execute("DELETE FROM links WHERE b = 3")
    found = sorted(con.execute("SELECT * FROM reached").fetchall())
    assert found == [(2, 1), (4, 2), (5, 3)]
    assert sorted(con.execute(query).fetchall()) == found
