"""QUALIFY keeps rows by what windows yield; clauses of a SELECT belong to a SELECT."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from answers_kit import rows_of

import mzsql

_TABLE = (
    "CREATE TABLE t (a int, b int, s text)",
    "INSERT INTO t VALUES (1, 2, 'x'), (1, 3, 'y'), (2, NULL, 'z'), (NULL, 5, 'x'), (3, 3, NULL)",
)
_QUERIES = [
    "SELECT a, b FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST) = 1 ORDER BY a NULLS LAST",
    "SELECT a, rank() OVER (ORDER BY b) AS r FROM t QUALIFY rank() OVER (ORDER BY b) < 3 ORDER BY a",
    "SELECT a, sum(b) FROM t GROUP BY a HAVING a > 0 QUALIFY row_number() OVER (ORDER BY sum(b) DESC NULLS LAST) <= 2 ORDER BY a",
    "SELECT DISTINCT s FROM t QUALIFY count(*) OVER (PARTITION BY s) > 1",
    "SELECT a, row_number() OVER w FROM t WHERE b > 2 WINDOW w AS (ORDER BY b, a) QUALIFY row_number() OVER w = 2",
    "SELECT a, b FROM t WHERE a = 1 QUALIFY lead(b) OVER (ORDER BY b) IS NULL OR b = 7",
    "SELECT b FROM t UNION ALL SELECT a FROM t QUALIFY row_number() OVER (ORDER BY a, b) = 1 ORDER BY 1 NULLS LAST",
    "SELECT b, (SELECT max(x.b) FROM t x WHERE x.a = t.a) FROM t QUALIFY count(*) OVER (PARTITION BY a) = 2 ORDER BY b",
    # Windows of ORDER BY see what QUALIFY does not keep.
    "SELECT a, b FROM t QUALIFY row_number() OVER (ORDER BY b, a) > 2 ORDER BY count(*) OVER (PARTITION BY s), b, a",
]
_REFUSED = [
    ("SELECT a FROM t QUALIFY a", "argument of QUALIFY must be type boolean, not type integer"),
    ("SELECT a AS r FROM t QUALIFY r > 1", 'column "r" does not exist'),
    ("SELECT a FROM t GROUP BY a QUALIFY b > 1", 'column "t.b" must appear in the GROUP BY clause'),
    (
        "SELECT a FROM t QUALIFY generate_series(1, 2) > 1",
        "table functions are not allowed in QUALIFY clause",
    ),
    ("VALUES (1) QUALIFY true", "Expected end of statement, found QUALIFY"),
    ("(SELECT a FROM t) WHERE false", "Expected end of statement, found WHERE"),
    ("((SELECT a FROM t)) HAVING false", "Expected end of statement, found HAVING"),
    ("SELECT * FROM ((SELECT a FROM t) WHERE false) x", "found WHERE"),
    ("(SELECT a FROM t) UNION (SELECT 1) WHERE false", "found WHERE"),
    ("VALUES (1) GROUP BY 1", "Expected end of statement, found GROUP"),
]


@pytest.fixture(scope="module")
def con() -> Iterator[mzsql.Connection]:
    with mzsql.connect(blob="mem:", consensus="mem:") as connection:
        for statement in _TABLE:
            connection.execute(statement)
        yield connection


@pytest.mark.parametrize("query", _QUERIES)
def test_rows_are_kept_as_duckdb_keeps_them(con: mzsql.Connection, query: str) -> None:
    with duckdb.connect() as other:
        for statement in _TABLE:
            other.execute(statement)
        wanted = other.execute(query).fetchall()
    assert wanted
    assert rows_of(con, query) == wanted


def test_a_view_keeps_its_qualify(con: mzsql.Connection) -> None:
    con.execute("CREATE VIEW v AS SELECT a, b FROM t QUALIFY row_number() OVER (ORDER BY b) = 1")
    assert rows_of(con, "SELECT * FROM v") == [(1, 2)]
    (shown,) = rows_of(con, "SHOW CREATE VIEW v")
    assert "QUALIFY" in shown[1]


@pytest.mark.parametrize(("statement", "message"), _REFUSED)
def test_where_clauses_may_not_stand(con: mzsql.Connection, statement: str, message: str) -> None:
    with pytest.raises(mzsql.Error) as raised:
        con.execute(statement)
    assert message in str(raised.value)
