"""Functions that stand for queries, for other aggregates or for texts of bytes: a view over them is what its query answers."""

from __future__ import annotations

import pytest

import mzsql

#: A query, and its rows after the first changes.
QUERIES: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "members of documents": (
        "SELECT d.k, x.a + 1 AS a, x.b FROM d, jsonb_to_recordset(d.doc -> 'rows') AS x (a int, b text[])",
        [(1, 2, ["x", None]), (1, None, None), (2, 11, [])],
    ),
    "members of one document": (
        "SELECT d.k, x.n FROM d, LATERAL json_to_record(d.doc) AS x (n numeric(8,2), none date)",
        [(1, None), (2, 7)],
    ),
    "the greatest array": (
        "SELECT k % 2 AS o, max(ARRAY[k, k * 2]), min(ARRAY[[k]]) FROM d GROUP BY k % 2",
        [(0, [2, 4], [[2]]), (1, [1, 2], [[1]])],
    ),
    "json": (
        "SELECT k % 3 > 0, json_agg(k ORDER BY k DESC)::text FROM d GROUP BY k % 3 > 0",
        [(True, "[2,1]")],
    ),
    "entries": (
        "SELECT d.k, e.key FROM d, json_each(d.doc) AS e WHERE json_typeof(e.value) = 'number'",
        [(2, "n")],
    ),
    "bytes": (
        r"SELECT btrim(b, '\x00ff'), position('A'::bytea IN b), overlay(b PLACING '\x80' FROM 1 FOR 1), b LIKE '%A_' FROM d",
        [(b"A", 2, b"\x80A\xff", True), (b"", 0, b"\x80", False)],
    ),
    "arrays joined": (
        "SELECT k, ARRAY[[0, 0]] || CASE WHEN k > 1 THEN ARRAY[k, k] END FROM d",
        [(1, [[0, 0]]), (2, [[0, 0], [2, 2]])],
    ),
    "JSON's null": (
        "SELECT k, jsonb_set_lax(doc, '{n}', NULLIF(doc -> 'n', '7'), true, 'delete_key') ? 'n' FROM d",
        [(1, False), (2, False)],
    ),
}


@pytest.fixture
def connection():
    with mzsql.connect(blob="mem:", consensus="mem:") as connection:
        connection.execute("CREATE TABLE d (k int, doc jsonb, b bytea)")
        yield connection


def _sorted(connection, text):
    return sorted(connection.execute(text).fetchall(), key=repr)


@pytest.mark.parametrize(("query", "expected"), QUERIES.values(), ids=QUERIES)
def test_a_view_is_what_its_query_answers(connection, query, expected):
    connection.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    connection.execute(
        """INSERT INTO d VALUES
            (1, '{"rows": [{"a": 1, "b": ["x", null]}, {}]}', '\\x0041ff'), (2, '{"rows": [{"a": 10, "b": []}], "n": 7}', '\\x')"""
    )
    assert _sorted(connection, "SELECT * FROM v") == sorted(expected, key=repr)
    for change in (
        "UPDATE d SET b = '\\x4141', k = k + 2 WHERE k = 1",
        'INSERT INTO d VALUES (9, \'{"n": 1, "rows": [{"a": null}]}\', NULL)',
        "DELETE FROM d WHERE k = 2",
    ):
        connection.execute(change)
        assert _sorted(connection, "SELECT * FROM v") == _sorted(connection, query)


