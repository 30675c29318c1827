"""A connection to the server, and prepared statements on it.

Promise: a statement is prepared once per connection and then costs one round trip, with parameters and results in
binary form. A response is awaited not much longer than the server may take, whatever network and server do. Each
failure says whether the statement may have been executed. Trade-off: this drives libpq through `psycopg.pq` instead of
a cursor, which waits without limit and adds about half of the server's time to a small statement.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import struct
import threading
import time
import traceback
import weakref
from collections.abc import Sequence
from typing import Any

import psycopg
from prometheus_client import Counter
from psycopg import pq

from mzsql_postgres.failures import Failed, Outlook, OutOfTime, refused, reported
from mzsql_postgres.options import Options

TEXT, INT8, BYTEA, TEXT_ARRAY, INT8_ARRAY = 25, 20, 17, 1009, 1016

STATEMENTS = Counter(
    "mzsql_postgres_statements",
    "Statements sent to PostgreSQL by the Consensus and the timestamp oracle",
    ("operation",),
)

_INT8 = struct.Struct("!q")
_GRACE_SECONDS = 3.0
_OK = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)
_READABLE = select.POLLIN | select.POLLERR | select.POLLHUP
_NAMES = threading.Lock()
_named = 0

_logger = logging.getLogger("mzsql_postgres")

Value = bytes | None
Row = tuple[Value, ...]


def int8(value: int) -> bytes:
    """A bigint in PostgreSQL's binary form."""
    return _INT8.pack(value)


def from_int8(value: bytes) -> int:
    """The inverse of `int8`."""
    number: int = _INT8.unpack(value)[0]
    return number


def text_array(values: Sequence[str]) -> bytes:
    """A text array in PostgreSQL's binary form."""
    return _array(TEXT, [value.encode() for value in values])


def int8_array(values: Sequence[int]) -> bytes:
    """A bigint array in PostgreSQL's binary form."""
    return _array(INT8, [int8(value) for value in values])


def _array(element: int, values: Sequence[bytes]) -> bytes:
    if not values:
        return struct.pack("!iii", 0, 0, element)
    head = struct.pack("!iiiii", 1, 0, element, len(values), 1)
    return head + b"".join(struct.pack("!i", len(value)) + value for value in values)


class Statement:
    """A statement with parameters ``$1``, ….

    Args:
        operation: its label in the metric.
        text: the SQL.
        types: the parameters' types, as OIDs.
        reads: whether it changes nothing, so that a lost response does no harm.
        name: the name to prepare it under; by default one is given at first use.
    """

    def __init__(
        self,
        operation: str,
        text: str,
        types: Sequence[int] = (),
        *,
        reads: bool = False,
        name: str | None = None,
    ) -> None:
        global _named  # noqa: PLW0603 - names are apart in a process, as connections outlive handles
        with _NAMES:
            _named += 1
            self.name = (name or f"mzsql_{_named}").encode()
        self.text = text.encode()
        self.types = tuple(types)
        self.reads = reads
        self.formats = (pq.Format.BINARY,) * len(self.types)
        self.counted = STATEMENTS.labels(operation)


class Answer:
    """The response to a statement: its rows, and the number of affected rows."""

    __slots__ = ("_result",)

    def __init__(self, result: pq.abc.PGresult) -> None:
        self._result = result

    @property
    def rows(self) -> list[Row]:
        """All rows, with values in binary form."""
        result = self._result
        value, columns = result.get_value, range(result.nfields)
        return [tuple([value(row, c) for c in columns]) for row in range(result.ntuples)]

    @property
    def touched(self) -> int:
        """The number of rows inserted, updated, deleted or returned."""
        return self._result.command_tuples or 0


