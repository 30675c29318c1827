"""Environments open in a Spark Python worker, and the errors that a worker reports.

Promise: a worker opens an environment once and keeps it open, for at most `MOST_SECONDS`, so that a warm read does not
pay for opening; Spark ends workers that idle for a minute. An error reaches the user as its message and hint on one
line, without the worker's traceback; a bug of mzsql keeps its traceback. The trade-off: history that a kept reader may read is
retained as long.
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

#: An environment that was opened longer ago is opened again at its next use.
MOST_SECONDS = 120.0
#: At most so many are kept in a worker.
MOST_OPEN = 4
#: Seconds between checks of a thread that waits for another one to open an environment.
_LOOK_SECONDS = 1.0


class _Closes(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closes)


class _Entry(Generic[T]):
    """An open environment, since when, and its number of users; once it is not `kept` any more, the last user closes
    it.
    """

    def __init__(self, one: T) -> None:
        self.one = one
        self.began = time.monotonic()
        self.users = 1
        self.kept = True


class _Kept(Generic[T]):
    """The environments open in this process, by location. Thread-safe; a forked process starts with none."""

    def __init__(self, make: Callable[[Locations], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._open: dict[tuple[int, Locations], _Entry[T]] = {}
        # Locations being opened now, outside the lock, so that other environments can be used meanwhile and none is
        # opened twice.
        self._opening: dict[tuple[int, Locations], threading.Event] = {}

    @contextlib.contextmanager
    def use(self, where: Locations) -> Iterator[T]:
        entry = self._take((os.getpid(), where), where)
        try:
            yield entry.one
        finally:
            self._give_back(entry)

    def _take(self, key: tuple[int, Locations], where: Locations) -> _Entry[T]:
        while True:
            with self._lock:
                entry = self._open.get(key)
                if entry is not None and time.monotonic() - entry.began < MOST_SECONDS:
                    entry.users += 1
                    return entry
                opening = self._opening.get(key)
                if opening is None:
                    ended = self._opening[key] = threading.Event()
                    # Present users of an expired one go on with it.
                    stale = self._let_go(key)
                    break
            opening.wait(_LOOK_SECONDS)
        try:
            if stale is not None:
                with contextlib.suppress(SqlError):  # it is given up, whatever becomes of it
                    stale.close()
            made = _Entry(self._make(where))
            with self._lock:
                if len(self._open) < MOST_OPEN:
                    self._open[key] = made
                else:
                    made.kept = False
            return made
        finally:
            with self._lock:
                del self._opening[key]
            ended.set()

    def _let_go(self, key: tuple[int, Locations]) -> T | None:
        """Stop keeping an environment; it is returned where nobody uses it. The lock is held."""
        entry = self._open.pop(key, None)
        if entry is None:
            return None
        entry.kept = False
        return None if entry.users else entry.one

    def _give_back(self, entry: _Entry[T]) -> None:
        with self._lock:
            entry.users -= 1
            if entry.kept or entry.users:
                return
        entry.one.close()

    def close(self) -> None:
        """Close the unused ones."""
        with self._lock:
            idle = [key for key, entry in self._open.items() if not entry.users]
            unused = [one for key in idle if (one := self._let_go(key)) is not None]
        for one in unused:
            one.close()


def _reader(where: Locations) -> EnvironmentReader:
    return open_read_only(**_arguments(where))


def _appender(where: Locations) -> TableAppender:
    return open_for_appending(**_arguments(where))


def _arguments(where: Locations) -> dict[str, str]:
    return {"path" if key == "env" else key: place for key, place in where}


_readers, _appenders = _Kept(_reader), _Kept(_appender)


def reading(where: Locations) -> contextlib.AbstractContextManager[EnvironmentReader]:
    """A reader of the environment, for the block."""
    return _readers.use(where)


def appending(where: Locations) -> contextlib.AbstractContextManager[TableAppender]:
    """An appender to the environment's tables, for the block."""
    return _appenders.use(where)


@contextlib.contextmanager
def in_one_sentence() -> Iterator[None]:
    """Let errors meant for people leave a Spark worker on one line, without traceback.

    Spark puts words of its own before the line, and its SQLSTATE on the next. A worker ends after an error, so what is
    set here affects only that error.
    """
    try:
        yield
    except SqlError as failure:
        if _is_worker() and not isinstance(failure, InternalError):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            failure.message, failure.detail, failure.hint = failure.on_one_line(), None, None
        raise


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
