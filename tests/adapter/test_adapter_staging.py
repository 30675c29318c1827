"""Several statements that rename in one transaction; SHOW as a relation; the relations that PostgreSQL's tools ask for."""

from __future__ import annotations

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


def rows(con: mzsql.Connection, text: str) -> list[tuple[object, ...]]:
    return con.execute(text).fetchall()


def schemas(con: mzsql.Connection) -> list[object]:
    return [n for (n,) in rows(con, "SELECT name FROM mz_schemas WHERE id LIKE 'u%' ORDER BY name")]


def run(con: mzsql.Connection, *texts: str) -> None:
    for text in texts:
        con.execute(text)


def test_renames_in_a_transaction_see_each_other_and_are_done_together(
    con: mzsql.Connection, env: str
) -> None:
    run(con, "CREATE SCHEMA blue", "CREATE SCHEMA green", "CREATE TABLE blue.t (a int)")
    run(con, "CREATE VIEW v AS SELECT a + 1 AS b FROM blue.t", "INSERT INTO blue.t VALUES (1)")
    run(con, "BEGIN", "ALTER SCHEMA blue SWAP WITH green", "ALTER SCHEMA green RENAME TO red")
    run(con, "ALTER TABLE red.t RENAME TO u", "ALTER VIEW v RENAME TO w")
    con.execute("COMMENT ON VIEW w IS 'mine'")
    with mzsql.connect(env) as other:
        assert schemas(other) == ["blue", "green", "public"]
    con.execute("COMMIT")
    assert schemas(con) == ["blue", "public", "red"]
    assert rows(con, "SELECT b FROM w") == [(2,)]
    assert rows(con, "SELECT a FROM red.u") == [(1,)]
    assert rows(con, "SELECT name, comment FROM (SHOW VIEWS)") == [("w", "mine")]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("ALTER SCHEMA other RENAME TO red", "schema 'red' already exists"),
        ("ALTER SCHEMA blue RENAME TO green", "unknown schema 'blue'"),
        ("SELECT * FROM t", "restricted to just modifying objects"),
        ("INSERT INTO t VALUES (1)", "restricted to just modifying objects"),
        ("CREATE TABLE u (a int)", "can only execute a single statement"),
    ],
)
def test_a_transaction_that_fails_renames_nothing(
    con: mzsql.Connection, second: str, message: str
) -> None:
    run(con, "CREATE SCHEMA blue", "CREATE SCHEMA other", "CREATE TABLE t (a int)")
    run(con, "BEGIN", "ALTER SCHEMA blue RENAME TO red")
    with pytest.raises(mzsql.Error, match=message):
        con.execute(second)
    con.execute("COMMIT")
    assert schemas(con) == ["blue", "other", "public"]
    run(con, "BEGIN", "ALTER SCHEMA blue RENAME TO red", "ROLLBACK")
    assert schemas(con) == ["blue", "other", "public"]


def test_a_transaction_notices_what_others_did_to_the_catalog(
    con: mzsql.Connection, env: str
) -> None:
    run(con, "CREATE SCHEMA blue", "CREATE SCHEMA green")
    with mzsql.connect(env) as other:
        for last in ("ALTER SCHEMA green RENAME TO pink", "COMMIT"):
            run(con, "BEGIN", "ALTER SCHEMA blue RENAME TO red")
            other.execute(f"CREATE TABLE {last.split()[0].lower()}_t (a int)")
            with pytest.raises(mzsql.OperationalError, match="object state changed") as raised:
                con.execute(last)
            assert raised.value.sqlstate == "40001"
            if last != "COMMIT":
                con.execute("ROLLBACK")
            assert schemas(con) == ["blue", "green", "public"]


def test_one_statement_that_makes_something_stands_alone(con: mzsql.Connection) -> None:
    run(con, "BEGIN", "CREATE TABLE t (a int)")
    with pytest.raises(mzsql.Error, match="can only execute a single statement"):
        con.execute("ALTER SCHEMA public RENAME TO other")
    con.execute("ROLLBACK")
    assert rows(con, "SHOW TABLES") == []


# --- looking around -------------------------------------------------------------------------------


