"""Starts a Spark session, which takes seconds, on a thread of its own; callers wait only while they want it.

Promise: `SparkStart` returns a session that is given or made once, and made anew if it was stopped. A caller that
does not want it any more (a closed controller, a dropped dataflow, a canceled query) stops waiting at once, while
the start goes on for the next one: a process has one session, which lives until the process ends. `Launch` starts
Spark's JVM with its standard error in a log file, so that this process keeps its own, and leaves neither a JVM nor
files when the process ends, even in the middle of a start. Trade-off: an exit right after the start waits some
seconds until the JVM exists and can be ended; if it does not exist by then, it ends by itself when its input is
closed.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from mzsql.repr.errors import EnvironmentRefused, QueryCanceled
from mzsql.threads import plainly

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
_EXIT_SECONDS = 3.0

#: A line of Java's that names an exception with its message.
_EXCEPTION = re.compile(
    r'(?:Exception in thread "[^"]*" |Caused by: )?[\w.$]+(?:Exception|Error): +(\S.*)'
)
#: A line of a stack trace below that.
_FRAME = re.compile(r"\s+at |\s*\.\.\. \d+ more")


class SparkStart:
    """A session shared by several users. Thread-safe.

    Args:
        spark: the session, or a function that makes it when it is first needed.
    """

    def __init__(self, spark: SparkSession | Callable[[], SparkSession]) -> None:
        self._lock = threading.Lock()
        self._spark = spark
        self._attempt: Future[SparkSession] | None = None

    def session(self, unwanted: Callable[[], bool]) -> SparkSession:
        """The session; waits for its start as long as it is wanted.

        Raises:
            QueryCanceled: it is not wanted any more.
            EnvironmentRefused: Spark cannot be started here. The next call tries again.
        """
        spark = self._spark
        if isinstance(spark, SparkSession) or not callable(spark):
            return spark
        attempt: Future[SparkSession] | None = None
        while not unwanted():
            if attempt is None:
                attempt = self._under_way(spark)
            wait([attempt], _LOOK_SECONDS)
            if attempt.done():
                return attempt.result()
        raise QueryCanceled("nobody wants Spark's session any more")

    def _under_way(self, make: Callable[[], SparkSession]) -> Future[SparkSession]:
        with self._lock:
            attempt = self._attempt
            if attempt is not None and not _is_over(attempt):
                return attempt
            attempt = self._attempt = Future()
            thread = threading.Thread(
                target=_make, args=(make, attempt), name="mzsql-start-spark", daemon=True
            )
            # Steps and queries use the session, too.
            plainly(thread.start)
            return attempt


def _is_over(attempt: Future[SparkSession]) -> bool:
    """Whether an attempt has failed, or the session that it made was stopped."""
    if not attempt.done():
        return False
    return attempt.exception() is not None or is_stopped(attempt.result())


def is_stopped(session: SparkSession) -> bool:
    """Whether a session's application has ended, by itself or with its JVM; False for Spark Connect, where it is not known."""
    try:
        context = session.sparkContext
    except (PySparkException, AttributeError):
        return False  # a session of Spark Connect has none
    return _has_ended(context)


def _has_ended(context: SparkContext) -> bool:
    if context._jsc is None:
        return True
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True  # nobody answers: its JVM was killed, or ran out of memory


def leave_gone_jvm() -> None:
    """Where this process's JVM has ended, have PySpark start another: by itself it asks the one that was there for ever."""
    context = SparkContext._active_spark_context
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if context is None or process is None or process.poll() is None or not _has_ended(context):
        return
    _log.warning("Spark's JVM has ended with exit code %s, and is started anew", process.returncode)
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def _make(make: Callable[[], SparkSession], attempt: Future[SparkSession]) -> None:
    try:
        attempt.set_result(make())
    except BaseException as error:  # raised where it is waited for
        attempt.set_exception(error)


def refusal(error: Exception, said: str) -> EnvironmentRefused:
    """The error for a person where Spark does not start.

    Args:
        error: what the start raised; PySpark knows of a JVM that has ended only that it has.
        said: the JVM's log.

    Returns:
        An error with the message of the last exception in the log, the innermost of its causes, or of ``error`` where the
        log has none; its detail is the last lines of the log.
    """
    lines = [line for line in said.splitlines() if line.strip() and not _FRAME.match(line)]
    named = [found[1] for line in lines if (found := _EXCEPTION.match(line))]
    why = named[-1] if named else (str(error) or type(error).__name__).splitlines()[0]
    return EnvironmentRefused(f"Spark did not start: {why}", detail="\n".join(lines[-5:]) or None)


class Launch:
    """One start of Spark's JVM and context, and its end at exit.

    Args:
        scratch: the folder of its files, which is removed at the end.
    """

    _exiting = False

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._launched = threading.Event()
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, conf: SparkConf) -> SparkSession:
        """Start the JVM and the session.

        Raises:
            EnvironmentRefused: Spark does not start (see `refusal`).
        """
        log = self._scratch / "spark.log"
        try:
            if Launch._exiting:
                raise RuntimeError("this process is ending")
            gateway = None
            if SparkContext._gateway is None:
                # The JVM greets on standard error, with warnings that no setting turns off.
                with log.open("ab") as errors:
                    gateway = launch_gateway(conf, {"stderr": errors})
                self._process = gateway.proc
            self._launched.set()
            SparkContext(conf=conf, gateway=gateway)
            session: SparkSession = SparkSession.builder.getOrCreate()
        except Exception as error:
            said = log.read_text(errors="replace") if log.exists() else ""
            raise refusal(error, said) from error
        finally:
            self._launched.set()
            self._over.set()
        return session

    def end(self) -> None:
        """End a start that is still under way, and remove its files. Called by `atexit`."""
        Launch._exiting = True
        if not self._over.is_set():
            self._launched.wait(_EXIT_SECONDS)
        if not self._over.is_set() and self._process is not None:
            # Without this, py4j would log that its connection broke.
            logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
            # py4j uses the root logger, too.
            logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
            warnings.simplefilter("ignore", RuntimeWarning)
            self._process.terminate()
            self._over.wait(_EXIT_SECONDS)
            with contextlib.suppress(subprocess.TimeoutExpired):
                # Files that it still writes would keep the folder from being removed.
                self._process.wait(_EXIT_SECONDS)
        shutil.rmtree(self._scratch, ignore_errors=True)
