"""DuckDB for peeks: a database in memory for the small ones, one for wide statements, and for each large query one on disk.

Promise: a statement runs over Arrow tables, and its rows come a piece at a time, as they are asked for; queries run side by side and see
each other's relations never. A statement that is cancelled or late ends DuckDB's work. Inputs that are too large for memory are copied
into a database file as they come, and what the statement then needs beyond `LARGE_BYTES` is on disk too, until it ends. The trade-off:
opening a database costs more than most queries, so the one in memory stays open, and idle connections to it are kept for the next query.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from mzsql.compute.engines import recursion
from mzsql.expr.engines import WIDE_SETTINGS, is_wide, locked_connection
from mzsql.repr.errors import InternalError
from mzsql.repr.interrupt import Interrupt, current

#: So many idle connections are kept.
_IDLE = 16
#: Rows of a piece: its texts have to fit Arrow's arrays, 2 GiB for each column.
PIECE_ROWS = 2048
#: A large query has so much memory; the rest of what it works on is on disk.
LARGE_BYTES = 256 * 1024 * 1024


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
        connection = self._take(wide=wide)
        whole = False
        try:
            for name, table in relations.items():
                connection.register(name, table)
            yield from _run(connection, statement, loops, interrupt)
            for name in relations:
                connection.unregister(name)
            for name in recursion.tables(loops):
                connection.execute(f'DROP TABLE IF EXISTS "{name}"')
            whole = True
        finally:
            if whole:
                self._give_back(connection, wide=wide)
            else:
                # What ended half way may have left something behind.
                connection.close()

    def large(
        self,
        statement: str,
        relations: Mapping[str, pa.Table | pa.RecordBatchReader],
        loops: Sequence[recursion.LoopText] = (),
    ) -> Iterator[pa.Table]:
        """As `pieces`, over relations of any size.

        Raises:
            what the readers among ``relations`` raise.
        """
        interrupt = current()
        interrupt.check()
        with tempfile.TemporaryDirectory(prefix="mzsql-query-", ignore_cleanup_errors=True) as made:
            settings = {"memory_limit": f"{LARGE_BYTES >> 20}MiB", "temp_directory": made}
            if is_wide(statement):
                settings |= WIDE_SETTINGS
            with locked_connection(str(Path(made) / "inputs.duckdb"), settings) as connection:
                for name, rows in relations.items():
                    _copy(connection, name, rows, interrupt)
                yield from _run(connection, statement, loops, interrupt)

    def _take(self, *, wide: bool) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._closed:
                raise InternalError("the engine of small queries was closed")
            if self._idle[wide]:
                return self._idle[wide].pop()
            if wide not in self._databases:
                if self._scratch is None:
                    self._scratch = tempfile.TemporaryDirectory(
                        prefix="mzsql-queries-", ignore_cleanup_errors=True
                    )
                settings = {"temp_directory": self._scratch.name}
                if wide:
                    settings |= WIDE_SETTINGS
                self._databases[wide] = locked_connection(settings=settings)
            return self._databases[wide].cursor()

    def _give_back(self, connection: duckdb.DuckDBPyConnection, *, wide: bool) -> None:
        with self._lock:
            if not self._closed and len(self._idle[wide]) < _IDLE:
                self._idle[wide].append(connection)
                return
        connection.close()

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


def _run(
    connection: duckdb.DuckDBPyConnection,
    statement: str,
    loops: Sequence[recursion.LoopText],
    interrupt: Interrupt,
) -> Iterator[pa.Table]:
    try:
        with interrupt.on_interrupt(connection.interrupt):
            recursion.run(connection, loops, interrupt.check)
            reader = connection.sql(statement).to_arrow_reader(PIECE_ROWS)
            first = pa.Table.from_batches(_next(reader), reader.schema)
        yield first
        while True:
            with interrupt.on_interrupt(connection.interrupt):
                batches = _next(reader)
            if not batches:
                return
            yield pa.Table.from_batches(batches, reader.schema)
    except GeneratorExit:
        raise
    except BaseException:
        # Interrupted work fails in DuckDB's words.
        interrupt.check()
        raise


def _next(reader: pa.RecordBatchReader) -> list[pa.RecordBatch]:
    """The next batch of a reader; nothing at its end."""
    try:
        return [reader.read_next_batch()]
    except StopIteration:
        return []


def _copy(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    rows: pa.Table | pa.RecordBatchReader,
    interrupt: Interrupt,
) -> None:
    """Copy a relation into a table; what its reader fails with is raised as it is."""
    failures: list[BaseException] = []

    def watched(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                interrupt.check()
                yield batch
        except BaseException as failure:
            failures.append(failure)
            raise

    given = rows
    if isinstance(rows, pa.RecordBatchReader):
        given = pa.RecordBatchReader.from_batches(rows.schema, watched(rows))
    connection.register("mz_copied", given)
    try:
        with interrupt.on_interrupt(connection.interrupt):
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM mz_copied')
    except BaseException:
        if failures:
            raise failures[0] from None
        interrupt.check()
        raise
    finally:
        connection.unregister("mz_copied")
