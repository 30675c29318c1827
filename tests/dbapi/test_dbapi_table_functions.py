"""Table functions in select lists, ORDER BY and FROM: beside each other, beside scalar functions, and where none may stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from answers_kit import check_same

import mzsql

_SHARED = [
    "SELECT generate_series(1, 3) AS x ORDER BY generate_series(1, 3) DESC",
    "SELECT 1 AS x ORDER BY generate_series(1, 3) DESC",
    "SELECT a, generate_series(1, 2) AS x FROM t ORDER BY generate_series(1, 3) DESC, 1, 2",
    "SELECT a, generate_series(1, 2) + 1 AS x FROM t ORDER BY generate_series(1, 2) DESC, 1, 2",
    "SELECT a FROM t ORDER BY a + generate_series(1, 2), a",
    "SELECT DISTINCT generate_series(1, 2) FROM t ORDER BY generate_series(1, 2) DESC",
    "SELECT * FROM lower('X') WITH ORDINALITY",
    "SELECT p, q FROM lower('X') WITH ORDINALITY AS z (p, q)",
    "SELECT * FROM ROWS FROM (upper('x'), generate_series(1, 2), abs(-3)) AS z",
    "SELECT * FROM ROWS FROM (upper(NULL), generate_series(1, 2)) WITH ORDINALITY",
    "SELECT * FROM t, ROWS FROM (upper(t.s), generate_series(1, a)) AS z (u, g) ORDER BY 1, 2, 3, 4",
]
_REFUSED = [
    ("SELECT DISTINCT a FROM t ORDER BY generate_series(1, 2)", "for SELECT DISTINCT, ORDER BY"),
    (
        "SELECT generate_series(1, generate_series(1, 2))",
        "table functions are not allowed in other table functions (function pg_catalog.generate_series)",
    ),
    (
        "SELECT * FROM generate_series(1, generate_series(1, 2))",
        "table functions are not allowed in table function arguments",
    ),
    (
        "SELECT * FROM generate_series(1, sum(1))",
        "aggregate functions are not allowed in table function arguments (function pg_catalog.sum)",
    ),
    ("SELECT * FROM sum(1)", "aggregate functions are not supported in functions in FROM"),
    (
        "SELECT * FROM ROWS FROM (generate_series(1, 2), count(1))",
        "aggregate functions are not supported in functions in FROM",
    ),
    ("SELECT * FROM row_number()", "window functions are not supported in functions in FROM"),
    (
        "SELECT csv_extract(0, 'a')",
        "csv_extract number of columns must be a positive integer literal",
    ),
    (
        "SELECT * FROM t, csv_extract(a, 'a')",
        "csv_extract number of columns must be a positive integer literal",
    ),
    ("SELECT csv_extract(1001, 'a')", "csv_extract number of columns must be at most 1000"),
    ("SELECT lower(*)", "* argument is invalid with non-aggregate function lower"),
    ("SELECT count(DISTINCT *) FROM t", "DISTINCT * not supported as function args"),
    ("SELECT coalesce()", "Expected an expression, found right parenthesis"),
    ("SELECT least()", "Expected an expression, found right parenthesis"),
    ("SELECT nullif()", "Expected an expression, found right parenthesis"),
    ("SELECT nullif(1)", "Expected comma, found right parenthesis"),
    ("SELECT nullif(1, 2, 3)", "Expected right parenthesis, found comma"),
    (
        "SELECT lag(a) IGNORE NULLS RESPECT NULLS OVER () FROM t",
        "Both IGNORE NULLS and RESPECT NULLS were given.",
    ),
    ("SELECT lag(a) IGNORE NULLS FROM t", "Expected OVER, found FROM"),
    (
        "WITH x (b, c) AS (SELECT 1) SELECT * FROM x",
        "CTE x definition names 2 columns, but CTE x has 1 column",
    ),
]


@pytest.fixture(scope="module")
def con(postgres: psycopg.Connection[Any]) -> Iterator[mzsql.Connection]:
    with mzsql.connect(blob="mem:", consensus="mem:") as connection:
        for statement in (
            "CREATE TABLE t (a int, s text)",
            "INSERT INTO t VALUES (1, 'x'), (2, NULL), (NULL, 'y'), (3, 'z')",
        ):
            connection.execute(statement)
            postgres.execute(statement.encode())
        yield connection


@pytest.mark.parametrize("query", _SHARED)
def test_table_functions_yield_postgresqls_rows(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], query: str
) -> None:
    check_same(con, postgres, query)


@pytest.mark.parametrize(("statement", "message"), _REFUSED)
def test_what_stands_where_it_may_not(con: mzsql.Connection, statement: str, message: str) -> None:
    with pytest.raises(mzsql.Error) as raised:
        con.execute(statement)
    assert message in str(raised.value)
