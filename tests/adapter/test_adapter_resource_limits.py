"""ALTER SYSTEM SET max_tables and its like: no more is made than there may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        made.execute("CREATE TABLE t0 (a int)")
        yield made


@pytest.mark.parametrize(
    ("limit", "what", "made", "first", "current"),
    [
        ("max_tables", "table", "CREATE TABLE t{} (a int)", 1, 1),
        ("max_databases", "database", "CREATE DATABASE d{}", 1, 1),
        ("max_schemas_per_database", "schema", "CREATE SCHEMA s{}", 1, 1),
        ("max_objects_per_schema", "object", "CREATE VIEW v{} AS SELECT 1 AS a", 1, 1),
        ("max_clusters", "cluster", "CREATE CLUSTER c{} REPLICAS ()", 1, 1),
        (
            "max_replicas_per_cluster",
            "cluster replica",
            "CREATE CLUSTER REPLICA k.r{} SIZE '1'",
            0,
            0,
        ),
        ("max_roles", "role", "CREATE ROLE r{}", 1, 1),
    ],
)
def test_no_more_is_made_than_there_may_be(
    con: mzsql.Connection, limit: str, what: str, made: str, first: int, current: int
) -> None:
    if limit == "max_replicas_per_cluster":
        con.execute("CREATE CLUSTER k REPLICAS ()")
    most = current + 2
    con.execute(f"ALTER SYSTEM SET {limit} = {most}")
    assert con.execute(f"SHOW {limit}").fetchall() == [(str(most),)]
    for number in range(first, first + 2):
        con.execute(made.format(number))
    text = rf"creating {what} would violate {limit} limit \(desired: {most + 1}, limit: {most}, current: {most}\)"
    with pytest.raises(mzsql.Error, match=text):
        con.execute(made.format(first + 2))
    con.execute(f"ALTER SYSTEM RESET {limit}")
    con.execute(made.format(first + 2))


def test_what_is_there_stays_under_a_lower_limit(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t1 (a int)")
    con.execute("ALTER SYSTEM SET max_tables = 1")
    con.execute("ALTER TABLE t1 RENAME TO t2; CREATE VIEW v AS SELECT a FROM t2")
    with pytest.raises(mzsql.Error, match="would violate max_tables limit"):
        con.execute("CREATE TABLE t3 (a int)")
    con.execute("DROP TABLE t2 CASCADE")
    with pytest.raises(mzsql.Error, match="would violate max_tables limit"):
        con.execute("BEGIN; CREATE TABLE t3 (a int); COMMIT")
    con.execute("ROLLBACK")
    with pytest.raises(mzsql.Error, match="outside the valid range"):
        con.execute("ALTER SYSTEM SET max_tables = -1")


def test_a_schema_with_more_than_may_be_is_renamed(con: mzsql.Connection) -> None:
    con.execute("CREATE SCHEMA s")
    for name in ("a", "b"):
        con.execute(f"CREATE TABLE s.{name} (x int)")
    con.execute("ALTER SYSTEM SET max_objects_per_schema = 1")
    con.execute("ALTER SCHEMA s RENAME TO r")
    assert con.execute("SELECT count(*) FROM r.a").fetchall() == [(0,)]
    with pytest.raises(mzsql.OperationalError, match=r"desired: 3, limit: 1, current: 2"):
        con.execute("CREATE TABLE r.c (x int)")
