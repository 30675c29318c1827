"""Objects of the system stay as they are, whatever statements say; what is made of them stays what it was meant to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.catalog.builtin import builtins

Rows = list[tuple[object, ...]]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("system")) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        made.execute("CREATE DATABASE d; CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t")
        made.execute("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
        made.execute("CREATE INDEX i ON t (a); COMMENT ON TABLE t IS 'ours'")
        yield made


def rows(con: mzsql.Connection, text: str) -> Rows:
    return con.execute(text).fetchall()


_ITEM, _SCHEMA = "system item '{}' cannot be modified", "system schema '{}' cannot be modified"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("INSERT INTO pg_class DEFAULT VALUES", "cannot insert into view 'pg_catalog.pg_class'"),
        ("UPDATE mz_tables SET name = 'x'", "cannot mutate system table 'mz_catalog.mz_tables'"),
        ("DELETE FROM pg_type USING t", "cannot mutate view 'pg_catalog.pg_type'"),
        ("COPY mz_internal.mz_refreshes FROM STDIN", "cannot copy into system table"),
        ("CREATE INDEX ON mz_tables (id)", _SCHEMA.format("mz_catalog")),
        ("CREATE DEFAULT INDEX ON mz_introspection.mz_dataflows", _SCHEMA.format("mz_introspec")),
        ("DROP VIEW IF EXISTS mz_columns CASCADE", _ITEM.format("mz_catalog.mz_columns")),
        ("DROP SOURCE mz_internal.mz_refreshes", _ITEM.format("mz_internal.mz_refreshes")),
        ("DROP TYPE int4", _ITEM.format("pg_catalog.int4")),
        ("DROP TYPE IF EXISTS pg_catalog.text CASCADE", _ITEM.format("pg_catalog.text")),
        ("DROP TYPE mz_catalog.list, _uint8", _ITEM.format("mz_catalog.list")),
        ("DROP SCHEMA materialize.pg_catalog", _SCHEMA.format("pg_catalog")),
        ("DROP SCHEMA IF EXISTS mz_internal CASCADE", _SCHEMA.format("mz_internal")),
        ("ALTER VIEW mz_columns RENAME TO x", _ITEM.format("mz_catalog.mz_columns")),
        ("ALTER VIEW mz_columns SET SCHEMA public", _ITEM.format("mz_catalog.mz_columns")),
        ("ALTER TABLE t SET SCHEMA pg_catalog", _SCHEMA.format("pg_catalog")),
        ("ALTER TABLE mz_tables SET (RETAIN HISTORY FOR '1s')", _ITEM.format("mz_catalog.mz_tab")),
        ("ALTER SCHEMA d.mz_catalog RENAME TO x", _SCHEMA.format("mz_catalog")),
        ("ALTER SCHEMA public SWAP WITH mz_internal", _SCHEMA.format("mz_internal")),
        ("ALTER TYPE uint8 RENAME TO x", _ITEM.format("mz_catalog.uint8")),
        ("ALTER TYPE int4 OWNER TO materialize", _ITEM.format("pg_catalog.int4")),
        ("COMMENT ON COLUMN mz_tables.id IS 'x'", _ITEM.format("mz_catalog.mz_tables")),
        ("COMMENT ON TYPE int4 IS 'x'", _ITEM.format("pg_catalog.int4")),
        ("COMMENT ON SCHEMA mz_catalog IS 'x'", _SCHEMA.format("mz_catalog")),
        (
            "COMMENT ON CLUSTER mz_catalog_server IS 'x'",
            "cluster 'mz_catalog_server' cannot be mod",
        ),
        ("GRANT USAGE ON TYPE int4 TO PUBLIC", _ITEM.format("pg_catalog.int4")),
        ("REVOKE SELECT ON pg_class FROM PUBLIC", _ITEM.format("pg_catalog.pg_class")),
        (
            "GRANT SELECT ON ALL TABLES IN SCHEMA public, pg_catalog TO PUBLIC",
            "'pg_catalog' cannot",
        ),
        (
            "ALTER DEFAULT PRIVILEGES FOR ALL ROLES IN SCHEMA mz_catalog GRANT SELECT ON TABLES TO PUBLIC",
            _SCHEMA.format("mz_catalog"),
        ),
        ("CREATE OR REPLACE VIEW mz_catalog.mz_columns AS SELECT 1", _SCHEMA.format("mz_catalog")),
        ("CREATE TYPE pg_catalog.x AS LIST (ELEMENT TYPE = int4)", _SCHEMA.format("pg_catalog")),
        ("CREATE TEMP TABLE mz_catalog.x (a int)", "temporary item in non-temporary schema"),
        ("CREATE SCHEMA IF NOT EXISTS information_schema", "unacceptable schema name"),
        ("ALTER SCHEMA public RENAME TO mz_internal", "unacceptable schema name 'mz_internal'"),
    ],
)
def test_objects_of_the_system_cannot_be_changed(
    con: mzsql.Connection, statement: str, told: str
) -> None:
    with pytest.raises(mzsql.Error) as refused:
        con.execute(statement)
    assert told.removesuffix("' cannot be modified") in str(refused.value)


def test_nothing_is_dropped_where_there_is_nothing(con: mzsql.Connection) -> None:
    con.execute("DROP SCHEMA IF EXISTS nowhere.x; DROP TYPE IF EXISTS public.int4")
    with pytest.raises(mzsql.Error, match="unknown database 'nowhere'"):
        con.execute("DROP SCHEMA nowhere.mz_catalog")


def test_a_type_with_a_name_of_the_systems_is_found_by_its_schema(con: mzsql.Connection) -> None:
    con.execute("CREATE TYPE int4 AS LIST (ELEMENT TYPE = int8)")
    asked = "SELECT pg_typeof('1'::int4)::text, '{1}'::public.int4 = LIST[1::int8]"
    assert rows(con, asked) == [("integer", True)]
    with pytest.raises(mzsql.Error, match=r"system item 'pg_catalog\.int4' cannot be modified"):
        con.execute("DROP TYPE int4")
    con.execute("DROP TYPE public.int4")


def test_names_of_the_systems_relations_hide_nothing_from_statements(tmp_path: Path) -> None:
    """What SHOW, EXPLAIN ANALYZE and functions ask of the catalog they ask of the system's, whatever has the same names."""
    asked = (
        *("SHOW TABLES", "SHOW VIEWS", "SHOW CLUSTERS", "SHOW SCHEMAS", "SHOW COLUMNS FROM t"),
        *("SHOW INDEXES ON t", "SHOW CLUSTER REPLICAS", "SHOW DEFAULT PRIVILEGES"),
        "EXPLAIN ANALYZE HYDRATION FOR MATERIALIZED VIEW m",
        "SELECT pg_get_viewdef(to_regclass('v')::oid), obj_description('t'::regclass::oid),"
        " has_table_privilege('t', 'SELECT'), pg_table_is_visible('t'::regclass::oid)",
        "SELECT column_name FROM information_schema.columns WHERE table_name = 't'",
        "SELECT relkind FROM pg_catalog.pg_class WHERE relname = 'm'",
    )
    with mzsql.connect(tmp_path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int)")
        con.execute("CREATE VIEW v AS SELECT a FROM t; CREATE INDEX i ON t (a)")
        con.execute("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
        assert rows(con, "SELECT n FROM m") == [(0,)]
        before = [rows(con, text) for text in asked]
        assert all(before)
        for name in sorted({one.name for one in builtins().values() if one.schema != "pg_catalog"}):
            con.execute(f'CREATE TEMP TABLE "{name}" (x int)')
        con.execute("CREATE TABLE public.pg_class (x int); SET search_path = public, pg_catalog")
        for text, answers in zip(asked, before, strict=True):
            assert set(map(repr, answers)) <= set(map(repr, rows(con, text))), text
        # A session hides a relation of the system from its own names, as in PostgreSQL; others' names hide none.
        assert rows(con, "SELECT count(*) FROM mz_tables") == [(0,)]
        assert rows(con, "SELECT count(*) > 0 FROM pg_class") == [(True,)]


@pytest.mark.parametrize(
    ("statement", "relations"),
    [
        ("VIEW x AS SELECT name FROM mz_internal.mz_threads", ["mz_internal.mz_threads"]),
        ("VIEW x AS SELECT (SELECT count(*) FROM mz_sessions) AS n", ["mz_internal.mz_sessions"]),
        (
            "VIEW x AS WITH w AS (SELECT id FROM mz_internal.mz_sessions) SELECT w.id"
            " FROM w, mz_introspection.mz_dataflows",
            ["mz_internal.mz_sessions", "mz_introspection.mz_dataflows"],
        ),
        (
            "MATERIALIZED VIEW x AS SELECT hydrated FROM mz_internal.mz_hydration_statuses",
            ["mz_internal.mz_hydration_statuses"],
        ),
    ],
)
def test_views_that_stay_read_nothing_that_may_change(
    con: mzsql.Connection, statement: str, relations: list[str]
) -> None:
    kind = statement.split(" x ", maxsplit=1)[0].lower()
    told = f"cannot create {kind} with unstable dependencies"
    with pytest.raises(mzsql.Error, match=told) as refused:
        con.execute(f"CREATE {statement}")
    listed = "".join(f"\n    {name}" for name in relations)
    assert refused.value.detail == (
        f"The object depends on the following unstable objects:{listed}"
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM mz_tables",
        "TABLE mz_tables",
        "SELECT x.* FROM mz_tables AS x",
        "SELECT (x).* FROM mz_tables AS x",
        "SELECT a FROM t WHERE a IN (SELECT y.n FROM (SELECT * FROM pg_class) AS z, (SELECT 1 AS n) AS y)",
        "SELECT x.id FROM mz_tables AS x NATURAL JOIN mz_schemas",
        "SELECT x FROM mz_tables AS x",
        "SELECT count(mz_tables) FROM mz_tables",
        "SELECT a FROM t WHERE (SELECT min(mz_schemas::text) FROM mz_schemas) IS NOT NULL",
    ],
)
def test_views_that_stay_name_columns_of_the_systems_relations(
    con: mzsql.Connection, query: str
) -> None:
    told = "cannot use wildcard expansions or NATURAL JOINs in a view that depends on system obj"
    with pytest.raises(mzsql.Error, match=told):
        con.execute(f"CREATE VIEW x AS {query}")
    assert len(rows(con, f"{query} LIMIT 1")) <= 1


