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


class _Entry(Generic[T]):
    """What is open, since when, and how many use it; once it is not `kept` any more, the last of these closes it."""

    def __init__(self, one: T) -> None:
        self.one = one
        self.began = time.monotonic()
        self.users = 1
        self.kept = True


class _Kept(Generic[T]):
    """What is open in this process, by what names it. Thread-safe; a process that is forked begins with nothing."""

    def __init__(self, make: Callable[[Locations], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._open: dict[tuple[int, Locations], _Entry[T]] = {}
        # What is being opened now, outside of the lock: others have what is open meanwhile, and one more of the same is not opened.
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
                    # Who uses one that is too old goes on with it.
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
        """Keep what is open under a name no more; it, where nobody uses it. The lock is held."""
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
        """Close what nobody uses."""
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
    """A reader of the environment for the block's time."""
    return _readers.use(where)


def appending(where: Locations) -> contextlib.AbstractContextManager[TableAppender]:
    """An appender to the environment's tables for the block's time."""
    return _appenders.use(where)


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
