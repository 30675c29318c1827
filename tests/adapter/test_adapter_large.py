"""More than fits this process, with the bound lowered: every way from data to an answer, or to a table, goes on without holding it here."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mzsql
from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.compute.engines import pool
from mzsql.compute.engines.pieces import PIECE_ROWS
from mzsql.compute.peek import files, kept, outflow
from mzsql.compute.peek.outflow import Limits
from mzsql.expr.engines import locked_connection
from mzsql.repr.errors import DataError, NotNullViolation, ResultTooLarge
from mzsql.storage import Collections

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, MOST = 5_000, 1_000
Row = tuple[Any, ...]


class Driver:
    """Sessions on one environment, and how many rows of a relation were ever in this process at once."""

    def __init__(
        self, place: Path, spark: SparkSession | None, limits: Limits, patch: pytest.MonkeyPatch
    ) -> None:
        self.env = Environment.open(locate(str(place)))
        made = None if spark is None else lambda: spark
        self.coordinator = Coordinator(self.env, spark=made, limits=limits)
        self.session = Session()
        self.spark = spark is not None
        self.held = 0
        self.run("SET statement_timeout = '10 min'")
        self._watch(Collections, "snapshot", patch)
        self._watch(Collections, "updates", patch)
        patch.setattr(outflow, "PIECE_ROWS", 100)

    def _watch(self, owner: type, name: str, patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> pa.Table:
            found = original(*args, **kwargs)
            self.held = max(self.held, found.num_rows)
            return found

        patch.setattr(owner, name, counted)

    def run(self, text: str) -> Any:
        return self.coordinator.execute(self.session, text)[-1]

    def rows(self, text: str) -> list[Row]:
        columns = self.run(text).rows.columns
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def close(self) -> None:
        self.coordinator.close()
        self.env.close()


@pytest.fixture(params=["no Spark", pytest.param("Spark", marks=pytest.mark.spark)])
def driver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Driver]:
    """An environment with the tables t and other, several times as large as what this process may hold; no view is in it."""
    spark = request.getfixturevalue("spark") if request.param == "Spark" else None
    limits = Limits(rows=MOST) if spark is None else Limits(rows=MOST, stored=0)
    made = Driver(tmp_path / "env", spark, limits, monkeypatch)
    table = pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "v": pa.array([i % 7 for i in range(ROWS)], pa.int64()),
            "t": pa.array([f"text {i % 11}" for i in range(ROWS)]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    made.run("CREATE TABLE t (k bigint NOT NULL, v bigint, t text)")
    made.run("CREATE TABLE other (k bigint NOT NULL, v bigint, t text)")
    made.run(f"COPY t FROM '{tmp_path}/t.parquet' (FORMAT PARQUET)")
    yield made
    made.close()


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """The same tables where nothing is large."""
    with duckdb.connect() as made:
        made.execute("CREATE TABLE other (k bigint, v bigint, t text)")
        made.execute(
            f"CREATE TABLE t AS SELECT i AS k, i % 7 AS v, 'text ' || (i % 11) AS t FROM range({ROWS}) r(i)"
        )
        yield made


_SUMS = "SELECT count(*), sum(k)::bigint, sum(v)::bigint, count(DISTINCT t) FROM {}"


def test_the_first_large_query_of_an_environment_without_views(driver: Driver) -> None:
    assert driver.rows("SELECT count(*) AS n FROM t") == [(ROWS,)]
    # Who only asked has told nobody of a replica.
    assert driver.rows("SELECT count(*) FROM mz_internal.mz_hydration_statuses") == [(0,)]
    assert driver.held <= MOST


def test_a_result_that_went_through_a_file_leaves_none(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    spill = outflow.Gathering._spill

    def spilled(rows: outflow.Gathering) -> None:
        spill(rows)
        made.extend(tmp_path.glob("mzsql-result-*"))

    monkeypatch.setattr(outflow.Gathering, "_spill", spilled)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert len(driver.rows("SELECT k, v, t FROM t ORDER BY k DESC")) == ROWS
    assert made
    assert not [*tmp_path.glob("mzsql-result-*")]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT v, count(*) AS n, sum(k)::bigint AS s FROM t GROUP BY v ORDER BY v",
        "SELECT k, t FROM t WHERE v = 3 ORDER BY t DESC, k LIMIT 7 OFFSET 650",
        "SELECT k, v, t FROM t ORDER BY k DESC",
        "SELECT DISTINCT t FROM t ORDER BY t",
        "SELECT a.k, b.v FROM t a, t b WHERE a.k = b.k + 1 AND a.v = 0 ORDER BY 1",
    ],
)
def test_large_queries_are_answered(
    driver: Driver, duck: duckdb.DuckDBPyConnection, query: str
) -> None:
    assert driver.rows(query) == duck.execute(query).fetchall()
    assert driver.held <= MOST


def test_a_large_query_that_finds_nothing(driver: Driver) -> None:
    """Also where what is known of the files says so beforehand, and some of what its text names is not read."""
    for condition in ("a.k < -5", "a.k < -5 AND b.v > 3", "a.k > 1000000 AND b.t = 'x'"):
        joined = f"SELECT a.k, b.v FROM t AS a, t AS b WHERE a.k = b.k AND {condition}"
        assert driver.rows(joined) == []


def test_a_large_table_meets_a_builtin_relation(driver: Driver) -> None:
    found = driver.rows(
        "SELECT count(*) AS n FROM t, mz_catalog.mz_tables m WHERE m.name = 'other'"
    )
    assert found == [(ROWS,)]
    found = driver.rows(
        "SELECT o.name, count(*) AS n FROM mz_catalog.mz_tables o JOIN t ON length(o.name) = t.v"
        " WHERE o.name IN ('t', 'other') GROUP BY 1 ORDER BY 1"
    )
    assert found == [("other", ROWS // 7), ("t", ROWS // 7 + 1)]
    assert driver.held <= MOST


def test_a_recursion_over_a_large_table(driver: Driver) -> None:
    found = driver.rows(
        "WITH MUTUALLY RECURSIVE r (k bigint) AS (SELECT k FROM t WHERE k = 0"
        " UNION SELECT t.k FROM r, t WHERE t.k = 4 * r.k + 1) SELECT k FROM r ORDER BY k"
    )
    assert found == [(0,), (1,), (5,), (21,), (85,), (341,), (1365,)]
    assert driver.held <= MOST


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t",
        "DELETE FROM t WHERE v <> 3",
        "UPDATE t SET v = v + 1, k = -k",
        "INSERT INTO t SELECT k + 100000, v, t FROM t",
        "INSERT INTO other SELECT k, v * 2, t FROM t WHERE v < 6",
        "INSERT INTO other SELECT k, v, t FROM t ORDER BY k DESC LIMIT 2500 OFFSET 10",
        "INSERT INTO other SELECT i, i % 3, 'made' FROM generate_series(1, 4000) g(i)",
    ],
)
def test_large_changes(driver: Driver, duck: duckdb.DuckDBPyConnection, statement: str) -> None:
    (changed,) = duck.execute(statement.replace("g(i)", "AS g(i)")).fetchone() or (0,)
    result = driver.run(statement)
    assert result.count == changed
    for table in ("t", "other"):
        query = _SUMS.format(table)
        assert driver.rows(query) == duck.execute(query).fetchall()
    assert driver.held <= MOST


def test_rows_that_are_made_are_written_as_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as much as the memory there is, and no disk."""

    def poor(*, settings: dict[str, str]) -> duckdb.DuckDBPyConnection:
        return locked_connection(
            settings={**settings, "memory_limit": "64MiB", "temp_directory": "", "threads": "1"}
        )

    monkeypatch.setattr(pool, "locked_connection", poor)
    with mzsql.connect(blob="mem:", consensus="mem:") as con:
        con.execute("CREATE TABLE t (k bigint, x text)")
        con.execute(
            "INSERT INTO t SELECT g, repeat('x', 1000) || g FROM generate_series(1, 150000) AS g"
        )
        found = con.execute("SELECT count(*), sum(k)::bigint, count(DISTINCT k) FROM t").fetchall()
    assert found == [(150_000, 11_250_075_000, 150_000)]


