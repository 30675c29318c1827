"""The connections of a handle, and retries of statements on them.

Promise: at most ``pool_max_size`` connections, lent last in, first out, so that unneeded ones become idle and are
closed; a connection that died while idle is detected before anything is sent on it. `Database.run` retries, at growing
random intervals, until the call's time is over: always if the statement certainly was not executed, and otherwise only
if repeating it is harmless. So a restart of the server delays calls, and fails only those that cannot wait for it. A
forked child starts without connections and leaves its parent's alone. An interrupted call, wherever that happens,
occupies no room in the pool. Trade-off: not `psycopg_pool`, whose threads do not survive a fork, which does not report
why connecting failed, and which waits seconds between attempts after a restart.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TypeVar

from mzsql.location import Determinate, Indeterminate, LocationError, at_most, seconds_left
from mzsql.location.attempts import attempted
from mzsql_postgres.failures import Failed, Outlook, OutOfTime
from mzsql_postgres.options import Options
from mzsql_postgres.sessions import Answer, Session, Statement, Value, open_session

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_OPEN_ATTEMPTS = 2
"""The first connection of a handle gets the time of this many attempts, so that a mistyped host fails before the
timeout.
"""
_YOUNGER = 0.1
"""A connection's lifetime is reduced by up to this fraction, so that not all end at once."""

T = TypeVar("T")
Prepare = Callable[[Session], None]


class _Room:
    """The permission to open a connection."""

    __slots__ = ("__weakref__",)


