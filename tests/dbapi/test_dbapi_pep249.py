"""PEP 249: module, connections, cursors, exceptions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.dbapi import errors
from mzsql.repr import errors as sql


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(tmp_path / "env")
    yield connection
    connection.close()


def test_the_module() -> None:
    assert (mzsql.apilevel, mzsql.threadsafety, mzsql.paramstyle) == ("2.0", 2, "pyformat")
    assert issubclass(mzsql.IntegrityError, mzsql.DatabaseError)
    assert issubclass(mzsql.DatabaseError, mzsql.Error)
    assert issubclass(mzsql.InterfaceError, mzsql.Error)
    assert not issubclass(mzsql.Warning, mzsql.Error)
    for name in ("Date", "Time", "Timestamp", "DateFromTicks", "Binary", "STRING", "ROWID"):
        assert hasattr(mzsql, name), name
        assert name in dir(mzsql)
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        mzsql.nope  # noqa: B018


def test_fetching(con: mzsql.Connection) -> None:
    cursor = con.cursor()
    cursor.execute("SELECT * FROM generate_series(1, 5) AS g(n) ORDER BY n")
    assert cursor.fetchone() == (1,)
    assert cursor.fetchmany(2) == [(2,), (3,)]
    assert cursor.fetchmany() == [(4,)]
    assert list(cursor) == [(5,)]
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []
    assert cursor.rowcount == 5


def test_description(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int NOT NULL, b text, c numeric(10, 2), d date)")
    cursor = con.execute("SELECT * FROM t")
    assert cursor.description is not None
    assert [(d[0], d[1], d[5], d[6]) for d in cursor.description] == [
        ("a", "integer", None, False),
        ("b", "text", None, True),
        ("c", "numeric", 2, True),
        ("d", "date", None, True),
    ]
    codes = [d[1] for d in cursor.description]
    assert codes[0] == mzsql.NUMBER
    assert codes[1] == mzsql.STRING
    assert codes[2] == mzsql.NUMBER
    assert codes[3] == mzsql.DATETIME
    assert codes[1] != mzsql.NUMBER


def test_executemany_is_one_commit(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int)")
    before = con.coordinator.commits.appends
    cursor = con.cursor().executemany("INSERT INTO t VALUES (%s)", [(n,) for n in range(5)])
    assert cursor.rowcount == 5
    assert con.coordinator.commits.appends == before + 1
    with pytest.raises(mzsql.DataError):
        con.cursor().executemany("INSERT INTO t VALUES (1 / %s)", [(1,), (0,)])
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(5,)]


def test_without_autocommit_nothing_is_kept_but_by_commit(tmp_path: Path) -> None:
    con = mzsql.connect(tmp_path / "env")
    con.execute("CREATE TABLE t (a int)")
    con.autocommit = False
    con.execute("INSERT INTO t VALUES (1)")
    con.rollback()
    con.execute("INSERT INTO t VALUES (2)")
    con.commit()
    con.execute("INSERT INTO t VALUES (3)")
    con.close()
    with mzsql.connect(tmp_path / "env") as again:
        assert again.execute("SELECT * FROM t").fetchall() == [(2,)]


def test_a_with_block_commits_or_rolls_back(tmp_path: Path) -> None:
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int)")
    with pytest.raises(mzsql.DataError), mzsql.connect(tmp_path / "env") as con:
        con.execute("BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (1 / 0)")
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("BEGIN; INSERT INTO t VALUES (2)")
    with mzsql.connect(tmp_path / "env") as con:
        assert con.execute("SELECT * FROM t").fetchall() == [(2,)]


def test_closed_things_say_so(tmp_path: Path) -> None:
    con = mzsql.connect(tmp_path / "env")
    cursor = con.execute("SELECT 1")
    cursor.close()
    with pytest.raises(mzsql.InterfaceError, match="the cursor is closed"):
        cursor.fetchone()
    with pytest.raises(mzsql.ProgrammingError, match="has no rows"):
        con.execute("CREATE TABLE t (a int)").fetchall()
    con.close()
    con.close()
    with pytest.raises(mzsql.InterfaceError, match="the connection is closed"):
        con.cursor()


def test_arrow_and_pandas(con: mzsql.Connection) -> None:
    cursor = con.execute("SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, NULL ORDER BY a")
    assert cursor.arrow().to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert cursor.pandas()["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("error", "cls"),
    [
        (sql.SqlSyntaxError("x"), errors.ProgrammingError),
        (sql.UndefinedTable("x"), errors.ProgrammingError),
        (sql.DataError("x"), errors.DataError),
        (sql.InvalidTextRepresentation("x"), errors.DataError),
        (sql.NotNullViolation("x"), errors.IntegrityError),
        (sql.DependentObjects("x"), errors.ProgrammingError),
        (sql.Unsupported("x"), errors.NotSupportedError),
        (sql.NotReadable("x"), errors.OperationalError),
        (sql.EnvironmentRefused("x"), errors.OperationalError),
        (sql.TransactionError("x"), errors.OperationalError),
        (sql.Fenced("x"), errors.OperationalError),
        (sql.InternalError("x"), errors.InternalError),
    ],
)
def test_classes_follow_from_sqlstates(error: sql.SqlError, cls: type[errors.Error]) -> None:
    found = errors.from_sql(error)
    assert type(found) is cls
    assert found.sqlstate == error.sqlstate


def test_a_bug_of_ours_is_an_internal_error(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(con.coordinator._sequencer, "run", broken)
    with pytest.raises(mzsql.InternalError, match="internal error: KeyError: 'lost'"):
        con.execute("SELECT 1")


def test_threads_may_share_a_connection(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int)")
    threads = [
        threading.Thread(target=lambda n=n: con.execute("INSERT INTO t VALUES (%s)", [n]))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert con.execute("SELECT count(DISTINCT a) FROM t").fetchall() == [(6,)]


def test_intervals_and_json() -> None:
    assert mzsql.Interval(1) == mzsql.Interval(days=30)
    assert mzsql.Interval(days=1) < mzsql.Interval(months=1)
    assert mzsql.Interval(days=2, microseconds=5).as_timedelta().days == 2
    with pytest.raises(ValueError, match="no fixed length"):
        mzsql.Interval(1).as_timedelta()
    assert mzsql.Jsonb('{"a": 1}') == mzsql.Jsonb('{"a":1}')
    assert mzsql.Jsonb('{"a": 1}').value == {"a": 1}


def test_arrow_batches_of_a_subscription_begin_with_what_was_not_fetched(tmp_path):
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2), (3)")
        ts = con.execute("SELECT count(*) FROM t").timestamp
        with con.subscribe(f"SUBSCRIBE t AS OF {ts} UP TO {ts + 1}") as cursor:
            first = cursor.fetchone()
            rest = cursor.arrow().column("a").to_pylist()
            assert sorted([first[-1], *rest]) == [1, 2, 3]
            assert cursor.fetchone() is None


@pytest.mark.parametrize(
    "text",
    ["SUBSCRIBE t; SELECT 1/0", "SUBSCRIBE t; COPY t TO STDOUT", "COPY (SUBSCRIBE t) TO STDOUT"],
)
def test_no_subscription_is_left_of_statements_that_fail(tmp_path, text):
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int)")
        with pytest.raises(mzsql.Error):
            con.execute(text)
        assert con.coordinator.subscriptions == 0


def test_copy_leaves_no_subscription_that_it_does_not_hand_out(tmp_path):
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int)")
        with pytest.raises(mzsql.Error, match="copy"), con.cursor().copy("SUBSCRIBE t"):
            pass
        assert con.coordinator.subscriptions == 0
        twice = "COPY (SUBSCRIBE t) TO STDOUT; COPY (SUBSCRIBE t) TO STDOUT"
        with con.cursor().copy(twice):
            assert con.coordinator.subscriptions == 1
        assert con.coordinator.subscriptions == 0


def test_spark_refuses_what_comes_piece_by_piece(tmp_path):
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int)")
        # what MzSpark.sql calls
        with pytest.raises(mzsql.Error, match="cannot be run through Spark"):
            con._run_for_spark("SUBSCRIBE t")
        assert con.coordinator.subscriptions == 0
