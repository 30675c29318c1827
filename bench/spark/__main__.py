"""What it takes to read an environment of many objects from a Spark application that knows only where it is, and to register it.

    python bench/spark                       # 1,000 objects
    python bench/spark --objects 200 --rounds 10

Prints, in milliseconds: a read of a builtin relation by ``spark.read.format("mzsql")``, the first and warm; a trivial read by another data
source in Python in the same session, for what of it is Spark's own; the registration of all relations, for each; bringing the catalog up to
date after one DDL. Wall time, one after another: keep the machine quiet.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import mzsql
from mzsql.compute.engines.spark_session import local_session
from mzsql.spark import register
from mzsql.spark.registration import ensure_source


class _OneRow(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:  # noqa: ARG002  Spark's own
        yield (1,)


class _Trivial(DataSource):
    @classmethod
    def name(cls) -> str:
        return "trivial"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: object) -> _OneRow:  # noqa: ARG002  Spark's own
        return _OneRow()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=20, help="warm reads")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = str(Path(folder) / "env")
        spark = local_session(cores=2)
        ensure_source(spark)
        spark.dataSource.register(_Trivial)
        with mzsql.connect(env) as con:
            for n in range(given.objects):
                con.execute(f"CREATE TABLE t{n} (a bigint, b text)")
            _reads(spark, env, given.rounds)
            _registers(spark, env, con)


def _reads(spark: SparkSession, env: str, rounds: int) -> None:
    def builtin() -> None:
        frame = spark.read.format("mzsql").option("env", env)
        frame.load("mz_catalog.mz_tables").collect()

    def trivial() -> None:
        spark.read.format("trivial").load().collect()

    _show("builtin relation, first read", [_took(builtin)])
    for _ in range(5):
        builtin()
        trivial()
    pairs = [(_took(builtin), _took(trivial)) for _ in range(rounds)]
    _show("builtin relation, warm read", [a for a, _ in pairs])
    _show("a data source of one row, warm read", [b for _, b in pairs])


def _registers(spark: SparkSession, env: str, con: mzsql.Connection) -> None:
    session = spark.newSession()
    began = time.perf_counter()
    registered = register(session, env, lead=False)
    took = (time.perf_counter() - began) * 1000
    count = sum(len(_tables(spark, one.name)) for one in spark.catalog.listDatabases())
    print(f"register: {took:.0f} ms for {count} relations, {took / count:.2f} ms each", flush=True)
    times = []
    for n in range(5):
        con.execute(f"CREATE TABLE late{n} (a bigint)")
        times.append(_took(lambda n=n: session.sql(f"SELECT * FROM late{n}").schema))
    _show("spark.sql over a table that was just made elsewhere", times)
    registered.close()


def _tables(spark: SparkSession, schema: str) -> list[Row]:
    return spark.sql(f"SHOW TABLES IN `{schema}`").collect()


def _took(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1000


def _show(what: str, times: list[float]) -> None:
    print(f"{what}: {median(times):.0f} ms [{min(times):.0f}-{max(times):.0f}]", flush=True)


if __name__ == "__main__":
    main()
