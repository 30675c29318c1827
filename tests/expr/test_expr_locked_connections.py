"""The barrier behind the resolution of names: what a DuckDB connection that runs users' statements refuses, whatever it is told."""

from __future__ import annotations

import gc
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import mzsql
from mzsql.compute.engines import driver, pool
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.pool import DuckDbPool
from mzsql.compute.peek.kept import Databases, Kind
from mzsql.compute.replica.dataflows.transient import bounded_connection
from mzsql.expr import engines
from mzsql.expr.engines import locked_connection, scratch_directory
from mzsql.expr.evaluate import Evaluator

SECRET = "what nobody may read"


@pytest.fixture(
    params=[
        "plain",
        "on disk",
        "pool",
        "wide pool",
        "planned pool",
        "kept",
        "driver",
        "driver of small steps",
        "driver of planned steps",
        "transient",
        "evaluator",
    ]
)
def connection(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Each connection that users' statements run on."""
    pool, driver, evaluator = DuckDbPool(), Driver(), Evaluator()
    own = tmp_path / "own"
    own.mkdir()
    made: dict[str, Callable[[], duckdb.DuckDBPyConnection]] = {
        "plain": locked_connection,
        "on disk": lambda: locked_connection(
            str(own / "db"), {"temp_directory": str(own), "memory_limit": "64MiB"}
        ),
        "pool": lambda: pool._take("usual")[1],
        "wide pool": lambda: pool._take("wide")[1],
        "planned pool": lambda: pool._take("planned")[1],
        "kept": lambda: kept.enter_context(databases.connection(Kind((), 256))),
        "driver": lambda: driver._connection("wide"),
        "driver of small steps": lambda: driver._connection("small"),
        "driver of planned steps": lambda: driver._planner("planned").cursor(),
        "transient": lambda: bounded_connection(str(own)),
        "evaluator": lambda: evaluator._connection,
    }
    databases, kept = Databases(), ExitStack()
    with ExitStack() as undo:
        for one in (pool, driver, evaluator, databases, kept):
            undo.callback(one.close)
        yield made[request.param]()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM '{secret}.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM glob('{folder}/*')",
        "ATTACH '{folder}/x.db'",
        "COPY (SELECT 1) TO '{folder}/x.csv'",
        "COPY (SELECT 1) TO '{folder}/x.parquet' (FORMAT PARQUET)",
        "EXPORT DATABASE '{folder}/out'",
        "IMPORT DATABASE '{folder}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{secret}'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET memory_limit = '100GB'",
        "SET TimeZone = 'Europe/Oslo'",
        "SET temp_directory = '{folder}'",
        "PRAGMA memory_limit = '100GB'",
        "RESET memory_limit",
        "CREATE PERSISTENT SECRET s (TYPE S3)",
    ],
)
def test_what_users_statements_run_on_reaches_no_file_and_keeps_its_settings(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, statement: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    secret = folder / "secret.txt"
    secret.write_text(SECRET)
    cursor = connection.cursor()
    for one in (connection, cursor):
        with pytest.raises(duckdb.Error):
            one.execute(statement.format(secret=secret, folder=folder)).fetchall()
    assert [path.name for path in folder.iterdir()] == ["secret.txt"]


def test_it_works_on_what_it_is_given_and_beyond_its_memory(tmp_path: Path) -> None:
    settings = {
        "memory_limit": "96MiB",
        "temp_directory": str(tmp_path / "spilled"),
        "threads": "2",
    }
    with locked_connection(settings=settings) as connection:
        connection.register("given", pa.table({"a": range(500_000)}))
        connection.execute("CREATE TABLE t AS SELECT a, repeat('x', 400) || a AS x FROM given")
        assert list((tmp_path / "spilled").iterdir())
        cursor = connection.cursor()
        assert cursor.execute("SELECT count(DISTINCT x) FROM t").fetchall() == [(500_000,)]
        assert cursor.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


def test_what_it_spills_nobody_else_may_look_into() -> None:
    assert stat.S_IMODE(Path(scratch_directory()).stat().st_mode) == 0o700


#: More than the memory of these connections, so that they spill.
LARGE = (
    "SELECT count(*) FROM (SELECT DISTINCT repeat('x', 400) || a AS x FROM given ORDER BY x) AS q"
)


@pytest.mark.parametrize("way", [Driver, DuckDbPool])
def test_where_it_spills_may_be_removed_as_temporary_files_are(
    way: type[Driver | DuckDbPool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was running fails, what comes next does not; and nobody else may look into what takes its place."""

    def small(*, settings: dict[str, str]) -> duckdb.DuckDBPyConnection:
        return locked_connection(settings={**settings, "memory_limit": "160MiB", "threads": "2"})

    for module in (driver, pool):
        monkeypatch.setattr(module, "locked_connection", small)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(engines, "_scratch", {})
    made = way()
    ask = made.run if isinstance(made, Driver) else made.query
    given = {"given": pa.table({"a": range(500_000)})}
    for _ in range(2):
        assert ask(LARGE, given)[0].to_pylist() == [500_000]
        (scratch,) = tmp_path.iterdir()
        shutil.rmtree(scratch)
        with pytest.raises(duckdb.IOException):
            ask(LARGE, given)
        assert not scratch.exists()
    assert ask(LARGE, given)[0].to_pylist() == [500_000]
    (scratch,) = tmp_path.iterdir()
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    made.close()


@pytest.mark.parametrize("planned", [False, True])
def test_a_driver_keeps_no_database_whose_spilled_rows_were_removed(
    planned: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was planned on it is planned anew on another one; what it had of memory and threads is given back."""

    opened: list[weakref.ref[duckdb.DuckDBPyConnection]] = []

    def small(*, settings: dict[str, str]) -> duckdb.DuckDBPyConnection:
        few = {"memory_limit": "80MiB", "threads": "1", "external_threads": "1"}
        connection = locked_connection(settings={**settings, **few})
        opened.append(weakref.ref(connection))
        return connection

    driver._settings("small")
    monkeypatch.setattr(driver, "locked_connection", small)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(engines, "_scratch", {})
    made = Driver()
    ask = made.simple if planned else made.run
    few = {"given": pa.table({"a": range(3)})}
    many = {"given": pa.table({"a": range(240_000)})}
    kept = []
    for _ in range(3):
        for _ in range(driver.PLAN_USES + 1):
            assert ask(LARGE, few)[0].to_pylist() == [3]
        assert ask(LARGE, many)[0].to_pylist() == [240_000]
        (scratch,) = tmp_path.iterdir()
        shutil.rmtree(scratch)
        with pytest.raises(duckdb.IOException):
            ask(LARGE, many)
        gc.collect()
        kept.append(sum(one() is not None for one in opened))
    assert kept[0] == kept[1] == kept[2]
    made.close()


def test_statements_have_no_connection_that_is_not_locked() -> None:
    """One place opens databases, and whoever opens one that reads files, says here why."""
    package = Path(mzsql.__file__).parent
    opening = re.compile(r"\b(duckdb\.connect|duckdb_connection|duck\.opened)\(")
    opens = {
        str(path.relative_to(package)): set(opening.findall(path.read_text()))
        for path in package.rglob("*.py")
        if opening.search(path.read_text())
    }
    assert opens == {
        "persist/duck.py": {"duckdb.connect"},
        "expr/engines.py": {"duck.opened", "duckdb_connection"},  # locks them
        "cli/recompute.py": {"duck.opened"},  # the demo's own queries, over files that it has made
        "persist/compaction.py": {"duck.opened"},  # merges of shards' own columns
        "persist/streams.py": {"duck.opened"},  # reads a file that it has written
    }
