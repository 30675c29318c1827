"""Databases that hydrations run in: kept where they are clean, locked, one hydration's alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from mzsql.compute.replica.hydration.databases import HydrationDatabases

_TABLES = "SELECT count(*) FROM duckdb_tables()"
_SPILLS = "SELECT current_setting('temp_directory')"


@pytest.fixture
def databases() -> Iterator[HydrationDatabases]:
    made = HydrationDatabases()
    yield made
    made.close()


def spilled(databases: HydrationDatabases, *, wide: bool = False, clean: bool = True) -> Path:
    """Where the database spills to that a hydration gets, which tells it from others."""
    with databases.one(wide=wide) as taken:
        ((place,),) = taken.connection.execute(_SPILLS).fetchall()
        taken.clean = clean
    return Path(place)


def test_the_next_hydration_gets_the_database_and_nothing_of_the_one_before(
    databases: HydrationDatabases,
) -> None:
    first = spilled(databases)
    with databases.one(wide=False) as taken:
        taken.connection.execute("CREATE TEMP TABLE mz_errors AS SELECT 1 AS a")
        taken.connection.register("given", pa.table({"a": [1]}))
        assert taken.connection.execute("SELECT count(*) FROM given").fetchall() == [(1,)]
        taken.clean = True
    with databases.one(wide=False) as taken:
        assert taken.connection.execute(_TABLES).fetchall() == [(0,)]
        with pytest.raises(duckdb.CatalogException, match="given"):
            taken.connection.execute("SELECT * FROM given")
        taken.clean = True
    assert spilled(databases) == first


def test_a_database_that_is_not_said_to_be_clean_is_not_kept(
    databases: HydrationDatabases,
) -> None:
    with databases.one(wide=False) as taken:
        taken.connection.execute("CREATE TABLE left_behind (a INTEGER)")
    with databases.one(wide=False) as taken:
        assert taken.connection.execute(_TABLES).fetchall() == [(0,)]
    first = spilled(databases, clean=False)
    assert spilled(databases, clean=False) != first
    assert not first.parent.exists()


def test_a_database_in_which_something_failed_is_not_kept(databases: HydrationDatabases) -> None:
    first = spilled(databases)
    with pytest.raises(duckdb.Error, match="no such"):
        fail(databases)
    assert not first.parent.exists()


def fail(databases: HydrationDatabases) -> None:
    with databases.one(wide=False) as taken:
        taken.clean = True
        taken.connection.execute("SELECT error('no such luck')").fetchall()


def test_wide_statements_and_hydrations_side_by_side_have_databases_of_their_own(
    databases: HydrationDatabases,
) -> None:
    usual = spilled(databases)
    assert spilled(databases, wide=True) != usual
    with databases.one(wide=False) as taken:
        ((place,),) = taken.connection.execute(_SPILLS).fetchall()
        assert Path(place) == usual
        assert spilled(databases) != usual


def test_a_database_is_locked(databases: HydrationDatabases, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    spilled(databases)
    with databases.one(wide=False) as taken:
        with pytest.raises(duckdb.PermissionException):
            taken.connection.execute(f"SELECT * FROM '{tmp_path}/secret.csv'")
        with pytest.raises(duckdb.Error, match="locked"):
            taken.connection.execute("SET threads = 1")


def test_one_whose_directory_somebody_has_removed_is_not_used_again(
    databases: HydrationDatabases,
) -> None:
    first = spilled(databases)
    shutil.rmtree(first.parent)
    second = spilled(databases)
    assert second != first
    assert second.parent.is_dir()


def test_nothing_is_kept_once_they_are_closed(databases: HydrationDatabases) -> None:
    idle = spilled(databases)
    with databases.one(wide=False) as taken:
        taken.clean = True
        databases.close()
    databases.close()
    assert not idle.parent.exists()
    with databases.one(wide=False) as taken:
        taken.clean = True
    assert not spilled(databases).parent.exists()
