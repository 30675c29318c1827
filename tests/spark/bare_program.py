"""An application with a session of its own that reads, streams and appends; run by `test_spark_worker_python.py`.

It prints what it found as one JSON object on its last line.
"""

from __future__ import annotations

import json
import sys

from patient_streams import run_out
from pyspark.sql import SparkSession

import mzsql


def main(env: str, place: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    spark = builder.config(map={"spark.ui.enabled": "false"}).getOrCreate()
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a integer)")
        con.execute("INSERT INTO t VALUES (1)")
    saved = spark.sql("SELECT 2 AS a").write.format("mzsql").option("env", env)
    saved.mode("append").save("public.t")
    read = spark.read.format("mzsql").option("env", env).load("public.t")
    stream = spark.readStream.format("mzsql").option("env", env).load("public.t")
    writer = stream.writeStream.format("parquet").option(
        "checkpointLocation", f"{place}/checkpoint"
    )
    run_out(lambda: writer.trigger(availableNow=True).start(f"{place}/out"))
    found = {
        "read": sorted(row.a for row in read.collect()),
        "streamed": sorted(row.a for row in spark.read.parquet(f"{place}/out").collect()),
    }
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