def test_show_stands_in_any_transaction(con: mzsql.Connection) -> None:
    run(con, "BEGIN", "CREATE TABLE t (a int)")
    assert rows(con, "SHOW TABLES") == []
    con.execute("COMMIT")
    run(con, "BEGIN", "INSERT INTO t VALUES (1)")
    assert rows(con, "SHOW TABLES") == [("t", "")]
    assert rows(con, "SHOW CREATE TABLE t")[0][0] == "materialize.public.t"
    con.execute("COMMIT")
    run(con, "BEGIN", "ALTER TABLE t RENAME TO u")
    assert len(rows(con, "SHOW CREATE CLUSTER quickstart")) == 1
    con.execute("COMMIT")
    assert rows(con, "SHOW TABLES") == [("u", "")]


def test_show_stands_where_a_relation_does(con: mzsql.Connection) -> None:
    run(con, "CREATE TABLE t (a int, b text NOT NULL)", "CREATE TABLE u (c int)")
    run(con, "CREATE VIEW v AS SELECT a FROM t")
    assert rows(con, "SELECT name FROM (SHOW TABLES) ORDER BY name DESC") == [("u",), ("t",)]
    assert rows(con, "SHOW TABLES WHERE name <> 't'") == [("u", "")]
    assert rows(con, "SELECT name FROM (SHOW COLUMNS FROM t) WHERE NOT nullable") == [("b",)]
    assert rows(con, "SELECT count(*) FROM (SHOW OBJECTS LIKE '_') AS o, (SHOW CLUSTERS) AS c") == [
        (6,)
    ]
    for none in ("CONNECTIONS", "SECRETS", "SINKS", "SUBSOURCES"):
        assert rows(con, f"SHOW {none}") == []
    assert rows(con, "EXPLAIN SHOW VIEWS")


def test_no_reads_of_tables_on_a_cluster_that_does_not_exist(con: mzsql.Connection) -> None:
    run(con, "CREATE TABLE t (a int)", "SET cluster = nowhere")
    with pytest.raises(mzsql.ProgrammingError, match="unknown cluster 'nowhere'"):
        con.execute("SELECT * FROM t")
    assert rows(con, "SELECT 1") == [(1,)]
    assert rows(con, "SELECT name FROM mz_tables") == [("t",)]
    con.execute("RESET cluster")
    assert rows(con, "SELECT * FROM t") == []


def test_the_catalog_as_postgresqls_tools_ask_for_it(con: mzsql.Connection) -> None:
    run(con, "CREATE DATABASE away", "CREATE TABLE away.public.hidden (x int)")
    run(con, "CREATE TABLE t (a int NOT NULL, b numeric(10, 2) DEFAULT 0)", "CREATE SCHEMA s")
    run(con, "CREATE VIEW s.v AS SELECT a FROM t")
    assert rows(
        con,
        "SELECT n.nspname, c.relname, c.relkind, c.relnatts FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN ('public', 's') ORDER BY 2",
    ) == [("public", "t", "r", 2), ("s", "v", "v", 1)]
    assert rows(
        con,
        "SELECT a.attname, t.typname, a.attnum, a.attnotnull, a.atthasdef FROM pg_attribute a"
        " JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid"
        " WHERE c.relname = 't' ORDER BY a.attnum",
    ) == [("a", "int4", 1, True, False), ("b", "numeric", 2, False, True)]
    assert rows(
        con,
        "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables"
        " WHERE table_schema IN ('public', 's') ORDER BY 3",
    ) == [("materialize", "public", "t", "BASE TABLE"), ("materialize", "s", "v", "VIEW")]
    assert rows(
        con,
        "SELECT column_name, ordinal_position, is_nullable, data_type FROM information_schema.columns"
        " WHERE table_name = 't' ORDER BY 2",
    ) == [("a", 1, "NO", "integer"), ("b", 2, "YES", "numeric")]
    assert rows(con, "SELECT tablename, tableowner FROM pg_tables") == [("t", "mzsql")]
    assert rows(con, "SELECT viewname FROM pg_views WHERE schemaname = 's'") == [("v",)]
    assert ("away",) in rows(con, "SELECT datname FROM pg_database")
    assert rows(con, "SELECT count(*) FROM pg_index") == [(0,)]
    assert rows(
        con,
        "SELECT database_name, schema_name, name FROM mz_internal.mz_object_fully_qualified_names"
        " WHERE id LIKE 'u%' ORDER BY 3",
    ) == [("away", "public", "hidden"), ("materialize", "public", "t"), ("materialize", "s", "v")]
    con.execute("CREATE TABLE columns (a int)")
    assert rows(con, "SELECT a FROM columns") == []
