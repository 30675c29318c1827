"""An application that follows a relation as a stream until it is killed, or appends with tasks that fail; run by `test_spark_kills.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from patient_streams import run_out
from pyspark import TaskContext
from pyspark.sql import SparkSession


def follow(spark: SparkSession, env: str, place: str, *, until_told: bool) -> None:
    """Follow ``public.t``: for ever, or until what is there has been delivered."""
    frame = spark.readStream.format("mzsql").option("env", env).option("changes", "true")
    writer = (
        frame.load("public.t")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{place}/checkpoint")
    )
    how = {"availableNow": True} if until_told else {"processingTime": "100 milliseconds"}
    run_out(lambda: writer.trigger(**how).start(f"{place}/out"))


def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, by a task that fails behind them the first time, and the second time before them."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 1:
        raise RuntimeError("planted before")
    yield from batches
    if context.attemptNumber() == 0:
        raise RuntimeError("planted behind")


def append(spark: SparkSession, env: str) -> None:
    rows = spark.range(1000, numPartitions=4).mapInArrow(failing, "id long")
    frame = rows.selectExpr("id AS a", "cast(id % 7 AS int) AS b")
    frame.write.format("mzsql").option("env", env).mode("append").save("public.t")


def main(what: str, env: str, place: str) -> None:
    # A task may fail three times before its job does.
    builder = SparkSession.builder.master("local[2,4]")
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = builder.config(map=settings).getOrCreate()
    if what == "append":
        append(spark, env)
    else:
        follow(spark, env, place, until_told=what == "deliver")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
