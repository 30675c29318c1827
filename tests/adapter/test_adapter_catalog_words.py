"""How statements about the catalog are answered and refused: Materialize's words, and what its relations say of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import mzsql

if TYPE_CHECKING:
    import psycopg


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("words") / "env") as made:
        made.execute("CREATE TABLE t (a int, b text); CREATE VIEW v AS SELECT 1 AS one")
        made.execute("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
        yield made


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DELETE FROM v", "cannot mutate view 'materialize.public.v'"),
        ("UPDATE m SET a = 1", "cannot mutate materialized view 'materialize.public.m'"),
        ("DELETE FROM mz_tables", "cannot mutate system table 'mz_catalog.mz_tables'"),
        ("INSERT INTO mz_tables VALUES (1)", "cannot insert into system table 'mz_catalog.mz_t"),
        ("UPDATE t SET z = 1", "unknown column z"),
        ("UPDATE t SET (a, a) = (1, 2)", "column a set twice"),
        ("INSERT INTO t (z) VALUES (1)", 'column "z" of relation "materialize.public.t" does not'),
        (
            "CREATE OR REPLACE VIEW v AS SELECT one FROM v",
            "cannot replace view materialize.public.v: depended upon by new materialize.public.v definition",
        ),
        (
            "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT a FROM m",
            "cannot replace materialized view materialize.public.m: depended upon by new",
        ),
        (
            "CREATE VIEW x (a, b) AS SELECT 1",
            "view materialize.public.x definition names 2 columns, but view materialize.public.x has 1 column$",
        ),
        ("DROP SINK t", "materialize.public.t is not a sink"),
        ("DROP SOURCE t, nothing", "materialize.public.t is not a source"),
        ("DROP SECRET nothing", "unknown catalog item 'nothing'"),
        ("SHOW REDACTED t", "Expected CREATE, found"),
        (
            "SHOW REDACTED CREATE CLUSTER quickstart",
            "SHOW REDACTED CREATE CLUSTER is not supported",
        ),
        (r"SELECT E'\u00'", "invalid Unicode escape$"),
        (r"SELECT E'\ud83d\n\ude00'", "invalid Unicode surrogate pair$"),
        (r"SELECT E'\U00110000'", "invalid Unicode escape value$"),
        ("SHOW CREATE CONNECTION t", "materialize.public.t is not a connection"),
        ("CREATE VIEW x AS SELECT a = $1 FROM t", "views cannot have parameters$"),
        ("CREATE MATERIALIZED VIEW x AS SELECT $1", "materialized views cannot have parameters$"),
        ("CREATE INDEX ON t (a + (SELECT 1))", "CREATE INDEX does not allow subqueries$"),
        ("CREATE INDEX ON t (sum(a))", "aggregate functions are not allowed in CREATE INDEX"),
        ("CREATE TABLE x (a int DEFAULT (SELECT 1))", "DEFAULT does not allow subqueries$"),
        ("CREATE ROLE mz_r", 'role name "mz_r" is reserved'),
        ("CREATE ROLE public", 'role name "public" is reserved'),
        ("CREATE CLUSTER pg_c SIZE '1'", 'cluster name "pg_c" is reserved'),
        ("CREATE SCHEMA mz_s", "unacceptable schema name 'mz_s'"),
        ("ALTER ROLE nobody INHERIT", "unknown role 'nobody'"),
        ("SELECT 1 FROM a.b.c.d", "did not have between 1 and 3 components: a.b.c.d"),
    ],
)
def test_what_cannot_be_is_refused_in_materializes_words(
    con: mzsql.Connection, sql: str, message: str
) -> None:
    with pytest.raises(mzsql.Error) as raised:
        con.execute(sql)
    said = str(raised.value).splitlines()[0]
    assert message.rstrip("$") in said
    assert not message.endswith("$") or said.endswith(message.rstrip("$"))


def test_definitions_are_shown_redacted_and_nothing_has_subsources(con: mzsql.Connection) -> None:
    con.execute("CREATE VIEW secretive AS SELECT 'pass' || b::varchar(7) AS p FROM t WHERE a > 41")
    ((name, text),) = con.execute("SHOW REDACTED CREATE VIEW secretive").fetchall()
    assert name == "materialize.public.secretive"
    told = "SELECT redacted_create_sql FROM mz_views WHERE name = 'secretive'"
    assert [(text,)] == con.execute(told).fetchall()
    assert "pass" not in text
    assert "41" not in text
    assert "7" in text
    assert con.execute("SHOW SUBSOURCES ON t").fetchall() == []


def test_what_there_is_not_may_be_dropped_if_it_exists(con: mzsql.Connection) -> None:
    for kind in ("SINK", "SOURCE", "SECRET", "CONNECTION"):
        con.execute(f"DROP {kind} IF EXISTS nothing")


def test_a_role_inherits_already(con: mzsql.Connection) -> None:
    con.execute("ALTER ROLE mzsql INHERIT; ALTER ROLE mzsql WITH INHERIT")


def test_what_the_catalog_says_of_columns(con: mzsql.Connection) -> None:
    con.execute(
        "CREATE TABLE kinds (a numeric(10, 2)[], l int list, m map[text=>int], v varchar(3) DEFAULT 'x', "
        "b bool DEFAULT TRUE, n int NOT NULL DEFAULT 1+1)"
    )
    said = con.execute(
        "SELECT c.name, c.type, c.default FROM mz_columns c JOIN mz_tables t USING (id) WHERE t.name = 'kinds' ORDER BY position"
    ).fetchall()
    assert said == [
        ("a", "numeric[]", None),
        ("l", "list", None),
        ("m", "map", None),
        ("v", "character varying", "'x'"),
        ("b", "boolean", "true"),
        ("n", "integer", "1 + 1"),
    ]
    shown = con.execute("SELECT name, type FROM (SHOW COLUMNS FROM kinds)").fetchall()
    assert sorted(shown) == sorted((name, typ) for name, typ, _ in said)


@pytest.mark.parametrize("path", ["public, a", "'a, b', public", '"C", public', "''", '"x""y"'])
def test_a_search_path_is_shown_as_in_postgresql(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], path: str
) -> None:
    for session in (con, postgres):
        for name in ("a", '"C"', '"a, b"'):
            session.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
        session.execute(f"SET search_path = {path}")
    try:
        for asked in ("SHOW search_path", "SELECT current_schemas(false)"):
            assert con.execute(asked).fetchall() == postgres.execute(asked).fetchall()
    finally:
        con.execute("RESET search_path")


def test_what_needs_what_through_others(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE base (x int); CREATE VIEW mid AS SELECT x FROM base")
    con.execute("CREATE VIEW top AS SELECT x FROM mid; CREATE INDEX by_x ON top (x)")
    asked = """
        SELECT o.name, r.name FROM mz_internal.mz_object_transitive_dependencies AS d
        JOIN mz_objects AS o ON o.id = d.object_id JOIN mz_objects AS r ON r.id = d.referenced_object_id
        WHERE o.name IN ('base', 'mid', 'top', 'by_x')"""
    needs = {"mid": ["base"], "top": ["mid", "base"], "by_x": ["top", "mid", "base"]}
    pairs = sorted((name, other) for name, others in needs.items() for other in others)
    assert sorted(con.execute(asked).fetchall()) == pairs


@pytest.mark.parametrize(
    "relation",
    [
        *("mz_sinks", "mz_connections", "mz_secrets", "mz_kafka_sinks", "mz_kafka_sources"),
        *("mz_kafka_connections", "mz_ssh_tunnel_connections", "mz_aws_privatelink_connections"),
        *("mz_egress_ips", "mz_introspection.mz_expected_group_size_advice"),
        *("mz_internal.mz_network_policies", "mz_internal.mz_network_policy_rules"),
    ],
)
def test_what_there_is_not_is_empty(con: mzsql.Connection, relation: str) -> None:
    assert con.execute(f"SELECT * FROM {relation}").fetchall() == []
