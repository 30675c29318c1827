"""What runs a hydration with `step_engine` at auto: DuckDB what is small, Spark what is not, and the other one where one cannot."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import mzsql
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.replica.hydration import databases as hydration_databases
from mzsql.compute.replica.hydration import here as hydration_here
from mzsql.dbapi import connection

_VIEW = "CREATE MATERIALIZED VIEW totals AS SELECT k % 3 AS k, sum(k) AS s FROM t GROUP BY 1"


@pytest.fixture
def open_(tmp_env: Path) -> Iterator[Callable[..., mzsql.Connection]]:
    opened: list[mzsql.Connection] = []

    def connect(**more: Any) -> mzsql.Connection:
        made = mzsql.connect(tmp_env, **more)
        opened.append(made)
        # A Spark that has just started, on a machine with much else to do.
        made.execute("SET statement_timeout = '10 min'")
        made.execute("CREATE TABLE t (k bigint)")
        made.execute("INSERT INTO t SELECT * FROM generate_series(1, 100)")
        return made

    yield connect
    for one in opened:
        one.close()


def _check(con: mzsql.Connection) -> None:
    rows = con.execute("SELECT k, s FROM totals ORDER BY k").fetchall()
    assert (
        rows
        == duckdb.sql(
            "SELECT k % 3 AS k, sum(k) FROM range(1, 101) AS t(k) GROUP BY 1 ORDER BY 1"
        ).fetchall()
    )


def _ran(con: mzsql.Connection) -> tuple[str, int, str]:
    """The engine of the view's hydration, its jobs and the reason; told a moment after the view can be read."""
    asked = "SELECT engine, jobs, reason FROM mz_internal.mz_refreshes WHERE kind = 'hydration'"
    while not (rows := con.execute(asked).fetchall()):
        time.sleep(0.01)
    ((engine, jobs, reason),) = rows
    return engine, jobs, reason


def _limited(monkeypatch: pytest.MonkeyPatch, most: int, **more: int) -> None:
    settings = functools.partial(
        ComputeSettings,
        hydrate_here_bytes=most,
        retry_seconds=0.01,
        retry_max_seconds=0.01,
        **more,
    )
    monkeypatch.setattr(controller, "ComputeSettings", settings)


