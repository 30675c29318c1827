"""ARRAY, LIST and MAP of a query: its rows, in its own order, however that is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from answers_kit import check_same, rows_of

import mzsql

_TABLE = (
    "CREATE TABLE t (a int, b int, s text)",
    "INSERT INTO t VALUES (1, 2, 'x'), (1, 3, 'y'), (2, NULL, 'z'), (NULL, 5, 'x'), (3, 3, NULL)",
)
_SHARED = [
    "SELECT ARRAY(SELECT a AS z FROM t ORDER BY z DESC, b)",
    "SELECT ARRAY(SELECT a FROM t ORDER BY b DESC, a)",
    "SELECT ARRAY(SELECT a FROM t ORDER BY b DESC NULLS LAST, a LIMIT 3)",
    "SELECT ARRAY(SELECT a FROM t ORDER BY b DESC NULLS LAST, a OFFSET 2)",
    "SELECT ARRAY(SELECT DISTINCT a FROM t ORDER BY a DESC)",
    "SELECT ARRAY(SELECT DISTINCT ON (a) b FROM t ORDER BY a DESC, b)",
    "SELECT ARRAY(SELECT 1 UNION SELECT 2 ORDER BY 1 DESC)",
    "SELECT ARRAY((SELECT 1 LIMIT 1) UNION ALL (SELECT 2 LIMIT 1) ORDER BY 1 DESC)",
    "SELECT ARRAY(WITH x AS (SELECT a FROM t) SELECT a FROM x ORDER BY a DESC)",
    "SELECT ARRAY(VALUES (2), (3), (1) ORDER BY 1)",
    "SELECT ARRAY(VALUES (2), (3), (1) ORDER BY column1 DESC LIMIT 2)",
    "SELECT ARRAY((SELECT a FROM t ORDER BY a DESC)), ARRAY(((SELECT 1)))",
    "SELECT ARRAY(TABLE one ORDER BY n)",
    "SELECT ARRAY(SELECT max(b) FROM t GROUP BY a ORDER BY count(*), max(b))",
    "SELECT ARRAY(SELECT generate_series(1, 3) ORDER BY 1 DESC)",
    "SELECT ARRAY(SELECT ARRAY[a, b] FROM t ORDER BY a, b)",
    "SELECT ARRAY(SELECT ARRAY[a] FROM t WHERE false)",
    "SELECT array_length(ARRAY(SELECT ARRAY[a] FROM t), 1)",
    "SELECT ARRAY(SELECT 'x' WHERE false), ARRAY(SELECT NULL), ARRAY(SELECT 1)::text",
    "SELECT a, ARRAY(SELECT t2.b FROM t t2 WHERE t2.a = t.a ORDER BY t2.b DESC LIMIT 1) FROM t ORDER BY a, b",
    "SELECT a, ARRAY(SELECT sum(t2.b) FROM t t2 WHERE t2.a > t.a) FROM t GROUP BY a ORDER BY a",
    "SELECT ARRAY(SELECT 1) || ARRAY(SELECT 2), (ARRAY(SELECT a FROM t ORDER BY a))[3]",
    "SELECT ARRAY(SELECT 1 UNION ALL SELECT 2 ORDER BY 1) UNION ALL SELECT ARRAY[3] ORDER BY 1",
]
_OWN: list[tuple[str, Any]] = [
    ("MAP(SELECT s, a FROM t ORDER BY b)::text", "{x=>NULL,y=>1,z=>2}"),
    ("MAP(SELECT s, a FROM t ORDER BY b DESC)::text", "{x=>1,y=>1,z=>2}"),
    ("MAP(SELECT s, a FROM t ORDER BY b LIMIT 2)::text", "{x=>1,y=>1}"),
    ("MAP(SELECT s, a FROM t WHERE false)::text", "{}"),
    ("MAP(VALUES ('a', 1), ('b', 2)) -> 'b'", 2),
    ("LIST(SELECT a FROM t ORDER BY b DESC NULLS LAST, a LIMIT 3)::text", "{NULL,1,3}"),
    ("LIST(SELECT LIST[a] FROM t WHERE a > 1 ORDER BY a DESC)::text", "{{3},{2}}"),
    ("LIST(SELECT 1 WHERE false)::text", "{}"),
]
_REFUSED = [
    ("SELECT ARRAY(SELECT 1, 2)", "Expected subselect to return 1 column, got 2 columns"),
    ("SELECT LIST(SELECT * FROM t)", "Expected subselect to return 1 column, got 3 columns"),
    ("SELECT ARRAY(1)", "Expected SELECT, VALUES, or a subquery in the query body, found number"),
    ("SELECT MAP(SELECT s FROM t)", "expected map subquery to return 2 columns, got 1 columns"),
    (
        "SELECT MAP(SELECT a, s FROM t)",
        "cannot build map from subquery because first column is not of type text",
    ),
]


@pytest.fixture(scope="module")
def con(postgres: psycopg.Connection[Any]) -> Iterator[mzsql.Connection]:
    with mzsql.connect(blob="mem:", consensus="mem:") as connection:
        for statement in (*_TABLE, "CREATE TABLE one (n int)", "INSERT INTO one VALUES (2), (1)"):
            connection.execute(statement)
            postgres.execute(statement.encode())
        yield connection


@pytest.mark.parametrize("query", _SHARED)
def test_arrays_of_queries_are_postgresqls(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], query: str
) -> None:
    check_same(con, postgres, query)


@pytest.mark.parametrize(("expression", "wanted"), _OWN)
def test_lists_and_maps_of_queries(con: mzsql.Connection, expression: str, wanted: Any) -> None:
    assert rows_of(con, f"SELECT {expression}") == [(wanted,)]


@pytest.mark.parametrize(("statement", "message"), _REFUSED)
def test_queries_that_fit_no_container(con: mzsql.Connection, statement: str, message: str) -> None:
    with pytest.raises(mzsql.Error) as raised:
        con.execute(statement)
    assert message in str(raised.value)
