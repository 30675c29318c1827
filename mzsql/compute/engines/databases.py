"""DuckDB databases that are opened for one user at a time, and kept idle for the next one that can use the same.

Promise: within the block of `DatabasePool.one` a database is one user's alone, and locked, with a directory of its own to
spill to. It is kept only where its user says that it is clean, and then holds nothing of it: what is temporary, or
registered, is its connection's own and goes with that. Trade-off: a few idle databases, each with its threads, save the
hundredth of a second that opening one takes.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import duckdb

_log = logging.getLogger(__name__)

#: What a database is opened for; equal kinds can take each other's.
Kind = TypeVar("Kind")


class Taken:
    """A database for one user.

    Attributes:
        connection: runs its statements.
        clean: to be set once nothing but what is temporary is left there.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.clean = False


#: Opens a locked database of a kind, given its directory and the settings that it must have.
Open = Callable[[Kind, Path, dict[str, str]], duckdb.DuckDBPyConnection]


class _Opened:
    """A database of a kind, with its directory."""

    def __init__(self, prefix: str, opened: Open[Kind], kind: Kind) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        self.directory = Path(self._folder.name)
        # A subdirectory, so that our own directory keeps its permissions: DuckDB would recreate a removed one readable
        # for everybody.
        settings = {"temp_directory": str(self.directory / "spilled")}
        try:
            self.database = opened(kind, self.directory, settings)
        except BaseException:
            self._folder.cleanup()
            raise

    def close(self) -> None:
        try:
            self.database.close()
        finally:
            self._folder.cleanup()


class DatabasePool(Generic[Kind]):
    """Opens databases, and keeps the most recently used ones that are idle. Thread-safe.

    Args:
        prefix: begins the names of their directories.
        opened: opens a locked database of a kind, given its directory and the settings that it must have.
        most: how many are kept.
    """

    def __init__(
        self,
        prefix: str,
        opened: Open[Kind],
        most: int,
    ) -> None:
        self._prefix = prefix
        self._opened = opened
        self._most = most
        self._lock = threading.Lock()
        #: least recently used first; several of one kind if they were used side by side
        self._idle: OrderedDict[_Opened, Kind] = OrderedDict()
        self._closed = False

    @contextmanager
    def one(self, kind: Kind) -> Iterator[Taken]:
        """A database that nobody else uses within the block. Where the block fails it is not kept."""
        found = self._take(kind)
        if found is None:
            found = _Opened(self._prefix, self._opened, kind)
        clean = False
        try:
            with found.database.cursor() as connection:
                taken = Taken(connection)
                try:
                    yield taken
                    clean = taken.clean
                except GeneratorExit:
                    # Whoever reads rows has enough of them, which is no failure.
                    clean = taken.clean
                    raise
        finally:
            if not (clean and self._keep(found, kind)):
                found.close()

    def _take(self, kind: Kind) -> _Opened | None:
        with self._lock:
            found = next((one for one, of in reversed(self._idle.items()) if of == kind), None)
            if found is not None:
                del self._idle[found]
        if found is not None and not found.directory.is_dir():
            # Somebody has removed it, as what clears a machine's temporary files does after some days.
            _put_away(found)
            return None
        return found

    def _keep(self, opened: _Opened, kind: Kind) -> bool:
        """Keep a database for the next user; False where it is not to be."""
        gone = None
        with self._lock:
            if self._closed:
                return False
            self._idle[opened] = kind
            if len(self._idle) > self._most:
                gone, _ = self._idle.popitem(last=False)
        if gone is not None:
            _put_away(gone)
        return True

    def close(self) -> None:
        """Close what is idle; what is in use is closed after its use. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = list(self._idle), OrderedDict()
        for one in idle:
            _put_away(one)


def _put_away(opened: _Opened) -> None:
    """Close a database that nobody needs any more; a failure is logged, as whoever is here now has nothing to do with it."""
    try:
        opened.close()
    except (duckdb.Error, OSError) as failure:
        _log.warning("a database that nobody needs any more was not closed: %s", failure)
