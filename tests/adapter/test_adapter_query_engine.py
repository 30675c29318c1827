"""What runs a query: held tables, DuckDB over parts, or Spark, by the bytes of what it reads, and by ``step_engine``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.compute.peek.outflow import Limits
from mzsql.persist import CorruptPart, MissingPart
from mzsql.repr.errors import DataError

ROWS = 60_000
#: More rows than these are not held.
HELD = 1_000


class SparkAsked(Exception):
    """Spark was to be started: what these tests only want to know."""


class Asked:
    """A session on an environment whose Spark is never there."""

    def __init__(self, place: Path, stored: int | None, *, spark: bool = True) -> None:
        self.place = place
        self.env = Environment.open(locate(str(place)))

        def start() -> Any:
            raise SparkAsked

        limits = Limits(rows=HELD) if stored is None else Limits(rows=HELD, stored=stored)
        self.coordinator = Coordinator(self.env, spark=start if spark else None, limits=limits)
        self.session = Session()

    def run(self, text: str) -> Any:
        return self.coordinator.execute(self.session, text)[-1]

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        columns = self.run(text).rows.columns
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def asks_spark(self, text: str) -> bool:
        try:
            self.run(text)
        except Exception as failure:
            found: BaseException | None = failure
            while found is not None and not isinstance(found, SparkAsked):
                found = found.__cause__ or found.__context__
            if found is None:
                raise
            return True
        return False

    def parts(self, table: str) -> list[Path]:
        """The objects of a table."""
        (gid,) = (item.id for item in self.env.catalog.state.items.values() if item.name == table)
        upper = self.env.collections.upper(gid)
        assert upper is not None
        found = self.env.collections.parts(gid, upper - 1)
        paths = (part.spark_path for part in found if part.spark_path is not None)
        return [Path(unquote(urlsplit(path).path)) for path in paths]

    def close(self) -> None:
        self.coordinator.close()
        self.env.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An environment with a table of narrow and wide columns that is in parts."""
    folder = tmp_path
    rows = pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "v": pa.array([i % 7 for i in range(ROWS)], pa.int64()),
            "t": pa.array(
                [f"{i * 7919 % ROWS} a text that takes its room {i}" for i in range(ROWS)]
            ),
        }
    )
    pq.write_table(rows, folder / "t.parquet")
    made = Asked(folder / "env", None, spark=False)
    made.run("CREATE TABLE t (k bigint NOT NULL, v bigint, t text)")
    made.run(f"COPY t FROM '{folder}/t.parquet' (FORMAT PARQUET)")
    made.close()
    return folder / "env"


@pytest.fixture
def opened(place: Path) -> Iterator[Any]:
    made: list[Asked] = []

    def open_(stored: int | None = None, **given: bool) -> Asked:
        made.append(Asked(place, stored, **given))
        return made[-1]

    yield open_
    for one in made:
        one.close()


WIDE = "SELECT v, max(t) AS m, count(*) AS n FROM t GROUP BY v"
NARROW = "SELECT v, count(*) AS n FROM t GROUP BY v"


def test_a_query_is_this_processs_up_to_the_bytes_that_it_reads(opened: Any) -> None:
    sizes = [path.stat().st_size for path in opened().parts("t")]
    assert sizes
    everything = opened(sum(sizes))
    assert not everything.asks_spark(WIDE)
    # Of the wide column nothing is read, so that is not counted.
    little = opened(sum(sizes) // 4)
    assert little.asks_spark(WIDE)
    assert not little.asks_spark(NARROW)
    assert opened(0).asks_spark(NARROW)


def test_step_engine_decides_it_too(opened: Any) -> None:
    asked = opened(0)
    asked.run("ALTER SYSTEM SET step_engine = 'duckdb'")
    assert not asked.asks_spark(WIDE)
    asked.run("ALTER SYSTEM SET step_engine = 'spark'")
    assert opened().asks_spark(NARROW)
    asked.run("ALTER SYSTEM RESET step_engine")
    assert not opened().asks_spark(NARROW)


def test_answers_are_duckdbs_and_errors_come_out(opened: Any) -> None:
    asked = opened()
    with duckdb.connect() as plain:
        plain.execute(
            f"""CREATE TABLE t AS SELECT i AS k, i % 7 AS v,
            (i * 7919 % {ROWS}) || ' a text that takes its room ' || i AS t FROM range({ROWS}) r(i)"""
        )
        for query in (
            f"{WIDE} ORDER BY v",
            "SELECT k, t FROM t WHERE k BETWEEN 41000 AND 41009 ORDER BY k",
            "SELECT sum(k * v)::bigint AS a, avg(v)::float8 AS b, count(DISTINCT v) AS c FROM t",
            "SELECT a.k FROM t a JOIN t b ON a.k = b.k + 1 WHERE a.v = 0 AND b.t LIKE '1%' ORDER BY 1 LIMIT 20",
        ):
            assert asked.rows(query) == plain.execute(query).fetchall()
    with pytest.raises(DataError, match="division by zero"):
        asked.rows("SELECT sum(1 / (k - 30000)) FROM t")
    assert asked.rows("SELECT count(*) AS n FROM t WHERE k > 30000 AND 1 / (k - 30000) = 0") == [
        (ROWS - 30002,)
    ]


def test_what_was_deleted_is_not_there_and_what_is_written_is(opened: Any) -> None:
    asked = opened()
    asked.run("DELETE FROM t WHERE k >= 10 AND k < 20")
    asked.run("INSERT INTO t VALUES (-1, NULL, 'new')")
    assert asked.rows("SELECT count(*) AS n, min(k) AS k, count(v) AS v FROM t") == [
        (ROWS - 9, -1, ROWS - 10)
    ]
    assert asked.rows("SELECT k FROM t WHERE k < 25 ORDER BY k LIMIT 14") == [
        (k,) for k in (-1, *range(10), 20, 21, 22)
    ]


def test_a_large_result_comes_without_spark_in_bounded_memory(opened: Any) -> None:
    asked = opened(spark=False)
    before, most, count, size = pa.total_allocated_bytes(), 0, 0, 0
    asked.run("BEGIN")
    asked.run("DECLARE c CURSOR FOR SELECT a.k, a.t || b.t AS t FROM t a, t b WHERE b.k < 20")
    while (rows := asked.run("FETCH 50000 c").rows).num_rows:
        most = max(most, pa.total_allocated_bytes() - before)
        count, size = count + rows.num_rows, size + rows.nbytes
    asked.run("COMMIT")
    assert count == 20 * ROWS
    assert most < 64 * 1024 * 1024 < size


def test_a_damaged_part_and_a_missing_one_say_so(opened: Any) -> None:
    asked = opened()
    assert asked.rows(f"{NARROW} ORDER BY v LIMIT 1") == [(0, 8572)]
    path = max(asked.parts("t"), key=lambda one: one.stat().st_size)
    whole = path.read_bytes()
    try:
        metadata = pq.read_metadata(path)
        places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        chunk = metadata.row_group(0).column(places["c2"])
        middle = chunk.data_page_offset + chunk.total_compressed_size // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        with pytest.raises(CorruptPart, match="do not match their checksum"):
            asked.rows(WIDE)
        # Of another column nothing is damaged.
        assert asked.rows(f"{NARROW} ORDER BY v LIMIT 1") == [(0, 8572)]
        path.unlink()
        with pytest.raises(MissingPart):
            asked.rows(NARROW)
    finally:
        path.write_bytes(whole)
    assert len(asked.rows(WIDE)) == 7