@pytest.mark.parametrize("statement", ["DELETE FROM t", "UPDATE t SET v = 0 WHERE k % 2 = 0"])
def test_changes_of_what_was_changed_have_little_memory(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Updates that are to be added up first are so within what changes have, however much the machine has."""
    if driver.spark:
        pytest.skip("these are read in process")
    given: list[str] = []

    def seen(place: str, settings: dict[str, str], paths: list[str]) -> duckdb.DuckDBPyConnection:
        given.append(settings["memory_limit"])
        return locked_connection(place, settings, paths)

    driver.run("UPDATE t SET v = v + 1")
    monkeypatch.setattr(kept, "locked_connection", seen)
    assert driver.run(statement).count in (ROWS, ROWS // 2)
    assert given == [f"{files.FLOWING_BYTES >> 20}MiB"]


def test_a_large_change_that_fails_leaves_nothing(driver: Driver) -> None:
    with pytest.raises(NotNullViolation):
        driver.run("UPDATE t SET k = nullif(k, 4321)")
    with pytest.raises(DataError, match="division by zero"):
        driver.run("INSERT INTO t SELECT 10 / (k - 4321), v, t FROM t")
    assert driver.rows("SELECT count(*) AS n, sum(k)::bigint AS s FROM t") == [
        (ROWS, ROWS * (ROWS - 1) // 2)
    ]


def test_a_transaction_reads_what_it_has_written_much_of(driver: Driver) -> None:
    driver.run("BEGIN")
    assert driver.run("INSERT INTO t VALUES (-1, 1, 'x'), (-2, 2, 'y')").count == 2
    assert driver.run("DELETE FROM t WHERE k = 17").count == 1
    assert driver.run("INSERT INTO other SELECT * FROM t").count == ROWS + 1
    driver.run("COMMIT")
    assert driver.rows("SELECT count(*) AS n, min(k) AS k FROM other") == [(ROWS + 1, -2)]
    assert driver.rows("SELECT k FROM other WHERE k = 17") == []
    assert driver.held <= MOST


def test_what_a_change_returns_is_all_of_it(driver: Driver) -> None:
    found = driver.run("DELETE FROM t WHERE v < 3 RETURNING k")
    assert found.count == found.rows.num_rows
    assert sorted(found.rows.column("k").to_pylist()) == [k for k in range(ROWS) if k % 7 < 3]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT a.k, b.t FROM t a, t b WHERE a.v = b.v",
        "SELECT repeat(t, 100) AS r FROM t",
        "SELECT t.* FROM t, mz_catalog.mz_tables m WHERE m.name = 'other'",
        "SELECT i FROM generate_series(1, 500000) g(i)",
    ],
)
def test_a_result_is_ended_once_it_is_too_large(
    driver: Driver, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    add = outflow.Gathering.add

    def noted(self: outflow.Gathering, rows: pa.Table) -> None:
        add(self, rows)
        held.append(rows.num_rows)

    monkeypatch.setattr(outflow.Gathering, "add", noted)
    driver.run("SET max_query_result_size = '20kB'")
    with pytest.raises(ResultTooLarge, match=r"result exceeds max size of 20\.5 KB") as raised:
        driver.run(query)
    assert raised.value.sqlstate == "53200"
    assert "max_query_result_size" in str(raised.value.hint)
    assert sum(held) <= 3 * PIECE_ROWS
    assert driver.rows("SELECT count(*) AS n FROM t") == [(ROWS,)]


def test_random_statements_are_those_of_a_small_process(
    driver: Driver, duck: duckdb.DuckDBPyConnection
) -> None:
    rng = random.Random(4)
    for _ in range(6):
        low = rng.randrange(ROWS)
        statement = rng.choice(
            [
                f"UPDATE t SET v = v + {low} WHERE k > {low}",
                f"DELETE FROM t WHERE k % 10 = {low % 10}",
                f"INSERT INTO t SELECT k + {ROWS + low}, v, t || 'x' FROM t WHERE k < {low}",
            ]
        )
        (changed,) = duck.execute(statement).fetchone() or (0,)
        assert driver.run(statement).count == changed, statement
    query = "SELECT k, v, t FROM t ORDER BY k, v, t"
    assert driver.rows(query) == duck.execute(query).fetchall()
