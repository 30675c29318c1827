"""Cursors: PEP 249 over a connection's statements, and over streaming results.

Promise: fetching from a SUBSCRIBE waits for rows, and the connection can run other statements meanwhile. Closing the cursor, running
another statement on it, or closing the connection ends the subscription.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mzsql.adapter.session.session import Session
from mzsql.adapter.statements.copy_to import CopyOut
from mzsql.adapter.statements.result import Result
from mzsql.adapter.subscribe.subscription import Subscription
from mzsql.compute.peek.rows import as_columns
from mzsql.dbapi import arguments
from mzsql.dbapi.copying import Copy
from mzsql.dbapi.errors import (
    Error,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
    user_errors,
)
from mzsql.dbapi.values import python_column
from mzsql.frontend import parse_statements
from mzsql.frontend.parse.statements import CopyFrom, CopyTo
from mzsql.repr.tables import piece
from mzsql.repr.types import RelationDesc, type_name

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from mzsql.spark import MzSpark

Parameters = Sequence[object] | Mapping[str, object] | None
Row = tuple[Any, ...]

#: At least so many rows of a result are converted to Python objects at a time.
PIECE_ROWS = 4096

Description = tuple[str, str, None, None, int | None, int | None, bool]


class Connected(Protocol):
    """A connection as its cursors use it, and as `Cursor.connection` returns it."""

    _lock: threading.RLock
    _session: Session

    autocommit: bool

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    @property
    def spark(self) -> MzSpark:
        """The connection's Spark session with mzsql's relations in it."""

    def cursor(self) -> Cursor:
        """A new cursor."""

    def commit(self) -> None:
        """Commit the open transaction, if any."""

    def rollback(self) -> None:
        """Roll back the open transaction, if any."""

    def cancel(self) -> None:
        """Cancel the statement that another thread runs on this connection."""

    def close(self) -> None:
        """Close the connection. Idempotent."""

    def run(self, sql: str, params: Parameters, stdin: Path | None = None) -> list[Result]:
        """Run statements; the result of each."""

    def follow(self, stream: Subscription) -> None:
        """End a subscription with the connection at the latest."""


class Cursor:
    """Runs statements, and holds the last result."""

    def __init__(self, connection: Connected) -> None:
        # No isinstance: importing the connection's module here would be circular.
        if not hasattr(connection, "_session"):
            arguments.refuse("connection", "a connection; call its cursor()", connection)
        self._connection = connection
        self._arraysize = 1
        self._result: Result | None = None
        # Rows are converted to Python objects in pieces, since those take many times the memory.
        self._rows: list[Row] = []
        # The Arrow table that `_rows` was converted from.
        self._batch: pa.Table | None = None
        self._at = 0
        # How many rows of the result have been converted so far.
        self._made = 0
        self._closed = False
        self._stream: Subscription | None = None

    @property
    def connection(self) -> Connected:
        """The connection that made it."""
        return self._connection

    @property
    def arraysize(self) -> int:
        """How many rows `fetchmany` returns by default."""
        return self._arraysize

    @arraysize.setter
    def arraysize(self, value: int) -> None:
        self._arraysize = arguments.whole(value, "arraysize", 1)

    # --- running ------------------------------------------------------------------------------

    def execute(self, operation: str, parameters: Parameters = None) -> Cursor:
        """Run one or several statements; the last one's result is kept.

        Args:
            operation: SQL; with parameters, ``%s`` or ``%(name)s`` are placeholders, and ``%%`` is a percent sign.
            parameters: a sequence or a mapping.

        Returns:
            This cursor.

        Raises:
            ProgrammingError: the statement cannot be parsed or planned, names something unknown, or is a COPY from or to the client (see
                `copy`); or an argument has the wrong type.
            DataError: the statement fails on a value, as for a division by zero.
            IntegrityError: it violates a constraint.
            NotSupportedError: mzsql does not support it.
            OperationalError: a store fails, the statement times out or is canceled, or its result is too large.
            InterfaceError: the cursor or its connection is closed.
            InternalError: a bug of mzsql.
        """
        self._check_open()
        # A plain str, which nearly all are, needs no look; of another class it is made one, so that no code of it runs further on.
        if type(operation) is not str:
            operation = arguments.statement(operation)
        parameters = arguments.parameters(parameters)
        self._reset()
        results = self.connection.run(operation, parameters)
        if any(result.copy is not None for result in results):
            for result in results:
                result.close()
            raise ProgrammingError(
                "COPY … TO STDOUT cannot be used with this method; use copy() instead",
                sqlstate="0A000",
            )
        for result in results[:-1]:
            result.close()
        self._result = results[-1] if results else None
        self._stream = None if self._result is None else self._result.stream
        if self._stream is not None:
            self.connection.follow(self._stream)
        return self

    def copy(self, operation: str, parameters: Parameters = None) -> Copy:
        """Run COPY … TO STDOUT or COPY … FROM STDIN, with a context manager as psycopg's.

        ``with cur.copy("COPY t TO STDOUT") as copy: for data in copy: …`` gives bytes. ``with cur.copy("COPY t FROM STDIN") as copy:
        copy.write(data)`` or ``copy.write_row(values)`` loads everything when the block ends without an exception, and nothing otherwise.
        """
        self._check_open()
        operation = arguments.statement(operation)
        parameters = arguments.parameters(parameters)
        self._reset()
        return Copy(self, operation, parameters)

    def takes_data(self, operation: str) -> bool:
        """Whether a text is a COPY … FROM STDIN. For `Copy`."""
        operation = arguments.statement(operation)
        with user_errors():
            statements = parse_statements(operation)
        return any(isinstance(s, CopyFrom) and s.path is None for s in statements)

    def is_copy(self, operation: str) -> bool:
        """Whether a text has a COPY … TO STDOUT or FROM STDIN, which `copy` runs; False for a text that cannot be parsed."""
        operation = arguments.statement(operation)
        try:
            with user_errors():
                statements = parse_statements(operation)
        except Error:
            return False  # running it will say what is wrong
        return any(isinstance(s, CopyFrom | CopyTo) and s.path is None for s in statements)

    @property
    def streams(self) -> bool:
        """Whether the last statement was a SUBSCRIBE."""
        return self._stream is not None

    def close_result(self) -> None:
        """Release the last result, and end its SUBSCRIBE; the cursor stays open."""
        self._reset()

    def run_copy(
        self, operation: str, parameters: Parameters, stdin: Path | None
    ) -> CopyOut | None:
        """Run a COPY; its output, if it has any. For `Copy`."""
        self._check_open()
        results = self.connection.run(operation, parameters, stdin)
        taken = results[-1] if results and results[-1].copy is not None else None
        for result in results:
            if result is not taken:
                result.close()
        self._result = results[-1] if results else None
        if self._result is None or taken is None:
            return None
        if self._result.stream is not None:
            self.connection.follow(self._result.stream)
        return self._result.copy

    def _reset(self) -> None:
        """Release the last result; a subscription ends."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._result = None
        self._begin([], None)
        self._made = 0

    def _begin(self, rows: list[Row], batch: pa.Table | None) -> None:
        """Set the rows to return next."""
        self._rows, self._batch, self._at = rows, batch, 0

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Cursor:
        """Run a statement for each set of parameters; as one transaction where none is open and the statement writes."""
        self._check_open()
        operation = arguments.statement(operation)
        sets = arguments.sets_of_parameters(seq_of_parameters)
        # Threads may share the connection: no other thread's statement must get into this transaction.
        with self.connection._lock:
            return self._execute_each(operation, sets)

    def _execute_each(self, operation: str, sets: Sequence[Parameters]) -> Cursor:
        total = 0
        connection = self.connection
        alone = connection.autocommit and not connection.in_transaction and len(sets) > 1
        if alone:
            connection.run("BEGIN", None)
        try:
            for parameters in sets:
                self.execute(operation, parameters)
                total += max(self.rowcount, 0)
        except BaseException:
            if alone and not connection.closed:  # closing gives the transaction up itself
                connection.rollback()
            raise
        if alone:
            connection.commit()
        self._result = Result(f"MANY {total}", count=total)
        return self

    def callproc(self, procname: str, parameters: Sequence[object] = ()) -> None:
        """Always refuse: there are no stored procedures.

        Raises:
            NotSupportedError: always.
        """
        arguments.text(procname, "procname")
        arguments.parameters(parameters)
        raise NotSupportedError(f"there are no stored procedures: {procname}", sqlstate="0A000")

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Do nothing, as PEP 249 allows."""
        self._check_open()
        if not isinstance(sizes, Sequence) or isinstance(sizes, str | bytes | bytearray):
            arguments.refuse("sizes", "a sequence", sizes)

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""
        self._check_open()
        arguments.whole(size, "size", 0)
        if column is not None:
            arguments.whole(column, "column", 0)

    # --- results ------------------------------------------------------------------------------

    @property
    def description(self) -> list[Description] | None:
        """For each column: name, type, precision, scale and nullability; None without a result."""
        if self._result is None or self._result.desc is None:
            return None
        found: list[Description] = []
        desc = self._result.desc
        for name, column in zip(desc.names, desc.typ.columns, strict=True):
            numeric = column.type.kind == "numeric"
            precision = 38 if numeric else None
            scale = column.type.scale if numeric else None
            code = type_name(column.type).partition("(")[0]
            found.append((name, code, None, None, precision, scale, column.nullable))
        return found

    @property
    def rowcount(self) -> int:
        """How many rows the last statement returned or changed; -1 where neither applies."""
        return -1 if self._result is None else self._result.count

    @property
    def statusmessage(self) -> str | None:
        """The last statement's command tag, such as ``INSERT 0 1``."""
        return None if self._result is None else self._result.tag

    @property
    def timestamp(self) -> int | None:
        """The timestamp of the last query in milliseconds; None for one that reads nothing with times."""
        return None if self._result is None else self._result.ts

    def _from_result(self, wanted: int) -> bool:
        """Convert rows of the result, about ``wanted``; False at its end."""
        self._check_open()
        result = self._result
        if result is None or result.rows is None or result.desc is None:
            raise self._no_rows()
        if self._at < len(self._rows):
            return True
        rows = piece(result.rows, self._made, max(PIECE_ROWS, wanted))
        self._begin(_python_rows(rows, result.desc), rows)
        self._made += rows.num_rows
        return bool(self._rows)

    def _take(self, wanted: int | None) -> list[Row]:
        """Remove and return up to ``wanted`` of the converted rows; None: all."""
        start = self._at
        self._at = len(self._rows) if wanted is None else min(len(self._rows), start + wanted)
        return self._rows[start : self._at]

    def _next_table(self, stream: Subscription, timeout: float | None) -> pa.Table | None:
        """A subscription's next rows; the connection is not locked meanwhile."""
        with user_errors():
            return stream.next_batch(timeout)

    def _from_stream(self, stream: Subscription, timeout: float | None) -> bool:
        """Wait for rows of the subscription; False at its end or after ``timeout`` seconds."""
        self._check_open()
        if self._at < len(self._rows):
            return True
        table = self._next_table(stream, timeout)
        self._begin([] if table is None else _python_rows(table, stream.desc), table)
        return bool(self._rows)

    def _rest_of_batch(self) -> pa.Table | None:
        """The rows of the current batch that were not returned yet, which then count as returned."""
        batch, at = self._batch, self._at
        self._begin([], None)
        return None if batch is None or at >= batch.num_rows else piece(batch, at)

    @staticmethod
    def _no_rows() -> ProgrammingError:
        return ProgrammingError("the last statement has no rows to fetch", sqlstate="24000")

    def fetchone(self) -> Row | None:
        """The next row, or None at the end. Waits for a row of a SUBSCRIBE."""
        stream = self._stream
        if not (self._from_result(1) if stream is None else self._from_stream(stream, None)):
            return None
        (row,) = self._take(1)
        return row

    def fetchmany(self, size: int | None = None, *, timeout: float | None = None) -> list[Row]:
        """The next ``size`` rows (`arraysize` by default).

        From a SUBSCRIBE it waits for one row (at most ``timeout`` seconds) and returns what else is there, in all about as many bytes as
        ``max_query_result_size``. An empty list: it has ended, or the timeout expired (`Cursor.ended` tells which).
        """
        wanted = self.arraysize if size is None else arguments.whole(size, "size", 0)
        timeout = arguments.seconds(timeout, "timeout")
        found: list[Row] = []
        if self._stream is None:
            more = self._from_result(wanted)
            while more and len(found) < wanted:
                found += self._take(wanted - len(found))
                more = len(found) < wanted and self._from_result(wanted - len(found))
            return found
        size, limit = 0, self.connection._session.result_size
        while (
            len(found) < wanted
            and size < limit
            and self._from_stream(self._stream, 0.0 if found else timeout)
        ):
            size += self._left_bytes()
            found += self._take(wanted - len(found))
        return found

    def _left_bytes(self) -> int:
        """The bytes of the rows that were not returned yet."""
        return 0 if self._batch is None else int(piece(self._batch, self._at).nbytes)

    @property
    def ended(self) -> bool:
        """Whether the last result has no more rows; for a SUBSCRIBE, whether none will ever come."""
        if self._stream is not None:
            return self._stream.closed and self._at >= len(self._rows)
        if self._at < len(self._rows):
            return False
        rows = None if self._result is None else self._result.rows
        return rows is None or self._made >= rows.num_rows

    def arrow_batches(self) -> Iterator[pa.Table]:
        """The result as Arrow tables: of a SUBSCRIBE what was not fetched yet, until it ends; of any other result its only table."""
        if self._stream is None:
            yield self._table()
            return
        stream = self._stream
        if (rest := self._rest_of_batch()) is not None:
            yield rest
        while (table := self._next_table(stream, None)) is not None:
            yield table

    def fetchall(self) -> list[Row]:
        """All remaining rows; of a SUBSCRIBE all until it ends (UP TO), at most as many bytes as a result may have."""
        found: list[Row] = []
        if self._stream is None:
            while self._from_result(PIECE_ROWS):
                found += self._take(None)
            return found
        size = 0
        while self._from_stream(self._stream, None):
            size += self._left_bytes()
            found += self._take(None)
            self._check_size(len(found), size)
        return found

    def _check_size(self, rows: int, size: int) -> None:
        with user_errors():
            self.connection._session.check_size(rows, size)

    def __iter__(self) -> Iterator[Row]:
        while (row := self.fetchone()) is not None:
            yield row

    def _table(self) -> pa.Table:
        self._check_open()
        if self._stream is not None:
            found, rows, size = [self._stream.no_rows()], 0, 0
            for one in self.arrow_batches():
                found.append(one)
                rows, size = rows + one.num_rows, size + one.nbytes
                self._check_size(rows, size)
            return pa.concat_tables(found)
        if self._result is None or self._result.rows is None:
            raise self._no_rows()
        if self._result.desc is None:
            return self._result.rows
        with user_errors():
            return as_columns(self._result.rows, self._result.desc)

    def arrow(self) -> pa.Table:
        """The whole result as an Arrow table."""
        return self._table()

    def pandas(self) -> pd.DataFrame:
        """The whole result as a pandas frame."""
        return self._table().to_pandas()

    def df(self) -> DataFrame:
        """The whole result as a Spark DataFrame."""
        from mzsql.compute.engines.relations import arrow_frame  # noqa: PLC0415

        return arrow_frame(self.connection.spark.session, self._table())

    # --- end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the cursor; its result is gone, and a SUBSCRIBE ends. Idempotent."""
        self._closed = True
        self._reset()

    def __del__(self) -> None:
        # After a `break` in a loop over a SUBSCRIBE nobody closes it: its read holds must end with the cursor.
        stream: Subscription | None = getattr(self, "_stream", None)
        if stream is not None:
            stream.close()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        if self.connection.closed:
            raise InterfaceError("the connection is closed")


def _python_rows(table: pa.Table, desc: RelationDesc) -> list[Row]:
    columns = [
        python_column(column, typ.type)
        for column, typ in zip(table.columns, desc.typ.columns, strict=True)
    ]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