def test_what_ends_with_the_session_may_read_everything(con: mzsql.Connection) -> None:
    con.execute("CREATE TEMP VIEW passing AS SELECT * FROM mz_internal.mz_threads")
    ((found,),) = rows(con, "SELECT count(*) FROM passing")
    assert found
    con.execute("CREATE VIEW counted AS SELECT count(*) AS n FROM mz_tables")
    con.execute("CREATE VIEW above AS SELECT * FROM counted")
    assert rows(con, "SELECT * FROM above") == rows(con, "SELECT count(*) FROM mz_tables")


def test_a_view_that_was_made_when_that_was_allowed_goes_on(tmp_path: Path) -> None:
    setting = "unsafe_enable_unstable_dependencies"
    with mzsql.connect(tmp_path) as con:
        con.execute(f"ALTER SYSTEM SET {setting} = on")
        con.execute("CREATE VIEW old AS SELECT * FROM mz_internal.mz_threads")
        con.execute(f"ALTER SYSTEM RESET {setting}")
        con.execute("CREATE VIEW above AS SELECT name FROM old; ALTER VIEW old RENAME TO older")
        assert rows(con, "SELECT count(*) > 0 FROM above") == [(True,)]
    with mzsql.connect(tmp_path) as con:
        assert rows(con, "SELECT count(*) > 0 FROM above") == [(True,)]
        assert rows(con, "EXPLAIN LOCALLY OPTIMIZED PLAN FOR VIEW older")
        con.execute("DROP VIEW older CASCADE")


