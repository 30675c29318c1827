"""Environments that a Python worker of Spark has open, and what it says when something is wrong.

Promise: a worker opens an environment once and keeps it while the worker lives, for `MOST_SECONDS` at most, so that a warm read pays for
what it reads and not for opening; Spark ends workers that are idle for a minute. What is wrong comes to the user as one sentence and its
hint, without the frames of a worker; a bug of ours keeps its frames. Trade-off: history that a kept reader may read is held for as long.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from mzsql.adapter.appender import TableAppender, open_for_appending
from mzsql.adapter.reader import EnvironmentReader, open_read_only
from mzsql.repr.errors import InternalError, SqlError
from mzsql.spark.options import Locations

#: An environment that was opened so many seconds ago is opened anew by who asks for it next.
MOST_SECONDS = 120.0
#: So many are kept in a worker.
MOST_OPEN = 4
#: Who waits for another thread to open an environment looks so often whether it has, in seconds.
_LOOK_SECONDS = 1.0


class _Closes(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closes)


class _Kept(Generic[T]):
    """What is open in this process, by what names it. Thread-safe; a process that is forked begins with nothing."""

    def __init__(self, make: Callable[[Locations], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._open: dict[tuple[int, Locations], tuple[float, int, T]] = {}
        # What is being opened now, outside of the lock: others have what is open meanwhile, and one more of the same is not opened.
        self._opening: dict[tuple[int, Locations], threading.Event] = {}

    @contextlib.contextmanager
    def use(self, where: Locations) -> Iterator[T]:
        key = (os.getpid(), where)
        one = self._take(key, where)
        try:
            yield one
        finally:
            self._give_back(key, one)

    def _take(self, key: tuple[int, Locations], where: Locations) -> T:
        while True:
            with self._lock:
                began, users, one = self._open.get(key, (0.0, 0, None))
                if one is not None and time.monotonic() - began < MOST_SECONDS:
                    self._open[key] = began, users + 1, one
                    return one
                opening = self._opening.get(key)
                if opening is None:
                    ended = self._opening[key] = threading.Event()
                    stale = one if one is not None and not users else None
                    if stale is not None:
                        del self._open[key]
                    break
            opening.wait(_LOOK_SECONDS)
        try:
            if stale is not None:
                with contextlib.suppress(SqlError):  # it is given up, whatever becomes of it
                    stale.close()
            one = self._make(where)
            with self._lock:
                if key not in self._open and len(self._open) < MOST_OPEN:
                    self._open[key] = time.monotonic(), 1, one
            return one
        finally:
            with self._lock:
                del self._opening[key]
            ended.set()

    def _give_back(self, key: tuple[int, Locations], one: T) -> None:
        with self._lock:
            began, users, kept = self._open.get(key, (0.0, 0, None))
            if kept is one:
                self._open[key] = began, users - 1, one
                return
        one.close()

    def close(self) -> None:
        """Close what nobody uses."""
        with self._lock:
            idle = [(key, one) for key, (_, users, one) in self._open.items() if not users]
            for key, _ in idle:
                del self._open[key]
        for _, one in idle:
            one.close()


def _reader(where: Locations) -> EnvironmentReader:
    return open_read_only(**_arguments(where))


def _appender(where: Locations) -> TableAppender:
    return open_for_appending(**_arguments(where))


def _arguments(where: Locations) -> dict[str, str]:
    return {"path" if key == "env" else key: place for key, place in where}


_readers, _appenders = _Kept(_reader), _Kept(_appender)


def reading(where: Locations) -> contextlib.AbstractContextManager[EnvironmentReader]:
    """A reader of the environment for the block's time."""
    return _readers.use(where)


def appending(where: Locations) -> contextlib.AbstractContextManager[TableAppender]:
    """An appender to the environment's tables for the block's time."""
    return _appenders.use(where)


def close_idle() -> None:
    """Close what this process keeps open and nobody uses."""
    _readers.close()
    _appenders.close()


@contextlib.contextmanager
def in_one_sentence() -> Iterator[None]:
    """Errors for a person leave a worker of Spark without its frames.

    A worker ends after an error, so what is set here concerns that error alone.
    """
    try:
        yield
    except SqlError as failure:
        if _is_worker() and not isinstance(failure, InternalError):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
