"""Materialized views with recursions: after any change they hold what their queries answer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import mzsql
from mzsql.dbapi import Connection

_REACH = (
    "WITH MUTUALLY RECURSIVE {} r (a int, b int) AS"
    " (SELECT a, {} FROM e UNION SELECT r.a, e.b FROM r JOIN e ON r.b = e.a)"
)

_VIEWS = {
    "reach": _REACH.format("", "b") + " SELECT * FROM r",
    "components": "WITH MUTUALLY RECURSIVE l (n int, c int) AS (SELECT n, min(c) FROM ("
    "SELECT a AS n, a AS c FROM e UNION ALL SELECT b, b FROM e"
    " UNION ALL SELECT e.b, l.c FROM e JOIN l ON l.n = e.a"
    " UNION ALL SELECT e.a, l.c FROM e JOIN l ON l.n = e.b) AS s GROUP BY n) SELECT * FROM l",
    "shortest": "WITH MUTUALLY RECURSIVE d (n int, w bigint) AS (SELECT n, min(w) FROM ("
    "SELECT 1 AS n, 0::bigint AS w UNION ALL SELECT e.b, d.w + e.w FROM d JOIN e ON e.a = d.n"
    ") AS s GROUP BY n) SELECT * FROM d",
    "under_others": "SELECT g.g, count(*) AS n, max(r.b) AS m FROM ("
    + _REACH.format("", "b")
    + " SELECT * FROM r) AS r JOIN names AS g ON g.n = r.a GROUP BY g.g",
    "limited": _REACH.format("(ERROR AT RECURSION LIMIT 4)", "b") + " SELECT count(*) AS n FROM r",
    "cut_off": _REACH.format("(RETURN AT RECURSION LIMIT 2)", "b") + " SELECT * FROM r",
    "failing": _REACH.format("", "10 / a") + " SELECT * FROM r",
}


def _answer(con: Connection, sql: str) -> list[str] | str:
    try:
        return sorted(map(repr, con.execute(sql).fetchall()))
    except mzsql.Error as error:
        return str(error)


def _change(rng: random.Random) -> str:
    what = rng.random()
    if what < 0.6:
        a = rng.randint(0, 9) or rng.randint(0, 1)
        return f"INSERT INTO e VALUES ({a}, {rng.randint(1, 9)}, {rng.randint(1, 5)})"
    if what < 0.85:
        return f"DELETE FROM e WHERE a = {rng.randint(0, 9)}"
    if what < 0.95:
        return f"INSERT INTO names VALUES ({rng.randint(1, 9)}, '{rng.choice('xyz')}')"
    return "DELETE FROM e"


def _filled(directory: Path, engine: str) -> Connection:
    con = mzsql.connect(str(directory))
    con.execute(f"ALTER SYSTEM SET step_engine = '{engine}'")
    con.execute("CREATE TABLE e (a int, b int, w bigint)")
    con.execute("CREATE TABLE names (n int, g text)")
    con.execute("INSERT INTO e VALUES (1, 2, 3), (2, 3, 1), (3, 4, 1), (5, 6, 1), (5, 6, 1)")
    con.execute("INSERT INTO names VALUES (1, 'x'), (2, 'x'), (5, 'y'), (5, 'y')")
    for name, query in _VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return con


def _follow(con: Connection, seed: int, rounds: int) -> None:
    rng = random.Random(seed)
    for _ in range(rounds):
        for _ in range(rng.choice([1, 1, 3])):
            con.execute(_change(rng))
        for name, query in _VIEWS.items():
            assert _answer(con, f"SELECT * FROM {name}") == _answer(con, query), name


def test_views_of_recursions_hold_what_their_queries_answer(tmp_path: Path) -> None:
    con = _filled(tmp_path, "duckdb")
    try:
        _follow(con, 3, 3)
    finally:
        con.close()
    con = mzsql.connect(str(tmp_path))
    try:
        _follow(con, 4, 1)
    finally:
        con.close()


@pytest.mark.long
@pytest.mark.spark
def test_views_of_recursions_are_stepped_by_spark_too(tmp_path: Path) -> None:
    con = _filled(tmp_path, "spark")
    try:
        con.execute("SET statement_timeout = '20 min'")
        _follow(con, 5, 2)
        ran = con.execute("SELECT engine FROM mz_internal.mz_refreshes WHERE kind = 'step'")
        assert ("spark",) in ran.fetchall()
    finally:
        con.close()


def test_a_recursion_is_not_subscribed_to_by_itself(tmp_path: Path) -> None:
    con = mzsql.connect(str(tmp_path))
    try:
        con.execute("CREATE TABLE e (a int, b int, w bigint)")
        with pytest.raises(mzsql.NotSupportedError, match="MUTUALLY RECURSIVE"):
            con.execute(f"SUBSCRIBE ({_VIEWS['reach']})").fetchmany(1)
    finally:
        con.close()