def test_an_index_on_what_reads_relations_of_the_system_is_refused_by_their_name(
    con: mzsql.Connection,
) -> None:
    con.execute("CREATE VIEW under AS SELECT id FROM mz_tables")
    con.execute("CREATE VIEW over AS SELECT id FROM under")
    for text in ("CREATE INDEX ON over (id)", "CREATE DEFAULT INDEX ON under"):
        with pytest.raises(
            mzsql.Error, match=r"an index that reads the system relation mz_catalog\.mz_tables"
        ):
            con.execute(text)


@pytest.mark.parametrize(
    "call",
    [
        "obj_description(1::oid)",
        "pg_get_viewdef(1::oid)",
        "has_table_privilege('t', 'SELECT')",
        "'mine'::regtype",
    ],
)
def test_what_a_function_is_made_of_has_no_place_in_a_definition(
    con: mzsql.Connection, call: str
) -> None:
    """Wherever columns stand in a view's text, none of them stands where a relation does in the text of a function."""
    con.execute("CREATE TYPE mine AS LIST (ELEMENT TYPE = int8)")
    columns = [f"a AS c{n}" for n in range(40)]
    written = "".join(f', "a" AS "c{n}"' for n in range(40))
    try:
        for spaces in range(9):
            con.execute(f"CREATE VIEW x AS SELECT {' ' * spaces}{call},{','.join(columns)} FROM t")
            ((text,),) = rows(con, "SELECT create_sql FROM mz_views WHERE name = 'x'")
            assert str(text).endswith(f'{written} FROM "materialize"."public"."t"'), text
            con.execute("DROP VIEW x")
    finally:
        con.execute("DROP VIEW IF EXISTS x; DROP TYPE mine")
