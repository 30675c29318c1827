"""A DataFrame appended to a table: once, at one time or not at all, whatever Spark does with its tasks; on a real Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import mzsql
from mzsql.adapter.appender import as_table_rows, open_for_appending
from mzsql.persist import Batch
from mzsql.repr.errors import CommitOutcomeUnknown, NotReadable, SqlError
from mzsql.spark import append
from mzsql.spark.append import TableWriter
from mzsql.spark.opened import appending
from mzsql.spark.options import target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("append") / "env"


@pytest.fixture(scope="module")
def con(env: Path, spark: SparkSession) -> Iterator[mzsql.Connection]:
    assert spark is not None
    with mzsql.connect(str(env)) as connection:
        yield connection


def _append(frame: DataFrame, env: Path, table: str) -> None:
    frame.write.format("mzsql").option("env", str(env)).mode("append").save(table)


def test_rows_of_all_kinds_arrive_by_name_and_defaults_are_filled_in(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    con.execute(
        "CREATE TABLE kinds (a bigint NOT NULL, b text, c numeric(10, 2), d date, e boolean, "
        "f timestamp, g double, j jsonb, u uint4, z integer NOT NULL DEFAULT 7)"
    )
    when = dt.datetime(2026, 2, 3, 4, 5, 6, 789000)
    frame = spark.createDataFrame(
        [
            (2.5, "x", 1, Decimal("1.25"), dt.date(2026, 1, 1), True, when, '{"b": 1}', 5),
            (None, None, 2, None, None, None, None, None, None),
        ],
        "g double, b string, a bigint, c decimal(10,2), d date, e boolean, f timestamp_ntz, j string, u bigint",
    )
    _append(frame, env, "public.kinds")
    assert con.execute(
        "SELECT a, b, c, d, e, f, g, j::text, u, z FROM kinds ORDER BY a"
    ).fetchall() == [
        (1, "x", Decimal("1.25"), dt.date(2026, 1, 1), True, when, 2.5, '{"b": 1}', 5, 7),
        (2, None, None, None, None, None, None, None, None, 7),
    ]


def test_many_tasks_are_one_commit(spark: SparkSession, env: Path, con: mzsql.Connection) -> None:
    """Some send their rows, some write ahead; a view over them sees all at one time."""
    con.execute("CREATE TABLE big (n bigint, s text)")
    rows = spark.range(0, 60_000, 1, 5).select(
        F.col("id").alias("n"),
        F.when(F.col("id") < 24_000, F.sha2(F.col("id").cast("string"), 512)).alias("s"),
    )
    _append(rows.union(rows.limit(0)), env, "big")
    assert con.execute(
        "SELECT count(*), count(DISTINCT n), sum(n), count(s) FROM big"
    ).fetchall() == [(60_000, 60_000, Decimal(60_000 * 59_999 // 2), 24_000)]
    changes = spark.read.format("mzsql").option("env", str(env)).option("changes", "true")
    times = changes.load("big").groupBy("_commit_version").count().collect()
    assert len(times) == 1


def test_nothing_to_append_is_nothing(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE none (n bigint)")
    _append(spark.range(5).toDF("n").where("n > 10"), env, "none")
    assert con.execute("SELECT count(*) FROM none").fetchall() == [(0,)]


@pytest.mark.long
def test_what_does_not_fit_fails_all_of_it_in_a_sentence(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE fits (a smallint NOT NULL, b varchar(3))")
    con.execute("CREATE MATERIALIZED VIEW of_fits AS SELECT * FROM fits")
    numbers = spark.range(0, 70_000, 1, 4)
    for frame, said in [
        (numbers.select(F.col("id").alias("a")), "does not fit type smallint"),
        (spark.sql("SELECT CAST(NULL AS INT) AS a"), "violates not-null constraint"),
        (spark.sql("SELECT 1 AS a, 'long' AS b"), "value too long for type"),
        (spark.sql("SELECT 'x' AS a"), "invalid input syntax for type smallint"),
        (spark.sql("SELECT 1 AS a, 2 AS c"), 'column "c" of relation "fits" does not exist'),
        (spark.sql("SELECT 1.5D AS a"), 'column "a" is of type smallint but'),
    ]:
        with pytest.raises(PySparkException, match=said) as refused:
            _append(frame, env, "fits")
        assert 'File "' not in str(refused.value)  # no frames of a worker
    for table, said in [
        ("of_fits", "cannot insert into materialized view"),
        ("mz_catalog.mz_tables", "cannot insert into"),
        ("nowhere", "unknown catalog item 'nowhere'"),
    ]:
        with pytest.raises(PySparkException, match=said):
            _append(spark.sql("SELECT 1 AS a"), env, table)
    with pytest.raises(PySparkException, match="appends only"):
        spark.sql("SELECT 1 AS a").write.format("mzsql").option("env", str(env)).mode(
            "overwrite"
        ).save("fits")
    assert con.execute("SELECT count(*) FROM fits").fetchall() == [(0,)]


# --- what tasks and commits go through -----------------------------------------------------------


def _writer(env: Path, table: str) -> TableWriter:
    wanted = target({"env": str(env), "relation": table})
    return TableWriter(wanted, StructType().add("n", "long"), overwrite=False)


def _attempt(writer: TableWriter, numbers: range) -> append.Appended:
    return writer.write(iter([pa.record_batch({"n": pa.array(numbers, pa.int64())})]))


def _objects(con: mzsql.Connection, table: str) -> int:
    environment = con.coordinator.env
    gid = next(i.id for i in environment.sync().relations if i.name == table)
    shard = environment.collections.meta(gid).shard
    blob = environment.persist._context.blob
    return sum(1 for _ in blob.list_keys_and_metadata(shard + "/"))


def test_attempts_that_spark_did_not_take_leave_no_rows(
    env: Path, con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retried and a speculated task: one of its attempts is told of, as Spark tells of it; the others are nobody's."""
    con.execute("CREATE TABLE attempts (n bigint)")
    monkeypatch.setattr(append, "SENT_BYTES", 1000)
    writer = _writer(env, "attempts")
    for _ in range(3):
        taken = _attempt(writer, range(1000))
    assert taken.batch is not None
    small = _attempt(writer, range(1000, 1010))
    assert small.updates is not None
    writer.commit([taken, small, append.Appended()])
    assert con.execute("SELECT count(*), sum(n) FROM attempts").fetchall() == [
        (1010, Decimal(sum(range(1010))))
    ]


