"""Spark sessions: the one made when none is given, local or on any master, and the kinds a replica works in.

Promise: a missing or too old Java is one typed, one-line error before Spark is touched. A step runs in a session of its dataflow with
the settings measured to cost least for small inputs; a hydration runs in one that cuts its work into short tasks, so that steps of
other dataflows, in a pool that comes first, need not wait. Only SQL settings differ, so that a session given by the user
(remote masters, Spark Connect) works too, merely without the scheduler pools.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from mzsql.compute.engines.paths import is_connect
from mzsql.compute.engines.spark_start import Launch, is_stopped
from mzsql.expr.engines import SPARK_STEP_SETTINGS
from mzsql.repr.errors import EnvironmentRefused

#: The oldest Java that Spark 4 runs on.
MINIMUM_JAVA = 17

#: Held while the session of this process is started.
_starting = threading.Lock()

#: Pools of the FAIR scheduler: a step's tasks come before any hydration's.
STEP_POOL = "step"
HYDRATION_POOL = "hydration"

_POOLS = f"""<?xml version="1.0"?>
<allocations>
  <pool name="{STEP_POOL}"><schedulingMode>FIFO</schedulingMode><weight>1000</weight><minShare>2</minShare></pool>
  <pool name="{HYDRATION_POOL}"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""

# Spark's own log4j file prints a banner and warnings on the terminal of whoever merely asked for a query.
_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

_MASTER = "spark.master"
#: What Spark itself adds to an application's settings.
_OF_ONE_LIFE = frozenset(
    {
        "spark.app.id",
        "spark.app.startTime",
        "spark.app.submitTime",
        "spark.driver.port",
        "spark.executor.id",
        "spark.submit.pyFiles",
        "spark.submit.deployMode",
    }
)
#: Of an application whose executors are on this machine: nobody else is to reach it.
_ON_THIS_MACHINE = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

