"""A log of the statements that this process's sessions ran lately or are running, with their events.

Promise: the log is bounded in statements and in characters of all variable-length texts: statements, errors, session
variables. The oldest entries go first; running statements are included. A statement pays some microseconds for it, and
nothing is stored durably. The log covers this process only, and ends with it.
"""

from __future__ import annotations

import datetime
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
        id: identifies the execution.
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

    id: uuid.UUID
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
    def characters(self) -> int:
        """The number of characters in its variable-length texts."""
        texts = (self.sql, self.error or "", self.user, *self.variables.values())
        return sum(map(len, texts))

    def answered(self, ts: Timestamp | None, rows: pa.Table | None) -> None:
        """Record its timestamp and its rows; rows of a stream are not counted."""
        self.ts = ts
        if rows is not None:
            self.rows, self.size = rows.num_rows, rows.nbytes
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


class StatementLog:
    """The statement log of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Executed] = deque()
        self._characters = 0

    @contextmanager
    def running(
        self,
        session: Session,
        kind: str,
        source: Source,
        session_id: uuid.UUID | None,
        connected_at: datetime.datetime | None,
    ) -> Iterator[Executed]:
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
        words = _WORDS.sub("_", kind).lower()
        one = Executed(uuid.uuid4(), session_id, connected_at, session.user, variables, words, text)
        one.reached(BEGAN)
        self._keep(one)
        token = _CURRENT.set(one)
        try:
            yield one
            one.status = "success"
        except SqlError as error:
            one.status = "canceled" if error.sqlstate == _CANCELED else "error"
            one.error = _cut(error.message)
            raise
        except Exception as error:
            one.status, one.error = "error", _cut(str(error))
            raise
        except BaseException:
            one.status = "canceled"
            raise
        finally:
            _CURRENT.reset(token)
            one.reached(FINISHED)
            self._ended(one)

    def _keep(self, one: Executed) -> None:
        with self._lock:
            self._kept.append(one)
            one.counted = 0
            self._count(one)

    def _ended(self, one: Executed) -> None:
        """Count the characters of its error too, if the log still has it."""
        with self._lock:
            if one.counted is not None:
                self._count(one)

    def _count(self, one: Executed) -> None:
        before, one.counted = one.counted or 0, one.characters
        self._characters += one.counted - before
        while len(self._kept) > MOST_STATEMENTS or self._characters > MOST_CHARACTERS:
            gone = self._kept.popleft()
            self._characters -= gone.counted or 0
            gone.counted = None

    def statements(self) -> Iterable[Executed]:
        """The logged statements, oldest first."""
        with self._lock:
            return list(self._kept)
