"""Finds out whether a Spark session can open the paths that a Blob store gives for its objects.

Promise: no scheme is treated specially. A session is asked once for each scheme and authority, in bounded time, by
opening a path that does not exist: a session that finds nothing there can open paths; one that fails otherwise (no
file system for the scheme, missing classes, missing credentials, no answer) cannot, and the reason is logged once.
Parts that it cannot open are read and written by executors through mzsql's Blob client
(`compute.engines.executors`): the same rows, more slowly. Trade-off: a negative answer is tried again only after
`ASK_AGAIN_SECONDS`, so a session that failed for a moment is slow for some minutes.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
import weakref
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from mzsql.location import shown_url

_LOG = logging.getLogger(__name__)

#: A session that has not answered after this many seconds counts as unable: clients of object stores may retry for
#: minutes.
ASK_SECONDS = 20.0
#: After how many seconds a session that could not open a store's paths is asked again.
ASK_AGAIN_SECONDS = 600.0

_NOTHING_THERE = "PATH_NOT_FOUND"
#: Prefixes of the settings that decide how a session opens paths; sessions that agree on them share an answer.
_OF_FILE_SYSTEMS = ("fs.", "spark.hadoop.fs.")


class _Answer(msgspec.Struct, frozen=True):
    """A session's answer and its monotonic time. `reason` says why it cannot open paths; None that it can."""

    reason: str | None
    at: float

    def counts(self) -> bool:
        return self.reason is None or time.monotonic() - self.at < ASK_AGAIN_SECONDS


_Store = tuple[str, str]
_lock = threading.Lock()
_by_session: weakref.WeakKeyDictionary[SparkSession, dict[_Store, _Answer]] = (
    weakref.WeakKeyDictionary()
)
_by_application: weakref.WeakKeyDictionary[Any, dict[tuple[_Store, Any], _Answer]] = (
    weakref.WeakKeyDictionary()
)
_told: set[tuple[str, str | None]] = set()


def is_connect(given: object) -> bool:
    """Whether an object is a Spark Connect session, whose server may be on another machine.

    Judged by the names of its classes: it has no base class in common with other sessions, and importing its class
    needs grpcio.
    """
    return any(one.__module__ == "pyspark.sql.connect.session" for one in type(given).__mro__)


def why_not(spark: SparkSession, path: str) -> str | None:
    """Why the session cannot open paths of the store that ``path`` belongs to; None if it can.

    Args:
        spark: the session.
        path: as `SparkReadable.spark_path` returns it.
    """
    store = _store(path)
    if not store[0]:
        return None  # a path on this machine, which Spark can read
    with _lock:
        answers = _by_session.setdefault(spark, {})
        known = answers.get(store)
    if known is not None and known.counts():
        return known.reason
    owner: Any = spark if is_connect(spark) else spark.sparkContext
    setting = _settings(spark)
    with _lock:
        shared = _by_application.setdefault(owner, {})
        known = shared.get((store, setting))
    if known is None or not known.counts():
        known = _Answer(_ask(spark, path), time.monotonic())
        _tell(path, known.reason)
    with _lock:
        shared[store, setting] = answers[store] = known
    return known.reason


def can_open(spark: SparkSession, path: str | None) -> bool:
    """Whether the session can open ``path``; False if that is None."""
    return path is not None and why_not(spark, path) is None


def _store(path: str) -> _Store:
    if path.startswith("/"):
        return "", ""
    split = urlsplit(path)
    return split.scheme, split.netloc


def _settings(spark: SparkSession) -> frozenset[tuple[str, str]]:
    every: Iterable[tuple[str, str]] = spark.conf.getAll.items()
    return frozenset((name, value) for name, value in every if name.startswith(_OF_FILE_SYSTEMS))


def _ask(spark: SparkSession, path: str) -> str | None:
    """Ask the session, on a thread of its own, because a client of an object store may retry for minutes."""
    absent = f"{path.rstrip('/')}/mzsql-is-not-here-{uuid.uuid4()}"
    said: list[str | None] = []

    def look() -> None:
        said.append(_look(spark, absent))

    thread = threading.Thread(target=look, name="mzsql-ask-spark", daemon=True)
    thread.start()
    thread.join(ASK_SECONDS)
    return said[0] if said else f"it has not answered for {ASK_SECONDS:g} s"


def _look(spark: SparkSession, absent: str) -> str | None:
    try:
        spark.read.schema("mz_time bigint").parquet(absent).schema  # noqa: B018  Connect looks only when it is asked for something
    except AnalysisException as error:
        if error.getCondition() == _NOTHING_THERE:
            return None
        return _first_line(error)
    except PySparkException as error:
        return _first_line(error)
    except Exception as error:
        # Failures of Hadoop's file systems come as they are, of no class that is public.
        return _first_line(error)
    return None


def _first_line(error: Exception) -> str:
    """The message of a Spark error, without the failed call and Java's stack trace."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    return lines[0] if lines else type(error).__name__


def _tell(path: str, reason: str | None) -> None:
    if reason is None:
        return
    scheme, authority = _store(path)
    where = shown_url(f"{scheme}://{authority}") if authority else f"{scheme}:"
    with _lock:
        if (where, reason) in _told:
            return
        _told.add((where, reason))
    _LOG.warning(
        "Spark cannot open %s (%s); its objects are read by mzsql's own Blob store in the executors instead: the same rows, "
        "about four times slower. Start the session with the file system for %s: on its class path (such as hadoop-aws for s3a:) and "
        "with credentials to have Spark read them itself.",
        where,
        reason,
        scheme,
    )
