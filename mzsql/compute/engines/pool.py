"""DuckDB for small peeks: a database in memory, and one for wide statements.

Promise: a statement runs over Arrow tables, and its rows come a piece at a time, as they are asked for; queries run side by side and see
each other's relations never. A statement that is cancelled or late ends DuckDB's work. The trade-off: opening a database costs more
than most queries, so the one in memory stays open, and idle connections to it are kept for the next query. What is not small is
`mzsql.compute.peek.files`'s.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from mzsql.compute.engines import recursion
from mzsql.compute.engines.pieces import pieces
from mzsql.expr.engines import WIDE_SETTINGS, is_wide, locked_connection
from mzsql.repr.errors import InternalError
from mzsql.repr.interrupt import current

#: So many idle connections are kept.
_IDLE = 16


class DuckDbPool:
    """DuckDB's databases and their connections. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By whether statements are wide: an optimizer's settings are those of a database.
        self._databases: dict[bool, duckdb.DuckDBPyConnection] = {}
        self._idle: dict[bool, list[duckdb.DuckDBPyConnection]] = {False: [], True: []}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._closed = False

    def query(self, statement: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """As `pieces`, the whole result."""
        return pa.concat_tables(self.pieces(statement, relations))

    def pieces(
        self,
        statement: str,
        relations: Mapping[str, pa.Table],
        loops: Sequence[recursion.LoopText] = (),
    ) -> Iterator[pa.Table]:
        """The statement's result over the given relations, and over what the recursions `loops` come to: at least one piece.

        Raises:
            DataError: a recursion reached a limit that is an error.
            QueryCanceled: the statement that this thread runs was cancelled, or its time was over.
        """
        interrupt = current()
        interrupt.check()
        wide = is_wide(statement)
        database, connection = self._take(wide=wide)
        whole = False
        try:
            for name, table in relations.items():
                connection.register(name, table)
            yield from pieces(connection, statement, loops, interrupt)
            for name in relations:
                connection.unregister(name)
            for name in recursion.tables(loops):
                connection.execute(f'DROP TABLE IF EXISTS "{name}"')
            whole = True
        except duckdb.IOException:
            # Where it spills to may have been removed: the next query is to have a database that spills elsewhere.
            self._leave(database, wide=wide)
            raise
        finally:
            if whole:
                self._give_back(database, connection, wide=wide)
            else:
                # What ended half way may have left something behind.
                connection.close()

    def _take(self, *, wide: bool) -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
        """A database, and a connection to it."""
        with self._lock:
            if self._closed:
                raise InternalError("the engine of small queries was closed")
            if wide not in self._databases:
                if self._scratch is None:
                    self._scratch = tempfile.TemporaryDirectory(
                        prefix="mzsql-queries-", ignore_cleanup_errors=True
                    )
                # Below the directory, which is nobody else's: one that was removed DuckDB would make anew for everybody to look into.
                settings = {"temp_directory": str(Path(self._scratch.name) / "spilled")}
                if wide:
                    settings |= WIDE_SETTINGS
                self._databases[wide] = locked_connection(settings=settings)
            database, idle = self._databases[wide], self._idle[wide]
            return database, idle.pop() if idle else database.cursor()

    def _give_back(
        self,
        database: duckdb.DuckDBPyConnection,
        connection: duckdb.DuckDBPyConnection,
        *,
        wide: bool,
    ) -> None:
        with self._lock:
            here = self._databases.get(wide) is database
            if not self._closed and here and len(self._idle[wide]) < _IDLE:
                self._idle[wide].append(connection)
                return
        connection.close()

    def _leave(self, database: duckdb.DuckDBPyConnection, *, wide: bool) -> None:
        """Use a database no more; it goes with the last query that runs on it."""
        with self._lock:
            if self._databases.get(wide) is not database:
                return
            del self._databases[wide]
            gone, self._idle[wide] = [database, *self._idle[wide]], []
            if self._scratch is not None and not Path(self._scratch.name).is_dir():
                self._scratch = None
        for one in gone:
            one.close()

    def close(self) -> None:
        """Close the database; no query runs any more. Idempotent."""
        with self._lock:
            self._closed = True
            open_now = [*self._idle[False], *self._idle[True], *self._databases.values()]
            self._idle = {False: [], True: []}
            self._databases = {}
            scratch, self._scratch = self._scratch, None
        for connection in open_now:
            connection.close()
        if scratch is not None:
            scratch.cleanup()
