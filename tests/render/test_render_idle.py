"""What is left of a statement where relations are empty, and that it means the same."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot

from mzsql.expr.nodes import relations_in
from mzsql.render.rewrites.idle import read_without, without

#: A statement over a, b, c, and what is left of it where a is empty.
_CASES = {
    "nothing is left of what reads it": ("SELECT x FROM a", None),
    "a branch goes": ("SELECT x FROM a UNION ALL SELECT x FROM b", "SELECT x FROM b"),
    "what it is joined with goes along": (
        "WITH j AS (SELECT b.x FROM b AS b JOIN a AS d ON d.x = b.x), k AS (SELECT x FROM c)"
        " SELECT x FROM j UNION ALL SELECT x FROM k",
        "WITH k AS (SELECT x FROM c) SELECT x FROM k",
    ),
    "an outer join keeps the other side": (
        "SELECT b.x FROM b LEFT JOIN a ON a.x = b.x",
        "SELECT b.x FROM b LEFT JOIN a ON a.x = b.x",
    ),
    "groups of nothing are none": ("SELECT x, count(*) AS n FROM a GROUP BY x", None),
    "an aggregate of nothing is a row": (
        "SELECT count(*) AS n FROM a",
        "SELECT count(*) AS n FROM a",
    ),
    "an aggregate of what has no rows keeps it": (
        "WITH p AS (SELECT x FROM a), q AS (SELECT x FROM p WHERE x > 1), r AS (SELECT count(*) AS n FROM q) SELECT n FROM r",
        "WITH p AS (SELECT x FROM a), q AS (SELECT x FROM p WHERE x > 1), r AS (SELECT count(*) AS n FROM q) SELECT n FROM r",
    ),
    "unless it asks for rows": ("SELECT sum(x) AS n FROM a HAVING count(*) > 0", None),
    "a window over nothing is nothing": ("SELECT sum(x) OVER (ORDER BY x) AS s FROM a", None),
    "subqueries are looked into": (
        "SELECT x FROM (SELECT x FROM a UNION ALL SELECT x FROM b) AS s",
        "SELECT x FROM (SELECT x FROM b) AS s",
    ),
    "distinct unions stay": (
        "SELECT x FROM b UNION SELECT x FROM a",
        "SELECT x FROM b UNION SELECT x FROM a",
    ),
    "chains go wholly": (
        "WITH p AS (SELECT x FROM a), q AS (SELECT x FROM p), r AS (SELECT x FROM q) SELECT x FROM r",
        None,
    ),
    "a row of no relation stays": ("SELECT 1 AS x", "SELECT 1 AS x"),
    "unless it is left out": (
        "SELECT x FROM b UNION ALL SELECT 1 AS x WHERE FALSE",
        "SELECT x FROM b",
    ),
    "an aggregate of no relation is a row": (
        "SELECT count(*) AS n WHERE FALSE",
        "SELECT count(*) AS n WHERE FALSE",
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_what_is_left(name: str) -> None:
    text, expected = _CASES[name]
    statement = sqlglot.parse_one(text, read="duckdb")
    before = statement.sql("duckdb")
    left = without(statement, {"a"})
    assert statement.sql("duckdb") == before
    wanted = None if expected is None else sqlglot.parse_one(expected, read="duckdb")
    assert left == wanted


@pytest.mark.parametrize("name", _CASES)
def test_it_means_the_same(name: str) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE a (x int)")
    for table in ("b", "c"):
        connection.execute(f"CREATE TABLE {table} AS SELECT range AS x FROM range(3)")
    text, _ = _CASES[name]
    left = without(sqlglot.parse_one(text, read="duckdb"), {"a"})
    expected = sorted(connection.execute(text).fetchall())
    rows = [] if left is None else connection.execute(left.sql("duckdb")).fetchall()
    assert sorted(rows) == expected


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.parametrize("empty", [("a",), ("b",), ("a", "b"), ()])
def test_what_is_left_reads_what_is_told_of_it(name: str, empty: tuple[str, ...]) -> None:
    statement = sqlglot.parse_one(_CASES[name][0], read="duckdb")
    left = without(statement, set(empty))
    read = read_without(statement, set(empty))
    assert (read is None) == (left is None)
    if left is not None:
        assert read == relations_in(left)
