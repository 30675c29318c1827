"""What was done: the audit log of the catalog, the statements of this process, how far views were behind."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.dataflows import lag
from mzsql.adapter.system import statement_log
from mzsql.catalog import audit
from mzsql.dbapi import Connection

WAIT = 60.0


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Connection]:
    with mzsql.connect(tmp_path) as opened:
        opened.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        yield opened


def rows(con: Connection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def until(con: Connection, query: str, done: Callable[[list[tuple[Any, ...]]], bool]) -> Any:
    deadline = time.monotonic() + WAIT
    while not done(found := rows(con, query)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def events(con: Connection) -> list[tuple[str, str, dict[str, Any]]]:
    found = rows(con, "SELECT event_type, object_type, details FROM mz_audit_events ORDER BY id")
    return [(event, of, json.loads(str(details))) for event, of, details in found]


def test_what_statements_do_is_in_the_audit_log_of_every_process(
    con: Connection, tmp_path: Path
) -> None:
    con.execute("CREATE TABLE t (a int); CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    con.execute("ALTER TABLE t RENAME TO u; COMMENT ON COLUMN u.a IS 'a key'")
    con.execute("CREATE ROLE r; GRANT SELECT ON u TO r; REVOKE SELECT ON u FROM r")
    con.execute("CREATE CLUSTER c SIZE '1'; DROP CLUSTER c; CREATE SCHEMA s; DROP TABLE u CASCADE")
    with pytest.raises(mzsql.Error):
        con.execute("DROP TABLE u")
    found = events(con)
    assert [(event, of) for event, of, _ in found] == [
        *(("alter", "system"), ("create", "table"), ("create", "materialized-view")),
        # What is over a table that has another name names it otherwise.
        *(("alter", "table"), ("alter", "materialized-view"), ("comment", "table")),
        *(("create", "role"), ("grant", "table"), ("revoke", "table")),
        *(("create", "cluster"), ("create", "cluster-replica")),
        *(("drop", "cluster"), ("drop", "cluster-replica"), ("create", "schema")),
        *(("drop", "table"), ("drop", "materialized-view")),
    ]
    named = {"database": "materialize", "schema": "public"}
    assert found[0][2] == {"name": "step_engine", "value": "duckdb"}
    assert found[1][2] == {"id": "u1", **named, "item": "t"}
    assert found[3][2].items() >= {"id": "u1", "item": "u", "old_name": "t"}.items()
    assert found[5][2] == {"id": "u1", "column": 1}
    assert found[10][2].items() >= {"cluster_name": "c", "replica_name": "r1"}.items()
    gone = rows(con, "SELECT id, event_type FROM mz_internal.mz_object_lifetimes ORDER BY 1, 2")
    assert gone == [(gid, event) for gid in ("u1", "u2") for event in ("create", "drop")]
    history = """
        SELECT id, object_type, created_at <= dropped_at, cluster_id FROM mz_internal.mz_object_history ORDER BY id"""
    assert rows(con, history) == [
        ("u1", "table", True, None),
        ("u2", "materialized-view", True, None),
    ]
    whole = "SELECT * FROM mz_audit_events ORDER BY id"
    assert {row[4] for row in rows(con, whole)} == {"mzsql"}
    with mzsql.connect(tmp_path, read_only=True) as beside:
        assert rows(beside, whole) == rows(con, whole)


def test_the_audit_log_keeps_the_latest_events(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_EVENTS", 3)
    con.execute("CREATE TABLE a (); CREATE TABLE b (); CREATE TABLE c (); CREATE TABLE d ()")
    numbers = rows(con, "SELECT id::int FROM mz_audit_events ORDER BY id")
    assert [details["item"] for _, _, details in events(con)] == ["b", "c", "d"]
    assert numbers == [(3,), (4,), (5,)]


def test_statements_are_there_with_what_became_of_them(con: Connection) -> None:
    con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2); CREATE INDEX i ON t (a)")
    con.execute("SET application_name = 'checks'")
    until(con, "SELECT hydrated FROM mz_internal.mz_hydration_statuses", lambda r: r == [(True,)])
    rows(con, "SELECT * FROM t WHERE a = 2")
    rows(con, "SELECT 1 / 1")
    with pytest.raises(mzsql.Error, match="division by zero"):
        rows(con, "SELECT a / 0 FROM t")
    found = {
        row[0]: row[1:]
        for row in rows(
            con,
            "SELECT sql, statement_type, finished_status, error_message, rows_returned, execution_strategy, application_name,"
            " execution_timestamp IS NOT NULL, finished_at >= began_at, session_id IS NOT NULL"
            " FROM mz_internal.mz_recent_activity_log",
        )
    }
    text = "SELECT * FROM t WHERE a = 2"
    assert found[text] == ("select", "success", None, 1, "fast-path", "checks", True, True, True)
    assert found["SELECT 1 / 1"][:5] == ("select", "success", None, 1, "constant")
    assert found["SELECT a / 0 FROM t"][:4] == ("select", "error", "division by zero", None)
    made = found["CREATE TABLE t (a int)"]
    assert made == ("create_table", "success", None, None, None, "", False, True, True)
    # What asks is under way.
    ((status,),) = [row[1:2] for text, row in found.items() if "mz_recent_activity_log" in text]
    assert status is None
    query = (
        "SELECT event_type FROM mz_internal.mz_statement_lifecycle_history AS h JOIN mz_internal.mz_recent_activity_log AS l"
        f" ON l.execution_id = h.statement_id WHERE l.sql = '{text}' ORDER BY h.occurred_at"
    )
    assert [event for (event,) in rows(con, query)] == [
        *("execution-began", "optimization-finished"),
        *("compute-dependencies-finished", "execution-finished"),
    ]


def test_sessions_are_there_with_their_last_statements(con: Connection, tmp_path: Path) -> None:
    query = "SELECT pid, state, query FROM pg_stat_activity WHERE usename = current_user"
    with mzsql.connect(tmp_path) as beside:
        rows(beside, "SELECT 42")
        ((own,),) = rows(con, "SELECT pg_backend_pid()")
        ((other,),) = rows(beside, "SELECT pg_backend_pid()")
        found = {pid: (state, text) for pid, state, text in rows(con, query)}
        assert found[own] == ("active", query)
        assert found[other] == ("idle", "SELECT pg_backend_pid()")
    assert other not in {row[0] for row in rows(con, query)}


def test_what_is_said_of_history_and_refreshes(con: Connection) -> None:
    con.execute("CREATE TABLE t (a int) WITH (RETAIN HISTORY FOR '2 minutes'); CREATE TABLE u ()")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    kept = (
        "SELECT o.name, s.strategy, s.value::text"
        " FROM mz_internal.mz_history_retention_strategies AS s JOIN mz_objects AS o ON o.id = s.id"
    )
    assert rows(con, kept) == [("t", "FOR", "120000")]
    refreshed = (
        "SELECT o.name, s.type FROM mz_internal.mz_materialized_view_refresh_strategies AS s"
        " JOIN mz_objects AS o ON o.id = s.materialized_view_id"
    )
    assert rows(con, refreshed) == [("v", "on-commit")]


def test_the_statements_that_are_kept_are_bounded(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_log, "MOST_STATEMENTS", 4)
    monkeypatch.setattr(statement_log, "MOST_OF_ONE", 60)
    for number in range(9):
        rows(con, f"SELECT {number}")
    rows(con, f"SELECT '{'x' * 100}'")
    found = rows(con, "SELECT sql FROM mz_internal.mz_recent_activity_log ORDER BY began_at")
    assert len(found) == 4
    assert found[-2][0].endswith("… (49 more characters)")
    monkeypatch.setattr(statement_log, "MOST_CHARACTERS", 100)
    rows(con, "SELECT 1")
    assert len(rows(con, "SELECT sql FROM mz_internal.mz_recent_activity_log")) < 4


LOG = "SELECT sql, error_message, application_name, search_path::text FROM mz_internal.mz_recent_activity_log"


def test_errors_and_settings_of_statements_are_cut_as_their_texts_are(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_log, "MOST_OF_ONE", 60)
    long = "x" * 1000
    con.execute(f"SET application_name = '{long}'; SET search_path = public, {'y' * 200}")
    con.execute("CREATE TABLE t (a text)")
    con.execute("INSERT INTO t SELECT repeat('z', 1000)")
    with pytest.raises(mzsql.Error, match="z" * 900):
        rows(con, "SELECT a::int FROM t")
    ((_, error, name, path),) = rows(con, f"{LOG} WHERE sql = 'SELECT a::int FROM t'")
    assert error.startswith("invalid input syntax for type integer")
    for cut in (error, name, path):
        assert len(cut) < 110
        assert "more characters)" in cut
    assert name == f"{'x' * 60} … (940 more characters)"


def test_errors_and_settings_of_statements_count(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_log() -> int:
        found = rows(con, f"{LOG} WHERE sql NOT LIKE '%recent_activity%'")
        return sum(len(text or "") for row in found for text in row[:3])

    monkeypatch.setattr(statement_log, "MOST_CHARACTERS", 6000)
    con.execute("CREATE TABLE t (a text)")
    con.execute("INSERT INTO t SELECT repeat('z', 1000)")
    for _ in range(20):
        with pytest.raises(mzsql.Error):
            rows(con, "SELECT a::int FROM t")
    assert 2000 < of_log() <= 6000
    con.execute(f"SET application_name = '{'x' * 1500}'")
    for number in range(20):
        rows(con, f"SELECT {number}")
    assert 2000 < of_log() <= 6000


def test_the_first_and_the_latest_events_of_a_statement_are_kept(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_log, "MOST_EVENTS", 2)
    con.execute("CREATE TABLE t (a int)")
    rows(con, "SELECT * FROM t")
    found = rows(
        con,
        "SELECT event_type FROM mz_internal.mz_statement_lifecycle_history AS h JOIN mz_internal.mz_recent_activity_log AS l"
        " ON l.execution_id = h.statement_id WHERE l.sql = 'SELECT * FROM t' ORDER BY h.occurred_at",
    )
    assert found == [("execution-began",), ("execution-finished",)]


def test_how_far_views_were_behind_is_kept_minute_by_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "LAG_SECONDS", 0.05)
    history = "SELECT object_id, replica_id, lag::text FROM mz_internal.mz_wallclock_lag_history"
    with mzsql.connect(tmp_path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t; INSERT INTO t VALUES (1)")
        assert rows(con, "SELECT a FROM v") == [(1,)]
        ((v,),) = rows(con, "SELECT id FROM mz_objects WHERE name = 'v'")
        ((r,),) = rows(con, "SELECT id FROM mz_cluster_replicas")
        until(con, history, lambda found: (v, r, "00:00:00") in found)
        query = "SELECT object_id, min(lag)::text FROM mz_internal.mz_wallclock_global_lag_recent_history GROUP BY 1"
        until(con, query, lambda found: found == [(v, "00:00:00")])
    with mzsql.connect(tmp_path, read_only=True) as beside:
        assert (v, r, "00:00:00") in rows(beside, history)


def test_what_is_stored_is_kept_from_time_to_time(tmp_path: Path) -> None:
    history = (
        "SELECT o.name, u.size_bytes, u.collection_timestamp FROM mz_catalog.mz_storage_usage AS u"
        " JOIN mz_objects AS o ON o.id = u.object_id WHERE o.name = 'v'"
    )
    with mzsql.connect(tmp_path) as con:
        con.execute("ALTER SYSTEM SET storage_usage_collection_interval = '10 ms'")
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t; INSERT INTO t VALUES (1)")
        assert rows(con, "SELECT a FROM v") == [(1,)]
        found = until(
            con, history, lambda found: len(found) > 1 and max(size for _, size, _ in found) > 0
        )
        assert len({at for *_, at in found}) == len(found)
        shards = "SELECT count(*), count(DISTINCT id) FROM mz_internal.mz_storage_usage_by_shard"
        ((number, distinct),) = rows(con, shards)
        assert number == distinct
        ((first,),) = rows(
            con, "SELECT min(collection_timestamp) FROM mz_internal.mz_storage_usage_by_shard"
        )
        con.execute("ALTER SYSTEM SET storage_usage_retention_period = '1 ms'")
        oldest = "SELECT min(collection_timestamp) FROM mz_internal.mz_storage_usage_by_shard"
        until(con, oldest, lambda found: found[0][0] is None or found[0][0] > first)
        con.execute("ALTER SYSTEM RESET storage_usage_retention_period")
        con.execute("ALTER SYSTEM SET storage_usage_collection_interval = '0'")
        con.execute("DROP MATERIALIZED VIEW v")
        assert rows(con, history) == []
        assert rows(con, "SHOW storage_usage_retention_period") == [("30 d",)]
        con.execute("ALTER SYSTEM SET storage_usage_retention_period = '36525 d'")
        with pytest.raises(mzsql.Error, match="outside the valid range"):
            con.execute("ALTER SYSTEM SET storage_usage_retention_period = '36526 d'")


def test_a_shard_that_cannot_be_read_does_not_hide_what_others_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = (
        "SELECT o.name, max(u.collection_timestamp) FROM mz_catalog.mz_storage_usage AS u"
        " JOIN mz_objects AS o ON o.id = u.object_id GROUP BY 1"
    )
    with mzsql.connect(tmp_path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        for name in ("a", "broken", "z"):
            con.execute(f"CREATE TABLE {name} (n int); INSERT INTO {name} VALUES (1)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT 1 AS one")
        con.execute("ALTER SYSTEM SET storage_usage_collection_interval = '10 ms'")
        until(con, at, lambda found: len(found) == 4)
        ((shard,),) = rows(
            con,
            "SELECT shard_id FROM mz_internal.mz_storage_shards JOIN mz_objects ON id = object_id WHERE name = 'broken'",
        )
        junk = b"no entry of a log"
        with closing(sqlite3.connect(tmp_path / "consensus.db")) as database, database:
            database.execute(
                "INSERT INTO consensus (shard, sequence_number, data)"
                " SELECT shard, max(sequence_number) + 1, ? FROM consensus WHERE shard = ? GROUP BY 1",
                (junk, shard),
            )
        told = f"it is not noted how much {shard} takes: "
        until(con, "SELECT 1", lambda _: told in caplog.text)
        before = dict(rows(con, at))

        def others_go_on(found: list[tuple[Any, ...]]) -> bool:
            return all(found_at > before[name] for name, found_at in found if name != "broken")

        assert dict(until(con, at, others_go_on))["broken"] == before["broken"]
        with closing(sqlite3.connect(tmp_path / "consensus.db")) as database, database:
            database.execute("DELETE FROM consensus WHERE data = ?", (junk,))
        until(con, at, lambda found: dict(found)["broken"] > before["broken"])