#: What every session of ours has, for right answers.
CORRECTNESS_SETTINGS = {
    **SPARK_STEP_SETTINGS,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

#: What makes a small step cheap: one task, and no job but one. A broadcast is a job.
STEP_SETTINGS = {
    **CORRECTNESS_SETTINGS,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    # a step's expressions are many and its rows few: looking for equal ones costs more than computing them twice
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


#: What keeps a large query's tasks many, and the result of each small: results come a partition at a time.
QUERY_SETTINGS = {
    **CORRECTNESS_SETTINGS,
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


def java_version() -> int | None:
    """The major version of the Java that Spark would start; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    candidate = str(Path(home) / "bin" / "java") if home else "java"
    java = shutil.which(candidate)  # Spark looks nowhere else when JAVA_HOME is set
    if java is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if found is None:
        return None
    major = int(found[1])
    # Java 8 and older call themselves 1.8.
    return int(found[2]) if major == 1 and found[2] else major


def require_java() -> None:
    """Raise EnvironmentRefused, one line for a person, unless Java is there and new enough."""
    version = java_version()
    if version is None:
        raise EnvironmentRefused(
            f"Java {MINIMUM_JAVA} or newer is needed to run Spark, but no java was found; "
            "install one (for example openjdk-17-jre-headless) or set JAVA_HOME"
        )
    if version < MINIMUM_JAVA:
        raise EnvironmentRefused(
            f"Java {MINIMUM_JAVA} or newer is needed to run Spark, but the java found is version {version}; "
            "install a newer one or set JAVA_HOME"
        )


def driver_memory_mib() -> int:
    """The heap of a local session: a quarter of the machine's memory, at least 1 and at most 4 GiB.

    Driver and executor are one process here, and Spark's own default of 1 GiB is used up by the compiled plans of a few large dataflows.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return min(max(total // 4, 1024), 4096)


def local_session(
    *,
    cores: int | None = None,
    app_name: str = "mzsql",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session in this process: the one there is, untouched, or a new one. Who comes while another thread starts it waits.

    Args:
        cores: task slots; all cores of the machine (at least 2) by default.
        app_name: what Spark calls the application.
        master: where its tasks run, as `spark-submit --master` has it; by default what `spark-submit` has started this process with, else
            this process.
        conf: further settings of Spark, which come before ours.

    Raises:
        EnvironmentRefused: no Java, or one older than `MINIMUM_JAVA`; or Spark does not start so.
    """
    with _starting:
        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        if SparkContext._active_spark_context is not None:
            # started by another thread; without settings of ours, which would change it
            return SparkSession.builder.getOrCreate()
        slots = cores if cores is not None else max(2, os.cpu_count() or 2)
        submitted = _submitted()
        wanted = master or submitted.get(_MASTER) or f"local[{slots}]"
        return _start({**submitted, **(conf or {}), _MASTER: wanted}, app_name)


def kept_session(given: SparkSession) -> Callable[[], SparkSession]:
    """Gives a session that somebody else has made; where its application has ended, the one that there is now, or a new one on the same
    master with the same settings, as what is maintained on it is to go on.
    """
    try:
        conf = given.sparkContext.getConf().getAll()
    except (PySparkException, AttributeError):
        return lambda: given  # of Spark Connect
    settings = {key: value for key, value in conf if key not in _OF_ONE_LIFE}

    def session() -> SparkSession:
        if not is_stopped(given):
            return given
        return local_session(
            app_name=settings.get("spark.app.name", "mzsql"),
            master=settings.get(_MASTER),
            conf=settings,
        )

    return session


def is_submitted() -> bool:
    """Whether `spark-submit` has started this process, whose JVM is then that one."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """The settings that `spark-submit` has started this process's JVM with; none where it has not."""
    if not is_submitted():
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())


def is_here(master: str) -> bool:
    """Whether all that runs an application is on this machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def _start(given: Mapping[str, str], app_name: str) -> SparkSession:
    require_java()
    master = given[_MASTER]
    here = is_here(master)
    if here:
        # Workers that Spark starts must be this interpreter, or they miss the packages installed here.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    scratch = Path(tempfile.mkdtemp(prefix="mzsql-spark-"))
    pools, log4j = scratch / "pools.xml", scratch / "log4j2.properties"
    pools.write_text(_POOLS)
    log4j.write_text(_LOG4J)
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{driver_memory_mib()}m",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": pools.as_uri(),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        # What it writes into a store in directories is its owner's alone, as what the store writes.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.sql.codegen.cache.maxEntries": "5000",
        **CORRECTNESS_SETTINGS,
        **(_ON_THIS_MACHINE | {"spark.local.dir": str(scratch / "local")} if here else {}),
    }
    conf = SparkConf().setAppName(app_name).setAll([*settings.items(), *given.items()])
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # PySpark logs every failed analysis as JSON with the JVM's stack besides raising it; the caller has the exception.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    launch = Launch(scratch)
    atexit.register(launch.end)
    session = launch.run(conf)
    if master.startswith("local-cluster["):
        atexit.register(_remove_work, session)
    return session


def _remove_work(session: SparkSession) -> None:
    """Remove what the executors of a cluster within this machine leave in Spark's directory."""
    context = session.sparkContext
    folder = Path(_find_spark_home()) / "work" / str(context.applicationId)
    context.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _let_exit(session: Any) -> None:
    """Keep a session of Spark Connect from telling its server at exit: whoever has stopped it before waits ten minutes for an answer.
    The server lets go of sessions that nobody uses by itself.
    """
    on_exit = getattr(session.client, "_on_exit", None)
    if on_exit is not None:
        atexit.unregister(on_exit)


def _configured(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    session = spark.newSession()
    if is_connect(session):
        _let_exit(session)
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def step_session(spark: SparkSession) -> SparkSession:
    """A session for the steps of one dataflow: its own temporary views, settings for small inputs."""
    return _configured(spark, STEP_SETTINGS)


def query_session(spark: SparkSession) -> SparkSession:
    """A session for one large query: its own temporary views, work cut into tasks whose results are each little on the driver."""
    return _configured(spark, QUERY_SETTINGS)


def large_step_session(spark: SparkSession, *, workers: int) -> SparkSession:
    """A session for what of a dataflow's steps is many rows: several tasks, and broadcasts where one side of a join is small."""
    return _configured(spark, _many_tasks(workers))


def _many_tasks(workers: int) -> dict[str, str]:
    return {
        **STEP_SETTINGS,
        "spark.sql.autoBroadcastJoinThreshold": "10m",
        "spark.sql.subexpressionElimination.enabled": "true",
        "spark.sql.shuffle.partitions": str(workers),
        "spark.sql.leafNodeDefaultParallelism": str(workers),
        "spark.sql.files.minPartitionNum": str(4 * workers),
    }


def hydration_session(spark: SparkSession, *, workers: int) -> SparkSession:
    """A session for one dataflow's hydration: shuffles into `workers` slices, files scanned in several short tasks."""
    return _configured(
        spark,
        {
            **_many_tasks(workers),
            # as files appear when their task ends, each worker's progress can be seen; nothing reads them before the job is done
            "mapreduce.fileoutputcommitter.algorithm.version": "2",
            "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        },
    )