class Database:
    """The connections to a server.

    Args:
        options: the server.
        prepare: run on each new connection.
    """

    def __init__(self, options: Options, prepare: Prepare) -> None:
        self.options = options
        self._prepare = prepare
        self._closed = False
        self._begin()
        self.place = f"postgres {options.place}"
        _forks.add(self)

    def _begin(self) -> None:
        # Entered on its own: an interrupt within the condition's ``__enter__`` would leave it locked.
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._idle: list[Session] = []
        # Weak, so that a member dropped by an interrupt between two instructions frees its room.
        self._members: weakref.WeakSet[Session | _Room] = weakref.WeakSet()

    def connect(self, end: float) -> Session:
        """A new connection outside the pool, owned by the caller.

        Raises:
            Failed: it cannot be opened.
        """
        session = open_session(self.options, end)
        session.end = _answers_by()
        try:
            self._prepare(session)
        except BaseException:
            session.close()
            raise
        return session

    def first(self, act: Callable[[Session], None]) -> None:
        """Open the first connection and run ``act`` on it, with retries while the server may be starting."""
        end = min(self.ends(), time.monotonic() + _OPEN_ATTEMPTS * self.options.connect_timeout)

        def attempt(until: float) -> None:
            with self.lend(until) as session:
                act(session)

        self.until(end, "open the database", attempt, repeatable=True)

    def ends(self) -> float:
        """The time after which a call that begins now makes no further attempt."""
        return time.monotonic() + at_most(self.options.limits.timeout)

    def run(
        self, act: str, statement: Statement, *values: Value, repeatable: bool = False
    ) -> Answer:
        """Run a statement as a transaction by itself, with retries.

        Args:
            act: what it does, for messages.
            statement: the statement.
            values: its parameters in binary form.
            repeatable: whether repeating it is harmless.

        Raises:
            Determinate: it was not executed, despite retries.
            Indeterminate: it may have been executed.
        """

        def attempt(end: float) -> Answer:
            session = self.take(end)
            try:
                return session.run(statement, values)
            finally:
                self.give_back(session)

        return self.until(
            self.ends(),
            act,
            attempt,
            repeatable=repeatable or statement.reads,
            reads=statement.reads,
        )

    def until(
        self,
        end: float,
        act: str,
        attempt: Callable[[float], T],
        *,
        repeatable: bool,
        reads: bool = False,
    ) -> T:
        """The result of ``attempt``, retried until ``end`` as `run` does.

        Args:
            end: when to stop.
            act: what it does, for messages.
            attempt: called with the time at which it must end.
            repeatable: whether repeating it is harmless.
            reads: whether it only reads.

        Raises:
            Determinate: it was not executed, despite retries.
            Indeterminate: it may have been executed.
        """
        doubtful = False
        longest = _FIRST_PAUSE
        reason = None
        while True:
            try:
                answer = attempt(end)
            except Failed as failure:
                attempted(succeeded=False)
                if reason is None or not isinstance(failure, OutOfTime):
                    reason = failure
                # That this attempt did nothing says nothing about those before it.
                doubtful = doubtful or failure.outlook is Outlook.DOUBTFUL
                pause = random.uniform(0.0, longest)  # noqa: S311 - full jitter
                again = failure.outlook is not Outlook.LASTING and (repeatable or not doubtful)
                if not again or time.monotonic() + pause >= end or self._closed:
                    raise self.failure(act, reason, doubtful=doubtful and not reads) from reason
            else:
                attempted(succeeded=True)
                return answer
            time.sleep(pause)
            longest = min(_LONGEST_PAUSE, longest * 2)

    def failure(self, act: str, failure: Failed, *, doubtful: bool = False) -> LocationError:
        """The error for the caller."""
        kind: type[LocationError] = Indeterminate if doubtful else Determinate
        state = f" (SQLSTATE {failure.sqlstate})" if failure.sqlstate else ""
        return kind(f"{self.place}: cannot {act}: {failure.message}{state}", hint=failure.hint)

    @contextlib.contextmanager
    def lend(self, end: float) -> Iterator[Session]:
        """A connection for the duration of the block."""
        session = self.take(end)
        try:
            yield session
        finally:
            self.give_back(session)

    def take(self, end: float) -> Session:
        """A live connection, to be given back.

        Raises:
            Failed: there is none by ``end``, or the handle is closed.
        """
        while True:
            found = self._next(end)
            try:
                if isinstance(found, _Room):
                    return self._fill(found, end)
                if time.monotonic() < found.retire:
                    found.end = _answers_by()
                    with contextlib.suppress(Failed):
                        found.settle()
                        return found
            except BaseException:
                self._drop(found)
                raise
            self._drop(found)

    def _fill(self, room: _Room, end: float) -> Session:
        session = self.connect(end)
        lifetime = self.options.limits.pool_max_lifetime
        session.retire = session.used + lifetime * (1 - random.uniform(0, _YOUNGER))  # noqa: S311
        with self._lock:
            self._members.add(session)
            self._members.discard(room)
        return session

    def _next(self, end: float) -> Session | _Room:
        """The connection used last, or room for a new one."""
        limits = self.options.limits
        with self._lock:
            if not self._available():
                seconds = max(0.0, min(limits.pool_timeout, end - time.monotonic()))
                if not self._free.wait_for(self._available, seconds):
                    raise Failed(
                        f"all {limits.pool_max_size} connections were in use for {seconds:.1f} seconds",
                        Outlook.LASTING,
                        hint="Raise pool_max_size or pool_timeout in the URL, or find out what keeps the server busy.",
                    )
            if self._closed:
                raise Failed("the handle is closed", Outlook.LASTING)
            if self._idle:
                return self._idle.pop()
            room = _Room()
            self._members.add(room)
            return room

    def _available(self) -> bool:
        limits = self.options.limits
        return bool(self._idle) or self._closed or len(self._members) < limits.pool_max_size

    def _drop(self, member: Session | _Room) -> None:
        """Close a lent connection, or return the room for one."""
        if isinstance(member, Session):
            member.close()
        with self._lock:
            self._members.discard(member)
            self._free.notify()

    def give_back(self, session: Session) -> None:
        """Return a connection to the pool, or its room if it is closed or too old."""
        if session.pid != os.getpid():
            return
        now = time.monotonic()
        if session.closed or self._closed or now >= session.retire:
            self._drop(session)
            return
        session.used = now
        old = None
        with self._lock:
            if self._idle and now - self._idle[0].used > self.options.limits.pool_max_idle:
                old = self._idle.pop(0)
                self._members.discard(old)
            self._idle.append(session)
            self._free.notify()
        if old is not None:
            old.close()
        if self._closed:
            self.close()

    def forked(self) -> None:
        """Start anew in a forked child: a thread that does not exist there may have held the lock."""
        self._begin()

    def close(self) -> None:
        """Close the idle connections; lent ones close when given back. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for session in idle:
                self._members.discard(session)
            self._free.notify_all()
        for session in idle:
            session.close()


def _answers_by() -> float:
    """When the caller stops waiting for a running statement; without a limit of its own, it waits as long as the server
    may take.
    """
    left = seconds_left()
    return math.inf if left is None else time.monotonic() + left


_forks: weakref.WeakSet[Database] = weakref.WeakSet()


def _renew_all() -> None:
    for database in list(_forks):
        database.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
