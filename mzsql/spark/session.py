"""The Spark session of an embedded environment, where the user has none.

Promise: `local_session` gives the active session if there is one; else it starts one with local settings that suit small resident
dataflows, and finds Java first. Static settings can only be given here, at the start; those that a dataflow needs besides are set by
whoever runs it, in a session of its own. Trade-off: a session that the user started keeps the settings it has.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from mzsql.spark.java import require_java

#: Two pools: short maintenance steps go before long hydrations (weights as measured for FAIR scheduling of mixed task lengths).
_POOLS = """<?xml version="1.0"?>
<allocations>
  <pool name="step"><schedulingMode>FAIR</schedulingMode><weight>1000</weight><minShare>2</minShare></pool>
  <pool name="hydration"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""

#: Errors only: what Spark warns about at its start is of no use to someone who did not start it.
_LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""

#: What a session started here is given; spark.* settings of the environment (spark-defaults.conf) still apply beside them.
LOCAL_SETTINGS = {
    "spark.app.name": "mzsql",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
}


def local_session(*, cores: int | None = None, warehouse: Path | None = None) -> SparkSession:
    """The active Spark session, or a new one on this machine.

    Args:
        cores: how many tasks run at once; None is as many as the machine has processors.
        warehouse: the folder for Spark's own tables; None is a temporary one.

    Raises:
        JavaMissing: a session must be started and no fitting Java is there.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    require_java()
    # Spark's Python workers run whatever this names; any other interpreter would miss the packages of this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # PySpark logs every failed analysis as JSON with the JVM's stack besides raising it; the caller has the exception.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    if warehouse is None:
        home = Path(tempfile.mkdtemp(prefix="mzsql-warehouse-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    else:
        home = warehouse
    pools = home / "pools.xml"
    pools.write_text(_POOLS)
    log4j = home / "log4j2.properties"
    log4j.write_text(_LOGGING)
    builder = SparkSession.builder.master(f"local[{cores or os.cpu_count() or 1}]")
    builder = builder.config("spark.sql.warehouse.dir", str(home))
    builder = builder.config("spark.scheduler.allocation.file", pools.as_uri())
    builder = builder.config(
        "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j.as_uri()}"
    )
    for key, value in LOCAL_SETTINGS.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session