def test_a_commit_that_spark_takes_for_failed_keeps_its_rows(
    env: Path, con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts after a commit that raised, though all of it may be in: nothing of it may be deleted."""
    con.execute("CREATE TABLE uncertain (n bigint)")
    monkeypatch.setattr(append, "SENT_BYTES", 1000)
    writer = _writer(env, "uncertain")
    messages = [_attempt(writer, range(50_000)), _attempt(writer, range(3))]
    with appending(writer._target.locations) as environment:
        commit = environment.commit

        def unknown(*arguments: Any) -> None:
            commit(*arguments)
            raise CommitOutcomeUnknown("nobody can tell")

        monkeypatch.setattr(environment, "commit", unknown)
        with pytest.raises(SqlError, match="nobody can tell"):
            writer.commit(messages)
        writer.abort(messages)
    assert con.execute("SELECT count(*) FROM uncertain").fetchall() == [(50_003,)]


def test_a_job_that_failed_leaves_nothing(
    env: Path, con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE failed (n bigint)")
    monkeypatch.setattr(append, "SENT_BYTES", 1000)
    writer = _writer(env, "failed")
    before = _objects(con, "failed")
    messages = [_attempt(writer, range(50_000)), None]
    assert _objects(con, "failed") > before
    writer.abort(messages)
    assert _objects(con, "failed") == before
    assert con.execute("SELECT count(*) FROM failed").fetchall() == [(0,)]


def test_a_table_that_is_dropped_meanwhile_is_noticed(env: Path, con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE gone (n bigint)")
    writer = _writer(env, "gone")
    messages = [_attempt(writer, range(3))]
    con.execute("DROP TABLE gone")
    con.execute("CREATE TABLE gone (n bigint)")
    with pytest.raises(SqlError, match="was dropped while it was written; nothing was written"):
        writer.commit(messages)
    assert con.execute("SELECT count(*) FROM gone").fetchall() == [(0,)]


def test_what_waited_so_long_that_it_was_taken_for_a_leak_is_not_committed(
    env: Path, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE stale (n bigint)")
    rows = pa.RecordBatchReader.from_batches(
        pa.schema([("n", pa.int64())]),
        [pa.record_batch({"n": pa.array([(n * 7919) % 1_000_003 for n in range(200_000)])})],
    )
    with open_for_appending(str(env)) as tasks:
        item = tasks.table("public.stale")
        tables = list(as_table_rows(item, rows))
        made = pa.RecordBatchReader.from_batches(
            tables[0].schema, (batch for table in tables for batch in table.to_batches())
        )
        batch = tasks.write_ahead(item.id, made)
    keys = batch.blob_keys()
    assert keys
    with open_for_appending(str(env)) as driver:
        # What a finder of leaks does that has seen it for a day.
        blob = driver._env.persist.blob
        assert blob.delete(next(iter(keys)))
        with pytest.raises(NotReadable, match="nothing was written") as gone:
            driver.commit(item.id, [Batch.from_bytes(batch.to_bytes())])
        assert "mzsql maintain" in str(gone.value)
    assert con.execute("SELECT count(*) FROM stale").fetchall() == [(0,)]
