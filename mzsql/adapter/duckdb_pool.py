"""DuckDB for a process's peeks: one database in memory, a connection for each query that runs.

Promise: `query` runs a statement over Arrow tables; queries run side by side and see each other's relations never. A statement that is
cancelled or late ends DuckDB's work. The trade-off: opening a database costs more than most queries, so it stays open, and idle
connections to it are kept for the next query.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from mzsql.adapter.interrupt import current
from mzsql.compute import recursion
from mzsql.expr.engines import duckdb_connection
from mzsql.repr.errors import InternalError

#: So many idle connections are kept.
_IDLE = 16


class DuckDbPool:
    """One DuckDB database and its connections. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database: duckdb.DuckDBPyConnection | None = None
        self._idle: list[duckdb.DuckDBPyConnection] = []
        self._closed = False

    def query(
        self,
        statement: str,
        relations: Mapping[str, pa.Table],
        loops: Sequence[recursion.LoopText] = (),
    ) -> pa.Table:
        """The statement's result over the given relations, and over what the recursions `loops` come to.

        Raises:
            DataError: a recursion reached a limit that is an error.
            QueryCanceled: the statement that this thread runs was cancelled, or its time was over.
        """
        interrupt = current()
        interrupt.check()
        connection = self._take()
        try:
            for name, table in relations.items():
                connection.register(name, table)
            with interrupt.on_interrupt(connection.interrupt):
                recursion.run(connection, loops, interrupt.check)
                result = connection.sql(statement).to_arrow_table()
            for name in relations:
                connection.unregister(name)
            for name in recursion.tables(loops):
                connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        except BaseException:
            # What ended half way may have left something behind.
            connection.close()
            interrupt.check()
            raise
        self._give_back(connection)
        return result

    def _take(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._closed:
                raise InternalError("the engine of small queries was closed")
            if self._idle:
                return self._idle.pop()
            if self._database is None:
                self._database = duckdb_connection()
            connection = self._database.cursor()
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def _give_back(self, connection: duckdb.DuckDBPyConnection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the database; no query runs any more. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            database, self._database = self._database, None
        for connection in idle:
            connection.close()
        if database is not None:
            database.close()
