"""A scalar subquery with several rows is an error, also where nobody reads its value: its rows never multiply those of the query."""

from __future__ import annotations

import pytest

import mzsql

ONCE = "(SELECT b FROM t AS inside WHERE inside.a = t.a)"
UNREAD = {
    "projected away": f"SELECT a FROM (SELECT a, {ONCE} AS s FROM t) q",
    "counted": f"SELECT count(*) FROM (SELECT {ONCE} AS s FROM t) q",
    "distinct": f"SELECT DISTINCT a FROM (SELECT a, {ONCE} AS s FROM t) q",
    "joined": f"SELECT q.a FROM (SELECT a, {ONCE} AS s FROM t) q JOIN t USING (a)",
    "in EXISTS": f"SELECT 1 WHERE EXISTS (SELECT {ONCE} FROM t)",
    "uncorrelated": "SELECT a FROM (SELECT a, (SELECT b FROM t) AS s FROM t) q",
    "of a CTE": f"WITH q AS (SELECT a, {ONCE} AS s FROM t) SELECT a FROM q UNION ALL SELECT a FROM q",
}


@pytest.fixture
def connection():
    with mzsql.connect(blob="mem:", consensus="mem:") as connection:
        connection.execute("CREATE TABLE t (a int, b int)")
        yield connection


@pytest.mark.parametrize("query", UNREAD.values(), ids=UNREAD)
def test_a_value_that_nobody_reads_does_not_multiply_rows(connection, query):
    connection.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    connection.execute("INSERT INTO t VALUES (1, 10), (2, 20), (1, 30)")
    for asked in (query, "SELECT * FROM v"):
        with pytest.raises(mzsql.Error, match="more than one record produced in subquery") as found:
            connection.execute(asked).fetchall()
        assert found.value.sqlstate == "21000"
    connection.execute("DELETE FROM t WHERE b <> 20")
    rows = connection.execute(query).fetchall()
    assert rows == connection.execute("SELECT * FROM v").fetchall()
    assert rows == (
        [(2,), (2,)]
        if "UNION" in query
        else [(1,)]
        if "1 WHERE" in query or "count" in query
        else [(2,)]
    )
