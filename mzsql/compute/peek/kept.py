"""DuckDB databases for queries over files, kept for later queries that can use the same one.

Promise: within the block a database belongs to one query. It was opened for exactly the files, the memory and the
settings asked for, and is locked. It is kept only if its query ended well or not all its rows were wanted, and then
holds nothing of the query, because everything a query creates is temporary and goes with its connection. Trade-off:
a few idle databases, each with its threads, save the hundredths of a second that opening one takes. A collection
that was written to has other files, and so needs another database.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import msgspec

from mzsql.expr.engines import WIDE_SETTINGS, locked_connection

_log = logging.getLogger(__name__)

#: How many idle databases are kept, the most recently used ones.
_IDLE = 4


class Kind(msgspec.Struct, frozen=True):
    """What a database is opened for.

    Attributes:
        files: the paths that it may read.
        mebibytes: its memory limit.
        wide: whether its statement is a wide one.
        on_disk: whether rows are copied into it; it then lies in a file and is not kept.
    """

    files: tuple[str, ...]
    mebibytes: int
    wide: bool = False
    on_disk: bool = False


class _Opened:
    """A database, with the directory that it spills to."""

    def __init__(self, kind: Kind) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="mzsql-query-", ignore_cleanup_errors=True
        )
        self.directory = Path(self._folder.name)
        settings = {
            "memory_limit": f"{kind.mebibytes}MiB",
            # A subdirectory, so that our own directory keeps its permissions: DuckDB would recreate a removed one
            # readable for everybody.
            "temp_directory": str(self.directory / "spilled"),
        }
        if kind.wide:
            settings |= WIDE_SETTINGS
        place = str(self.directory / "inputs.duckdb") if kind.on_disk else ":memory:"
        try:
            self.connection = locked_connection(place, settings, kind.files)
        except BaseException:
            self._folder.cleanup()
            raise

    def close(self) -> None:
        try:
            self.connection.close()
        finally:
            self._folder.cleanup()


class Databases:
    """Opens databases, and keeps some of them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: least recently used first; several of one kind if queries ran side by side
        self._idle: OrderedDict[_Opened, Kind] = OrderedDict()
        self._closed = False

    @contextmanager
    def connection(self, kind: Kind) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to a database of a kind, which no other query uses within the block."""
        opened = self._take(kind) or _Opened(kind)
        clean = False
        try:
            with opened.connection.cursor() as connection:
                try:
                    yield connection
                    clean = True
                except GeneratorExit:
                    # Whoever reads has enough rows.
                    clean = True
                    raise
        finally:
            if not (clean and self._keep(opened, kind)):
                opened.close()

    def _take(self, kind: Kind) -> _Opened | None:
        with self._lock:
            found = next((one for one, of in reversed(self._idle.items()) if of == kind), None)
            if found is not None:
                del self._idle[found]
        if found is not None and not found.directory.is_dir():
            # Somebody has removed it, as what clears a machine's temporary files does after some days.
            found.close()
            return None
        return found

    def _keep(self, opened: _Opened, kind: Kind) -> bool:
        """Keep a database for the next query; False where it is not to be."""
        if kind.on_disk:
            return False
        gone = None
        with self._lock:
            if self._closed:
                return False
            self._idle[opened] = kind
            if len(self._idle) > _IDLE:
                gone, _ = self._idle.popitem(last=False)
        if gone is not None:
            try:
                gone.close()
            except duckdb.Error as failure:
                # Another query's: this one has its answer.
                _log.warning("a database that nobody needs any more was not closed: %s", failure)
        return True

    def close(self) -> None:
        """Close what is idle; what is in use is closed after its use. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = list(self._idle), OrderedDict()
        for one in idle:
            one.close()
