"""`mzsql replica` with a port for Prometheus, and with another master for Spark: ``python watched.py ENV CLUSTER NAME [MASTER]``.

Its first line is the address of its metrics; what follows are those of the command. With a master Spark is started at once, as
`spark-submit` does it, with the settings that a replica starts it with; what a cluster on this machine leaves in Spark's directory goes
when the process ends. It ends with its standard input.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from prometheus_client import start_http_server
from pyspark.sql import SparkSession

from mzsql.cli.replica import run_replica
from mzsql.compute.engines.spark_session import (
    CORRECTNESS_SETTINGS,
    HYDRATION_POOL,
    STEP_POOL,
)

_POOLS = f"""<?xml version="1.0"?>
<allocations>
  <pool name="{STEP_POOL}"><schedulingMode>FIFO</schedulingMode><weight>1000</weight><minShare>2</minShare></pool>
  <pool name="{HYDRATION_POOL}"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""


def main() -> int:
    env, cluster, name, *master = sys.argv[1:]
    server, thread = start_http_server(0, "127.0.0.1")
    print(f"http://127.0.0.1:{server.server_port}/metrics", flush=True)
    with ExitStack() as stack:
        if master:
            _start(stack, master[0])
        code = run_replica(env, cluster, name, "127.0.0.1:0", None, with_input=True)
    server.shutdown()
    thread.join()
    return code


def _start(stack: ExitStack, master: str) -> None:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mzsql-bench-spark-")))
    (folder / "pools.xml").write_text(_POOLS)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": (folder / "pools.xml").as_uri(),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.local.dir": str(folder / "local"),
        "spark.hadoop.fs.permissions.umask-mode": "077",
        **CORRECTNESS_SETTINGS,
    }
    builder = SparkSession.builder.appName("mzsql replica").master(master)
    session = builder.config(map=settings).getOrCreate()
    # Executors of a cluster on this machine have their folders there.
    home = session.sparkContext._jvm.System.getenv("SPARK_HOME")
    left = Path(home) / "work" / session.sparkContext.applicationId
    stack.callback(lambda: shutil.rmtree(left, ignore_errors=True))
    stack.callback(session.stop)
    # All executors are to be there: else the first hydration waits for them.
    session.range(64).repartition(64).count()


if __name__ == "__main__":
    sys.exit(main())