def test_what_is_small_starts_no_spark(
    open_: Callable[..., mzsql.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(connection, "start_spark", start)
    con = open_()
    con.execute(_VIEW)
    _check(con)
    engine, jobs, reason = _ran(con)
    assert (engine, jobs) == ("duckdb", 0)
    assert reason.endswith("bytes, which is at most 67108864")


def test_where_spark_cannot_be_started_a_large_one_runs_in_process(
    open_: Callable[..., mzsql.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError("nobody listens at the gateway")

    monkeypatch.setattr(connection, "start_spark", start)
    _limited(monkeypatch, -1)
    con = open_()
    con.execute(_VIEW)
    _check(con)
    assert _ran(con) == ("duckdb", 0, "Spark failed: nobody listens at the gateway")


@pytest.mark.spark
def test_what_is_large_runs_on_spark(
    open_: Callable[..., mzsql.Connection], monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    _limited(monkeypatch, -1)
    con = open_(spark=spark)
    con.execute(_VIEW)
    _check(con)
    engine, jobs, reason = _ran(con)
    assert engine == "spark"
    assert jobs > 0
    assert reason.endswith("bytes, which is more than -1")


@pytest.mark.spark
def test_what_is_beyond_the_memory_of_this_process_runs_on_spark(
    open_: Callable[..., mzsql.Connection], monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    """DuckDB is given less memory than it needs for anything, and no disk."""
    real = hydration_databases.locked_connection

    def poor(*, settings: dict[str, str]) -> duckdb.DuckDBPyConnection:
        return real(settings={**settings, "memory_limit": "1KiB", "temp_directory": ""})

    monkeypatch.setattr(hydration_databases, "locked_connection", poor)
    _limited(monkeypatch, 1 << 20)
    con = open_(spark=spark)
    con.execute(_VIEW)
    _check(con)
    engine, _, reason = _ran(con)
    assert engine == "spark"
    assert reason.startswith("DuckDB failed: Out of Memory Error")


@pytest.mark.spark
@pytest.mark.parametrize("small", [0, 1 << 20], ids=["written by Spark", "collected"])
def test_errors_among_rows_cost_no_job_unless_there_are_some(
    open_: Callable[..., mzsql.Connection],
    monkeypatch: pytest.MonkeyPatch,
    spark: Any,
    small: int,
) -> None:
    """A job for each arrangement and one for the export; where rows fail that Spark writes, one more."""
    _limited(monkeypatch, -1, small_hydration_bytes=small)
    con = open_(spark=spark)
    query = "SELECT 100 / (k - {}) AS q, count(*) AS n FROM t GROUP BY 1"
    jobs = {}
    for name, failing in (("fine", 101), ("failing", 100)):
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query.format(failing)}")
        ran = "SELECT jobs FROM mz_internal.mz_refreshes AS r JOIN mz_catalog.mz_objects AS o ON o.id = r.object_id WHERE o.name = %s"
        while not (found := con.execute(ran, [name]).fetchall()):
            time.sleep(0.01)
        jobs[name] = found[0][0]
    assert jobs == {"fine": 2, "failing": 2 if small else 3}
    with pytest.raises(mzsql.Error, match="division by zero"):
        con.execute("SELECT * FROM failing").fetchall()
    con.execute("DELETE FROM t WHERE k = 100")
    for name, failing in (("fine", 101), ("failing", 100)):
        rows = con.execute(f"SELECT q, n FROM {name} ORDER BY q").fetchall()
        assert rows == con.execute(query.format(failing) + " ORDER BY q").fetchall()


@pytest.mark.parametrize("held", [0, 2000, 256 << 20], ids=["tables", "some", "all held"])
def test_what_later_stages_read_is_the_same_held_or_in_tables(
    open_: Callable[..., mzsql.Connection], monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(hydration_here, "HELD_BYTES", held)
    con = open_()
    con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
    con.execute("CREATE TABLE u (k bigint, name text, amount numeric(10, 2))")
    con.execute(
        "INSERT INTO u SELECT g, 'n' || (g % 7)::text, g / 4.0 FROM generate_series(0, 200) AS s (g)"
    )
    query = (
        "SELECT a.name, count(*), sum(a.amount) AS total, max(b.amount), sum(100 / a.k) AS parts FROM u AS a"
        " JOIN u AS b ON a.k = b.k + 1 JOIN t ON t.k = a.k GROUP BY a.name"
    )
    con.execute("INSERT INTO u VALUES (-1, 'n0', 1)")
    con.execute("INSERT INTO t VALUES (0)")
    con.execute(f"CREATE MATERIALIZED VIEW joined AS {query}")
    with pytest.raises(mzsql.Error, match="division by zero"):
        con.execute("SELECT * FROM joined").fetchall()
    con.execute("DELETE FROM t WHERE k = 0")
    con.execute("INSERT INTO u VALUES (50, 'n1', 3.5)")
    judge = duckdb.connect()
    judge.execute("CREATE TABLE t AS SELECT * FROM range(1, 101) AS t(k)")
    judge.execute(
        "CREATE TABLE u AS SELECT g AS k, 'n' || (g % 7)::text AS name, CAST(g / 4.0 AS DECIMAL(10, 2))"
        " AS amount FROM range(0, 201) AS s(g)"
    )
    judge.execute("INSERT INTO u VALUES (-1, 'n0', 1), (50, 'n1', 3.5)")
    expected = judge.execute(query.replace("100 / a.k", "100 // a.k") + " ORDER BY 1").fetchall()
    found = con.execute("SELECT * FROM joined ORDER BY name").fetchall()
    assert [tuple(map(str, row)) for row in found] == [tuple(map(str, row)) for row in expected]
