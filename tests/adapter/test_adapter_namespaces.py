"""Databases, schemas, clusters, roles, comments and renames, through connections: what they hold, refuse, and leave as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import mzsql
from mzsql.catalog.durable import decode
from mzsql.catalog.objects import Index, Schema, Table, View
from mzsql.repr.ids import GlobalId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        yield made


def rows(con: mzsql.Connection, text: str) -> list[tuple[object, ...]]:
    return con.execute(text).fetchall()


def create_sql(con: mzsql.Connection, kind: str, name: str) -> str:
    ((_, text),) = rows(con, f"SHOW CREATE {kind} {name}")
    return str(text)


# --- schemas and databases ------------------------------------------------------------------------


def test_a_schema_holds_objects_until_cascade_takes_them(con: mzsql.Connection) -> None:
    con.execute("CREATE SCHEMA s; CREATE SCHEMA IF NOT EXISTS s")
    with pytest.raises(mzsql.Error, match="schema 's' already exists"):
        con.execute("CREATE SCHEMA s")
    con.execute("CREATE TABLE s.t (a int); INSERT INTO s.t VALUES (1); CREATE TABLE t (b int)")
    con.execute("CREATE VIEW v AS SELECT a FROM s.t")
    for restricted in ("DROP SCHEMA s", "DROP SCHEMA s RESTRICT"):
        with pytest.raises(mzsql.Error, match="cannot be dropped without CASCADE"):
            con.execute(restricted)
    assert rows(con, "SELECT a FROM v") == [(1,)]
    con.execute("DROP SCHEMA s CASCADE; DROP SCHEMA IF EXISTS s")
    with pytest.raises(mzsql.Error, match="unknown schema 's'"):
        con.execute("SELECT * FROM s.t")
    assert rows(con, "SHOW VIEWS") == []
    assert rows(con, "SHOW TABLES") == [("t", "")]
    with pytest.raises(mzsql.Error, match="system schema 'mz_catalog' cannot be modified"):
        con.execute("DROP SCHEMA mz_catalog CASCADE")
    with pytest.raises(mzsql.Error, match="unacceptable schema name 'mz_x'"):
        con.execute("CREATE SCHEMA mz_x")


def test_if_exists_forgives_a_schema_or_database_that_does_not_exist(con: mzsql.Connection) -> None:
    for text in (
        "DROP TABLE IF EXISTS nowhere.t, nowhere.nor_here.t",
        "DROP SCHEMA IF EXISTS nowhere.s",
        "ALTER TABLE IF EXISTS nowhere.t RENAME TO u",
        "ALTER TABLE IF EXISTS nowhere.t SET (RETAIN HISTORY FOR '1 day')",
    ):
        con.execute(text)
    for text, missing in (
        ("DROP TABLE nowhere.t", "unknown schema 'nowhere'"),
        ("CREATE OR REPLACE VIEW nowhere.v AS SELECT 1", "unknown schema 'nowhere'"),
        ("SHOW TABLES FROM nowhere.public", "unknown database 'nowhere'"),
        ("SELECT * FROM nowhere.mz_catalog.mz_tables", "unknown database 'nowhere'"),
    ):
        with pytest.raises(mzsql.ProgrammingError, match=missing):
            con.execute(text)


def test_every_database_shows_the_schemas_of_the_system(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int)")
    short = rows(con, "SELECT name FROM mz_catalog.mz_tables WHERE name = 't'")
    assert short == [("t",)]
    assert short == rows(con, "SELECT name FROM materialize.mz_catalog.mz_tables WHERE name = 't'")


def test_a_session_without_a_schema_or_database_is_told_so(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int); CREATE SCHEMA s; SET schema = s")
    assert rows(con, "SHOW schema") == [("s",)]
    con.execute("RESET schema")
    assert rows(con, "SHOW schema") == [("public",)]
    con.execute("SET search_path = nowhere")
    assert rows(con, "SHOW schema") == [(None,)]
    for text in ("SHOW TABLES", "SHOW INDEXES", "CREATE TABLE u (a int)"):
        with pytest.raises(mzsql.ProgrammingError, match="no valid schema selected") as refused:
            con.execute(text)
        assert refused.value.hint is not None
        assert "SHOW SCHEMAS" in refused.value.hint
    assert rows(con, "SHOW TABLES FROM public") == [("t", "")]
    con.execute("SET database = nowhere")
    with pytest.raises(mzsql.ProgrammingError, match="no database specified and no active data"):
        con.execute("SHOW SCHEMAS")
    assert ("s", "") in rows(con, "SHOW SCHEMAS FROM materialize")


def test_names_resolve_over_databases_and_the_search_path(con: mzsql.Connection) -> None:
    con.execute("CREATE DATABASE d; CREATE SCHEMA d.s; CREATE SCHEMA s")
    for number, name in enumerate(("t", "s.t", "d.public.t", "d.s.t")):
        con.execute(f"CREATE TABLE {name} (a int); INSERT INTO {name} VALUES ({number})")
    assert rows(con, "SELECT a FROM t") == [(0,)]
    con.execute("SET search_path = nowhere, s, public")
    assert rows(con, "SELECT a, current_schema() FROM t") == [(1, "s")]
    con.execute("SET database = d")
    assert rows(con, "SELECT a FROM t") == [(3,)]
    con.execute("SET schema = public")
    assert rows(con, "SELECT a FROM t") == [(2,)]
    assert rows(con, "SELECT a FROM materialize.s.t") == [(1,)]
    con.execute("CREATE VIEW v AS SELECT a FROM t")
    con.execute("RESET database; RESET search_path")
    assert rows(con, "SELECT a FROM d.public.v") == [(2,)]
    with pytest.raises(mzsql.Error, match="unknown catalog item 'v'"):
        con.execute("SELECT a FROM v")
    assert rows(con, "SHOW TABLES FROM d.s") == [("t", "")]
    assert ("s", "") in rows(con, "SHOW SCHEMAS FROM d")
    with pytest.raises(mzsql.Error, match="cannot be dropped with RESTRICT"):
        con.execute("DROP DATABASE d RESTRICT")
    con.execute("DROP DATABASE d")
    assert rows(con, "SHOW DATABASES") == [("materialize", "")]
    with pytest.raises(mzsql.Error, match="unknown database 'd'"):
        con.execute("SELECT a FROM d.public.t")


def test_the_first_database_goes_for_good(tmp_path: Path) -> None:
    env = str(tmp_path / "env")
    with mzsql.connect(env) as con:
        con.execute("CREATE DATABASE d; CREATE TABLE d.public.t (a int); DROP DATABASE materialize")
    with mzsql.connect(env) as con:
        assert rows(con, "SHOW DATABASES") == [("d", "")]
        con.execute("SET database = d; INSERT INTO t VALUES (1)")
        assert rows(con, "SELECT a FROM t") == [(1,)]
        # its ids are not given out again
        con.execute("CREATE DATABASE materialize")
        ids = [str(gid) for (gid,) in rows(con, "SELECT id FROM mz_databases")]
        assert len(set(ids)) == 2
        assert "u1" not in ids


def test_a_catalog_of_an_older_version_is_read() -> None:
    common = {"schema": "public", "desc": {"names": [], "typ": {"columns": []}}, "created_at": 5}
    table = {
        "id": "u1",
        "name": "t",
        "kind": "table",
        "create_sql": "CREATE TABLE t",
        "shard": "s1",
    }
    view = {"id": "u2", "name": "v", "kind": "view", "create_sql": "CREATE VIEW v", "as_of": 7}
    index = {
        "id": "u3",
        "name": "i",
        "kind": "index",
        "create_sql": "CREATE INDEX i",
        "on_id": "u1",
    }
    old: dict[str, object] = {
        "schema/public": "u1",
        "cluster/u1": {"id": "u1", "name": "quickstart"},
        "replica/u1": {"id": "u1", "name": "r1", "cluster_id": "u1", "size": "2", "workers": 2},
        "item/u1": {**common, **table, "as_of": 4, "defaults": []},
        "item/u2": {**common, **view},
        "item/u3": {"schema": "public", **index, "cluster": "quickstart", "key": []},
    }
    state = decode({key: msgspec.json.encode(value) for key, value in old.items()})
    assert state.schema("materialize", "public") == ("public", Schema("u1", "public"))
    assert [type(one) for one in state.items.values()] == [Table, View, Index]
    assert {one.full_name for one in state.relations} == {
        "materialize.public.t",
        "materialize.public.v",
    }
    assert [(one.shard, one.as_of, one.created_at) for one in state.of(Table)] == [("s1", 4, 5)]
    assert [one.id for one in state.indexes_on(GlobalId("u1"))] == ["u3"]
    serving = state.serving("quickstart")
    assert serving is not None
    assert serving.id == "u1"
    assert state.role("mzsql") is not None


# --- renames --------------------------------------------------------------------------------------

DEFINITIONS = (
    "SELECT a FROM s.t",
    "SELECT t.a, t.b FROM s.t WHERE t.a > 1",
    "SELECT s.t.a FROM s.t",
    "SELECT x.a FROM s.t AS x JOIN s.t ON x.a = t.b",
    "SELECT a, (SELECT max(t.b) FROM s.t) AS t FROM s.t ORDER BY a LIMIT 1",
    "WITH t AS (SELECT b AS a FROM s.t) SELECT t.a FROM t",
    "SELECT 't' AS t, \"t\".a FROM s.t",
    "SELECT s.t.a, o.t.a AS b FROM s.t, o.t",
)


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_view_means_the_same_after_renames(con: mzsql.Connection, definition: str) -> None:
    con.execute("CREATE SCHEMA s; CREATE SCHEMA o")
    con.execute("CREATE TABLE s.t (a int, b int); CREATE TABLE o.t (a int)")
    con.execute("INSERT INTO s.t VALUES (1, 2), (2, 3), (3, 3); INSERT INTO o.t VALUES (7)")
    con.execute(f"CREATE VIEW v AS {definition}; CREATE VIEW w AS SELECT * FROM v")
    before = sorted(rows(con, "SELECT * FROM w"))
    assert before
    con.execute("ALTER TABLE s.t RENAME TO u")
    con.execute("ALTER SCHEMA s RENAME TO z; ALTER VIEW v RENAME TO x")
    assert sorted(rows(con, "SELECT * FROM w")) == before
    text = create_sql(con, "VIEW", "x")
    assert '"z"."u"' in text
    assert '"s"' not in text
    # The text alone makes the same view again.
    con.execute(text.replace('"public"."x"', '"public"."again"', 1))
    assert sorted(rows(con, "SELECT * FROM again")) == before
    assert create_sql(con, "VIEW", "again").replace('"again"', '"x"', 1) == text


def test_a_rename_refuses_what_it_cannot_do(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int); CREATE TABLE u (a int); CREATE VIEW v AS SELECT a FROM t")
    with pytest.raises(mzsql.Error, match=r'table "materialize\.public\.u" already exists'):
        con.execute("ALTER TABLE t RENAME TO u")
    with pytest.raises(mzsql.Error, match=r"materialize\.public\.v is not a table"):
        con.execute("ALTER TABLE v RENAME TO w")
    with pytest.raises(mzsql.Error, match="unknown catalog item 'nothing'"):
        con.execute("ALTER TABLE nothing RENAME TO w")
    con.execute("ALTER TABLE IF EXISTS nothing RENAME TO w")
    with pytest.raises(mzsql.Error, match="cannot be modified"):
        con.execute("ALTER VIEW mz_objects RENAME TO w")
    assert rows(con, "SHOW TABLES") == [("t", ""), ("u", "")]


def test_swapped_schemas_and_moved_tables_keep_their_readers(con: mzsql.Connection) -> None:
    con.execute("CREATE SCHEMA blue; CREATE SCHEMA green; CREATE SCHEMA red")
    con.execute("CREATE TABLE blue.t (a int); CREATE TABLE green.t (a int)")
    con.execute("INSERT INTO blue.t VALUES (1); INSERT INTO green.t VALUES (2)")
    con.execute("CREATE VIEW v AS SELECT a FROM blue.t")
    con.execute("ALTER SCHEMA blue SWAP WITH green")
    assert rows(con, "SELECT * FROM blue.t") == [(2,)]
    assert rows(con, "SELECT * FROM v") == [(1,)]
    assert '"green"."t"' in create_sql(con, "VIEW", "v")
    con.execute("ALTER TABLE green.t SET SCHEMA red")
    assert rows(con, "SELECT * FROM red.t") == [(1,)]
    assert rows(con, "SELECT * FROM v") == [(1,)]
    with pytest.raises(mzsql.Error, match="schema 'blue' already exists"):
        con.execute("ALTER SCHEMA red RENAME TO blue")


def test_other_processes_see_a_rename_at_their_next_statement(tmp_path: Path) -> None:
    env = str(tmp_path / "env")
    with mzsql.connect(env) as one, mzsql.connect(env) as other:
        one.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        assert rows(other, "SELECT a FROM t") == [(1,)]
        other.execute("ALTER TABLE t RENAME TO u; CREATE SCHEMA s; ALTER TABLE u SET SCHEMA s")
        one.execute("INSERT INTO s.u VALUES (2)")
        assert rows(other, "SELECT a FROM s.u ORDER BY a") == [(1,), (2,)]
        with pytest.raises(mzsql.Error, match="unknown catalog item 't'"):
            one.execute("SELECT a FROM t")


def test_of_those_who_take_a_name_at_once_one_gets_it(tmp_path: Path) -> None:
    env = str(tmp_path / "env")
    with mzsql.connect(env) as one, mzsql.connect(env) as other:
        one.execute("CREATE TABLE a (n int); CREATE TABLE b (n int)")
        failures: list[str] = []

        def rename(con: mzsql.Connection, table: str) -> None:
            try:
                con.execute(f"ALTER TABLE {table} RENAME TO c")
            except mzsql.Error as error:
                failures.append(str(error))

        threads = [
            threading.Thread(target=rename, args=pair) for pair in ((one, "a"), (other, "b"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(failures) == 1
        assert 'table "materialize.public.c" already exists' in failures[0]
        assert ("c", "") in rows(one, "SHOW TABLES")
        assert len(rows(one, "SHOW TABLES")) == 2


# --- clusters -------------------------------------------------------------------------------------


def replicas(con: mzsql.Connection, cluster: str) -> list[tuple[object, ...]]:
    found = rows(con, "SHOW CLUSTER REPLICAS")
    return [(name, size) for of, name, size, _, _ in found if of == cluster]


def test_a_managed_cluster_has_the_replicas_it_says(con: mzsql.Connection) -> None:
    con.execute("CREATE CLUSTER c SIZE '1', REPLICATION FACTOR 2")
    assert replicas(con, "c") == [("r1", "1"), ("r2", "1")]
    con.execute("ALTER CLUSTER c SET (REPLICATION FACTOR 3)")
    con.execute("ALTER CLUSTER c SET (SIZE = '2')")
    assert replicas(con, "c") == [("r1", "2"), ("r2", "2"), ("r3", "2")]
    with pytest.raises(mzsql.Error, match="cannot modify managed cluster c"):
        con.execute("CREATE CLUSTER REPLICA c.mine SIZE '1'")
    with pytest.raises(mzsql.Error, match="cannot drop replica of managed cluster"):
        con.execute("DROP CLUSTER REPLICA c.r1")
    con.execute("ALTER CLUSTER c SET (MANAGED = false); DROP CLUSTER REPLICA c.r1, c.r3")
    con.execute("CREATE CLUSTER REPLICA c.mine SIZE '4'")
    assert replicas(con, "c") == [("mine", "4"), ("r2", "2")]
    with pytest.raises(mzsql.Error, match="do not have the same size"):
        con.execute("ALTER CLUSTER c SET (MANAGED)")
    con.execute("ALTER CLUSTER REPLICA c.mine RENAME TO other; DROP CLUSTER REPLICA c.r2")
    con.execute("ALTER CLUSTER c SET (MANAGED)")
    assert replicas(con, "c") == [("r1", "4")]
    again = create_sql(con, "CLUSTER", "c").replace('"c"', '"again"')
    con.execute(again)
    assert replicas(con, "again") == replicas(con, "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE CLUSTER x", "Expected one of AVAILABILITY or DISK"),
        ("CREATE CLUSTER x (SIZE '1', INTROSPECTION DEBUGGING = o)", "cannot use value as boolean"),
        ("CREATE CLUSTER x REPLICAS (r (SIZE '1', DISK = 'maybe'))", "cannot use value as boolean"),
        ("CREATE CLUSTER x SIZE 'huge'", "unknown cluster replica size huge"),
        ("CREATE CLUSTER x SIZE 1", "invalid SIZE: must provide a string value"),
        ("CREATE CLUSTER x SIZE '1', SIZE '2'", "SIZE specified more than once"),
        ("CREATE CLUSTER quickstart SIZE '1'", "cluster 'quickstart' already exists"),
        ("CREATE CLUSTER x REPLICAS (r (SIZE '1'), r (SIZE '1'))", "cannot create multiple"),
        ("CREATE CLUSTER x MANAGED, REPLICAS ()", "REPLICAS not supported for managed clusters"),
        ("CREATE CLUSTER REPLICA nowhere.r SIZE '1'", "unknown cluster 'nowhere'"),
        ("DROP CLUSTER nowhere", "unknown cluster 'nowhere'"),
        ("ALTER CLUSTER nowhere RENAME TO x", "unknown cluster 'nowhere'"),
        ("DROP CLUSTER REPLICA quickstart.r9", 'has no CLUSTER REPLICA named "r9"'),
    ],
)
def test_what_a_cluster_cannot_be_is_said(con: mzsql.Connection, text: str, message: str) -> None:
    before = rows(con, "SELECT * FROM mz_clusters"), rows(con, "SELECT * FROM mz_cluster_replicas")
    with pytest.raises(mzsql.Error) as refused:
        con.execute(text)
    assert message in str(refused.value)
    after = rows(con, "SELECT * FROM mz_clusters"), rows(con, "SELECT * FROM mz_cluster_replicas")
    assert after == before


# --- roles and comments ---------------------------------------------------------------------------


def test_a_role_stays_while_it_owns_something(con: mzsql.Connection) -> None:
    con.execute("CREATE ROLE joe; CREATE ROLE ann; CREATE TABLE t (a int)")
    con.execute("ALTER TABLE t OWNER TO joe; GRANT joe TO ann")
    with pytest.raises(mzsql.Error, match="is a member of role"):
        con.execute("GRANT ann TO joe")
    with pytest.raises(mzsql.Error, match='role "joe" cannot be dropped') as refused:
        con.execute("DROP ROLE joe")
    assert 'owner of table "materialize.public.t"' in str(refused.value)
    con.execute("ALTER TABLE t OWNER TO mzsql; DROP ROLE joe")
    assert rows(con, "SELECT * FROM mz_role_members") == []
    with pytest.raises(mzsql.Error, match="current role cannot be dropped"):
        con.execute("DROP ROLE mzsql")


def test_the_system_has_roles_of_its_own(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int)")
    named = "SELECT id, name FROM mz_roles WHERE id LIKE 's%' ORDER BY id"
    assert rows(con, named) == [("s1", "mz_system"), ("s2", "mz_support")]
    assert rows(con, "SELECT DISTINCT owner_id FROM mz_objects WHERE id LIKE 's%'") == [("s1",)]
    assert rows(con, "SELECT owner_id FROM mz_clusters WHERE id LIKE 's%'") == [("s1",)]
    owned = "SELECT DISTINCT privileges::text FROM mz_views"
    assert rows(con, owned) == [("{s1=r/s1,=r/s1}",)]
    assert rows(con, "SELECT has_table_privilege('mz_support', 'mz_tables', 'SELECT')") == [(True,)]
    assert rows(con, "SHOW ROLES") == [("mzsql", "")]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE ROLE mz_system",
        "DROP ROLE mz_system",
        "DROP ROLE IF EXISTS mz_system",
        "GRANT mz_system TO mzsql",
        "REVOKE mzsql FROM mz_system",
        "ALTER SCHEMA public OWNER TO mz_system",
        "COMMENT ON ROLE mz_system IS 'mine'",
        "GRANT USAGE ON SCHEMA public TO mz_system",
        "ALTER ROLE mz_system SET cluster = 'c'",
    ],
)
def test_the_roles_of_the_system_stay_as_they_are(con: mzsql.Connection, sql: str) -> None:
    with pytest.raises(mzsql.Error, match='role name "mz_system" is reserved') as refused:
        con.execute(sql)
    assert refused.value.sqlstate == "42939"


def test_a_comment_goes_with_what_it_is_on(con: mzsql.Connection) -> None:
    con.execute("CREATE SCHEMA s; CREATE TABLE s.t (a int, b int)")
    con.execute("COMMENT ON TABLE s.t IS 'whole'; COMMENT ON COLUMN s.t.b IS 'second'")
    con.execute("COMMENT ON SCHEMA s IS 'schema'; COMMENT ON CLUSTER quickstart IS 'c'")
    con.execute("ALTER TABLE s.t RENAME TO u; ALTER SCHEMA s RENAME TO z")
    assert rows(con, "SHOW TABLES FROM z") == [("u", "whole")]
    assert [row[3] for row in rows(con, "SHOW COLUMNS FROM z.u")] == ["", "second"]
    assert ("z", "schema") in rows(con, "SHOW SCHEMAS")
    con.execute("COMMENT ON TABLE z.u IS NULL")
    assert rows(con, "SHOW TABLES FROM z") == [("u", "")]
    with pytest.raises(mzsql.Error, match=r'column "z\.u\.c" does not exist'):
        con.execute("COMMENT ON COLUMN z.u.c IS 'none'")
    con.execute("DROP SCHEMA z CASCADE")
    left = "SELECT object_type, comment FROM mz_internal.mz_comments WHERE id LIKE 'u%'"
    assert rows(con, left) == [("cluster", "c")]


def test_what_files_say_of_builtin_relations_is_their_comments(con: mzsql.Connection) -> None:
    told = rows(con, "SELECT obj_description('mz_tables'::regclass::oid, 'pg_class')")
    assert told == [("The tables.",)]
    column = "col_description('mz_catalog.mz_tables'::regclass::oid, 2)"
    assert rows(con, f"SELECT {column}") == [("the number by which PostgreSQL's tools know it",)]
    # Of two lines one text, without the sign of a comment.
    ((both,),) = rows(
        con,
        "SELECT c.comment FROM mz_internal.mz_comments AS c JOIN mz_objects AS o ON o.id = c.id"
        " WHERE o.name = 'mz_recent_storage_usage' AND c.object_sub_id IS NULL",
    )
    assert both.startswith("How many bytes the shards of tables")
    assert both.endswith("What only the log has of a table that was just written is not counted.")
    assert (
        rows(con, "SHOW COLUMNS FROM mz_catalog.mz_recent_storage_usage")[1][3] == "how many bytes"
    )
    # Every relation, and every column of each.
    untold = rows(
        con,
        "SELECT r.name FROM mz_relations AS r LEFT JOIN mz_internal.mz_comments AS c"
        " ON c.id = r.id AND c.object_type = r.type AND c.object_sub_id IS NULL"
        " WHERE r.id LIKE 's%' AND c.comment IS NULL",
    )
    assert untold == []
    columns = "SELECT count(*) FROM mz_columns WHERE id LIKE 's%'"
    comments = (
        "SELECT count(*) FROM mz_internal.mz_comments WHERE id LIKE 's%' AND object_sub_id > 0"
    )
    assert rows(con, comments) == rows(con, columns)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_view_goes_on_when_its_replica_size_cluster_and_names_change(
    tmp_path: Path, spark: SparkSession
) -> None:
    with mzsql.connect(str(tmp_path / "env"), spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 10)")
        con.execute("CREATE CLUSTER c REPLICAS (r1 (SIZE '1'), r2 (SIZE '2'))")
        con.execute(
            "CREATE MATERIALIZED VIEW v IN CLUSTER c AS SELECT a, sum(b) AS s FROM t GROUP BY a"
        )
        con.execute("CREATE INDEX i IN CLUSTER c ON v (a)")
        expected = {1: 10}
        changes = (
            "DROP CLUSTER REPLICA c.r1",
            "ALTER CLUSTER c RENAME TO d",
            "ALTER MATERIALIZED VIEW v SET CLUSTER quickstart",
            "ALTER CLUSTER quickstart SET (SIZE '1')",
            "ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t",
        )
        for number, change in enumerate(changes, start=1):
            con.execute(change)
            con.execute(f"INSERT INTO t VALUES (1, 1), ({number + 1}, {number})")
            expected[1] += 1
            expected[number + 1] = expected.get(number + 1, 0) + number
            assert dict(rows(con, "SELECT a, s FROM v")) == expected
        with pytest.raises(mzsql.Error, match='cannot drop cluster "d"'):
            con.execute("DROP CLUSTER d")
        con.execute("DROP CLUSTER d CASCADE")
        assert rows(con, "SHOW INDEXES") == []
        assert dict(rows(con, "SELECT a, s FROM v")) == expected
        state = con.coordinator.env.catalog.state
        assert {name.partition("/")[0] for name in state.arrangements} <= set(state.replicas)
