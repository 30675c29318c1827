"""RETAIN HISTORY: how far back an object can be read, what says so, and for how long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mzsql
from mzsql.adapter.dataflows import history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """History is given up at once where nothing retains it."""
    monkeypatch.setattr(history, "RELEASE_SECONDS", 0.0)
    monkeypatch.setattr(history, "RETAIN_MS", 200)
    return str(tmp_path / "env")


def create_sql(con: mzsql.Connection, kind: str, name: str) -> str:
    ((_, text),) = con.execute(f"SHOW CREATE {kind} {name}").fetchall()
    return str(text)


def read_at(con: mzsql.Connection, ts: int, query: str = "SELECT a FROM t ORDER BY a") -> list[int]:
    return [row[0] for row in con.execute(f"{query} AS OF {ts}").fetchall()]


def give_up(con: mzsql.Connection, table: str = "u") -> None:
    """Have history released up to a time after this call."""
    env = con.coordinator.env
    now = env.clock.now_ms()
    item = env.catalog.state.by_name("public", table)
    assert item is not None
    deadline = time.monotonic() + 120
    while (env.collections.since(item.id) or 0) <= now:
        assert time.monotonic() < deadline
        con.execute(f"INSERT INTO {table} VALUES (0)")
        con.execute(f"SELECT count(*) FROM {table}")
        con.coordinator.dataflows.tick()
        time.sleep(0.05)


def test_a_table_is_read_within_its_window_and_not_beyond(env: str) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE u (a int)")
        con.execute("CREATE TABLE t (a int) WITH (RETAIN HISTORY FOR '1 hour')")
        con.execute("CREATE TABLE s (a int)")
        con.execute("INSERT INTO t VALUES (1); INSERT INTO s VALUES (1)")
        then = con.execute("SELECT a FROM t").timestamp
        assert then is not None
        con.execute("SELECT * FROM s; INSERT INTO t VALUES (2); INSERT INTO s VALUES (2)")
        con.execute("SELECT * FROM s")
        give_up(con)
        assert read_at(con, then) == [1]
        with pytest.raises(mzsql.Error, match="is not valid for all inputs"):
            read_at(con, then, "SELECT a FROM s")
    # and after a restart, which may last
    with mzsql.connect(env) as con:
        assert read_at(con, then) == [1]
        give_up(con)
        assert read_at(con, then) == [1]
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        con.execute("ALTER TABLE t RESET (RETAIN HISTORY)")
        give_up(con)
        give_up(con, "t")
        with pytest.raises(mzsql.Error, match="is not valid for all inputs"):
            read_at(con, then)


def test_altering_retains_from_then_on_in_all_processes(env: str) -> None:
    with mzsql.connect(env) as con, mzsql.connect(env, read_only=True) as other:
        con.execute("CREATE TABLE t (a int); CREATE TABLE u (a int); INSERT INTO t VALUES (1)")
        con.execute("ALTER TABLE t SET (RETAIN HISTORY = FOR '2 days 3 hours')")
        then = con.execute("SELECT a FROM t").timestamp
        assert then is not None
        assert other.execute("SELECT a FROM t").fetchall() == [(1,)]
        con.execute("INSERT INTO t VALUES (2); SELECT * FROM t")
        give_up(con)
        other.coordinator.dataflows.tick()
        assert read_at(con, then) == [1]
        assert read_at(other, then) == [1]
        assert "RETAIN HISTORY = FOR '2 days 03:00:00'" in create_sql(other, "TABLE", "t")


def test_show_create_says_what_was_asked_for_last(env: str) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int DEFAULT 1 + 1, b text NOT NULL)")
        plain = create_sql(con, "TABLE", "t")
        con.execute("ALTER TABLE t SET (RETAIN HISTORY FOR '1d')")
        retaining = create_sql(con, "TABLE", "t")
        assert retaining == plain + " WITH (RETAIN HISTORY = FOR '1 day')"
        # what SHOW CREATE prints can be run
        again = retaining.replace('"t"', '"again"').replace("public.t ", "public.again ")
        con.execute(again)
        assert create_sql(con, "TABLE", "again") == again
        con.execute("ALTER TABLE t RESET (RETAIN HISTORY)")
        assert create_sql(con, "TABLE", "t") == plain
        con.execute("ALTER TABLE IF EXISTS missing RESET (RETAIN HISTORY)")
        assert ["does not exist, skipping" in n.message for n in con.notices] == [True]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE n (a int) WITH (RETAIN HISTORY FOR '1 month')", "no fixed length"),
        ("CREATE TABLE n (a int) WITH (RETAIN HISTORY FOR '0 s')", "at least a millisecond"),
        ("CREATE TABLE n (a int) WITH (RETAIN HISTORY FOR '-1 day')", "at least a millisecond"),
        ("CREATE TABLE n (a int) WITH (RETAIN HISTORY FOR 'long')", "invalid input syntax"),
        ("CREATE TABLE n (a int) WITH (RETAIN HISTORY '1 day')", "FOR"),
        ("CREATE TABLE n (a int) WITH (FILLFACTOR = 10)", "RETAIN HISTORY"),
        (
            "CREATE TABLE n (a int) WITH (RETAIN HISTORY FOR '1 d', RETAIN HISTORY FOR '2 d')",
            "more than once",
        ),
        ("ALTER TABLE missing SET (RETAIN HISTORY FOR '1 day')", "unknown catalog item 'missing'"),
        ("ALTER INDEX t SET (RETAIN HISTORY FOR '1 day')", "is not an index"),
        ("ALTER VIEW v SET (RETAIN HISTORY FOR '1 day')", "RETAIN HISTORY of a view"),
        ("ALTER TABLE t ADD COLUMN b int", "not supported"),
        ("ALTER TABLE mz_catalog.mz_tables RESET (RETAIN HISTORY)", "system item"),
    ],
)
def test_what_cannot_be_is_refused(env: str, statement: str, message: str) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t")
        with pytest.raises(mzsql.Error, match=message):
            con.execute(statement)
        assert con.execute("SELECT name FROM mz_catalog.mz_tables").fetchall() == [("t",)]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_views_and_indexes_retain_history_too(env: str, spark: SparkSession) -> None:
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE u (a int); CREATE TABLE t (a int); CREATE TABLE s (a int)")
        con.execute("CREATE VIEW doubled AS SELECT a * 2 AS a FROM s")
        con.execute(
            "CREATE MATERIALIZED VIEW m WITH (ASSERT NOT NULL n, RETAIN HISTORY FOR '1 hour') AS SELECT count(*) AS n FROM t"
        )
        con.execute("CREATE INDEX i ON doubled (a) WITH (RETAIN HISTORY FOR '1 hour')")
        assert "(ASSERT NOT NULL" in create_sql(con, "MATERIALIZED VIEW", "m")
        assert "RETAIN HISTORY = FOR '01:00:00') AS" in create_sql(con, "MATERIALIZED VIEW", "m")
        assert create_sql(con, "INDEX", "i").endswith("WITH (RETAIN HISTORY = FOR '01:00:00')")
        con.execute("INSERT INTO t VALUES (1); INSERT INTO s VALUES (1)")
        assert con.execute("SELECT n FROM m").fetchall() == [(1,)]
        then = con.execute("SELECT n, a FROM m, doubled").timestamp
        assert then is not None
        con.execute("INSERT INTO t VALUES (2); INSERT INTO s VALUES (2)")
        assert con.execute("SELECT n FROM m").fetchall() == [(2,)]
        assert con.execute("SELECT count(*) FROM doubled").fetchall() == [(2,)]
        give_up(con)
        give_up(con, "t")
        assert read_at(con, then, "SELECT n FROM m") == [1]
        assert read_at(con, then, "SELECT a FROM doubled") == [2]
        with pytest.raises(mzsql.Error, match="is not valid for all inputs"):
            read_at(con, then)
        con.execute("ALTER MATERIALIZED VIEW m SET (RETAIN HISTORY FOR '2 hours')")
        con.execute("ALTER INDEX i RESET (RETAIN HISTORY)")
        assert "RETAIN HISTORY = FOR '02:00:00'" in create_sql(con, "MATERIALIZED VIEW", "m")
        assert "RETAIN" not in create_sql(con, "INDEX", "i")
        assert read_at(con, then, "SELECT n FROM m") == [1]
