"""What sessions of this process do now: their queries, their subscriptions, themselves.

Promise: what has ended is not there any more, however it ended; nothing is kept of it but how long queries took, in powers of two, and the
latest statements. It is of this process alone, as what another one does nobody here knows. What it costs a query is some microseconds.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from mzsql.adapter.session.session import Session
from mzsql.adapter.system.statement_log import (
    COMPUTE_READY,
    OPTIMIZED,
    STORAGE_READY,
    Executed,
    StatementLog,
    current,
)
from mzsql.frontend.parse.statements import Source
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId


@dataclass
class ActivePeek:
    """A query that is being answered: `kind` is ``index`` where an index answers it, else ``persist``."""

    object_id: GlobalId
    time: Timestamp
    kind: str = "persist"
    id: uuid.UUID = field(default_factory=uuid.uuid4)

    def planned(self) -> None:
        """What is to be run for it is known."""
        statement = current()
        if statement is not None:
            statement.reached(OPTIMIZED)

    def complete(self) -> None:
        """What it reads is complete at its time."""
        statement = current()
        if statement is not None:
            statement.reached(COMPUTE_READY if self.kind == "index" else STORAGE_READY)


@dataclass(frozen=True)
class _Known:
    """A session of this process."""

    id: uuid.UUID
    number: int
    connected_at: datetime.datetime


class Activity:
    """That of one process. Thread-safe.

    Attributes:
        log: the statements that were run lately.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._peeks: dict[int, ActivePeek] = {}
        self._durations: Counter[tuple[str, int]] = Counter()
        self._sessions: weakref.WeakKeyDictionary[Session, _Known] = weakref.WeakKeyDictionary()
        self._subscriptions: dict[GlobalId, tuple[Any, ...]] = {}
        self.log = StatementLog()

    # --- queries ---

    @contextlib.contextmanager
    def peek(self, object_id: GlobalId, ts: Timestamp) -> Iterator[ActivePeek]:
        """A query is answered within the block."""
        one, began = ActivePeek(object_id, ts), time.monotonic_ns()
        self._peeks[id(one)] = one
        try:
            yield one
        finally:
            del self._peeks[id(one)]
            statement = current()
            if statement is not None:
                statement.strategy = "fast-path" if one.kind == "index" else "standard"
            took = time.monotonic_ns() - began
            with self._lock:
                self._durations[one.kind, 1 << max(took - 1, 1).bit_length()] += 1

    def peeks(self) -> list[ActivePeek]:
        """Those that are being answered."""
        return list(self._peeks.values())

    def durations(self) -> dict[tuple[str, int], int]:
        """How many took so many nanoseconds at most, and more than half of that, by kind."""
        with self._lock:
            return dict(self._durations)

    # --- sessions ---

    def connected(self, session: Session) -> None:
        """A session has begun."""
        now = datetime.datetime.now(datetime.UTC)
        with self._lock:
            self._sessions[session] = _Known(uuid.uuid4(), next(self._numbers), now)

    def disconnected(self, session: Session) -> None:
        """It has ended, whoever still holds it. Idempotent."""
        with self._lock:
            self._sessions.pop(session, None)

    def number(self, session: Session) -> int:
        """The number of a session in this process; 0 for one that is no client's."""
        known = self._sessions.get(session)
        return 0 if known is None else known.number

    def sessions(self) -> Iterator[tuple[uuid.UUID, int, str, datetime.datetime]]:
        """The id, the number and the role of each session, and when it began."""
        with self._lock:
            known = [(one.user, of) for one, of in self._sessions.items()]
        for user, of in known:
            yield of.id, of.number, user, of.connected_at

    def statement(
        self, session: Session, kind: str, source: Source
    ) -> AbstractContextManager[Executed]:
        """A statement of a session runs within the block; see `StatementLog.running`."""
        known = self._sessions.get(session)
        at = (None, None) if known is None else (known.id, known.connected_at)
        return self.log.running(session, kind, source, *at)

    # --- subscriptions ---

    def subscribed(
        self, gid: GlobalId, session: Session, cluster: str, reads: Iterable[GlobalId]
    ) -> None:
        """A subscription has begun."""
        now = datetime.datetime.now(datetime.UTC)
        with self._lock:
            known = self._sessions.get(session)
            of = None if known is None else known.id
            self._subscriptions[gid] = (gid, of, cluster, now, sorted(reads))

    def unsubscribed(self, gid: GlobalId) -> None:
        """It has ended. Idempotent."""
        self._subscriptions.pop(gid, None)

    def subscriptions(self) -> list[tuple[Any, ...]]:
        """The id, the session, the cluster, the begin and what is read of each."""
        return list(self._subscriptions.values())
