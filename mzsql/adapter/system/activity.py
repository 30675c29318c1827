"""What sessions of this process do now: their queries, their subscriptions, themselves.

Promise: what has ended is not there any more, however it ended; nothing is kept of it but how long queries took, in powers of two. It is
of this process alone, as what another one does nobody here knows. What it costs a query is two entries in dictionaries.
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
from dataclasses import dataclass, field
from typing import Any

from mzsql.adapter.session.session import Session
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId


@dataclass
class ActivePeek:
    """A query that is being answered: `kind` is ``index`` where an index answers it, else ``persist``."""

    object_id: GlobalId
    time: Timestamp
    kind: str = "persist"
    id: uuid.UUID = field(default_factory=uuid.uuid4)


@dataclass(frozen=True)
class _Known:
    """A session of this process."""

    id: uuid.UUID
    number: int
    connected_at: datetime.datetime


class Activity:
    """That of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._peeks: dict[int, ActivePeek] = {}
        self._durations: Counter[tuple[str, int]] = Counter()
        self._sessions: weakref.WeakKeyDictionary[Session, _Known] = weakref.WeakKeyDictionary()
        self._subscriptions: dict[GlobalId, tuple[Any, ...]] = {}

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

    def sessions(self) -> Iterator[tuple[uuid.UUID, int, str, datetime.datetime]]:
        """The id, the number and the role of each session, and when it began."""
        with self._lock:
            known = [(one.user, of) for one, of in self._sessions.items()]
        for user, of in known:
            yield of.id, of.number, user, of.connected_at

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
