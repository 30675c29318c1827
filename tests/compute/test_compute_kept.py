"""Databases that are kept between queries over files: whose they are, and what is left in them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mzsql.compute.peek import kept
from mzsql.compute.peek.kept import Databases, Kind
from mzsql.expr.engines import locked_connection


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The files of each database that is opened."""
    found: list[tuple[str, ...]] = []

    def noted(
        place: str, settings: dict[str, str], files: tuple[str, ...]
    ) -> duckdb.DuckDBPyConnection:
        found.append(files)
        return locked_connection(place, settings, files)

    monkeypatch.setattr(kept, "locked_connection", noted)
    return found


@pytest.fixture
def databases() -> Iterator[Databases]:
    made = Databases()
    yield made
    made.close()


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Two files, of one row each."""
    paths = [str(tmp_path / f"{name}.parquet") for name in ("a", "b")]
    for number, path in enumerate(paths):
        pq.write_table(pa.table({"n": [number]}), path)
    return paths


def _read(databases: Databases, kind: Kind, path: str) -> list[tuple[int]]:
    with databases.connection(kind) as connection:
        return [
            (int(n),)
            for (n,) in connection.execute("SELECT n FROM read_parquet(?)", [path]).fetchall()
        ]


def test_a_query_over_the_same_files_has_the_database_of_the_one_before(
    databases: Databases, opened: list[tuple[str, ...]], two: list[str]
) -> None:
    first, second = two
    for _ in range(3):
        assert _read(databases, Kind((first,), 64), first) == [(0,)]
    assert _read(databases, Kind((second,), 64), second) == [(1,)]
    assert opened == [(first,), (second,)]


def test_one_over_other_files_reaches_those_alone(databases: Databases, two: list[str]) -> None:
    first, second = two
    assert _read(databases, Kind((first,), 64), first) == [(0,)]
    for _ in range(2):
        with pytest.raises(duckdb.PermissionException):
            _read(databases, Kind((second,), 64), first)
    assert _read(databases, Kind((first,), 64), first) == [(0,)]


def test_one_with_other_settings_has_a_database_of_its_own(
    databases: Databases, opened: list[tuple[str, ...]]
) -> None:
    for kind in (Kind((), 64), Kind((), 128), Kind((), 64, wide=True)):
        for _ in range(2):
            with databases.connection(kind) as connection:
                connection.execute("SELECT 1").fetchall()
    assert len(opened) == 3


def test_nothing_of_a_query_is_left_for_the_next(databases: Databases) -> None:
    kind = Kind((), 64)
    with databases.connection(kind) as connection:
        connection.register("secret", pa.table({"n": [1]}))
        connection.execute("CREATE TEMPORARY VIEW seen AS SELECT * FROM secret")
        connection.execute("CREATE TEMP TABLE made AS SELECT * FROM secret")
        # Rows that nobody takes any more.
        left = connection.sql("SELECT * FROM range(1000000)").to_arrow_reader(10)
        left.read_next_batch()
    with databases.connection(kind) as connection:
        for name in ("secret", "seen", "made"):
            with pytest.raises(duckdb.CatalogException):
                connection.execute(f"SELECT * FROM {name}")
        found = connection.execute(
            "SELECT count(*) FROM duckdb_tables() UNION ALL"
            " SELECT count(*) FROM duckdb_views() WHERE NOT internal"
        )
        assert found.fetchall() == [(0,), (0,)]


def test_queries_side_by_side_have_a_database_each(
    databases: Databases, opened: list[tuple[str, ...]]
) -> None:
    kind = Kind((), 64)
    with databases.connection(kind) as one, databases.connection(kind) as other:
        one.execute("CREATE TABLE t AS SELECT 1 AS n")
        with pytest.raises(duckdb.CatalogException):
            other.execute("SELECT * FROM t")
    assert len(opened) == 2


def test_what_failed_is_not_kept(databases: Databases, opened: list[tuple[str, ...]]) -> None:
    kind = Kind((), 64)
    for _ in range(2):
        with pytest.raises(duckdb.Error), databases.connection(kind) as connection:
            connection.execute("SELECT * FROM nothing")
    assert len(opened) == 2


def test_what_was_left_early_is_kept(
    databases: Databases, opened: list[tuple[str, ...]], two: list[str]
) -> None:
    def rows() -> Generator[int]:
        with databases.connection(Kind((two[0],), 64)) as connection:
            connection.execute(f"CREATE TEMPORARY VIEW t AS FROM read_parquet('{two[0]}')")
            reader = connection.sql("SELECT n FROM t, range(100000)").to_arrow_reader(10)
            for batch in reader:
                yield batch.num_rows

    for _ in range(3):
        found = rows()
        assert next(found)
        found.close()
    assert opened == [(two[0],)]


def test_where_it_spills_may_be_removed(databases: Databases) -> None:
    kind = Kind((), 64)
    for _ in range(2):
        with databases.connection(kind) as connection:
            ((place,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
        folder = Path(place).parent
        assert folder.is_dir()
        shutil.rmtree(folder)


def test_few_are_kept_and_none_after_the_end(
    databases: Databases, opened: list[tuple[str, ...]]
) -> None:
    # Threads of other tests may end meanwhile.
    before = set(threading.enumerate())
    kinds = [Kind((), 64 + number) for number in range(kept._IDLE + 1)]
    places = []
    for kind in kinds:
        with databases.connection(kind) as connection:
            found = connection.execute("SELECT current_setting('temp_directory')").fetchall()
            places.append(Path(found[0][0]).parent)
    assert [place.is_dir() for place in places] == [False, *[True] * kept._IDLE]
    databases.close()
    assert not any(place.is_dir() for place in places)
    with databases.connection(kinds[0]):
        pass
    with databases.connection(kinds[0]):
        pass
    assert len(opened) == len(kinds) + 2
    assert set(threading.enumerate()) <= before
