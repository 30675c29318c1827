"""Builtin relations that are kept are what they would be made afresh, after whatever changes the catalog."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pyarrow as pa
import pytest

import mzsql
from mzsql.adapter.system.relations import SystemRelations
from mzsql.adapter.system.rows import DEFINED
from mzsql.catalog.builtin import builtins
from mzsql.frontend.definitions.shown_sql import shown_query

#: Of each kind of change one at least.
CHANGES = (
    "CREATE TABLE t (a int NOT NULL, b text DEFAULT 'x')",
    "CREATE VIEW v AS SELECT a FROM t",
    "CREATE MATERIALIZED VIEW m AS SELECT a + 1 AS b FROM v",
    "CREATE INDEX i ON t (a, upper(b))",
    "COMMENT ON COLUMN t.a IS 'a number'",
    "COMMENT ON TABLE t IS 'a table'",
    "ALTER TABLE t RENAME TO u",
    "CREATE SCHEMA s",
    "CREATE DATABASE d",
    "CREATE TYPE l AS LIST (ELEMENT TYPE = int4)",
    "CREATE TYPE k AS MAP (KEY TYPE = text, VALUE TYPE = int4)",
    "CREATE ROLE r",
    "CREATE ROLE q",
    "GRANT r TO q",
    "ALTER ROLE q SET cluster = other",
    "GRANT SELECT ON TABLE u TO r",
    "GRANT CREATECLUSTER ON SYSTEM TO r",
    "ALTER DEFAULT PRIVILEGES FOR ROLE r GRANT SELECT ON TABLES TO q",
    "ALTER TABLE u OWNER TO r",
    "ALTER MATERIALIZED VIEW m SET (RETAIN HISTORY = FOR '1h')",
    "CREATE CLUSTER c SIZE '1', REPLICATION FACTOR 1",
    "ALTER CLUSTER c SET (REPLICATION FACTOR 2)",
    "ALTER CLUSTER c RENAME TO e",
    "ALTER SYSTEM SET max_tables = 10",
    "DROP INDEX i",
    "DROP MATERIALIZED VIEW m",
    "DROP VIEW v",
    "DROP TABLE u",
    "DROP CLUSTER e",
    "DROP SCHEMA s",
)


class Text(str):
    """One that can be seen to go."""


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("kept")) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        yield made


def relations(con: mzsql.Connection, kept_bytes: int) -> SystemRelations:
    """Those of a process that has asked for nothing yet."""
    known = con.coordinator.inputs._system
    assert isinstance(known, SystemRelations)
    return SystemRelations(known._source, kept_bytes)


def contents(made: SystemRelations, columns: frozenset[int] | None) -> dict[str, pa.Table]:
    return {
        one.full_name: made.derived(one, columns)
        for one in builtins().values()
        if one.full_name in DEFINED
    }


def test_what_is_kept_is_what_is_made_afresh_after_every_change(con: mzsql.Connection) -> None:
    kept = relations(con, 1 << 26)
    before = contents(kept, None)
    changed: set[str] = set()
    for statement in CHANGES:
        con.execute(statement)
        now, afresh = contents(kept, None), contents(relations(con, 0), None)
        wrong = [name for name, rows in afresh.items() if not rows.equals(now[name])]
        assert not wrong, statement
        changed |= {name for name, rows in now.items() if not rows.equals(before[name])}
        before = now
    # What is part of the build alone does not change; what is of objects has.
    assert {"mz_catalog.mz_tables", "mz_internal.mz_pg_attribute", "mz_catalog.mz_roles"} <= changed
    assert not changed & {"mz_catalog.mz_functions", "mz_catalog.mz_operators"}


def test_columns_are_made_when_they_are_asked_for_and_once(con: mzsql.Connection) -> None:
    (columns,) = (one for one in builtins().values() if one.full_name == "mz_catalog.mz_columns")
    assert columns.desc is not None
    whole = relations(con, 0).derived(columns)
    kept = relations(con, 1 << 26)
    assert kept.derived(columns, frozenset()).num_rows == whole.num_rows
    few = kept.derived(columns, frozenset({1, 2}))
    assert few.column(0).null_count == whole.num_rows
    assert few.select([1, 2]).equals(whole.select([1, 2]))
    assert kept.derived(columns).equals(whole)
    assert kept.derived(columns, frozenset({1})).column(1).chunk(0) is not None
    again = kept.derived(columns)
    assert all(
        a.chunk(0).buffers()[-1].address == b.chunk(0).buffers()[-1].address
        for a, b in zip(again.columns, kept.derived(columns).columns, strict=True)
    )


def test_what_nobody_looks_at_is_not_held(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of very many objects come one by one, and of each stay the columns that are read."""
    (columns,) = (one for one in builtins().values() if one.full_name == "mz_catalog.mz_columns")
    alive: weakref.WeakSet[Text] = weakref.WeakSet()
    most = 0

    def made(_source: object) -> Iterator[tuple[Text | str, ...]]:
        nonlocal most
        for row in range(50):
            text = Text(f"text {row}")
            alive.add(text)
            most = max(most, len(alive))
            yield f"u{row}", *[text] * 7
            del text

    monkeypatch.setitem(DEFINED, columns.full_name, made)
    counted = relations(con, 0).derived(columns, frozenset())
    named = relations(con, 0).derived(columns, frozenset({0}))
    assert counted.num_rows == named.num_rows == 50
    assert named.column(0).to_pylist() == [f"u{row}" for row in range(50)]
    assert most <= 2


