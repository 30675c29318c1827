"""Connections to a SQLite file, shared by threads and safe across forks.

Promise: a connection is lent to one thread at a time, in WAL mode, and every commit is fsynced (synchronous=FULL).
SQLite keeps its file locks in the process's memory, so a forked child believes that it holds locks which only its
parent holds; its commits can then be lost with a WAL file that the parent deletes. So a fork first waits until all
connections are idle and closes them, and parent and child open new ones. The trade-off: a fork costs that, and where a
statement outlasts the wait, the child may not use SQLite at all. Source: "How To Corrupt An SQLite Database File",
section 2.6.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mzsql.location.attempts import attempted
from mzsql.location.directories import make_directory
from mzsql.location.errors import Determinate, Indeterminate, LocationError
from mzsql.location.privacy import make_file, warn_if_open

_MODE_PAUSE = 0.02
_OPEN_SECONDS = 10.0
"""How many seconds an opening waits for processes that write all the time."""
_FORK_SECONDS = 5.0
"""How many seconds a fork waits for running statements."""

_PAUSE_SECONDS = 0.01
_LOCKED_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
# Result codes after which SQLite guarantees that the statement was rolled back.
_DETERMINATE_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_TOOBIG,
}


class Database:
    """Connections to one file, lent to one thread at a time; a fork closes them.

    ``interrupt()`` is called when lent connections must be returned soon, ``renew()`` in a process that a fork created.
    """

    def __init__(
        self,
        path: str | Path,
        schema: str,
        busy_seconds: float,
        interrupt: Callable[[], None] = lambda: None,
        renew: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = str(path)
        self._busy_seconds = busy_seconds
        self._interrupt = interrupt
        self._renew = renew
        self._free = threading.Condition(threading.Lock())
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self.forking = False
        self._closed = False
        _forks.add(self)
        with self.guard("open"):
            # SQLite makes its files' entries durable, but not the entry of a new directory.
            file = Path(self.path).absolute()
            make_directory(file.parent)
            warn_if_open(file)
            # SQLite creates its WAL and other files with the permissions of the database file, so create that with the
            # right ones.
            make_file(file)
            self._make(schema)
            self._identity = self._found()

    def _make(self, schema: str) -> None:
        """Create the tables. Calls are retried by their callers; an opening is not, so it waits longer for a lock."""
        end = time.monotonic() + _OPEN_SECONDS
        while True:
            try:
                with self.lend() as connection:
                    connection.execute(schema)
                return
            except sqlite3.OperationalError as failure:
                code = getattr(failure, "sqlite_errorcode", None)
                if code is None or code & 0xFF not in _LOCKED_CODES or time.monotonic() > end:
                    raise
            # SQLite's busy timeout does not cover every lock.
            time.sleep(_PAUSE_SECONDS)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            end = time.monotonic() + self._busy_seconds
            while True:
                try:
                    connection.execute("PRAGMA journal_mode=WAL")
                    break
                except sqlite3.OperationalError:
                    # Changing the journal mode does not wait for the lock as statements do.
                    if time.monotonic() > end:
                        raise
                    time.sleep(_MODE_PAUSE)
            connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def lend(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection for the block; discarded when the block raises."""
        return _Lent(self)

    def _take(self) -> sqlite3.Connection | None:
        with self._free:
            if self.forking:
                self._free.wait_for(lambda: not self.forking)
            if self._closed:
                raise Determinate(f"sqlite {self.path}: the handle is closed")
            if _forks.inherited:
                raise Determinate(
                    f"sqlite {self.path}: this process was forked while a statement of another thread was under way, "
                    "so SQLite cannot be used in it",
                    hint="Start processes with multiprocessing's method 'spawn' or 'forkserver'.",
                )
            self._lent += 1
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: sqlite3.Connection | None, *, reusable: bool) -> None:
        with self._free:
            try:
                if connection is None:
                    return
                if reusable and not (self._closed or self.forking):
                    self._idle.append(connection)
                else:
                    connection.close()
            finally:
                self._lent -= 1
                self._free.notify_all()

    def prepare_fork(self, end: float) -> bool:
        """Close all connections, lent ones when they are returned, by the time ``end``; none are lent meanwhile.
        Whether none is open then.
        """
        with self._free:
            self.forking = True
        self._interrupt()
        with self._free:
            idle, self._idle = self._idle, []
            for connection in idle:
                connection.close()
            return self._free.wait_for(lambda: not self._lent, max(0.0, end - time.monotonic()))

    def forked(self, *, child: bool) -> None:
        """Lend connections again, in parent or child."""
        if child:
            # A thread that does not exist in the child may have held the lock at the fork.
            self._free = threading.Condition(threading.Lock())
            self._lent = 0
            self.forking = False
            self._renew()
            return
        with self._free:
            self.forking = False
            self._free.notify_all()

    def guard(self, act: str) -> AbstractContextManager[None]:
        """Turn SQLite's errors in the block into location errors; ``act`` names the operation.

        Raises:
            Determinate: the operation had no effect, by SQLite's code or the operating system's error.
            Indeterminate: SQLite's code leaves open whether it had one.
        """
        return _Guard(self.path, act)

    def run(self, act: str, statement: str, *parameters: Any) -> tuple[int, list[Any]]:
        """Run one statement in its own transaction; the number of rows changed, and the rows returned."""
        done = False
        try:
            with self.guard(act):
                self._check_there(act, Determinate)
                with self.lend() as connection:
                    cursor = connection.execute(statement, parameters)
                    rows = cursor.fetchall()
                self._check_there(act, Indeterminate)
            done = True
        finally:
            attempted(succeeded=done)
        return cursor.rowcount, rows

    def _found(self) -> tuple[int, int] | None:
        """Device and inode of the file at the path; None where there is none."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - twice a statement
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _check_there(self, act: str, kind: type[LocationError]) -> None:
        """Check that the path still has the file that was opened: a commit to a removed file is lost."""
        if self._found() != self._identity:
            raise kind(
                f"sqlite {self.path}: cannot {act}: the file was removed or replaced since it was opened",
                hint="Put the file back, or close everything that has it open before it is exchanged.",
            )

    def close(self) -> None:
        """Close the idle connections; lent ones are closed when they are returned."""
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in idle:
                connection.close()


class _Lent:
    """See `Database.lend`. It and `_Guard` are classes, as every statement reads the catalog, and a generator costs three
    times as much.
    """

    __slots__ = ("_connection", "_database")

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        database = self._database
        connection = database._take()
        if connection is None:
            try:
                connection = database._connect()
            except BaseException:
                database._give_back(None, reusable=False)
                raise
        self._connection = connection
        return connection

    def __exit__(self, kind: object, *_: object) -> None:
        self._database._give_back(self._connection, reusable=kind is None)


class _Guard:
    """See `Database.guard`."""

    __slots__ = ("_act", "_path")

    def __init__(self, path: str, act: str) -> None:
        self._path, self._act = path, act

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, failure: BaseException | None, *_: object) -> None:
        if isinstance(failure, sqlite3.Error):
            code = getattr(failure, "sqlite_errorcode", None)
            primary = None if code is None else code & 0xFF
            found: type[LocationError] = (
                Determinate if primary in _DETERMINATE_CODES else Indeterminate
            )
            raise found(f"sqlite {self._path}: cannot {self._act}: {failure}") from failure
        if isinstance(failure, OSError):
            raise Determinate(f"sqlite {self._path}: cannot {self._act}: {failure}") from failure


class _Forks:
    """Coordinates this process's databases with forks."""

    def __init__(self) -> None:
        self._databases: weakref.WeakSet[Database] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._left_open = False
        self.inherited = False
        """Whether a connection was open when this process was made by a fork."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before,
                after_in_parent=self._after_in_parent,
                after_in_child=self._after_in_child,
            )

    def add(self, database: Database) -> None:
        with self._lock:
            self._databases.add(database)

    def _before(self) -> None:
        self._lock.acquire()
        end = time.monotonic() + _FORK_SECONDS
        self._left_open = True
        closed = [one.prepare_fork(end) for one in list(self._databases)]
        self._left_open = not all(closed)

    def _after_in_parent(self) -> None:
        for database in list(self._databases):
            database.forked(child=False)
        self._lock.release()

    def _after_in_child(self) -> None:
        self.inherited = self.inherited or self._left_open
        for database in list(self._databases):
            database.forked(child=True)
        self._lock.release()


_forks = _Forks()