class Session:
    """A connection, used by one thread at a time. Made by `open_session`."""

    def __init__(self, connection: psycopg.Connection[Any], options: Options) -> None:
        self._connection = connection
        self.pgconn = connection.pgconn
        self._options = options
        self._prepared: set[bytes] = set()
        self._poll = select.poll()
        self._owed = False
        # The server's own timeout comes first, with an error.
        self._answer_seconds = options.limits.statement_timeout + _GRACE_SECONDS
        self.end = float("inf")
        """When whoever has it lent stops waiting for answers, on the monotonic clock."""
        self.place = f"postgres {options.place}"
        self.pid = os.getpid()
        self.used = time.monotonic()
        self.retire = float("inf")
        _sessions.add(self)

    @property
    def is_cockroach(self) -> bool:
        """Whether the server is CockroachDB."""
        return bool(self.pgconn.parameter_status(b"crdb_version"))

    @property
    def closed(self) -> bool:
        """Whether it is unusable: closed, lost, or another process's."""
        return self.pid != os.getpid() or self._connection.closed

    @property
    def user(self) -> str:
        """The user name on the server."""
        return self.pgconn.user.decode()

    def fileno(self) -> int:
        """The socket, for `select.poll`."""
        return self.pgconn.socket

    def run(self, statement: Statement, values: Sequence[Value]) -> Answer:
        """The response to a statement. Call `settle` before the first of a series.

        Args:
            statement: the statement.
            values: its parameters.

        Raises:
            Failed: it failed.
        """
        if self._owed:
            self.settle()
        try:
            if statement.name not in self._prepared:
                self.pgconn.send_prepare(statement.name, statement.text, statement.types or None)
                statement.counted.inc()
                self._results(Outlook.PASSING)
                self._prepared.add(statement.name)
            statement.counted.inc()
            self.pgconn.send_query_prepared(
                statement.name,
                values or None,
                statement.formats or None,
                result_format=pq.Format.BINARY,
            )
            return Answer(self._results(Outlook.DOUBTFUL))
        except psycopg.Error as failure:
            raise self._broken(failure, Outlook.PASSING) from failure
        except Failed:
            raise
        except BaseException:
            # After an interrupt the response is still to come; nobody else may receive it.
            self.close()
            raise

    def script(self, text: str) -> Answer:
        """Run statements without parameters in one transaction; returns the last one's response.

        Raises:
            Failed: the server refused a statement, or the connection broke; it says whether the statements
                may have had an effect.
        """
        self.settle()
        try:
            self.pgconn.send_query(text.encode())
            return Answer(self._results(Outlook.DOUBTFUL))
        except psycopg.Error as failure:
            raise self._broken(failure, Outlook.PASSING) from failure
        except Failed:
            raise
        except BaseException:
            self.close()
            raise

    def post(self, statement: Statement, values: Sequence[bytes]) -> None:
        """Send a statement without waiting; the next call fetches its response, and reports a failed connection.

        It must have been prepared by `script` under its name.
        """
        try:
            statement.counted.inc()
            self._owed = True
            self.pgconn.send_query_prepared(statement.name, values, statement.formats)
        except psycopg.Error:
            self.close()
        except BaseException:
            self.close()
            raise

    def settle(self) -> None:
        """Fetch the response to a posted statement, and check the connection. A refusal of what was posted is logged.

        Raises:
            Failed: the connection is lost, and nothing was sent on it.
        """
        if self._owed:
            self._owed = False
            try:
                self._results(Outlook.PASSING)
            except Failed as failure:
                if failure.lost:
                    failure.outlook = Outlook.PASSING
                    raise
                _logger.warning("%s: followers were not notified: %s", self.place, failure.message)
            except BaseException:
                self.close()
                raise
        try:
            while self._wait(_READABLE, 0.0):
                # A server that shuts down notifies idle connections.
                self.pgconn.consume_input()
                self.pgconn.is_busy()
        except (psycopg.Error, OSError) as failure:
            raise self._broken(failure, Outlook.PASSING) from failure

    def notified(self) -> list[str]:
        """The payloads of the notifications received. Call `settle` first."""
        found = []
        while notify := self.pgconn.notifies():
            found.append(notify.extra.decode(errors="replace"))
        return found

    def _results(self, outlook: Outlook) -> pq.abc.PGresult:
        """All results of one statement, the last of which counts.

        The commit comes after a result, so an error can follow one.

        Args:
            outlook: the outlook if the connection is lost meanwhile.
        """
        pgconn, last, failed = self.pgconn, None, None
        end = min(time.monotonic() + self._answer_seconds, self.end)
        try:
            while pgconn.flush():
                if self._ready(_READABLE | select.POLLOUT, end, outlook) & _READABLE:
                    pgconn.consume_input()
            while True:
                while pgconn.is_busy():
                    self._ready(_READABLE, end, outlook)
                    pgconn.consume_input()
                result = pgconn.get_result()
                if result is None:
                    break
                if result.status in _OK:
                    last = result
                else:
                    failed = failed or result
        except (psycopg.Error, OSError) as failure:
            raise self._broken(failure, outlook) from failure
        if failed is not None:
            raise self._judged(failed, outlook)
        if last is None or pgconn.status == pq.ConnStatus.BAD:
            raise self._broken(None, outlook)
        return last

    def _judged(self, result: pq.abc.PGresult, outlook: Outlook) -> Failed:
        failure = reported(result)
        failure.message = self._options.without_secrets(failure.message)
        if failure.outlook is Outlook.DOUBTFUL:
            failure.outlook = outlook
        if self.pgconn.status == pq.ConnStatus.BAD:
            failure.lost = True
        if failure.lost:
            self.close()
        return failure

    def _ready(self, events: int, end: float, outlook: Outlook) -> int:
        happened = self._wait(events, end - time.monotonic())
        if not happened:
            self.close()
            raise Failed("the server did not answer in time", outlook, lost=True)
        return happened

    def _wait(self, events: int, seconds: float) -> int:
        """The events among ``events`` that occur on the socket within so many seconds."""
        socket = self.pgconn.socket
        self._poll.register(socket, events)
        happened = self._poll.poll(max(0.0, seconds) * 1000)
        return happened[0][1] if happened else 0

    def _broken(self, failure: BaseException | None, outlook: Outlook) -> Failed:
        text = (
            self.pgconn.error_message.decode(errors="replace") if failure is None else str(failure)
        )
        self.close()
        text = " ".join(self._options.without_secrets(text).split())
        return Failed(text or "the connection was lost", outlook, lost=True)

    def close(self) -> None:
        """Close the connection, unless it belongs to a parent process. Idempotent."""
        if self.pid == os.getpid():
            self._connection.close()

    def abandon(self) -> None:
        """In a forked child, close the socket without a word to the server, which talks to the parent."""
        with contextlib.suppress(psycopg.Error, OSError):
            os.close(self.pgconn.socket)
        _abandoned.append(self)


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_abandoned: list[Session] = []
"""Sessions of a parent process, kept alive: collecting one would warn that its connection, deliberately, is open."""


def _abandon_all() -> None:
    """Abandon all sessions in a forked child, including those lent to threads of the parent."""
    for session in list(_sessions):
        session.abandon()
    _sessions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


def open_session(options: Options, end: float) -> Session:
    """A new connection.

    Args:
        options: the server.
        end: the time by which to have it.

    Raises:
        Failed: it cannot be opened.
    """
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise OutOfTime
    try:
        connection = options.connect(seconds)
    except (psycopg.Error, OSError) as failure:
        said = options.without_secrets(str(failure))
        # psycopg's error and its frames form a cycle, which would keep the sockets of timed-out attempts open until the
        # next garbage collection.
        traceback.clear_frames(failure.__traceback__)
    else:
        return Session(connection, options)
    # Outside the except block: psycopg's error holds the connection parameters with the plain password, and would
    # become the context.
    raise refused(said)
