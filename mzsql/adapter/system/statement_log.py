"""The statements that sessions of this process have run lately, and how far those have come that they run now.

Promise: what it holds is bounded, in statements and in characters of their texts, the oldest go first; a statement that is under way is
there, too. It costs a statement some microseconds and the stores nothing. It is of this process alone, and ends with it.
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
#: … of so many characters together; of one that has more than the second of these the end is left out, and how much that is said.
MOST_CHARACTERS = 4_000_000
MOST_OF_ONE = 10_000
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
        variables: some of the session's, by name.
        sql: its text.
        kind: what kind of statement it is, in the words of SQL's statements: ``select``, ``create_table``.
        events: how far it has come, and when, in nanoseconds since the epoch.
        status: ``success``, ``error`` or ``canceled``; None while it is under way.
        ts: the time that it has read at.
        rows: how many rows it has answered.
        size: their bytes in memory.
        strategy: ``fast-path`` where an index has answered it, ``constant`` where nothing was read, else ``standard``; None for what is no
            query.
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

    def answered(self, ts: Timestamp | None, rows: pa.Table | None) -> None:
        """What it has answered, and the time that it was read at; rows that come later are not counted."""
        self.ts = ts
        if rows is not None:
            self.rows, self.size = rows.num_rows, rows.nbytes
            if ts is None and self.strategy == "standard":
                self.strategy = "constant"

    def reached(self, event: str) -> None:
        """It has come so far."""
        self.events.append((event, time.time_ns()))


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
        text = source.text[source.start : min(source.end, source.start + MOST_OF_ONE)]
        left_out = source.end - source.start - len(text)
        if left_out > 0:
            text = f"{text} … ({left_out} more characters)"
        variables = {name: session.get(name) for name in _RECORDED}
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
            one.error = error.message
            raise
        except Exception as error:
            one.status, one.error = "error", str(error)
            raise
        except BaseException:
            one.status = "canceled"
            raise
        finally:
            _CURRENT.reset(token)
            one.reached(FINISHED)

    def _keep(self, one: Executed) -> None:
        with self._lock:
            self._kept.append(one)
            self._characters += len(one.sql)
            while len(self._kept) > MOST_STATEMENTS or self._characters > MOST_CHARACTERS:
                self._characters -= len(self._kept.popleft().sql)

    def statements(self) -> Iterable[Executed]:
        """Those that are known, oldest first."""
        with self._lock:
            return list(self._kept)
