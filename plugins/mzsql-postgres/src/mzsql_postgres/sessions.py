"""One connection to the server, and prepared statements on it.

Promise: a statement is prepared once a connection and costs one round trip after that, parameters and results in binary; an answer is not
waited for much longer than the server may take for it, whatever network and server do; and each failure says whether the statement may
have been carried out. Trade-off: this drives libpq through `psycopg.pq` rather than a cursor, because a cursor waits without end, and
costs a small statement about half as much time again as the server needs for it.
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

TEXT, INT8, BYTEA, TEXT_ARRAY = 25, 20, 17, 1009

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
    """A bigint as PostgreSQL's binary form has it."""
    return _INT8.pack(value)


def from_int8(value: bytes) -> int:
    """The reverse of `int8`."""
    number: int = _INT8.unpack(value)[0]
    return number


def text_array(values: Sequence[str]) -> bytes:
    """An array of text in binary form."""
    parts = [struct.pack("!iiiii", 1 if values else 0, 0, TEXT, len(values), 1)]
    if not values:
        return struct.pack("!iii", 0, 0, TEXT)
    for value in values:
        encoded = value.encode()
        parts.append(struct.pack("!i", len(encoded)) + encoded)
    return b"".join(parts)


class Statement:
    """A statement with parameters ``$1``, …; ``reads`` when it changes nothing, so that to lose its answer is no harm.

    Args:
        operation: what the metric counts it as.
        text: the SQL.
        types: the parameters' types, by their object identifiers.
        reads: whether it only reads.
        name: what it is prepared as, where that is not left to the first use.
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
    """What a statement answered: the rows it returned, and how many rows it touched."""

    __slots__ = ("_result",)

    def __init__(self, result: pq.abc.PGresult) -> None:
        self._result = result

    @property
    def rows(self) -> list[Row]:
        """All rows, each value in its binary form."""
        result = self._result
        value, columns = result.get_value, range(result.nfields)
        return [tuple([value(row, c) for c in columns]) for row in range(result.ntuples)]

    @property
    def touched(self) -> int:
        """The number of rows inserted, updated, deleted or returned."""
        return self._result.command_tuples or 0


class Session:
    """A connection in the hands of one thread at a time. Made by `open_session`."""

    def __init__(self, connection: psycopg.Connection[Any], options: Options) -> None:
        self._connection = connection
        self.pgconn = connection.pgconn
        self._options = options
        self._prepared: set[bytes] = set()
        self._poll = select.poll()
        self._owed = False
        # The server gives up first, and says so.
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
        """Whether it is of no more use: closed, lost, or another process's."""
        return self.pid != os.getpid() or self._connection.closed

    @property
    def user(self) -> str:
        """Whom the server takes this for."""
        return self.pgconn.user.decode()

    def fileno(self) -> int:
        """The socket, for `select.poll`."""
        return self.pgconn.socket

    def run(self, statement: Statement, values: Sequence[Value]) -> Answer:
        """The statement's answer. Call `settle` before the first of a series.

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
            # An interrupt leaves the answer on its way; nobody else shall get it.
            self.close()
            raise

    def script(self, text: str) -> Answer:
        """Statements without parameters, in one transaction; the last one's answer."""
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
        """Send a statement and leave its answer for the next one to fetch; a connection that fails shows it then.

        The statement was prepared by `script` under its name.
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
        """Fetch an answer that is owed, and see that the connection lives. What was posted and refused is logged.

        Raises:
            Failed: the connection is lost; nothing was sent on it.
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
                # A server that goes away says so to idle connections.
                self.pgconn.consume_input()
                self.pgconn.is_busy()
        except (psycopg.Error, OSError) as failure:
            raise self._broken(failure, Outlook.PASSING) from failure

    def notified(self) -> list[str]:
        """The payloads of the notifications that have come in. Call `settle` first."""
        found = []
        while notify := self.pgconn.notifies():
            found.append(notify.extra.decode(errors="replace"))
        return found

    def _results(self, outlook: Outlook) -> pq.abc.PGresult:
        """All of one statement's results, the last of which counts; ``outlook`` is that of a connection lost meanwhile.

        The commit comes after a result, so an error can follow one.
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
        """Which of ``events`` happen on the socket within so many seconds."""
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
        """Close the connection, or leave it alone where it is a parent process's. Idempotent."""
        if self.pid == os.getpid():
            self._connection.close()

    def abandon(self) -> None:
        """In a child of the process that connected: let go of the socket and say nothing to the server, which talks to the parent."""
        with contextlib.suppress(psycopg.Error, OSError):
            os.close(self.pgconn.socket)
        _abandoned.append(self)


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_abandoned: list[Session] = []
"""Sessions of a parent process, kept: to collect one would warn of a connection left open, which it is meant to be."""


def _abandon_all() -> None:
    """Lent ones too: whoever had them lent is a thread of the parent."""
    for session in list(_sessions):
        session.abandon()
    _sessions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


def open_session(options: Options, end: float) -> Session:
    """A new connection, by ``end``.

    Raises:
        Failed: there is none to be had.
    """
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise OutOfTime
    try:
        connection = options.connect(seconds)
    except (psycopg.Error, OSError) as failure:
        said = options.without_secrets(str(failure))
        # psycopg's error and the frames it came through refer to each other: the sockets of attempts that timed out would stay open until
        # the garbage collector comes by.
        traceback.clear_frames(failure.__traceback__)
    else:
        return Session(connection, options)
    # Once psycopg's error is over: it holds what was connected with, the password in clear, and would come along as the context.
    raise refused(said)
