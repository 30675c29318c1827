"""A log of the statements that this process's sessions ran lately or are running, with their events.

Promise: the log is bounded in statements and in characters of all variable-length texts: statements, errors, session
variables. The oldest entries go first; running statements are included. A statement pays some microseconds for it, and
nothing is stored durably. The log covers this process only, and ends with it.
"""

from __future__ import annotations

import datetime
import functools
import os
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field

import pyarrow as pa

from mzsql.adapter.session.session import Session
from mzsql.frontend.parse.statements import Source
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Timestamp

#: At most so many statements …
MOST_STATEMENTS = 1000
#: … and so many characters in all are kept. A single text is cut to the second number, with a note of how much was left
#: out.
MOST_CHARACTERS = 4_000_000
MOST_OF_ONE = 10_000
#: At most so many events per statement: the first ones, and the latest. A query has four, but a statement may run many
#: queries.
MOST_EVENTS = 100
#: The SQLSTATE of a statement that was canceled or timed out.
_CANCELED = "57014"

BEGAN, FINISHED = "execution-began", "execution-finished"
OPTIMIZED = "optimization-finished"
#: Its stored inputs, or its indexes, are complete at its timestamp.
STORAGE_READY, COMPUTE_READY = "storage-dependencies-finished", "compute-dependencies-finished"


@dataclass(slots=True)
class Executed:
    """One execution of a statement.

    Attributes:
        drawn: 16 random bytes, of which `id` is made when somebody asks for it.
        session_id, connected_at, user: the session's id, begin and role.
        variables: some of the session's variables, cut.
        sql: the statement's text, cut.
        kind: the kind of statement, such as ``select`` or ``create_table``.
        events: what it has reached, and when, in nanoseconds since the epoch.
        status: ``success``, ``error`` or ``canceled``; None while it runs.
        error: its error message, cut.
        ts: the timestamp that it read at.
        rows: how many rows it returned.
        size: their bytes in memory.
        strategy: ``fast-path`` where an index answered it, ``constant`` where nothing was read, else ``standard``; None
            where it is no query.
        counted: how many of the log's characters are its own; None once it was removed from the log.
    """

    drawn: bytes
    session_id: uuid.UUID | None
    connected_at: datetime.datetime | None
    user: str
    variables: dict[str, str]
    kind: str
    sql: str
    events: list[tuple[str, int]] = field(default_factory=list)
    status: str | None = None
    error: str | None = None
    ts: Timestamp | None = None
    rows: int | None = None
    size: int | None = None
    strategy: str | None = None
    counted: int | None = None

    @property
    def id(self) -> uuid.UUID:
        """Identifies the execution."""
        return uuid.UUID(bytes=self.drawn, version=4)

    @property
    def characters(self) -> int:
        """The number of characters in its variable-length texts."""
        texts = (self.sql, self.error or "", self.user, *self.variables.values())
        return sum(map(len, texts))

    def answered(self, ts: Timestamp | None, rows: pa.Table | None, size: int | None) -> None:
        """Record its timestamp and its rows, with their bytes where those are known; rows of a stream are not counted."""
        self.ts = ts
        if rows is not None:
            self.rows, self.size = rows.num_rows, rows.nbytes if size is None else size
            if ts is None and self.strategy == "standard":
                self.strategy = "constant"

    def reached(self, event: str) -> None:
        """Record an event, now."""
        now = (event, time.time_ns())
        if len(self.events) < MOST_EVENTS:
            self.events.append(now)
        else:
            self.events[-1] = now


#: The word boundaries in a class's name.
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: The session variables that are recorded.
_RECORDED = (
    "application_name",
    "cluster",
    "database",
    "search_path",
    "transaction_isolation",
)
_CURRENT: ContextVar[Executed | None] = ContextVar("statement", default=None)


def current() -> Executed | None:
    """The execution that runs in this context, if any."""
    return _CURRENT.get()


def _cut(text: str, start: int = 0, end: int | None = None) -> str:
    """``text[start:end]``, or its first `MOST_OF_ONE` characters and a note of how many were left out."""
    end = len(text) if end is None else end
    left_out = end - start - MOST_OF_ONE
    if left_out <= 0:
        return text[start:end]
    return f"{text[start : start + MOST_OF_ONE]} … ({left_out} more characters)"


@functools.cache
def _words(kind: str) -> str:
    """The name of a statement's class as the log has it."""
    return _WORDS.sub("_", kind).lower()


class StatementLog:
    """The statement log of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Executed] = deque()
        self._characters = 0

    def running(
        self,
        session: Session,
        kind: str,
        source: Source,
        session_id: uuid.UUID | None,
        connected_at: datetime.datetime | None,
    ) -> Running:
        """Log a statement while the block runs it; the block fills in what it returned.

        Args:
            session: the session.
            kind: the name of the statement's class.
            source: its text.
            session_id: the session's id.
            connected_at: when the session began.
        """
        text = _cut(source.text, source.start, source.end)
        variables = {name: _cut(session.get(name)) for name in _RECORDED}
        one = Executed(
            os.urandom(16),
            session_id,
            connected_at,
            session.user,
            variables,
            _words(kind),
            text,
        )
        return Running(self, one)

    def keep(self, one: Executed) -> None:
        """Log a statement that begins."""
        characters = one.characters
        with self._lock:
            self._kept.append(one)
            self._count(one, characters)

    def ended(self, one: Executed) -> None:
        """Count the characters of its error too, if it has one and the log still has it."""
        if one.error is None:
            return
        with self._lock:
            if one.counted is not None:
                self._count(one, one.characters)

    def _count(self, one: Executed, characters: int) -> None:
        self._characters += characters - (one.counted or 0)
        one.counted = characters
        while len(self._kept) > MOST_STATEMENTS or self._characters > MOST_CHARACTERS:
            gone = self._kept.popleft()
            self._characters -= gone.counted or 0
            gone.counted = None

    def statements(self) -> Iterable[Executed]:
        """The logged statements, oldest first."""
        with self._lock:
            return list(self._kept)


class Running:
    """A statement that is logged while a block runs it; made by `StatementLog.running`. A class, as each statement pays for
    it, and a generator costs three times as much.
    """

    __slots__ = ("_log", "_one", "_token")
    _token: Token[Executed | None]

    def __init__(self, log: StatementLog, one: Executed) -> None:
        self._log = log
        self._one = one

    def __enter__(self) -> Executed:
        one = self._one
        one.reached(BEGAN)
        self._log.keep(one)
        self._token = _CURRENT.set(one)
        return one

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        one = self._one
        match error:
            case None:
                one.status = "success"
            case SqlError():
                one.status = "canceled" if error.sqlstate == _CANCELED else "error"
                one.error = _cut(error.message)
            case Exception():
                one.status, one.error = "error", _cut(str(error))
            case _:
                one.status = "canceled"
        _CURRENT.reset(self._token)
        one.reached(FINISHED)
        self._log.ended(one)