def test_expensive_values_are_computed_where_conditions_leave_rows(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE c (a int)")
    con.execute("; ".join(f"CREATE VIEW c{n} AS SELECT a + {n} AS b FROM c" for n in range(4)))
    written: list[str] = []

    def shown(create_sql: str) -> str:
        written.append(create_sql)
        return shown_query(create_sql)

    monkeypatch.setattr("mzsql.adapter.system.rows.shown_query", shown)
    ((oid, gid),) = con.execute("SELECT oid, id FROM mz_views WHERE name = 'c1'").fetchall()
    ask = f"SELECT name, definition FROM mz_views WHERE oid = {oid} AND id <> 'x'"
    for _ in range(2):
        ((name, text),) = con.execute(ask).fetchall()
        assert (name, text) == ("c1", shown_query(written[0]))
    assert len(set(written)) == 1
    assert con.execute(f"SELECT pg_get_viewdef({oid}, true)").fetchall() == [(text,)]
    assert len(set(written)) == 1
    whole = dict(con.execute("SELECT id, definition FROM mz_views").fetchall())
    assert whole[gid] == text
    assert len(set(written)) == 4
    # What is cached then is of all rows.
    assert con.execute(ask).fetchall() == [("c1", text)]
    refused = "SELECT name FROM mz_views WHERE definition = 'nothing' AND name = 'c1'"
    assert con.execute(refused).fetchall() == []
    assert (
        con.execute("SELECT name FROM mz_views WHERE NULL = name AND create_sql > ''").fetchall()
        == []
    )
    con.execute("; ".join(f"DROP VIEW c{n}" for n in range(4)) + "; DROP TABLE c")


def test_no_more_is_kept_than_is_allowed(con: mzsql.Connection) -> None:
    kept = relations(con, 1 << 14)
    assert contents(kept, None) == contents(relations(con, 0), None)
    assert kept._bytes == sum(one.size for one in kept._kept.values()) <= 1 << 14


def test_arrangements_are_told_without_the_rest_of_an_outline(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE o (a int, b int); CREATE TABLE p (a int, c int)")
    con.execute(
        "CREATE MATERIALIZED VIEW j AS SELECT o.a, sum(c) AS s FROM o JOIN p ON p.a = o.a GROUP BY o.a"
    )
    con.execute("SELECT * FROM j").fetchall()
    ((_, running),) = con.coordinator.reports.running()
    made = con.coordinator.planner.outlined(running)
    assert made.is_outlined
    assert made.outline is not None
    told = tuple((one.lir_id, one.fingerprint) for one in made.outline.arrangements)
    assert made.arrangements == told
    assert len(told) > 1
    bare = made.replaced(lir_ids=None, arrangements=None)
    assert not bare.is_outlined
    assert bare.arrangements is None
    con.execute("DROP MATERIALIZED VIEW j; DROP TABLE o; DROP TABLE p")
