"""What pg_catalog and information_schema say is what mz_catalog says of the same objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import mzsql

_RELKINDS = {"index": "i", "view": "v", "materialized-view": "m"}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("forms")) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        made.execute(
            "CREATE TABLE t (a int NOT NULL, b varchar(7) DEFAULT 'x', c numeric(9, 2), d int[])"
        )
        made.execute('CREATE VIEW "V v" AS SELECT a, b FROM t; CREATE INDEX i ON t (a, upper(b))')
        made.execute(
            "CREATE MATERIALIZED VIEW m AS SELECT 1 AS x; CREATE SCHEMA s; CREATE TABLE s.t (y date)"
        )
        made.execute("CREATE DATABASE other; CREATE TABLE other.public.hidden (z int)")
        made.execute("CREATE TYPE ints AS LIST (ELEMENT TYPE = int4)")
        yield made


def _rows(con: mzsql.Connection, text: str) -> list[dict[str, Any]]:
    answer = con.execute(text)
    assert answer.description is not None
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _by(con: mzsql.Connection, relation: str, key: str = "id") -> dict[Any, dict[str, Any]]:
    rows = _rows(con, f"SELECT * FROM {relation}")
    found = {row[key]: row for row in rows}
    assert len(found) == len(rows), relation
    return found


def _shown(con: mzsql.Connection) -> dict[str, tuple[dict[str, Any], str]]:
    """The objects of the session's database and of the system, each with its schema's name."""
    schemas, databases = _by(con, "mz_schemas"), _by(con, "mz_databases")
    found = {}
    for gid, one in _by(con, "mz_objects").items():
        schema = schemas[one["schema_id"]]
        of = schema["database_id"]
        if of is None or databases[of]["name"] == "materialize":
            found[gid] = (one, schema["name"])
    return found


def test_objects_are_those_of_the_relations_of_their_kinds(con: mzsql.Connection) -> None:
    one_kind = {
        "table": "mz_tables",
        "source": "mz_sources",
        "view": "mz_views",
        "materialized-view": "mz_materialized_views",
        "type": "mz_types",
    }
    objects = _by(con, "mz_objects")
    for kind, relation in one_kind.items():
        same = ("id", "oid", "schema_id", "name", "owner_id", "privileges")
        wanted = [tuple(map(str, (row[n] for n in same))) for row in _by(con, relation).values()]
        got = [tuple(map(str, (r[n] for n in same))) for r in objects.values() if r["type"] == kind]
        assert Counter(got) == Counter(wanted), kind
    relations = _by(con, "mz_relations")
    assert relations == {g: r for g, r in objects.items() if r["type"] not in ("index", "type")}
    for gid, index in _by(con, "mz_indexes").items():
        row = objects[gid]
        assert row["schema_id"] == relations[index["on_id"]]["schema_id"]
        assert row["cluster_id"] == index["cluster_id"]


def test_classes_attributes_and_indexes(con: mzsql.Connection) -> None:
    shown, schemas, roles = _shown(con), _by(con, "mz_schemas"), _by(con, "mz_roles")
    columns = _rows(con, "SELECT * FROM mz_columns")
    indexes = _by(con, "mz_indexes")
    on = {index["on_id"] for index in indexes.values()}
    arity = Counter(column["id"] for column in columns)
    wanted = {
        one["oid"]: (
            one["name"],
            schemas[one["schema_id"]]["oid"],
            roles[one["owner_id"]]["oid"],
            gid in on,
            _RELKINDS.get(one["type"], "r"),
            arity[gid],
        )
        for gid, (one, _) in shown.items()
        if one["type"] != "type"
    }
    named = ("relname", "relnamespace", "relowner", "relhasindex", "relkind", "relnatts")
    got = {oid: tuple(r[n] for n in named) for oid, r in _by(con, "pg_class", "oid").items()}
    assert got == wanted
    described = {
        (shown[c["id"]][0]["oid"], c["position"]): (
            c["name"],
            c["type_oid"],
            c["type_mod"],
            not c["nullable"],
            c["default"] is not None,
            int(c["type"].endswith("[]")),
        )
        for c in columns
        if c["id"] in shown
    }
    named = ("attname", "atttypid", "atttypmod", "attnotnull", "atthasdef", "attndims")
    attributes = {
        (r["attrelid"], r["attnum"]): tuple(r[n] for n in named)
        for r in _rows(con, "SELECT * FROM pg_attribute")
    }
    assert attributes == described
    keys = _rows(con, "SELECT * FROM mz_index_columns ORDER BY index_position")
    kept = {
        r["indexrelid"]: (r["indrelid"], r["indkey"], r["indoption"], r["indnatts"])
        for r in _rows(con, "SELECT * FROM pg_index")
    }
    objects = _by(con, "mz_objects")
    for gid, index in indexes.items():
        positions = [int(k["on_position"] or 0) for k in keys if k["index_id"] == gid]
        of = objects[index["on_id"]]["oid"]
        places, order = (" ".join(map(str, those)) for those in (positions, [0] * len(positions)))
        assert kept[index["oid"]] == (of, places, order, len(positions))
    assert len(kept) == len(indexes) == 1
    texts = "SELECT pg_get_indexdef(oid), pg_get_indexdef(oid, 2, true) FROM pg_class WHERE relname = 'i'"
    (second,) = [k["on_expression"] for k in keys if k["on_expression"] is not None]
    text = f"CREATE INDEX i ON t USING arrangement (a, {second})"
    assert con.execute(texts).fetchall() == [(text, second)]


def test_what_the_standard_shows(con: mzsql.Connection) -> None:
    shown = _shown(con)
    named = (
        "SELECT table_catalog, table_schema, table_name, column_name, ordinal_position, data_type"
    )
    got = con.execute(f"{named} FROM information_schema.columns").fetchall()
    wanted = [
        (
            "materialize",
            shown[c["id"]][1],
            shown[c["id"]][0]["name"],
            c["name"],
            c["position"],
            c["type"],
        )
        for c in _rows(con, "SELECT * FROM mz_columns")
        if c["id"] in shown
    ]
    assert Counter(got) == Counter(wanted)
    got = con.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
    tables = [(s, o["name"]) for o, s in shown.values() if o["type"] not in ("index", "type")]
    assert Counter(got) == Counter(tables)
    assert ("public", "hidden") not in tables


def test_types_and_their_arrays(con: mzsql.Connection) -> None:
    types, arrays = _by(con, "mz_types"), _rows(con, "SELECT * FROM mz_array_types")
    element = {types[a["id"]]["oid"]: types[a["element_id"]]["oid"] for a in arrays}
    array = {held: of for of, held in element.items()}
    got = {r["oid"]: r for r in _rows(con, "SELECT * FROM pg_type")}
    assert got.keys() == {one["oid"] for one in types.values()}
    for one in types.values():
        row = got[one["oid"]]
        related = element.get(one["oid"], 0), array.get(one["oid"], 0)
        assert (row["typname"], row["typelem"], row["typarray"]) == (one["name"], *related)


def test_what_is_found_without_its_schema(con: mzsql.Connection) -> None:
    asked = (
        "SELECT n.nspname, c.relname, pg_table_is_visible(c.oid), c.oid::regclass::text FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname IN ('t', 'V v') ORDER BY 1, 2"
    )
    assert con.execute(asked).fetchall() == [
        ("public", "V v", True, '"V v"'),
        ("public", "t", True, "t"),
        ("s", "t", False, "s.t"),
    ]
    hidden = "SELECT pg_table_is_visible(oid) FROM mz_tables WHERE name = 'hidden'"
    assert con.execute(hidden).fetchall() == [(False,)]
    types = "SELECT pg_type_is_visible(oid) FROM mz_types WHERE name IN ('ints', 'int4')"
    assert con.execute(types).fetchall() == [(True,), (True,)]


#: Columns that Materialize documents and that are easily missed, as mzsql has nothing to say in most of them.
DOCUMENTED = {
    "mz_catalog.mz_tables": "source_id redacted_create_sql",
    "mz_catalog.mz_sources": "connection_id size envelope_type key_format value_format cluster_id redacted_create_sql",
    "mz_catalog.mz_sinks": "connection_id size envelope_type cluster_id redacted_create_sql",
    "mz_catalog.mz_types": "category create_sql redacted_create_sql",
    "mz_catalog.mz_clusters": "managed size replication_factor disk availability_zones introspection_debugging introspection_interval",
    "mz_catalog.mz_cluster_replicas": "cluster_id size availability_zone owner_id disk",
    "mz_catalog.mz_cluster_replica_sizes": "processes workers cpu_nano_cores memory_bytes disk_bytes credits_per_hour",
    "mz_internal.mz_object_history": "id cluster_id object_type created_at dropped_at",
    "mz_introspection.mz_expected_group_size_advice": "dataflow_id dataflow_name region_id region_name levels to_cut savings hint",
    "mz_introspection.mz_compute_operator_hydration_statuses": "export_id lir_id hydrated",
    "mz_introspection.mz_records_per_dataflow_operator": "id name dataflow_id records batches size capacity allocations",
    "mz_catalog.mz_connections": "owner_id privileges create_sql redacted_create_sql",
    "mz_catalog.mz_timezone_abbreviations": "abbreviation utc_offset dst timezone_name",
    "mz_internal.mz_aws_connections": "endpoint region assume_role_arn principal external_id example_trust_policy",
    "mz_internal.mz_aws_privatelink_connection_statuses": "id name last_status_change_at status",
    "mz_internal.mz_aws_privatelink_connection_status_history": "occurred_at connection_id status",
    "mz_internal.mz_cluster_workload_classes": "id workload_class",
    "mz_internal.mz_kafka_source_tables": "id topic envelope_type key_format value_format",
    "mz_internal.mz_materialization_dependencies": "object_id dependency_id",
    "mz_internal.mz_mysql_source_tables": "id schema_name table_name",
    "mz_internal.mz_notices_redacted": "notice_type message hint action action_type object_id created_at",
    "mz_internal.mz_postgres_source_tables": "id schema_name table_name",
    "mz_internal.mz_postgres_sources": "id replication_slot timeline_id",
    "mz_internal.mz_sink_statistics": "id replica_id messages_staged messages_committed bytes_staged bytes_committed",
    "mz_internal.mz_sink_status_history": "occurred_at sink_id status error details replica_id",
    "mz_internal.mz_sink_statuses": "id name type last_status_change_at status error details",
    "mz_internal.mz_source_references": "source_id namespace name updated_at columns",
    "mz_internal.mz_source_statistics": "id messages_received offset_known offset_committed snapshot_committed",
    "mz_internal.mz_source_status_history": "occurred_at source_id status error details replica_id",
    "mz_internal.mz_source_statuses": "id name type last_status_change_at status error details",
    "mz_internal.mz_webhook_sources": "id name url",
}


@pytest.mark.parametrize("relation", DOCUMENTED)
def test_columns_are_there_by_their_names(con: mzsql.Connection, relation: str) -> None:
    con.execute(f"SELECT {', '.join(DOCUMENTED[relation].split())} FROM {relation}").fetchall()


def test_what_is_said_of_clusters_and_types(con: mzsql.Connection) -> None:
    con.execute("CREATE CLUSTER kept SIZE '2'; CREATE CLUSTER bare REPLICAS (r (SIZE '1'))")
    con.execute("CREATE TYPE numbers AS LIST (ELEMENT TYPE = int4)")
    try:
        told = """
            SELECT name, managed, disk, availability_zones, introspection_debugging FROM mz_clusters
            WHERE name IN ('kept', 'bare') ORDER BY name"""
        assert con.execute(told).fetchall() == [
            ("bare", False, None, None, None),
            ("kept", True, True, None, False),
        ]
        replicas = """
            SELECT c.name, r.name, r.size, r.availability_zone, r.disk FROM mz_cluster_replicas AS r
            JOIN mz_clusters AS c ON c.id = r.cluster_id WHERE c.name IN ('kept', 'bare') ORDER BY 1"""
        assert con.execute(replicas).fetchall() == [
            ("bare", "r", "1", None, True),
            ("kept", "r1", "2", None, True),
        ]
        ((made, redacted),) = con.execute(
            "SELECT create_sql, redacted_create_sql FROM mz_types WHERE name = 'numbers'"
        ).fetchall()
        assert made == redacted
        assert made.startswith('CREATE TYPE "materialize"."public"."numbers" AS LIST')
    finally:
        con.execute("DROP TYPE numbers; DROP CLUSTER kept; DROP CLUSTER bare")


def test_privileges_and_kinds_have_the_types_of_items_and_of_one_byte(
    con: mzsql.Connection,
) -> None:
    items = """
        SELECT DISTINCT c.type FROM mz_columns AS c JOIN mz_objects AS o ON o.id = c.id
        WHERE c.name = 'privileges' AND o.name NOT IN ('mz_default_privileges', 'mz_system_privileges')"""
    assert con.execute(items).fetchall() == [("mz_aclitem[]",)]
    held = """
        SELECT DISTINCT d.privileges[1] = (r.id || '=UC/' || r.id)::mz_aclitem
        FROM mz_databases AS d JOIN mz_roles AS r ON r.id = d.owner_id"""
    assert con.execute(held).fetchall() == [(True,)]
    kinds = """
        SELECT relkind, pg_typeof(relkind), relkind = ANY (ARRAY['v', 'r']), pg_typeof(relpersistence)
        FROM pg_class WHERE relname = 'pg_class'"""
    assert con.execute(kinds).fetchall() == [("v", '"char"', True, '"char"')]
    categories = "SELECT typtype, typcategory, typdelim, pg_typeof(typcategory) FROM pg_type WHERE typname = 'int4'"
    assert con.execute(categories).fetchall() == [("b", "N", ",", '"char"')]


def test_operators_are_those_of_the_catalog(con: mzsql.Connection) -> None:
    of_integers = """
        SELECT oprkind, oprleft::regtype::text, oprright::regtype::text, oprresult::regtype::text
        FROM pg_operator WHERE oprname IN ('-', '%') AND oprright = 'int4'::regtype ORDER BY 1, 2"""
    found = con.execute(of_integers).fetchall()
    assert ("b", "integer", "integer", "integer") in found
    assert ("l", "-", "integer", "integer") in found
    counts = "SELECT (SELECT count(*) FROM mz_operators), (SELECT count(*) FROM pg_operator)"
    ((every, told),) = con.execute(counts).fetchall()
    assert every == told > 300
