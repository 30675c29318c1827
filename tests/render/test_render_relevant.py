"""Which updates matter to a step, told from its statement, and that the statement makes the same of those alone."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot

from mzsql.compute.replica.step.relation_facts import measured
from mzsql.render.rewrites.lean import lean
from mzsql.render.rewrites.relevant import relevance, satisfied
from mzsql.render.times import LOWER

#: A statement over d, and the condition under which a row of d matters to it; None where each may.
_CASES = {
    "a filter": ("SELECT x FROM d WHERE x > 2", "x > 2"),
    "no filter": ("SELECT x FROM d", None),
    "either of two readers": (
        "SELECT x FROM d WHERE x > 4 UNION ALL SELECT y FROM d WHERE y = 1",
        "x > 4 OR y = 1",
    ),
    "one of two readers takes any": (
        "SELECT x FROM d WHERE x > 4 UNION ALL SELECT y FROM d",
        None,
    ),
    "a filter over what is computed of a row": (
        "SELECT z FROM (SELECT x + y AS z, y FROM d WHERE y < 3) AS e WHERE z > 3 AND e.y > 0",
        "y < 3 AND x + y > 3 AND y > 0",
    ),
    "a filter over all that is computed": (
        "SELECT z FROM (SELECT x + y AS z FROM d) AS e WHERE z > 3",
        "x + y > 3",
    ),
    "a condition on groups is none on rows": (
        "SELECT n FROM (SELECT y, count(*) AS n FROM d WHERE x > 1 GROUP BY y) AS e WHERE n > 1",
        "x > 1",
    ),
    "nor is one on a window": (
        "SELECT z FROM (SELECT sum(x) OVER (ORDER BY x) AS z FROM d) AS e WHERE z > 3",
        None,
    ),
    "nor one on a LIMIT's rows": (
        "SELECT z FROM (SELECT x AS z FROM d ORDER BY x LIMIT 2) AS e WHERE z > 1",
        None,
    ),
    "nor one on DISTINCT's": (
        "SELECT z FROM (SELECT DISTINCT x AS z FROM d) AS e WHERE z > 1",
        None,
    ),
    "nor one on elements": (
        "SELECT z FROM (SELECT unnest([x, y]) AS z FROM d) AS e WHERE z > 3",
        None,
    ),
    "an aggregate of all rows": ("SELECT count(*) FROM d WHERE x > 2", "x > 2"),
    "a join's condition is looked into for none": ("SELECT d.x FROM d JOIN o ON d.x = o.x", None),
    "nor what both sides say": ("SELECT d.x FROM d JOIN o ON true WHERE d.x = o.x", None),
    "a subquery is not asked of each row": (
        "SELECT x FROM d WHERE x IN (SELECT o.x FROM o) AND y > 0",
        None,
    ),
    "nor is a time of the step's": (f"SELECT x FROM d WHERE x < {LOWER}", None),
    "a name that the reader gave it": ("SELECT e.x FROM d AS e WHERE e.x > 2", "x > 2"),
}


@pytest.mark.parametrize("name", _CASES)
def test_what_matters(name: str) -> None:
    text, expected = _CASES[name]
    found = relevance(sqlglot.parse_one(text, read="duckdb"), ["d"])
    connection = _tables()
    if expected is None:
        assert found == {}
        return
    ours = connection.sql(f"SELECT * FROM d WHERE {found['d']}").fetchall()
    assert sorted(ours, key=repr) == sorted(
        connection.sql(f"SELECT * FROM d WHERE {expected}").fetchall(), key=repr
    )


@pytest.mark.parametrize("name", _CASES)
def test_the_others_change_nothing(name: str) -> None:
    text, _ = _CASES[name]
    condition = relevance(sqlglot.parse_one(text, read="duckdb"), ["d"]).get("d", "true")
    connection = _tables()
    before = connection.sql(text).fetchall()
    connection.execute(f"DELETE FROM d WHERE NOT coalesce(({condition}), false)")
    assert sorted(connection.sql(text).fetchall(), key=repr) == sorted(before, key=repr)


def _tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE d (x int, y int)")
    connection.execute(
        "INSERT INTO d SELECT CASE WHEN a < 6 THEN a END, CASE WHEN b < 4 THEN b END FROM range(7) AS p(a), range(5) AS q(b)"
    )
    connection.execute("CREATE TABLE o AS SELECT range::int AS x FROM range(3)")
    return connection


def test_what_is_long_is_not_asked_of_each_row() -> None:
    text = "SELECT x FROM d WHERE " + " OR ".join(f"x = {n}" for n in range(1000))
    assert relevance(sqlglot.parse_one(text, read="duckdb"), ["d"]) == {}


@pytest.mark.parametrize("name", _CASES)
def test_a_lean_statement_asks_no_more_what_all_rows_pass(name: str) -> None:
    text, expected = _CASES[name]
    statement = sqlglot.parse_one(text, read="duckdb")
    conditions = relevance(statement, ["d"])
    connection = _tables()
    before = connection.sql(text).fetchall()
    condition = conditions.get("d", "true")
    connection.execute(f"DELETE FROM d WHERE NOT coalesce(({condition}), false)")
    known = {n: measured(connection.table(n).to_arrow_table(), ("x", "y")) for n in ("d", "o")}
    made = lean(satisfied(statement, conditions), known)
    assert made is not None
    found = connection.sql(made.sql(dialect="duckdb")).fetchall()
    assert sorted(found, key=repr) == sorted(before, key=repr)
    assert satisfied(statement, {}) == statement
    if expected is not None and " OR " not in expected:
        assert made.sql(dialect="duckdb").count("WHERE") < text.count("WHERE")
