"""Statements end to end on files and SQLite, DuckDB as the independent engine where answers are computed."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator

import duckdb
import pytest

import mzsql


@pytest.fixture
def con(env: str) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(env)
    yield connection
    connection.close()


def rows(con: mzsql.Connection, sql: str, params: object = None) -> list[tuple[object, ...]]:
    return con.execute(sql, params).fetchall()  # type: ignore[arg-type]


SCRIPT = (
    "CREATE TABLE t (a integer NOT NULL, b text, c numeric(10, 2))",
    "CREATE TABLE s (a integer, d date)",
    "INSERT INTO t VALUES (1, 'x', 1.50), (2, NULL, 2.25), (2, 'y', 3), (2, 'y', 3)",
    "INSERT INTO s VALUES (1, '2024-02-29'), (3, NULL), (2, '1999-12-31')",
    "UPDATE t SET c = c * 2, b = 'z' WHERE b IS NULL",
    "DELETE FROM s WHERE a = 3",
    "INSERT INTO t SELECT a + 10, b, c FROM t WHERE a = 1",
)
QUERIES = (
    "SELECT a, b, c FROM t",
    "SELECT count(*), sum(c), min(b), max(a) FROM t",
    "SELECT b, count(*) AS n FROM t GROUP BY b HAVING count(*) > 1",
    "SELECT t.a, s.d FROM t LEFT JOIN s ON t.a = s.a",
    "SELECT DISTINCT a FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.a = t.a)",
    "SELECT a FROM t WHERE c > (SELECT avg(c) FROM t)",
    "SELECT a FROM t UNION SELECT a FROM s",
    "SELECT a FROM t EXCEPT ALL SELECT a FROM s",
    "SELECT a, b FROM t ORDER BY c DESC, a, b LIMIT 2 OFFSET 1",
    "WITH big AS (SELECT a FROM t WHERE c >= 3) SELECT count(*) FROM big",
)


def test_dml_and_queries_answer_as_duckdb_does(con: mzsql.Connection) -> None:
    other = duckdb.connect()
    for statement in SCRIPT:
        con.execute(statement)
        other.execute(statement)
    for query in QUERIES:
        expected = other.execute(query).fetchall()
        assert sorted(map(repr, rows(con, query))) == sorted(map(repr, expected)), query


def test_order_is_kept(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE n (a int)")
    con.execute("INSERT INTO n VALUES (3), (1), (NULL), (2)")
    assert rows(con, "SELECT a FROM n ORDER BY a") == [(1,), (2,), (3,), (None,)]
    assert rows(con, "SELECT a FROM n ORDER BY a DESC LIMIT 2") == [(None,), (3,)]


def test_counts_and_tags(con: mzsql.Connection) -> None:
    assert con.execute("CREATE TABLE t (a int)").statusmessage == "CREATE TABLE"
    cursor = con.execute("INSERT INTO t VALUES (1), (2), (3)")
    assert (cursor.statusmessage, cursor.rowcount, cursor.description) == ("INSERT 0 3", 3, None)
    assert con.execute("UPDATE t SET a = a + 1 WHERE a > 1").rowcount == 2
    assert con.execute("DELETE FROM t WHERE a = 1").statusmessage == "DELETE 1"
    assert con.execute("SELECT * FROM t").rowcount == 2


def test_views_see_through_to_tables(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)")
    con.execute("CREATE VIEW v AS SELECT a * 10 AS x FROM t")
    con.execute("CREATE VIEW w AS SELECT sum(x) AS total FROM v")
    con.execute("INSERT INTO t VALUES (3)")
    assert rows(con, "SELECT total FROM w") == [(60,)]
    assert rows(con, "SHOW VIEWS") == [("v", ""), ("w", "")]


def test_everything_survives_reopening(env: str) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int, b text DEFAULT 'd'); INSERT INTO t (a) VALUES (1)")
        con.execute("CREATE VIEW v AS SELECT b FROM t")
    with mzsql.connect(env) as con:
        assert rows(con, "SELECT * FROM v") == [("d",)]
        con.execute("INSERT INTO t VALUES (2, 'e')")
        assert rows(con, "SELECT a, b FROM t ORDER BY a") == [(1, "d"), (2, "e")]


def test_values_come_as_python_knows_them(con: mzsql.Connection) -> None:
    cursor = con.execute(
        "SELECT 1.50::numeric(5, 2), 2.5::numeric, DATE '2024-02-29', TIMESTAMP '2020-01-02 03:04:05.678',"
        " INTERVAL '1 year 2 days 03:00:00', true, NULL::int, 'x'::text, 1::bigint, 1.5::double"
    )
    assert cursor.fetchone() == (
        decimal.Decimal("1.50"),
        decimal.Decimal("2.5"),
        dt.date(2024, 2, 29),
        dt.datetime(2020, 1, 2, 3, 4, 5, 678000),
        mzsql.Interval(12, 2, 3 * 3_600_000_000),
        True,
        None,
        "x",
        1,
        1.5,
    )
    assert str(mzsql.Interval(12, 2, 3 * 3_600_000_000)) == "1 year 2 days 03:00:00"


def test_parameters(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int, b text)")
    con.execute("INSERT INTO t VALUES (%s, %s)", (1, "it's 100%"))
    con.execute("INSERT INTO t VALUES (%(a)s, %(b)s)", {"a": 2, "b": None})
    assert rows(con, "SELECT b FROM t WHERE a = %s", [1]) == [("it's 100%",)]
    assert rows(con, "SELECT a FROM t WHERE b LIKE '%100%'") == [(1,)]


@pytest.mark.parametrize(
    ("sql", "cls", "message"),
    [
        ("SELEC 1", mzsql.ProgrammingError, "Expected"),
        ("SELECT * FROM nope", mzsql.ProgrammingError, "unknown catalog item 'nope'"),
        ("SELECT nope FROM t", mzsql.ProgrammingError, 'column "nope" does not exist'),
        ("SELECT nope(a) FROM t", mzsql.ProgrammingError, 'function "?nope"?.* does not exist'),
        ("SELECT a FROM t, t AS u", mzsql.ProgrammingError, 'column reference "a" is ambiguous'),
        (
            "SELECT a FROM t GROUP BY b",
            mzsql.ProgrammingError,
            "must appear in the GROUP BY clause",
        ),
        ("SELECT a + b FROM t", mzsql.ProgrammingError, "operator does not exist"),
        ("SELECT 1 / 0", mzsql.DataError, "division by zero"),
        (
            "INSERT INTO t VALUES (NULL, 'x')",
            mzsql.IntegrityError,
            'null value in column "a" violates not-null',
        ),
        (
            "INSERT INTO t VALUES ('x', 'x')",
            mzsql.DataError,
            "invalid input syntax for type integer",
        ),
        (
            "CREATE TABLE t (a int)",
            mzsql.ProgrammingError,
            'table "materialize.public.t" already exists',
        ),
        (
            "DROP TABLE t",
            mzsql.ProgrammingError,
            'cannot drop table "t": still depended upon by view "v"',
        ),
        ("INSERT INTO v VALUES (1)", mzsql.DatabaseError, "cannot .*"),
        ("SET nope = 1", mzsql.ProgrammingError, 'unrecognized configuration parameter "nope"'),
        (
            "SELECT a FROM t AS OF 1",
            mzsql.DatabaseError,
            r"Timestamp \(1\) is not valid for all inputs",
        ),
    ],
)
def test_errors_are_for_a_person(
    con: mzsql.Connection, sql: str, cls: type[Exception], message: str
) -> None:
    con.execute("CREATE TABLE t (a int NOT NULL, b text); CREATE VIEW v AS SELECT a FROM t")
    con.execute("INSERT INTO t VALUES (0, 'zero')")
    assert rows(con, "SELECT count(*) FROM t") == [(1,)]
    con.coordinator.env.collections.release_history(10**15)
    with pytest.raises(cls, match=message) as caught:
        con.execute(sql)
    assert not isinstance(caught.value, mzsql.InternalError)
    assert caught.value.sqlstate  # type: ignore[attr-defined]
    assert rows(con, "SELECT * FROM t") == [(0, "zero")]


def test_a_syntax_error_names_its_position(con: mzsql.Connection) -> None:
    with pytest.raises(mzsql.ProgrammingError) as caught:
        con.execute("SELECT 1 FRM t WHERE")
    assert caught.value.position


def test_drop_cascade_and_recreate(con: mzsql.Connection) -> None:
    con.execute(
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT a FROM t"
    )
    con.execute("DROP TABLE t CASCADE")
    assert rows(con, "SHOW TABLES") == []
    con.execute("DROP TABLE IF EXISTS t")
    assert [n.message for n in con.notices] == ['table "t" does not exist, skipping']
    con.execute("CREATE TABLE t (a text)")
    assert rows(con, "SELECT * FROM t") == []


def test_as_of_reads_history(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    cursor = con.execute("SELECT * FROM t")
    then = cursor.timestamp
    con.execute("DELETE FROM t")
    assert rows(con, "SELECT * FROM t") == []
    assert rows(con, f"SELECT * FROM t AS OF {then}") == [(1,)]


class TestTransactions:
    def test_writes_commit_as_one(self, con: mzsql.Connection, env: str) -> None:
        con.execute("CREATE TABLE t (a int); CREATE TABLE s (a int)")
        before = con.coordinator.commits.appends
        con.execute("BEGIN")
        con.execute("INSERT INTO t VALUES (1)")
        con.execute("INSERT INTO s VALUES (2)")
        con.execute("DELETE FROM t WHERE a = 1")
        con.execute("INSERT INTO t VALUES (3)")
        with mzsql.connect(env) as other:
            assert rows(other, "SELECT * FROM t") == []
        con.execute("COMMIT")
        assert con.coordinator.commits.appends == before + 1
        assert rows(con, "SELECT t.a, s.a FROM t, s") == [(3, 2)]

    def test_rollback_and_failure_leave_nothing(self, con: mzsql.Connection) -> None:
        con.execute("CREATE TABLE t (a int)")
        con.execute("BEGIN; INSERT INTO t VALUES (1); ROLLBACK")
        con.execute("BEGIN; INSERT INTO t VALUES (1)")
        with pytest.raises(mzsql.DataError):
            con.execute("INSERT INTO t VALUES (1 / 0)")
        with pytest.raises(mzsql.OperationalError, match="current transaction is aborted"):
            con.execute("INSERT INTO t VALUES (2)")
        assert con.execute("COMMIT").statusmessage == "ROLLBACK"
        assert rows(con, "SELECT * FROM t") == []

    def test_reads_of_one_transaction_are_of_one_time(
        self, con: mzsql.Connection, env: str
    ) -> None:
        con.execute("CREATE TABLE t (a int)")
        con.execute("BEGIN")
        assert rows(con, "SELECT count(*) FROM t") == [(0,)]
        with mzsql.connect(env) as other:
            other.execute("INSERT INTO t VALUES (1)")
        assert rows(con, "SELECT count(*) FROM t") == [(0,)]
        con.execute("COMMIT")
        assert rows(con, "SELECT count(*) FROM t") == [(1,)]

    def test_kinds_do_not_mix(self, con: mzsql.Connection) -> None:
        con.execute("CREATE TABLE t (a int)")
        con.execute("BEGIN; SELECT * FROM t")
        with pytest.raises(mzsql.OperationalError, match="transaction in read-only mode"):
            con.execute("INSERT INTO t VALUES (1)")
        con.execute("ROLLBACK; BEGIN; INSERT INTO t VALUES (1)")
        with pytest.raises(mzsql.OperationalError, match="transaction in write-only mode"):
            con.execute("SELECT * FROM t")
        con.execute("ROLLBACK")

    def test_a_conflict_fails_the_commit(self, con: mzsql.Connection, env: str) -> None:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        con.execute("BEGIN; UPDATE t SET a = a + 1")
        with mzsql.connect(env) as other:
            other.execute("UPDATE t SET a = a + 10")
        with pytest.raises(mzsql.OperationalError, match="could not serialize access") as caught:
            con.execute("COMMIT")
        assert caught.value.sqlstate == "40001"
        assert rows(con, "SELECT * FROM t") == [(11,)]


def test_a_transaction_reads_its_own_writes_beside_stored_rows(con: mzsql.Connection) -> None:
    # Enough rows that they lie in Parquet, whose schema says more about NULLs than one made in memory.
    con.execute("CREATE TABLE many (a int NOT NULL, b text)")
    con.execute("INSERT INTO many SELECT g, 'x' || g::text FROM generate_series(1, 40000) AS g(g)")
    con.execute("BEGIN")
    con.execute("DELETE FROM many WHERE a <= 10")
    con.execute("DELETE FROM many WHERE a > 100")
    con.execute("UPDATE many SET b = 'y' WHERE a = 50")
    con.execute("COMMIT")
    answer = con.execute("SELECT count(*), min(a), max(a), max(b) FROM many").fetchall()
    assert answer == [(90, 11, 100, "y")]
