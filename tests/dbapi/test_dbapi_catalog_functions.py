"""What clients of PostgreSQL ask a catalog: numbers written as names, definitions, comments, visibility, settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from answers_kit import make_database
from postgres_server import PostgresServer

import mzsql

_MADE = (
    "CREATE TABLE pets (id int NOT NULL, name text, code varchar(7), price numeric(10, 2), tags text[], at timestamptz)",
    "CREATE VIEW cheap AS SELECT id FROM pets WHERE price < 5",
    "CREATE SCHEMA shop",
    "CREATE TABLE shop.orders (id int)",
    "COMMENT ON TABLE pets IS 'all of them'",
    "COMMENT ON COLUMN pets.name IS 'what it hears'",
    "COMMENT ON SCHEMA shop IS 'where it is sold'",
)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    """An environment with some objects and comments."""
    connection = mzsql.connect(tmp_path_factory.mktemp("catalog") / "env")
    for statement in _MADE:
        connection.execute(statement)
    connection.execute("CREATE INDEX pets_by ON pets (id, upper(name))")
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("SELECT 'pets'::regclass = 'public.pets'::regclass, 'pets'::regclass::text", (True, "pets")),
        pytest.param(
            "SELECT 'shop.orders'::regclass::text, 1::regclass::text", ("shop.orders", "1"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT relname FROM pg_class WHERE oid = 'cheap'::regclass", ("cheap",),
            marks=pytest.mark.long,
        ),
        ("SELECT 'int[]'::regtype::oid, 23::regtype::text, pg_typeof(1::oid)", (1007, "integer", "oid")),
        ("SELECT 5::oid = 5, '7'::oid, (-1)::oid, max(x) FROM (VALUES (3::oid)) AS t (x)", (True, 7, 2**32 - 1, 3)),
        ("SELECT format_type(1043, 11), format_type(1231, 655366), format_type(0, 1), format_type(1, NULL)",
         ("character varying(7)", "numeric(10,2)[]", "-", "???")),
        pytest.param(
            "SELECT obj_description('pets'::regclass, 'pg_class'), col_description('pets'::regclass, 2)",
            ("all of them", "what it hears"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'shop'", ("where it is sold",),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT pg_table_is_visible('pets'::regclass), pg_table_is_visible('shop.orders'::regclass), pg_table_is_visible(0)",
            (True, False, None),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT pg_get_viewdef('cheap') = pg_get_viewdef('cheap'::regclass), pg_get_viewdef(0)", (True, None),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT pg_get_indexdef('pets_by'::regclass), pg_get_indexdef('pets_by'::regclass, 1, true)",
            ("CREATE INDEX pets_by ON pets USING arrangement (id, upper(name))", "id"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT pg_get_userbyid(relowner) = current_user, user = current_role FROM pg_class WHERE relname = 'pets'", (True, True),
            marks=pytest.mark.long,
        ),
        ("SELECT pg_get_userbyid(0), pg_get_constraintdef(1)", ("unknown (OID=0)", None)),
        pytest.param(
            "SELECT has_table_privilege('pets', 'SELECT'), has_table_privilege(current_user, 'pets', 'INSERT'),"
            " has_schema_privilege('public', 'usage, CREATE WITH GRANT OPTION'), has_schema_privilege(1::oid, 'USAGE')",
            (True, True, True, None),
            marks=pytest.mark.long,
        ),
        ("SELECT count(*) = count(DISTINCT oid), count(*) > 400 FROM mz_functions", (True, True)),
        ("SELECT current_setting('Search_Path'), current_setting('nothing', true)", ("public", None)),
        ("SELECT current_schemas(false), current_schemas(true)", (["public"], ["mz_catalog", "pg_catalog", "public"])),
        pytest.param(
            "SELECT typelem::regtype::text, typarray FROM pg_type WHERE typname = '_text'", ("text", 0),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT abbrev, is_dst FROM pg_timezone_names WHERE name = 'UTC'", ("UTC", False),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT count(*) FROM pg_constraint, information_schema.table_constraints", (0,),
            marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_the_catalog_answers(con: mzsql.Connection, query: str, row: tuple[object, ...]) -> None:
    """One row."""
    assert con.execute(query).fetchall() == [row]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 'nowhere'::regclass", 'relation "nowhere" does not exist'),
        ("SELECT 'shop.pets'::regclass", 'relation "shop.pets" does not exist'),
        ("SELECT 'color'::regtype", 'type "color" does not exist'),
        ("SELECT has_table_privilege('nowhere', 'SELECT')", 'relation "nowhere" does not exist'),
        ("SELECT has_table_privilege('nobody', 'pets', 'SELECT')", 'role "nobody" does not exist'),
        (
            "SELECT has_any_column_privilege('nobody', 'pets', 'SELECT')",
            'role "nobody" does not exist',
        ),
        (
            "SELECT has_schema_privilege('nobody', 'public', 'USAGE')",
            'role "nobody" does not exist',
        ),
        ("SELECT has_schema_privilege('x', 'USAGE')", 'schema "x" does not exist'),
        (
            "SELECT has_schema_privilege(s, 'USAGE') FROM (VALUES ('x')) AS v (s)",
            'schema "x" does not exist',
        ),
        ("SELECT has_database_privilege('x', 'CONNECT')", 'database "x" does not exist'),
        (
            "SELECT has_column_privilege('pets', 'fur', 'SELECT')",
            'column "fur" of relation "pets" does not exist',
        ),
        ("SELECT has_type_privilege('color', 'USAGE')", 'type "color" does not exist'),
        ("SELECT pg_has_role('nobody', 'MEMBER')", 'role "nobody" does not exist'),
        ("SELECT has_table_privilege('pets', 'READ')", 'unrecognized privilege type: "READ"'),
        (
            "SELECT has_schema_privilege('public', 'SELECT')",
            'unrecognized privilege type: "SELECT"',
        ),
        ("SELECT current_setting('nothing')", 'unrecognized configuration parameter "nothing"'),
        ("SELECT 4294967296::oid", '"4294967296" OID out of range'),
        ("SELECT pg_get_viewdef(true)", r"function pg_get_viewdef\(boolean\) does not exist"),
        ("SELECT 1::oid + 1", "operator does not exist: oid \\+ integer"),
    ],
)
def test_the_catalog_refuses(con: mzsql.Connection, query: str, message: str) -> None:
    """The error says what there is not."""
    with pytest.raises(mzsql.Error, match=message):
        con.execute(query)


@pytest.mark.parametrize(
    ("call", "state"),
    [
        ("has_table_privilege('nobody', 'pets', 'SELECT')", "42704"),
        ("has_table_privilege('nowhere', 'SELECT')", "42P01"),
        ("has_table_privilege('pets', 'READ')", "22023"),
        ("has_schema_privilege(s, 'USAGE')", "3F000"),
        ("has_database_privilege(s, 'CREATE')", "3D000"),
        ("has_type_privilege(s, 'USAGE')", "42704"),
        ("has_cluster_privilege(s, 'USAGE')", "42704"),
        ("has_column_privilege('pets', s, 'SELECT')", "42703"),
        ("has_function_privilege('nothing()', 'EXECUTE')", "42883"),
        ("pg_has_role(s, 'MEMBER')", "42704"),
        ("(s || 'where')::regclass", "42P01"),
    ],
)
def test_what_there_is_not_has_postgresqls_state(
    con: mzsql.Connection, call: str, state: str
) -> None:
    """Of names that stand in the call, and of names that rows bring."""
    with pytest.raises(mzsql.Error) as refused:
        con.execute(f"SELECT {call} FROM (VALUES ('no')) AS v (s)")
    assert refused.value.sqlstate == state


def test_columns_have_the_type_modifiers_of_postgresql(con: mzsql.Connection) -> None:
    """Of a numeric the digits before and after the point in one number, of a text its length, both count from 4; of a
    timestamp its digits. Of an array it is that of its elements, and types of their own have none.
    """
    con.execute(
        "CREATE TABLE modified (a numeric(12,2), b numeric, c varchar(7), d int, e timestamp(3), f timestamptz(2),"
        """ g char(3), h varchar(5)[], i timestamp(3)[], j name, k "char", l int2vector, m oidvector, n aclitem)"""
    )
    found = con.execute(
        "SELECT attname, atttypmod, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'modified'::regclass AND attnum > 0 ORDER BY attnum"
    ).fetchall()
    types = con.execute(
        "SELECT c.type FROM mz_columns AS c JOIN mz_tables AS t USING (id) WHERE t.name = 'modified'"
        " AND c.type_mod < 4 AND c.type LIKE 'timestamp%' ORDER BY c.position"
    ).fetchall()
    con.execute("DROP TABLE modified")
    without, with_zone = "timestamp without time zone", "timestamp with time zone"
    assert types == [(without,), (with_zone,), (f"{without}[]",)]
    assert found == [
        ("a", ((39 << 16) | 2) + 4, "numeric(39,2)"),
        ("b", -1, "numeric"),
        ("c", 11, "character varying(7)"),
        ("d", -1, "integer"),
        ("e", 3, "timestamp(3) without time zone"),
        ("f", 2, "timestamp(2) with time zone"),
        ("g", 7, "character(3)"),
        ("h", 9, "character varying(5)[]"),
        ("i", 3, "timestamp(3) without time zone[]"),
        ("j", -1, "name"),
        ("k", -1, '"char"'),
        ("l", -1, "int2vector"),
        ("m", -1, "oidvector"),
        ("n", -1, "aclitem"),
    ]


#: What PostgreSQL's own tools ask, with nothing in it that depends on a server.
_ASKED = """
SELECT a.attname, format_type(a.atttypid, CASE WHEN a.atttypid = 1700 THEN -1 ELSE a.atttypmod END), a.attnotnull, a.attnum,
    col_description(a.attrelid, a.attnum)
FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = 'pets'::regclass AND a.attnum > 0 ORDER BY a.attnum;
SELECT n.nspname, c.relname, c.relkind::text, obj_description(c.oid, 'pg_class'), pg_table_is_visible(c.oid)
FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v') AND n.nspname IN ('public', 'shop') ORDER BY 1, 2;
SELECT attname, attlen, attndims::integer FROM pg_attribute WHERE attrelid = 'pets'::regclass AND attnum > 0 ORDER BY attnum;
SELECT oid::bigint, typname::text, typlen, typtypmod, typdefault, typcategory::text, typelem::bigint, typarray::bigint FROM pg_type
WHERE oid IN (16, 17, 20, 21, 23, 25, 26, 700, 701, 1000, 1007, 1009, 1043, 1082, 1114, 1184, 1186, 1231, 1700, 2950, 3802) ORDER BY oid;
SELECT format_type(oid, NULL), format_type(oid, CASE WHEN oid IN (1042, 1043, 1015) THEN 10 END) FROM pg_type
WHERE oid IN (16, 20, 23, 25, 1007, 1043, 1042, 1015, 3904, 2205) ORDER BY oid;
SELECT table_name, column_name, ordinal_position::bigint, is_nullable FROM information_schema.columns
WHERE table_schema IN ('public', 'shop') AND table_name <> 'cheap' ORDER BY 1, 3
"""


@pytest.mark.long
def test_tools_of_postgresql_get_its_answers(con: mzsql.Connection, tmp_path: Path) -> None:
    """The same questions, to both catalogs."""
    del tmp_path
    with PostgresServer() as server, server.connect() as postgres:
        for statement in _MADE:
            postgres.execute(statement.encode())
        for query in _ASKED.split(";"):
            assert con.execute(query).fetchall() == postgres.execute(query.encode()).fetchall(), (
                query
            )


def test_what_there_is_not_is_told_as_postgresql_tells_it(
    con: mzsql.Connection, answers_server: PostgresServer
) -> None:
    asked = """
        pg_conversion_is_visible(1); pg_opclass_is_visible(1); pg_ts_config_is_visible(1); pg_get_functiondef(1)
        pg_get_triggerdef(1); pg_get_statisticsobjdef(1); pg_get_function_arguments(1); pg_collation_is_visible(NULL)
        pg_trigger_depth(); pg_blocking_pids(1)::text; pg_notification_queue_usage(); pg_current_logfile()
        row_security_active('pg_class'); row_security_active(1::oid); row_security_active(NULL::oid)
        pg_my_temp_schema()::text; inet_client_addr()::text; inet_server_port(); pg_char_to_encoding('utf-8')
        pg_char_to_encoding('none'); has_column_privilege('pg_class', 'relname', 'SELECT')
        has_column_privilege('pg_class', 1::smallint, 'insert, UPDATE'); has_column_privilege(1::oid, 'relname', 'SELECT')
        has_type_privilege('integer', 'USAGE'); has_function_privilege('abs(integer)', 'EXECUTE')
        has_table_privilege(1::oid, 'SELECT')
    """
    query = "SELECT " + ", ".join(asked.replace(";", "\n").strip().split("\n"))
    with make_database(answers_server, "absent") as session:
        wanted = session.execute(query.encode()).fetchall()
    assert con.execute(query).fetchall() == wanted


@pytest.mark.parametrize(
    ("relation", "asked"),
    [
        ("pg_namespace", "has_schema_privilege(nspname, 'USAGE')"),
        ("mz_databases", "has_database_privilege(name, 'CONNECT')"),
        ("mz_clusters", "has_cluster_privilege(name, 'USAGE')"),
        ("mz_roles", "has_table_privilege(name, 'pg_class', 'SELECT')"),
        (
            "information_schema.columns",
            "has_column_privilege(quote_ident(table_schema) || '.' || quote_ident(table_name), column_name, 'SELECT')",
        ),
    ],
)
def test_who_may_what_is_asked_of_every_row(
    con: mzsql.Connection, relation: str, asked: str
) -> None:
    """A filter is pushed to where a subquery of it has found nothing yet: that refuses nothing."""
    all_rows = con.execute(f"SELECT count(*) FROM {relation}").fetchall()
    assert con.execute(f"SELECT count(*) FROM {relation} WHERE {asked}").fetchall() == all_rows
