"""Relations without columns: rows that are nothing but their number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mzsql
from mzsql.dbapi import Connection


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    made = mzsql.connect(str(tmp_path_factory.mktemp("bare")))
    made.execute("CREATE TABLE t (a int)")
    made.execute("INSERT INTO t VALUES (1), (2), (3)")
    made.execute("CREATE TABLE bare ()")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT", 1),
        ("SELECT FROM t", 3),
        ("SELECT FROM t WHERE a > 1", 2),
        ("SELECT FROM t, t AS s", 9),
        ("SELECT FROM t LIMIT 2", 2),
        ("SELECT FROM t ORDER BY a OFFSET 1", 2),
        ("SELECT FROM (VALUES (1), (2)) v", 2),
        ("SELECT FROM generate_series(1, 4)", 4),
        ("SELECT UNION ALL SELECT", 2),
        ("SELECT UNION SELECT", 1),
        ("SELECT * FROM bare", 0),
        ("SELECT * FROM bare UNION ALL SELECT FROM t", 3),
    ],
)
def test_rows_without_columns_are_counted(con: Connection, sql: str, rows: int) -> None:
    cur = con.execute(sql)
    assert cur.description == []
    assert cur.fetchall() == [()] * rows


def test_a_table_without_columns_is_read_and_stays_empty(con: Connection) -> None:
    sql = "SELECT count(*), EXISTS (SELECT * FROM bare), 1 IN (SELECT a FROM t, bare) FROM bare"
    assert con.execute(sql).fetchall() == [(0, False, False)]
    with pytest.raises(mzsql.NotSupportedError, match="which has no columns"):
        con.execute("INSERT INTO bare DEFAULT VALUES")
    with pytest.raises(mzsql.ProgrammingError, match="0 columns available but 1 columns specified"):
        con.execute("SELECT 1 < ALL (SELECT * FROM bare)")


def test_rows_without_columns_are_copied_and_fetched(con: Connection) -> None:
    with con.cursor().copy("COPY (SELECT FROM t) TO STDOUT") as copy:
        assert b"".join(copy) == b"\n\n\n"
    con.execute("BEGIN")
    con.execute("DECLARE c CURSOR FOR SELECT FROM t")
    assert [len(con.execute(f"FETCH {n} c").fetchall()) for n in ("2", "2", "ALL")] == [2, 1, 0]
    con.execute("COMMIT")
