"""A relation as a stream: the contents, then each change once, whatever happens to the stream; on a real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patient_streams import run_out
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import mzsql
from mzsql.repr.errors import InvalidParameter, NotReadable
from mzsql.spark import release_stream
from mzsql.spark.options import target
from mzsql.spark.stream import ChangeStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streams") / "env"


@pytest.fixture(scope="module")
def con(env: Path, spark: SparkSession) -> Iterator[mzsql.Connection]:
    assert spark is not None
    with mzsql.connect(str(env)) as connection:
        yield connection


class Stream:
    """A stream into Parquet files, run until it has delivered all that is there."""

    def __init__(self, spark: SparkSession, env: Path, relation: str, place: Path) -> None:
        self.spark, self.env, self.relation, self.place = spark, env, relation, place
        self.options = {"changes": "true"}

    def run(self) -> None:
        frame = self.spark.readStream.format("mzsql").option("env", str(self.env))
        writer = (
            frame.options(**self.options)
            .load(self.relation)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.place / "checkpoint"))
            .trigger(availableNow=True)
        )
        run_out(lambda: writer.start(str(self.place / "out")))

    def rows(self) -> list[Any]:
        return self.spark.read.parquet(str(self.place / "out")).collect()

    def contents(self) -> Counter[tuple[Any, ...]]:
        """What the changes add up to."""
        total: Counter[tuple[Any, ...]] = Counter()
        for row in self.rows():
            total[tuple(row)[:-3]] += {"insert": 1, "delete": -1}[row["_change_type"]]
        assert min(total.values(), default=0) >= 0
        return +total


def test_the_contents_and_then_the_changes(
    spark: SparkSession, env: Path, con: mzsql.Connection, tmp_path: Path
) -> None:
    con.execute("CREATE TABLE s1 (a bigint, b text)")
    con.execute("INSERT INTO s1 VALUES (1, 'x'), (1, 'x'), (NULL, NULL)")
    stream = Stream(spark, env, "public.s1", tmp_path)
    stream.run()
    assert stream.contents() == Counter({(1, "x"): 2, (None, None): 1})
    first = {row["_commit_version"] for row in stream.rows()}
    assert len(first) == 1
    con.execute("DELETE FROM s1 WHERE a IS NULL")
    con.execute("UPDATE s1 SET b = 'y'")
    stream.run()
    assert stream.contents() == Counter({(1, "y"): 2})
    later = [row for row in stream.rows() if row["_commit_version"] not in first]
    assert Counter(row["_change_type"] for row in later) == {"insert": 2, "delete": 3}
    for row in later:
        assert round(row["_commit_timestamp"].timestamp() * 1000) == row["_commit_version"]
    stream.run()  # nothing happened
    assert len(stream.rows()) == 3 + 5


@pytest.mark.long
def test_a_materialized_view_and_only_some_columns(
    spark: SparkSession, env: Path, con: mzsql.Connection, tmp_path: Path
) -> None:
    con.execute("CREATE TABLE s2 (a bigint, b bigint)")
    con.execute("INSERT INTO s2 VALUES (1, 10), (2, 20)")
    con.execute(
        "CREATE MATERIALIZED VIEW s2_sums AS SELECT a, sum(b) AS s, count(*) AS n FROM s2 GROUP BY a"
    )
    con.execute("SELECT * FROM s2_sums").fetchall()
    stream = Stream(spark, env, "public.s2_sums", tmp_path)
    stream.options["columns"] = "n, a"
    stream.run()
    assert stream.contents() == Counter({(1, 1): 1, (1, 2): 1})
    con.execute("INSERT INTO s2 VALUES (2, 5)")
    con.execute("SELECT * FROM s2_sums").fetchall()
    stream.run()
    assert stream.contents() == Counter({(1, 1): 1, (2, 2): 1})


@pytest.mark.long
def test_a_stream_from_a_time_on_has_no_contents_before_it(
    spark: SparkSession, env: Path, con: mzsql.Connection, tmp_path: Path
) -> None:
    con.execute("CREATE TABLE s3 (a bigint)")
    con.execute("INSERT INTO s3 VALUES (1)")
    cursor = con.execute("SELECT * FROM s3")
    con.execute("INSERT INTO s3 VALUES (2)")
    stream = Stream(spark, env, "s3", tmp_path)
    stream.options["from"] = str(cursor.timestamp + 1)
    stream.run()
    assert stream.contents() == Counter({(2,): 1})


def test_a_stream_that_was_down_for_long_goes_on(
    spark: SparkSession, env: Path, con: mzsql.Connection, tmp_path: Path
) -> None:
    """History is held for it by its name in the checkpoint, until it is released."""
    con.execute("CREATE TABLE s4 (a bigint)")
    con.execute("INSERT INTO s4 VALUES (1)")
    stream = Stream(spark, env, "s4", tmp_path)
    stream.run()
    con.execute("INSERT INTO s4 VALUES (2)")
    con.execute("DELETE FROM s4 WHERE a = 1")
    environment = con.coordinator.env
    gid = next(i.id for i in environment.sync().relations if i.name == "s4")
    # As after a minute, when nobody's history is kept who does not ask for it.
    environment.collections.release_history(environment.fresh_timestamp())
    stream.run()
    assert stream.contents() == Counter({(2,): 1})
    assert len(stream.rows()) == 3
    shard = environment.collections.meta(gid).shard
    seen = environment.persist.inspect(shard)
    assert seen is not None
    [hold] = [name for name in seen.critical if name.startswith("spark-stream-")]
    release_stream(hold, str(env))
    seen = environment.persist.inspect(shard)
    assert seen is not None
    assert hold not in seen.critical
    with pytest.raises(InvalidParameter, match="no relation has the hold"):
        release_stream(hold, str(env))


def test_a_stream_whose_history_is_gone_says_so_and_holds_nothing(
    env: Path, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE s7 (a bigint)")
    con.execute("INSERT INTO s7 VALUES (1)")
    environment = con.coordinator.env
    gid = next(i.id for i in environment.sync().relations if i.name == "s7")
    stream = ChangeStream(
        target({"env": str(env), "relation": "s7"}), StructType().add("a", "long")
    )
    start, end = ({"gid": gid, "at": at, "hold": "spark-stream-1"} for at in (5, 50))
    with pytest.raises(NotReadable, match="goes on at 5, and its history begins at"):
        stream.partitions(start, end)
    seen = environment.persist.inspect(environment.collections.meta(gid).shard)
    assert seen is not None
    assert not any(name.startswith("spark-stream-") for name in seen.critical)


@pytest.mark.long
def test_what_cannot_be_streamed(
    spark: SparkSession, env: Path, con: mzsql.Connection, tmp_path: Path
) -> None:
    con.execute("CREATE TABLE s5 (a bigint)")
    con.execute("CREATE VIEW s5_view AS SELECT * FROM s5")
    for relation, said in [
        ("s5_view", "only tables and materialized views have a history"),
        ("mz_catalog.mz_tables", "only tables and materialized views have a history"),
        ("nowhere", "unknown catalog item 'nowhere'"),
    ]:
        with pytest.raises(PySparkException, match=said):
            Stream(spark, env, relation, tmp_path / relation).run()
    stream = Stream(spark, env, "s5", tmp_path / "s5")
    con.execute("INSERT INTO s5 VALUES (1)")
    stream.run()
    con.execute("DROP TABLE s5 CASCADE")
    con.execute("CREATE TABLE s5 (a bigint)")
    with pytest.raises(PySparkException, match="was dropped, and made anew since"):
        stream.run()


@pytest.mark.long
def test_a_stream_of_rows_alone_fails_at_a_deletion(
    spark: SparkSession, env: Path, con: mzsql.Connection, tmp_path: Path
) -> None:
    """It never leaves one out; with `changes` the same stream would have it."""
    con.execute("CREATE TABLE s6 (a bigint)")
    con.execute("INSERT INTO s6 VALUES (1), (2)")
    stream = Stream(spark, env, "s6", tmp_path)
    stream.options = {}
    stream.run()
    con.execute("INSERT INTO s6 VALUES (2)")
    stream.run()
    assert sorted(tuple(row) for row in stream.rows()) == [(1,), (2,), (2,)]
    con.execute("DELETE FROM s6 WHERE a = 1")
    with pytest.raises(PySparkException, match="takes insertions only"):
        stream.run()
