"""Streams that are killed at any moment, and writes whose tasks fail or run twice, in Spark applications of their own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mzsql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

STREAM = """
    from mzsql.compute.engines.spark_session import local_session
    from mzsql.spark.registration import ensure_source

    spark = local_session(cores=2)
    ensure_source(spark)
    frame = spark.readStream.format("mzsql").option("env", {env!r}).option("changes", "true")
    stream = frame.load("public.t").writeStream.format("parquet")
    stream = stream.option("checkpointLocation", {place!r} + "/checkpoint")
    stream = stream.trigger(availableNow=True) if {last} else stream.trigger(processingTime="100 milliseconds")
    query = stream.start({place!r} + "/out")
    print("started", flush=True)
    query.awaitTermination()
    print("done", flush=True)
"""


def _stream(env: Path, place: Path, *, last: bool) -> subprocess.Popen[str]:
    program = textwrap.dedent(STREAM).format(env=str(env), place=str(place), last=last)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        cwd=place.parent,
    )


def test_a_stream_that_is_killed_again_and_again_delivers_each_change_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What it delivered is, change by change, what the relation's history says."""
    env, place, chance = tmp_path / "env", tmp_path / "stream", random.Random(11)
    with mzsql.connect(str(env)) as con:
        con.execute("CREATE TABLE t (a bigint, b bigint) WITH (RETAIN HISTORY FOR '1 hour')")
        con.execute("INSERT INTO t SELECT n, 0 FROM generate_series(1, 500) AS g (n)")
        start = con.execute("SELECT * FROM t").timestamp
        for round_ in range(1, 5):
            process = _stream(env, place, last=False)
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            end = time.monotonic() + chance.uniform(1.0, 9.0)
            while time.monotonic() < end:
                n = chance.randrange(500)
                con.execute(f"UPDATE t SET b = {round_} WHERE a = {n}")
                con.execute(f"DELETE FROM t WHERE a = {chance.randrange(500)}")
                con.execute(f"INSERT INTO t VALUES ({n}, {n})")
            os.killpg(process.pid, signal.SIGKILL)  # the whole group: Spark's JVM and its workers
            process.wait()
        last = _stream(env, place, last=True)
        out, _ = last.communicate(timeout=300)
        assert out.endswith("done\n")
        rows = spark.read.parquet(str(place / "out")).collect()
        delivered = Counter(tuple(row) for row in rows)
        first = min(row["_commit_version"] for row in rows)
        assert first >= start
        total: Counter[tuple[Any, ...]] = Counter()
        for (a, b, kind, _, _), n in delivered.items():
            total[a, b] += n if kind == "insert" else -n
        table = con.execute("SELECT a, b FROM t").fetchall()
        assert +total == Counter(table)
        history = spark.read.format("mzsql").option("env", str(env)).option("changes", "true")
        changes = history.option("from", str(first + 1)).load("public.t").collect()
        later = Counter({row: n for row, n in delivered.items() if row[3] > first})
        assert later == Counter(tuple(row) for row in changes)


WRITE = """
    import time
    from pathlib import Path
    from pyspark import TaskContext
    from pyspark.sql import SparkSession
    from mzsql.spark.registration import ensure_source
    from mzsql.spark import append

    builder = SparkSession.builder.master("local-cluster[2,2,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.speculation", "true").config("spark.speculation.interval", "100ms")
    builder = builder.config("spark.speculation.multiplier", "1.1").config("spark.speculation.quantile", "0.3")
    builder = builder.config("spark.speculation.minTaskRuntime", "200ms")
    builder = builder.config("spark.speculation.efficiency.enabled", "false")
    builder = builder.config("spark.executorEnv.PYTHONPATH", {path!r})
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    ensure_source(spark)
    told = Path({told!r})

    def slowly(batches):
        context = TaskContext.get()
        place = f"{{context.partitionId()}}-{{context.attemptNumber()}}"
        (told / ("began-" + place)).touch()
        for batch in batches:
            yield batch
        if context.attemptNumber() == 0:
            if context.partitionId() % 3 == 0:
                raise RuntimeError("this attempt fails after all of its rows")
            if context.partitionId() % 3 == 1:
                time.sleep(20)  # until Spark runs it a second time
        (told / ("ended-" + place)).touch()

    frame = spark.range(0, 120000, 1, 6).selectExpr("id", "sha2(cast(id AS string), 256) AS s")
    frame = frame.mapInArrow(slowly, "id long, s string")
    frame.write.format("mzsql").option("env", {env!r}).mode("append").save("public.t")
    print("done", flush=True)
    spark.stop()
"""


def test_tasks_that_fail_and_tasks_that_run_twice_append_each_row_once(tmp_path: Path) -> None:
    env, told = tmp_path / "env", tmp_path / "told"
    told.mkdir()
    with mzsql.connect(str(env)) as con:
        con.execute("CREATE TABLE t (id bigint, s text)")
        program = textwrap.dedent(WRITE).format(
            env=str(env), told=str(told), path=":".join(p for p in sys.path if p)
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
            cwd=tmp_path,  # where executors keep what they print
        )
        assert done.stdout.endswith("done\n"), done.stderr[-4000:]
        attempts = [one.name for one in told.iterdir() if one.name.startswith("began")]
        assert len(attempts) > 6 + 2  # beyond those that failed some ran twice
        found = con.execute("SELECT count(*), count(DISTINCT id), sum(id) FROM t").fetchall()
        assert found == [(120_000, 120_000, 120_000 * 119_999 // 2)]
