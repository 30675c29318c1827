"""Spark sessions: starts one when none is given, and derives from it the sessions for steps, hydrations and queries.

Promise: a missing or too old Java raises one typed error, with a one-line message, before Spark is started. A step
runs in a session of its dataflow, with settings measured to be cheapest for small inputs. A hydration runs in one
that divides its work into short tasks, so that steps of other dataflows, whose scheduler pool has priority, need not
wait. Only SQL settings differ, so a session that the user provides (a remote master, Spark Connect) works too,
though Spark Connect has no scheduler pools.
"""

from __future__ import annotations

import atexit
import functools
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
from mzsql.compute.engines.spark_start import Launch, is_stopped, leave_gone_jvm
from mzsql.expr.engines import SPARK_STEP_SETTINGS
from mzsql.repr.errors import EnvironmentRefused

#: The oldest Java version that Spark 4 supports.
MINIMUM_JAVA = 17

#: Held while this process's session is started.
_starting = threading.Lock()

#: Pools of the FAIR scheduler: the tasks of steps have priority over those of hydrations.
STEP_POOL = "step"
HYDRATION_POOL = "hydration"

_POOLS = f"""<?xml version="1.0"?>
<allocations>
  <pool name="{STEP_POOL}"><schedulingMode>FIFO</schedulingMode><weight>1000</weight><minShare>2</minShare></pool>
  <pool name="{HYDRATION_POOL}"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""

# Spark's own log4j file would print a banner and warnings on the terminal of a user who only ran a query.
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
#: Settings that Spark adds itself and that must not be given to another application.
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
#: Settings of an application whose executors are on this machine: nobody else may connect to it.
_ON_THIS_MACHINE = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

#: Settings that results depend on; every session of ours has them.
CORRECTNESS_SETTINGS = {
    **SPARK_STEP_SETTINGS,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

#: Settings for cheap small steps: a single job with a single task. A broadcast would be another job.
STEP_SETTINGS = {
    **CORRECTNESS_SETTINGS,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    # Steps have many expressions and few rows: finding common ones costs more than computing them twice.
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


#: Settings for a large query: many tasks with small results each, since results come one partition at a time.
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
    """The major version of the Java that Spark would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    candidate = str(Path(home) / "bin" / "java") if home else "java"
    java = shutil.which(candidate)  # Spark looks nowhere else when JAVA_HOME is set
    if java is None:
        return None
    try:
        there = Path(java).resolve().stat()
        return _version_of(java, (there.st_ino, there.st_mtime_ns, there.st_size))
    except (OSError, subprocess.SubprocessError):
        return None


@functools.lru_cache(maxsize=4)
def _version_of(java: str, file: tuple[int, int, int]) -> int:  # noqa: ARG001 - another file is asked anew
    """As `java_version`, of this file. Asking takes a process, so it is asked once and not by each statement that needs Spark.

    Raises:
        OSError, subprocess.SubprocessError: it does not tell its version now. Only answers are remembered: a machine
            that had no memory for a JVM a moment ago may have some for the next statement.
    """
    done = subprocess.run(  # noqa: S603
        [java, "-version"], capture_output=True, text=True, timeout=30, check=False
    )
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if found is None:
        raise subprocess.CalledProcessError(done.returncode, java, done.stdout, done.stderr)
    major = int(found[1])
    # Java 8 and older call themselves 1.8.
    return int(found[2]) if major == 1 and found[2] else major


def require_java() -> None:
    """Check that Java is installed and new enough.

    Raises:
        EnvironmentRefused: it is not; the message is one line for a person.
    """
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
    """The heap of a local session, in MiB: a quarter of the machine's memory, between 1 and 4 GiB.

    Driver and executor are one process here, and the compiled plans of a few large dataflows use up Spark's default
    of 1 GiB.
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
    """The Spark session of this process: the existing one, unchanged, or a new one. Concurrent calls wait for one
    start.

    Args:
        cores: task slots; by default all cores of the machine, at least 2.
        app_name: the application's name in Spark.
        master: where tasks run, as in `spark-submit --master`; by default what `spark-submit` started this process
            with, else this process.
        conf: further Spark settings, which override ours.

    Raises:
        EnvironmentRefused: Java is missing or older than `MINIMUM_JAVA`, or Spark does not start with these
            settings.
    """
    with _starting:
        leave_gone_jvm()
        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        if SparkContext._active_spark_context is not None:
            # Another thread started it. Without settings of ours, which would change it.
            return SparkSession.builder.getOrCreate()
        slots = cores if cores is not None else max(2, os.cpu_count() or 2)
        submitted = _submitted()
        wanted = master or submitted.get(_MASTER) or f"local[{slots}]"
        return _start({**submitted, **(conf or {}), _MASTER: wanted}, app_name)


def kept_session(given: SparkSession) -> Callable[[], SparkSession]:
    """A function that returns a session made by somebody else or, after its application has ended, the present one or a
    new one with the same master and settings, so that what is maintained on it goes on.
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
    """Whether `spark-submit` started this process, which then uses that JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """The settings with which `spark-submit` started this process's JVM; empty if it did not."""
    if not is_submitted():
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())


def is_here(master: str) -> bool:
    """Whether everything that runs an application on this master is on this machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def _start(given: Mapping[str, str], app_name: str) -> SparkSession:
    require_java()
    master = given[_MASTER]
    here = is_here(master)
    if here:
        # Python workers must use this interpreter, or they lack the packages installed here.
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
        # Files that Spark writes into a store in directories are their owner's alone, like those that mzsql writes.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.sql.codegen.cache.maxEntries": "5000",
        **CORRECTNESS_SETTINGS,
        **(_ON_THIS_MACHINE | {"spark.local.dir": str(scratch / "local")} if here else {}),
    }
    conf = SparkConf().setAppName(app_name).setAll([*settings.items(), *given.items()])
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # PySpark logs every failed analysis as JSON with the JVM's stack trace, besides raising it.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    launch = Launch(scratch)
    atexit.register(launch.end)
    session = launch.run(conf)
    if master.startswith("local-cluster["):
        atexit.register(_remove_work, session)
    return session


def _remove_work(session: SparkSession) -> None:
    """Remove what the executors of a local-cluster master leave in Spark's directory."""
    context = session.sparkContext
    folder = Path(_find_spark_home()) / "work" / str(context.applicationId)
    context.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _let_exit(session: Any) -> None:
    """Keep a Spark Connect session from contacting its server at exit: if the server was stopped before, that waits ten
    minutes for an answer. The server releases unused sessions by itself.
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
    """A session for the small steps of one dataflow, with its own temporary views."""
    return _configured(spark, STEP_SETTINGS)


def query_session(spark: SparkSession) -> SparkSession:
    """A session for one large query, with its own temporary views; each task's result on the driver is small."""
    return _configured(spark, QUERY_SETTINGS)


def large_step_session(spark: SparkSession, *, workers: int) -> SparkSession:
    """A session for a dataflow's steps over many rows: several tasks, and broadcasts where one side of a join is small."""
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
    """A session for one dataflow's hydration: shuffles into `workers` partitions, scans of files in several short
    tasks.
    """
    return _configured(
        spark,
        {
            **_many_tasks(workers),
            # Version 2 shows a task's files as soon as it ends, by which each worker's progress is seen. Nothing reads
            # them before the job is done, which is what version 1 would protect.
            "mapreduce.fileoutputcommitter.algorithm.version": "2",
            "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        },
    )
