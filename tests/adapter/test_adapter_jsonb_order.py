"""Documents are ordered as PostgreSQL orders them wherever an order is asked for, and collected in views that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import mzsql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MADE = (
    "CREATE TABLE d (k int, j jsonb, x int)",
    """INSERT INTO d VALUES (1, 'null', 1), (2, '1', 2), (2, '10', 3), (2, '2', 4), (1, '"b"', 5), (1, '"B"', 6), (3, 'true', 7),
    (3, 'false', 8), (3, '[]', 9), (3, '[1]', 10), (1, '[1, 2]', 11), (1, '[2]', 12), (2, '{}', 13), (2, '{"b": 1}', 14),
    (1, '{"a": 2}', 15), (1, '{"a": 1, "b": 1}', 16), (3, NULL, 17), (3, '-1.5', 18), (3, '"é"', 19), (2, '1.25', 20)""",
)
_CHANGED = (
    "INSERT INTO d VALUES (3, '0', 21), (2, '-7', 22), (1, '{\"a\": 0}', 23)",
    "DELETE FROM d WHERE x IN (2, 9, 15)",
    "UPDATE d SET j = '\"a\"' WHERE x = 16",
)

#: Each has one order of rows.
ORDERED = """
SELECT j FROM d ORDER BY j, x
SELECT j FROM d ORDER BY j DESC NULLS LAST, x LIMIT 5 OFFSET 2
SELECT DISTINCT j FROM d ORDER BY j
SELECT DISTINCT ON (k) k, j FROM d ORDER BY k, j DESC
SELECT DISTINCT ON (j) j, k FROM d ORDER BY j, k
SELECT j FROM d UNION SELECT '5' ORDER BY j
SELECT j FROM d UNION SELECT '5' ORDER BY 1 DESC LIMIT 4
VALUES (jsonb '10'), ('9'), ('null') ORDER BY column1
SELECT j, count(*) FROM d GROUP BY j ORDER BY j
SELECT k FROM d GROUP BY k ORDER BY min(j -> 'a' ->> 'b'), (array_agg(j ORDER BY j DESC))[2]
SELECT x, rank() OVER (PARTITION BY k ORDER BY j) AS r, lag(x) OVER (ORDER BY j, x) FROM d ORDER BY x
SELECT k, array_agg(x ORDER BY j, x) FROM d GROUP BY k ORDER BY k
SELECT k, jsonb_agg(j ORDER BY j, x) FROM d GROUP BY k ORDER BY k
SELECT x, j -> 'a' AS a FROM d ORDER BY 2, j, x
SELECT (SELECT j FROM d AS i WHERE i.k = o.k ORDER BY j LIMIT 1) FROM d AS o ORDER BY x
"""

VIEWS = {
    "first": "SELECT j, x FROM d ORDER BY j, x LIMIT 4",
    "last_of_each": "SELECT DISTINCT ON (k) k, j FROM d ORDER BY k, j DESC",
    "ranks": "SELECT x, rank() OVER (PARTITION BY k ORDER BY j) AS r FROM d",
    "documents": "SELECT k, jsonb_agg(j ORDER BY j, x) AS a FROM d GROUP BY k",
    "numbers": "SELECT k, jsonb_agg(x ORDER BY x DESC) FILTER (WHERE x > 3) AS a FROM d GROUP BY k",
    "rows": "SELECT jsonb_agg(ROW(x, j -> 'a') ORDER BY x) AS a FROM d",
}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("documents") / "env") as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        for statement in _MADE:
            made.execute(statement)
        yield made


def _plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with documents as what they mean."""
    return [tuple(map(_meant, row)) for row in rows]


def _meant(value: Any) -> Any:
    if isinstance(value, list):
        return [_meant(one) for one in value]
    return value.value if isinstance(value, mzsql.Jsonb) else value


@pytest.fixture(scope="module")
def theirs(postgres: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    for statement in _MADE:
        postgres.execute(statement)
    return postgres


@pytest.mark.parametrize("sql", ORDERED.strip().splitlines())
def test_documents_are_ordered_as_in_postgresql(
    con: mzsql.Connection, theirs: psycopg.Connection[Any], sql: str
) -> None:
    assert _plain(con.execute(sql).fetchall()) == _plain(theirs.execute(sql).fetchall())


def _kept(con: mzsql.Connection) -> None:
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for change in (None, *_CHANGED):
        if change is not None:
            con.execute(change)
        for name, query in VIEWS.items():
            kept = sorted(map(repr, con.execute(f"SELECT * FROM {name}").fetchall()))
            assert kept == sorted(map(repr, con.execute(query).fetchall())), (name, change)


def test_views_over_the_order_of_documents_are_kept(con: mzsql.Connection) -> None:
    _kept(con)


@pytest.mark.spark
@pytest.mark.long
def test_spark_keeps_them_too(tmp_path: Any, spark: SparkSession) -> None:
    with mzsql.connect(str(tmp_path / "env"), spark=spark) as con:
        con.execute("SET statement_timeout = '10 min'; ALTER SYSTEM SET step_engine = 'spark'")
        for statement in _MADE:
            con.execute(statement)
        _kept(con)
