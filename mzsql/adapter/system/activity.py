"""The present activity of this process's sessions: queries, subscriptions, the sessions themselves.

Promise: what has ended is not listed any more, however it ended; only a histogram of query durations (in powers of two)
and the latest statements are kept. Other processes' sessions are not known here. A query pays some microseconds for it.
"""

from __future__ import annotations

import datetime
import itertools
import os
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
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
    """A query that is being answered; `kind` is ``index`` where an index answers it, else ``persist``."""

    object_id: GlobalId
    time: Timestamp
    kind: str = "persist"
    drawn: bytes = field(default_factory=partial(os.urandom, 16))

    @property
    def id(self) -> uuid.UUID:
        """Identifies it; made when somebody asks."""
        return uuid.UUID(bytes=self.drawn, version=4)

    def planned(self) -> None:
        """The plan is known; recorded as an event of the statement."""
        statement = current()
        if statement is not None:
            statement.reached(OPTIMIZED)

    def complete(self) -> None:
        """The inputs are complete at its timestamp; recorded as an event of the statement."""
        statement = current()
        if statement is not None:
            statement.reached(COMPUTE_READY if self.kind == "index" else STORAGE_READY)


class Answering:
    """A query that is registered while a block answers it; made by `Activity.peek`."""

    __slots__ = ("_activity", "_began", "_one")

    def __init__(self, activity: Activity, one: ActivePeek) -> None:
        self._activity = activity
        self._one = one

    def __enter__(self) -> ActivePeek:
        self._began = time.monotonic_ns()
        self._activity.answering(self._one)
        return self._one

    def __exit__(self, *_: object) -> None:
        self._activity.answered(self._one, time.monotonic_ns() - self._began)


@dataclass(frozen=True)
class _Known:
    """A session of this process."""

    id: uuid.UUID
    number: int
    connected_at: datetime.datetime


class Activity:
    """The activity of one process. Thread-safe.

    Attributes:
        log: the latest statements.
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

    def peek(self, object_id: GlobalId, ts: Timestamp) -> Answering:
        """Register a query while the block answers it."""
        return Answering(self, ActivePeek(object_id, ts))

    def answering(self, one: ActivePeek) -> None:
        """A query began."""
        self._peeks[id(one)] = one

    def answered(self, one: ActivePeek, took: int) -> None:
        """A query ended after ``took`` nanoseconds."""
        del self._peeks[id(one)]
        statement = current()
        if statement is not None:
            statement.strategy = "fast-path" if one.kind == "index" else "standard"
        with self._lock:
            self._durations[one.kind, 1 << max(took - 1, 1).bit_length()] += 1

    def peeks(self) -> list[ActivePeek]:
        """The queries that are being answered."""
        return list(self._peeks.values())

    def durations(self) -> dict[tuple[str, int], int]:
        """By kind and upper bound in nanoseconds (a power of two), how many queries took at most that long and more
        than half of it.
        """
        with self._lock:
            return dict(self._durations)

    # --- sessions ---

    def connected(self, session: Session) -> None:
        """A session began."""
        now = datetime.datetime.now(datetime.UTC)
        with self._lock:
            self._sessions[session] = _Known(uuid.uuid4(), next(self._numbers), now)

    def disconnected(self, session: Session) -> None:
        """A session ended, even if somebody still holds the object. Idempotent."""
        with self._lock:
            self._sessions.pop(session, None)

    def number(self, session: Session) -> int:
        """A session's number in this process; 0 for an internal session."""
        known = self._sessions.get(session)
        return 0 if known is None else known.number

    def sessions(self) -> Iterator[tuple[uuid.UUID, int, str, datetime.datetime]]:
        """For each session: id, number, role, and when it began."""
        with self._lock:
            known = [(one.user, of) for one, of in self._sessions.items()]
        for user, of in known:
            yield of.id, of.number, user, of.connected_at

    def statement(
        self, session: Session, kind: str, source: Source
    ) -> AbstractContextManager[Executed]:
        """Record a statement of a session while the block runs it; see `StatementLog.running`."""
        known = self._sessions.get(session)
        at = (None, None) if known is None else (known.id, known.connected_at)
        return self.log.running(session, kind, source, *at)

    # --- subscriptions ---

    def subscribed(
        self, gid: GlobalId, session: Session, cluster: str, reads: Iterable[GlobalId]
    ) -> None:
        """A subscription began."""
        now = datetime.datetime.now(datetime.UTC)
        with self._lock:
            known = self._sessions.get(session)
            of = None if known is None else known.id
            self._subscriptions[gid] = (gid, of, cluster, now, sorted(reads))

    def unsubscribed(self, gid: GlobalId) -> None:
        """A subscription ended. Idempotent."""
        self._subscriptions.pop(gid, None)

    def subscriptions(self) -> list[tuple[Any, ...]]:
        """For each subscription: id, session id, cluster, when it began, and the ids of what it reads."""
        return list(self._subscriptions.values())