def test_privileges_are_taken_apart(connection):
    items = "ARRAY[mz_internal.make_mz_aclitem('u1', 'u2', 'SELECT, CREATE'), mz_internal.make_mz_aclitem('p', 's1', 'USAGE')]"
    found = _sorted(connection, f"SELECT * FROM mz_internal.mz_aclexplode({items})")
    assert found == [
        ("s1", "p", "USAGE", False),
        ("u2", "u1", "CREATE", False),
        ("u2", "u1", "SELECT", False),
    ]
    numbered = "ARRAY[makeaclitem(0::oid, 10::oid, 'UPDATE', false)]"
    assert _sorted(connection, f"SELECT (aclexplode({numbered})).*") == [(10, 0, "UPDATE", False)]
    assert connection.execute("SELECT * FROM aclexplode(NULL)").fetchall() == []
    with pytest.raises(mzsql.Error, match="beside other table functions"):
        connection.execute(f"SELECT aclexplode({numbered}), generate_series(1, 2)")


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("regclass", "d", [("d", "table")]),
        ("regclass", "materialize.public.d", [("d", "table")]),
        ("regclass", "mz_catalog.d", []),
        ("regtype", "d", []),
        ("regtype", "int4", [("int4", "type")]),
        ("regclass", "pg_class", [("pg_class", "view")]),
        ("nothing", "d", []),
    ],
)
def test_a_name_is_resolved_as_a_kind_of_object(connection, kind, name, found):
    query = "SELECT name, type FROM mz_internal.mz_resolve_object_name(%s, %s)"
    assert connection.execute(query, (kind, name)).fetchall() == found


def test_what_fails_of_null_is_not_null(connection):
    call = "mz_unsafe.mz_error_if_null(k, 'none')"
    connection.execute(
        f"CREATE MATERIALIZED VIEW v AS SELECT {call} IS NULL AS missing, {call} AS k FROM d"
    )
    plan = connection.execute("EXPLAIN MATERIALIZED VIEW v").fetchall()[0][0]
    assert (
        'Map (error_if_null(#0, "none"), false)' in plan
        or 'Map (false, error_if_null(#0, "none"))' in plan
    )
    connection.execute("INSERT INTO d (k) VALUES (1)")
    assert connection.execute("SELECT * FROM v").fetchall() == [(False, 1)]
    connection.execute("INSERT INTO d (k) VALUES (NULL)")
    with pytest.raises(mzsql.Error, match="none"):
        connection.execute("SELECT * FROM v").fetchall()


def test_numbers_of_names(connection):
    asked = (
        "mz_internal.mz_schema_oid('public') = (SELECT oid FROM mz_schemas WHERE name = 'public')"
    )
    assert connection.execute(f"SELECT {asked}").fetchall() == [(True,)]
    for call, message in (
        ("mz_database_oid('nope')", 'database "nope" does not exist'),
        ("mz_cluster_id('nope')", 'cluster "nope" does not exist'),
        ("mz_normalize_schema_name('a.b.c')", "too many dotted names"),
        ("mz_resolve_object_name('regclass', 'a.b.c.d')", "too many dotted names"),
        ("mz_resolve_object_name('regclass')", "does not exist"),
    ):
        with pytest.raises(mzsql.Error, match=message):
            connection.execute(f"SELECT mz_internal.{call}").fetchall()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT * FROM jsonb_to_record('{}') AS x",
            'a column definition list is required for functions returning "record"',
        ),
        (
            "SELECT * FROM generate_series(1, 2) AS x (a int)",
            'a column definition list is only allowed for functions returning "record"',
        ),
        (
            "SELECT * FROM jsonb_to_record('{}') AS x (a int list)",
            "a column of type integer list cannot be made of a document",
        ),
        ("SELECT * FROM jsonb_to_record() AS x (a int)", "of 0 arguments does not exist"),
        (
            "SELECT * FROM jsonb_to_record('{}') WITH ORDINALITY AS x (a int)",
            "WITH ORDINALITY cannot be used with a column definition list",
        ),
        (
            "SELECT * FROM ROWS FROM (generate_series(1, 2)) WITH ORDINALITY AS x (a int)",
            'only allowed for functions returning "record"',
        ),
    ],
)
def test_definitions_of_columns_that_do_not_fit_are_refused(connection, query, message):
    with pytest.raises(mzsql.Error, match=message):
        connection.execute(query)
