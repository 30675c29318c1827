"""Temporary tables and views: only their session sees them, and nothing is left of them when it is over."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql


@pytest.fixture
def env(tmp_path: Path) -> str:
    return str(tmp_path / "env")


@pytest.fixture
def con(env: str) -> Iterator[mzsql.Connection]:
    with mzsql.connect(env) as made:
        yield made


@pytest.fixture
def other(env: str) -> Iterator[mzsql.Connection]:
    with mzsql.connect(env) as made:
        yield made


def rows(con: mzsql.Connection, text: str) -> list[tuple[object, ...]]:
    return con.execute(text).fetchall()


def run(con: mzsql.Connection, *texts: str) -> None:
    for text in texts:
        con.execute(text)


def fails(con: mzsql.Connection, text: str) -> str:
    with pytest.raises(mzsql.Error) as failure:
        con.execute(text)
    return str(failure.value)


def left(con: mzsql.Connection) -> tuple[int, int]:
    """How many temporary schemas the catalog has, and how many shards wait for being finalized."""
    state = con._shared.env.sync()
    return len(state.temporary), len(state.arrangements)


@pytest.mark.parametrize("word", ["TEMP", "TEMPORARY"])
def test_a_temporary_table_holds_rows_of_its_session_and_is_before_others_of_its_name(
    con: mzsql.Connection, other: mzsql.Connection, word: str
) -> None:
    run(con, "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
    assert con.execute(f"CREATE {word} TABLE t (a int, b text DEFAULT 'x')").statusmessage == (
        "CREATE TABLE"
    )
    run(con, "INSERT INTO t (a) VALUES (2), (3)", "UPDATE t SET b = 'y' WHERE a = 3")
    run(con, "DELETE FROM mz_temp.t WHERE a = 2")
    assert rows(con, "SELECT mz_temp.t.a, t.b FROM t") == [(3, "y")]
    assert rows(con, "SELECT * FROM mz_temp.t") == [(3, "y")]
    assert rows(con, "SELECT * FROM public.t") == [(1,)]
    assert rows(other, "SELECT * FROM t") == [(1,)]
    run(con, "DROP TABLE t")
    assert rows(con, "SELECT * FROM t") == [(1,)]


def test_others_neither_see_nor_drop_it(con: mzsql.Connection, other: mzsql.Connection) -> None:
    run(con, "CREATE TEMP TABLE t (a int)", "CREATE TEMP VIEW v AS SELECT a FROM t")
    assert "unknown catalog item 't'" in fails(other, "SELECT * FROM t")
    assert "unknown catalog item 'mz_temp.t'" in fails(other, "DROP TABLE mz_temp.t")
    hidden = con._session.temporary
    assert f"unknown schema '{hidden}'" in fails(other, f"SELECT * FROM {hidden}.t")
    assert f"unknown schema '{hidden}'" in fails(other, f"DROP SCHEMA {hidden}")
    run(other, "CREATE TEMP TABLE t (b text)", "INSERT INTO t VALUES ('mine')")
    assert rows(other, "SELECT * FROM t") == [("mine",)]
    assert rows(con, "SELECT * FROM v") == []


def test_temporary_views_are_over_anything_and_replaced(con: mzsql.Connection) -> None:
    run(
        con,
        "CREATE TABLE t (a int)",
        "INSERT INTO t VALUES (1), (2)",
        "CREATE TEMP TABLE u (a int)",
    )
    run(
        con,
        "INSERT INTO u VALUES (2)",
        "CREATE TEMPORARY VIEW v AS SELECT a FROM t JOIN u USING (a)",
    )
    run(con, "CREATE TEMP VIEW w (c) AS SELECT count(*) FROM v")
    assert rows(con, "SELECT * FROM w") == [(1,)]
    run(con, "CREATE OR REPLACE TEMP VIEW w AS SELECT a + 1 AS d FROM mz_temp.v")
    assert rows(con, "SELECT d FROM w") == [(3,)]
    assert rows(con, "SHOW CREATE VIEW w") == [
        (
            "mz_temp.w",
            'CREATE TEMPORARY VIEW "mz_temp"."w" AS SELECT "a" + 1 AS "d" FROM "mz_temp"."v"',
        )
    ]
    run(con, "ALTER TABLE t RENAME TO t2")
    assert rows(con, "SELECT d FROM w") == [(3,)]
    assert "still depended upon by view" in fails(con, "DROP TABLE t2")
    run(con, "DROP TABLE t2 CASCADE")
    assert rows(con, "SHOW VIEWS FROM mz_temp") == []
    assert rows(con, "SELECT name FROM (SHOW TABLES FROM mz_temp)") == [("u",)]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE VIEW w AS SELECT * FROM v",
        "CREATE VIEW w AS SELECT * FROM t",
        "CREATE MATERIALIZED VIEW w AS SELECT * FROM t",
        "CREATE INDEX ON t (a)",
    ],
)
def test_what_stays_depends_on_nothing_temporary(con: mzsql.Connection, text: str) -> None:
    run(con, "CREATE TEMP TABLE t (a int)", "CREATE TEMP VIEW v AS SELECT a FROM t")
    of = "v" if text.endswith("v") else "t"
    assert f"non-temporary items cannot depend on temporary item 'mz_temp.{of}'" in fails(con, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "CREATE TEMP TABLE public.t2 (a int)",
            "cannot create temporary item in non-temporary schema",
        ),
        ("CREATE TABLE mz_temp.t2 (a int)", "system schema 'mz_temp' cannot be modified"),
        ("CREATE TEMP TABLE t (a int)", 'table "mz_temp.t" already exists'),
        ("CREATE TEMP MATERIALIZED VIEW v AS SELECT 1", "Expected TABLE or VIEW"),
        ("CREATE TEMP INDEX ON t (a)", "Expected TABLE or VIEW"),
        ("CREATE OR REPLACE TEMP TABLE t (a int)", "Expected VIEW"),
        ("DROP SCHEMA mz_temp CASCADE", "system schema 'mz_temp' cannot be modified"),
        ("DROP VIEW t", "mz_temp.t is not a view"),
        ("ALTER TABLE t SET SCHEMA public", "moving a temporary object to another schema"),
        ("INSERT INTO t VALUES ('x', 2)", "more expressions than target columns"),
    ],
)
def test_what_cannot_be(con: mzsql.Connection, text: str, message: str) -> None:
    run(con, "CREATE TEMP TABLE t (a int)")
    assert message in fails(con, text)


def test_the_catalog_lists_it_to_its_session(
    con: mzsql.Connection, other: mzsql.Connection
) -> None:
    run(con, "CREATE TEMP TABLE t (a int)", "CREATE TEMP VIEW v AS SELECT a FROM t")
    run(con, "COMMENT ON TABLE t IS 'for now'")
    tables = "SELECT name, create_sql FROM mz_tables WHERE id LIKE 'u%'"
    views = "SELECT name, definition FROM mz_views WHERE id LIKE 'u%'"
    classes = (
        "SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE relname IN ('t', 'v') ORDER BY 2"
    )
    comments = (
        "SELECT comment FROM mz_internal.mz_comments WHERE object_type = 'table' AND id LIKE 'u%'"
    )
    columns = (
        "SELECT table_schema, column_name FROM information_schema.columns WHERE table_name = 't'"
    )
    create = 'CREATE TEMPORARY TABLE "mz_temp"."t" ("a" "pg_catalog"."int4")'
    for _ in range(2):
        assert rows(con, tables) == [("t", create)]
        assert rows(con, views) == [("v", 'SELECT "a" FROM "mz_temp"."t";')]
        assert rows(con, classes) == [("mz_temp", "t"), ("mz_temp", "v")]
        assert rows(con, comments) == [("for now",)]
        assert rows(con, columns) == [("mz_temp", "a")]
        assert rows(con, "SELECT name, comment FROM (SHOW TABLES FROM mz_temp)") == [
            ("t", "for now")
        ]
        assert rows(con, "SELECT 't'::regclass::text, pg_table_is_visible('t'::regclass)") == [
            ("t", True)
        ]
        assert rows(con, "SELECT current_schemas(true)") == [
            (["mz_temp", "mz_catalog", "pg_catalog", "public"],)
        ]
        for text in (tables, views, classes, comments, columns, "SHOW TABLES FROM mz_temp"):
            assert rows(other, text) == []
    assert rows(
        con, "SELECT count(*) FROM mz_audit_events WHERE object_type IN ('table', 'view')"
    ) == [(0,)]
    assert "mz_temp.v" not in str(rows(other, "SHOW SCHEMAS"))


def test_the_session_discards_it_or_takes_it_along(con: mzsql.Connection, env: str) -> None:
    for end in ("DISCARD TEMP", "DISCARD ALL"):
        run(con, "CREATE TEMP TABLE t (a int)", "INSERT INTO t VALUES (1)", end)
        assert "unknown catalog item 't'" in fails(con, "SELECT * FROM t")
        assert left(con) == (0, 0)
    with mzsql.connect(env) as other:
        run(other, "CREATE TEMP TABLE t (a int)", "INSERT INTO t VALUES (1)")
        shard = next(i.shard for i in con._shared.env.sync().stored if i.temporary)
        assert left(con)[0] == 1
    assert left(con) == (0, 0)
    state = con._shared.env.persist.inspect(shard)
    assert state is None or state.finalized


def test_writes_in_a_transaction_are_done_together(con: mzsql.Connection) -> None:
    run(con, "CREATE TABLE t (a int)", "CREATE TEMP TABLE u (a int)", "BEGIN")
    run(con, "INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (2)", "ROLLBACK")
    assert rows(con, "SELECT * FROM t UNION ALL SELECT * FROM u") == []
    run(con, "BEGIN", "INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (2)", "COMMIT")
    assert rows(con, "SELECT * FROM t UNION ALL SELECT * FROM u ORDER BY 1") == [(1,), (2,)]
    run(con, "BEGIN", "CREATE TEMP TABLE w (a int)", "ROLLBACK")
    assert "unknown catalog item 'w'" in fails(con, "SELECT * FROM w")
    run(con, "BEGIN", "CREATE TEMP TABLE w (a int)", "COMMIT", "BEGIN")
    assert rows(con, "SELECT count(*) FROM w") == [(0,)]
    assert rows(con, "SELECT count(*) FROM u") == [(1,)]
    run(con, "COMMIT")


def test_what_a_killed_process_leaves_goes_when_somebody_opens(env: str) -> None:
    script = (
        "import mzsql, sys, time\n"
        "con = mzsql.connect(sys.argv[1])\n"
        "con.execute('CREATE TEMP TABLE t (a int)')\n"
        "con.execute('INSERT INTO t VALUES (1)')\n"
        "con.execute('CREATE TEMP VIEW v AS SELECT * FROM t')\n"
        "print(next(i.shard for i in con._shared.env.sync().stored if i.temporary), flush=True)\n"
        "time.sleep(600)\n"
    )
    with mzsql.connect(env):
        pass
    with subprocess.Popen(
        [sys.executable, "-c", script, env], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        shard = process.stdout.readline().strip()
        with mzsql.connect(env) as con:
            assert left(con)[0] == 1, "it is alive"
            assert rows(con, "SELECT id FROM mz_tables WHERE id LIKE 'u%'") == []
        process.send_signal(signal.SIGKILL)
    with mzsql.connect(env) as con:
        state = con._shared.env.sync()
        assert (state.temporary, state.items) == ({}, {})
        found = con._shared.env.persist.inspect(shard)
        assert found is None or found.finalized or left(con)[1] == 1


def test_an_environment_of_another_session_of_this_process_lets_it_be(env: str) -> None:
    with mzsql.connect(env) as con, mzsql.connect(env, read_only=True) as reader:
        run(con, "CREATE TEMP TABLE t (a int)", "INSERT INTO t VALUES (1)")
        assert rows(reader, "SELECT count(*) FROM mz_tables WHERE id LIKE 'u%'") == [(0,)]
        assert rows(con, "SELECT a FROM t") == [(1,)]
