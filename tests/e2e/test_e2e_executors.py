"""What is too large for the driver comes from the stores to the executors, and goes back from them."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

#: A process of its own, as Spark's workers have the environment's variables that its JVM was started with.
PROGRAM = """
    import os
    import mzsql
    from mzsql.compute.engines import relations
    from mzsql.compute.replica import target
    from mzsql.compute.engines.spark_session import local_session

    relations.DRIVER_ROWS = 0
    target.is_local = lambda _: False
    spark = local_session(cores=2)
    with mzsql.connect({env!r}, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE t (a int, b text)")
        con.execute("INSERT INTO t SELECT i, 'row ' || i::text FROM generate_series(1, 30000) AS g(i)")
        frame = con.spark.table("t")
        assert frame.where("a % 2 = 0").count() == 15000
        plan = frame._jdf.queryExecution().toString()
        assert ("mzsql_parts" in plan) == {away!r}, plan
        shown = plan + repr(spark.conf.getAll) + str(spark.catalog.listTables("public"))
        assert os.environ.get("AWS_SECRET_ACCESS_KEY", "no secret") not in shown
        schema, blob = "a bigint, mz_time bigint, mz_diff bigint", con.coordinator.env.persist
        import pyarrow as pa
        shard = blob.new_shard_id()
        writer, reader = blob.open_shard(shard, pa.schema([("a", pa.int64())]))
        out = target.Target(blob, shard, pa.schema([("a", pa.int64())]), writer, 60.0)
        rows = spark.range(0, 20000, 1, 3).selectExpr("id AS a", "id % 5 AS mz_time", "1L AS mz_diff")
        assert out.adopt(rows, 0, 5) == (5, 20000)
        found = reader.snapshot_arrow(4)
        assert found.num_rows == 20000 and sum(found["a"].to_pylist()) == sum(range(20000))
    print("done")
"""


def test_executors_open_the_stores_themselves(env: str) -> None:
    program = textwrap.dedent(PROGRAM).format(env=env, away=env.startswith("profile:"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=1100, check=False
    )
    assert done.stdout.endswith("done\n"), done.stderr[-4000:]
