"""INSERT, UPDATE and DELETE with RETURNING, compared with PostgreSQL statement by statement."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

import mzsql
from mzsql.dbapi import Connection

_TABLES = """CREATE TABLE t (i int, n numeric(10, 2) DEFAULT 7.5, s text DEFAULT 'none');
CREATE TABLE u (i int NOT NULL, s text);"""

#: What the refused statements meet, whatever ran before them.
_FULL = """CREATE TABLE several (i int);
INSERT INTO several VALUES (1), (2);
CREATE TABLE full_u (i int NOT NULL, s text);
INSERT INTO full_u VALUES (1, 'one'), (2, 'two');"""

#: Run one after the other on both sides.
_STATEMENTS = [
    "INSERT INTO t VALUES (1, 1.005, 'a'), (2, NULL, 'b'), (2, NULL, 'b') RETURNING *",
    "INSERT INTO t (i) VALUES (3) RETURNING s, i + 1, n AS number",
    "INSERT INTO t (s, i) VALUES ('x', 4), (DEFAULT, 5) RETURNING t.i, upper(t.s), *",
    "INSERT INTO t DEFAULT VALUES RETURNING i IS NULL, n",
    "INSERT INTO t AS new (i) VALUES (6) RETURNING new.i, new.*, (SELECT count(*) FROM t), 'const'",
    "INSERT INTO t SELECT i + 10, n, s || '!' FROM t WHERE i < 3 RETURNING i, length(s)",
    "INSERT INTO t SELECT 99, 1, 'z' WHERE false RETURNING i",
    "INSERT INTO u VALUES (1, 'one'), (2, 'two') RETURNING i, (SELECT max(t.i) FROM t WHERE t.i <= u.i + 1)",
    "UPDATE t SET i = i + 100, s = DEFAULT WHERE i = 2 RETURNING i, s, n",
    "UPDATE t AS old SET n = i WHERE i > 5 RETURNING old.i, n, CASE WHEN n > 10 THEN 'much' END",
    "UPDATE t SET n = 0 WHERE i = -1 RETURNING *",
    "UPDATE t SET (n, s) = (n + 1, s || '+') WHERE i < 12 RETURNING *",
    "UPDATE t SET (s, n) = ROW(DEFAULT, i), i = i + 1 WHERE i = 3 RETURNING i, s, n",
    "UPDATE t SET (n, s) = (SELECT max(u.i) + t.i, min(u.s) FROM u WHERE u.i <= t.i) WHERE i IN (4, 5) RETURNING *",
    "UPDATE t SET (s) = ROW('alone') WHERE i = 6 RETURNING s",
    "DELETE FROM t WHERE i = 102 RETURNING *",
    "DELETE FROM t AS gone WHERE i < 4 RETURNING gone.s || i::text, EXISTS (SELECT 1 FROM t WHERE i = 4)",
    "SELECT * FROM t",
    "SELECT * FROM u",
]

_REFUSED = [
    "INSERT INTO full_u VALUES (7, 'x') RETURNING nope",
    "INSERT INTO full_u VALUES (7, 'x') RETURNING count(*)",
    "INSERT INTO full_u VALUES (7, 'x') RETURNING row_number() OVER ()",
    "INSERT INTO full_u VALUES (7, 'x') RETURNING generate_series(1, 2)",
    "INSERT INTO full_u VALUES (7, 'x') RETURNING 1 / (i - 7)",
    "INSERT INTO full_u VALUES (7, 'x') RETURNING",
    "INSERT INTO full_u VALUES (NULL, 'x') RETURNING i",
    "INSERT INTO full_u AS v VALUES (7, 'x') RETURNING full_u.i",
    "UPDATE full_u SET s = 'new' RETURNING 1 / (i - 1)",
    "DELETE FROM full_u RETURNING 1 / (i - 1)",
    "UPDATE full_u SET (i, s) = (1)",
    "UPDATE full_u SET (i, s) = (SELECT 1)",
    "UPDATE full_u SET (i, s) = (SELECT 1, 'a', 2)",
    "UPDATE full_u SET (i, i) = (1, 2)",
    "UPDATE full_u SET (i, s) = 3",
    "UPDATE full_u SET (i, s) = (SELECT i, 'a' FROM several)",
]


@pytest.fixture(scope="module")
def postgres(postgres: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    postgres.execute(_TABLES + _FULL)
    return postgres


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    con = mzsql.connect(str(tmp_path_factory.mktemp("returned")))
    con.execute(_TABLES + _FULL)
    yield con
    con.close()


def _answer(con: Any, sql: str) -> tuple[int, list[str], list[str]]:
    cur = con.execute(sql)
    names = [column[0] for column in cur.description]
    rows = sorted(repr([_plain(v) for v in row]) for row in cur.fetchall())
    return cur.rowcount, names, rows


def _plain(value: Any) -> Any:
    return value.normalize() if isinstance(value, Decimal) else value


def test_each_statement_returns_what_postgres_returns(
    ours: Connection, postgres: psycopg.Connection[Any]
) -> None:
    for sql in _STATEMENTS:
        assert _answer(ours, sql) == _answer(postgres, sql), sql


@pytest.mark.parametrize("sql", _REFUSED)
def test_what_cannot_be_returned_is_not_written(
    ours: Connection, postgres: psycopg.Connection[Any], sql: str
) -> None:
    before = _answer(ours, "SELECT * FROM full_u")
    with pytest.raises(psycopg.Error) as theirs:
        postgres.execute(sql)
    with pytest.raises(mzsql.Error) as mine:
        ours.execute(sql)
    if "division by zero" in str(theirs.value):
        assert "division by zero" in str(mine.value)
    assert _answer(ours, "SELECT * FROM full_u") == before


def test_a_transaction_sees_what_it_has_written(ours: Connection) -> None:
    ours.execute("CREATE TABLE w (i int, s text)")
    ours.execute("BEGIN")
    assert ours.execute("INSERT INTO w VALUES (1, 'a'), (2, 'b') RETURNING i").fetchall() == [
        (1,),
        (2,),
    ]
    assert ours.execute("UPDATE w SET s = s || '!' WHERE i = 2 RETURNING s").fetchall() == [("b!",)]
    assert ours.execute("DELETE FROM w WHERE i = 1 RETURNING *").fetchall() == [(1, "a")]
    ours.execute("ROLLBACK")
    assert ours.execute("SELECT * FROM w").fetchall() == []


def test_parameters_and_prepared_statements_return_too(ours: Connection) -> None:
    ours.execute("CREATE TABLE p (i int)")
    assert ours.execute("INSERT INTO p VALUES (%s) RETURNING i * %s", [4, 10]).fetchall() == [(40,)]
    ours.execute("PREPARE more (int) AS INSERT INTO p SELECT $1 RETURNING i + $1")
    assert ours.execute("EXECUTE more (5)").fetchall() == [(10,)]


def test_a_result_that_is_too_large_writes_nothing(ours: Connection) -> None:
    ours.execute("CREATE TABLE large (s text)")
    ours.execute("SET max_query_result_size = '1kB'")
    with pytest.raises(mzsql.Error, match="result exceeds max size"):
        ours.execute("INSERT INTO large VALUES ('x') RETURNING repeat(s, 10000)")
    ours.execute("RESET max_query_result_size")
    assert ours.execute("SELECT count(*) FROM large").fetchall() == [(0,)]
