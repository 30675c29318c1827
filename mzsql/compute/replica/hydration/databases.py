"""DuckDB databases that hydrations run in, kept for the next hydration.

Promise: within the block a database is one hydration's alone, and locked. It is kept only where whoever had it says that it holds nothing
of it: what is temporary, or registered, is its connection's own and goes with that. Trade-off: an idle database or two, each with its
threads, for the hundredth of a second that opening one takes, which is a good part of what a view over few rows costs.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from mzsql.expr.engines import WIDE_SETTINGS, locked_connection

#: So many idle databases of a kind are kept.
_IDLE = 2


class _Opened:
    """A database, with the directory that it spills to."""

    def __init__(self, wide: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="mzsql-hydrate-", ignore_cleanup_errors=True
        )
        self.directory = Path(self._folder.name)
        # Below the directory, which is nobody else's: one that was removed DuckDB would make anew for everybody to look into.
        settings = {"temp_directory": str(self.directory / "spilled")}
        if wide:
            settings |= WIDE_SETTINGS
        try:
            self.database = locked_connection(settings=settings)
        except BaseException:
            self._folder.cleanup()
            raise

    def close(self) -> None:
        try:
            self.database.close()
        finally:
            self._folder.cleanup()


class Taken:
    """A database for one hydration.

    Attributes:
        connection: runs its statements.
        clean: to be set once nothing but what is temporary was left there.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.clean = False


class HydrationDatabases:
    """Opens databases, and keeps some. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[bool, list[_Opened]] = {False: [], True: []}
        self._closed = False

    @contextmanager
    def one(self, *, wide: bool) -> Iterator[Taken]:
        """A database that nobody else uses within the block; `wide` for statements of so many expressions."""
        opened = self._take(wide) or _Opened(wide)
        kept = False
        try:
            with opened.database.cursor() as connection:
                taken = Taken(connection)
                yield taken
            kept = taken.clean and self._keep(opened, wide)
        finally:
            if not kept:
                opened.close()

    def _take(self, wide: bool) -> _Opened | None:
        with self._lock:
            found = self._idle[wide].pop() if self._idle[wide] else None
        if found is not None and not found.directory.is_dir():
            # Somebody has removed it, as what clears a machine's temporary files does after some days.
            found.close()
            return None
        return found

    def _keep(self, opened: _Opened, wide: bool) -> bool:
        with self._lock:
            if self._closed or len(self._idle[wide]) >= _IDLE:
                return False
            self._idle[wide].append(opened)
            return True

    def close(self) -> None:
        """Close what is idle; what is in use is closed after its use. Idempotent."""
        with self._lock:
            self._closed = True
            idle = [one for kind in self._idle.values() for one in kind]
            self._idle = {False: [], True: []}
        for one in idle:
            one.close()
