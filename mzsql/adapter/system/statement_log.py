"""The statements that sessions of this process have run lately, and how far those have come that they run now.

Promise: what it holds is bounded, in statements and in characters of all that is of any length: their texts, what they have failed with,
their sessions' variables. The oldest go first; a statement that is under way is there, too. It costs a statement some microseconds and the
stores nothing. It is of this process alone, and ends with it.
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

#: So many statements are kept …
MOST_STATEMENTS = 1000
#: … of so many characters together; of a text, an error or a variable that has more than the second of these the end is left out, and how
#: much that is said.
MOST_CHARACTERS = 4_000_000
MOST_OF_ONE = 10_000
#: So many events of one are kept: the first, and the latest. A query has four; a statement may ask many.
MOST_EVENTS = 100
#: What a statement ends with that was cancelled, or ran into its timeout.
_CANCELED = "57014"

BEGAN, FINISHED = "execution-began", "execution-finished"
OPTIMIZED = "optimization-finished"
#: What it reads of stored collections, or of indexes, is complete at its time.
STORAGE_READY, COMPUTE_READY = "storage-dependencies-finished", "compute-dependencies-finished"


@dataclass(slots=True)
class Executed:
    """A statement: what its session was like, and what has become of it.

    Attributes:
        variables: some of the session's, by name, cut.
        sql: its text, cut.
        kind: what kind of statement it is, in the words of SQL's statements: ``select``, ``create_table``.
        events: how far it has come, and when, in nanoseconds since the epoch.
        status: ``success``, ``error`` or ``canceled``; None while it is under way.
        error: what it has failed with, cut.
        ts: the time that it has read at.
        rows: how many rows it has answered.
        size: their bytes in memory.
        strategy: ``fast-path`` where an index has answered it, ``constant`` where nothing was read, else ``standard``; None for what is no
            query.
        counted: how many characters of the log are its; None where the log has it no more.
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
        """How many it has, whatever is of a bounded set of words apart."""
        texts = (self.sql, self.error or "", self.user, *self.variables.values())
        return sum(map(len, texts))

    def answered(self, ts: Timestamp | None, rows: pa.Table | None) -> None:
        """What it has answered, and the time that it was read at; rows that come later are not counted."""
        self.ts = ts
        if rows is not None:
            self.rows, self.size = rows.num_rows, rows.nbytes
            if ts is None and self.strategy == "standard":
                self.strategy = "constant"

    def reached(self, event: str) -> None:
        """It has come so far."""
        now = (event, time.time_ns())
        if len(self.events) < MOST_EVENTS:
            self.events.append(now)
        else:
            self.events[-1] = now


#: Where a class's name has another word.
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: What is recorded of a session's variables.
_RECORDED = (
    "application_name",
    "cluster",
    "database",
    "search_path",
    "transaction_isolation",
)
_CURRENT: ContextVar[Executed | None] = ContextVar("statement", default=None)


def current() -> Executed | None:
    """The statement that runs in this context."""
    return _CURRENT.get()


def _cut(text: str, start: int = 0, end: int | None = None) -> str:
    """A text from `start` to `end`, or the begin of it and how much more there is."""
    end = len(text) if end is None else end
    left_out = end - start - MOST_OF_ONE
    if left_out <= 0:
        return text[start:end]
    return f"{text[start : start + MOST_OF_ONE]} … ({left_out} more characters)"


class StatementLog:
    """That of one process. Thread-safe."""

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
        """A statement runs within the block, which fills in what it has answered.

        Args:
            session: whose it is.
            kind: the name of the statement's class.
            source: its text.
            session_id: the session's id.
            connected_at: when that began.
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
        """It has its error now, which counts as well, where the log still has it."""
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
        """Those that are known, oldest first."""
        with self._lock:
            return list(self._kept)
