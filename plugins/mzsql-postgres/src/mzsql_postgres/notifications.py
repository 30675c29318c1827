"""Followers, which sleep until the server notifies them of an entry.

Promise: however many threads wait on a handle, one thread listens for all, on a connection of its own, and wakes those
whose key has a new entry. No wake-up is lost: each key is read once after listening has begun, and every later commit
is notified. If a writer dies between its commit and its notification, or a connection breaks silently, a slow poll of
all awaited keys, in one statement, finds the entry. An idle key costs the server two statements per minute. When the
listening connection is lost it is reopened at growing intervals, and meanwhile the keys are polled occasionally. A
server without notifications is polled often while entries arrive, and every six seconds when none do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import threading
import time
import weakref
from collections.abc import Iterable
from functools import partial

from psycopg import sql

from mzsql.location import LocationError
from mzsql.threads import PROCESS, Supervised
from mzsql_postgres.connections import Database
from mzsql_postgres.failures import Failed
from mzsql_postgres.sessions import Answer, Session, Statement, from_int8, text_array

LOOK_SECONDS = 30.0
"""The interval of polling all awaited keys while listening."""
UNHEARD_SECONDS = 5.0
"""The same while the listening connection is lost."""
LINGER_SECONDS = 120.0
"""The thread and its connection end after so long without a waiter."""
WANTED_SECONDS = 10.0
"""A follower that waits in slices counts as waiting for this long between them."""
_FIRST_POLL = 0.05
_LONGEST_POLL = 6.0
_FIRST_RECONNECT = 0.1
_LONGEST_RECONNECT = 10.0

_logger = logging.getLogger("mzsql_postgres")


class _Followed:
    """An awaited key: its newest known entry, and since which listening that is kept up to date."""

    __slots__ = ("changed", "newest", "synced", "waiting", "wanted")

    def __init__(self, lock: threading.Lock) -> None:
        self.newest: int | None = None
        self.synced = 0
        self.waiting = 0
        self.wanted = 0.0
        self.changed = threading.Condition(lock)

    def beyond(self, seqno: int) -> bool:
        """Whether an entry beyond ``seqno`` is known."""
        return self.newest is not None and self.newest > seqno

    def saw(self, seqno: int) -> bool:
        """Record an entry, with the lock held; returns whether it is newer than the newest known."""
        if self.newest is not None and seqno <= self.newest:
            return False
        self.newest = seqno
        self.changed.notify_all()
        return True


class Followers:
    """All waits on a handle.

    Args:
        database: the handle's connections.
        heads: the statement that reads the newest entries of an array of keys.
        channel: the channel to listen on; `None` if the server has no notifications.
    """

    def __init__(self, database: Database, heads: Statement, channel: str | None) -> None:
        self._database = database
        self._heads = heads
        self._channel = channel
        self._closed = False
        self._begin()
        _forks.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, _Followed] = {}
        self._thread: Supervised | None = None
        self._generation = 0
        self._live = False
        self._awake: tuple[int, int] | None = None

    def renew(self) -> None:
        """Start anew in a forked child, independent of the parent."""
        awake = self._awake
        self._begin()
        for descriptor in awake or ():
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def saw(self, key: str, seqno: int) -> None:
        """Record an entry known without notification."""
        with self._lock:
            followed = self._keys.get(key)
            if followed is not None:
                followed.saw(seqno)

    def wait(self, key: str, after: int, timeout: float) -> bool:
        """Whether ``key`` has an entry beyond ``after`` within ``timeout`` seconds.

        Args:
            key: the key.
            after: the seqno.
            timeout: the seconds to wait.

        Raises:
            Determinate: the key has not been read yet, and cannot be.
        """
        end = time.monotonic() + timeout
        with self._lock:
            followed = self._keys.get(key)
            if followed is None:
                followed = self._keys[key] = _Followed(self._lock)
            if followed.beyond(after):
                return True
            known = self._live and followed.synced == self._generation
        if not known:
            self._look([key], max(timeout, self._database.options.connect_timeout))
        with self._lock:
            followed.waiting += 1
            try:
                if timeout > 0 and not (followed.beyond(after) or self._closed):
                    # Even if the read took all the time, so that the next slice needs none.
                    self._start()
                    if not known:
                        self._wake()
                followed.changed.wait_for(
                    lambda: followed.beyond(after) or self._closed,
                    max(0.0, end - time.monotonic()),
                )
                return followed.beyond(after)
            finally:
                followed.waiting -= 1
                followed.wanted = time.monotonic()

    def _look(self, keys: list[str], seconds: float) -> bool:
        """Read the keys on a connection of the pool; returns whether one had a new entry."""
        end = min(self._database.ends(), time.monotonic() + seconds)
        values = [text_array(keys)]

        def attempt(end: float) -> Answer:
            with self._database.lend(end) as session:
                return session.run(self._heads, values)

        return self._note(self._database.until(end, "wait", attempt, repeatable=True, reads=True))

    def _note(self, answer: Answer, generation: int | None = None) -> bool:
        news = False
        with self._lock:
            for name, newest in answer.rows:
                followed = self._keys.get((name or b"").decode())
                if followed is None:
                    continue
                if newest is not None and followed.saw(from_int8(newest)):
                    news = True
                if generation is not None:
                    followed.synced = generation
        return news

    def _start(self) -> None:
        """Start the thread if it does not run, with the lock held."""
        if self._thread is None or self._thread.failed:
            if self._thread is not None:
                self._thread.join()
            for descriptor in self._awake or ():
                os.close(descriptor)
            self._awake = os.pipe()
            for descriptor in self._awake:
                os.set_blocking(descriptor, False)
            self._thread = PROCESS.start(
                "postgres-listener",
                partial(self._serve, self._awake[0]),
                thread_name="mzsql-postgres-listener",
                object_id=str(self._database.place),
            )

    def _wake(self) -> None:
        """Wake the thread, with the lock held."""
        if self._awake is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._awake[1], b"!")

    def _serve(self, awake: int, thread: Supervised) -> None:
        pause = _FIRST_RECONNECT
        quiet = 0.0
        while not self._over():
            try:
                if self._channel is None:
                    self._poll(awake, thread)
                    continue
                with contextlib.closing(self._listen()) as session:
                    pause = _FIRST_RECONNECT
                    thread.well()
                    self._hear(session, awake)
            except (Failed, LocationError) as failure:
                if not self._closed:
                    _logger.warning(
                        "%s: not listening for entries, followers look for them: %s",
                        self._database.place,
                        failure,
                    )
                    thread.trouble(failure)
            except Exception as bug:
                # Followers must not miss entries because of it: they poll, as while the connection is lost.
                thread.trouble(bug)
            finally:
                with self._lock:
                    self._live = False
            if self._closed:
                continue
            _sleep(awake, random.uniform(pause / 2, pause))  # noqa: S311 - jitter
            pause = min(_LONGEST_RECONNECT, pause * 2)
            if time.monotonic() - quiet > UNHEARD_SECONDS:
                quiet = time.monotonic()
                self._look_unheard()

    def _look_unheard(self) -> None:
        wanted = self._wanted()
        if wanted:
            # The next attempt to listen reports the error.
            with contextlib.suppress(LocationError):
                self._look(wanted, self._database.options.connect_timeout)

    def _over(self) -> bool:
        """Whether the thread should end: the handle is closed, or nobody has waited for long."""
        with self._lock:
            latest = time.monotonic() - LINGER_SECONDS
            if not self._closed and any(
                one.waiting or one.wanted > latest for one in self._keys.values()
            ):
                return False
            self._keys = {key: one for key, one in self._keys.items() if one.waiting}
            self._live = False
            awake, self._awake, self._thread = self._awake, None, None
            for descriptor in awake or ():
                os.close(descriptor)
            return True

    def _wanted(self, *, unsynced: bool = False) -> list[str]:
        """The awaited keys, or only those not read since listening began."""
        with self._lock:
            latest = time.monotonic() - WANTED_SECONDS
            return [
                key
                for key, one in self._keys.items()
                if (one.waiting or one.wanted > latest)
                and not (unsynced and one.synced == self._generation)
            ]

    def _listen(self) -> Session:
        options = self._database.options
        end = time.monotonic() + 2 * options.connect_timeout
        session = self._database.connect(end)
        try:
            session.script(
                sql.SQL("LISTEN {}").format(sql.Identifier(self._channel or "")).as_string(None)
            )
        except BaseException:
            session.close()
            raise
        with self._lock:
            self._generation += 1
            self._live = True
        return session

    def _hear(self, session: Session, awake: int) -> None:
        """Wake followers by notifications until there are none.

        Raises:
            Failed: the connection is lost.
        """
        poll = select.poll()
        poll.register(session.fileno(), select.POLLIN)
        poll.register(awake, select.POLLIN)
        look_at = 0.0
        while not (self._closed or self._idle()):
            due = time.monotonic() >= look_at
            wanted = self._wanted(unsynced=not due)
            if due:
                look_at = time.monotonic() + LOOK_SECONDS
            if wanted:
                self._note(session.run(self._heads, [text_array(wanted)]), self._generation)
            session.settle()
            self._heard(session.notified())
            poll.poll(max(0.0, look_at - time.monotonic()) * 1000)
            _drain(awake)

    def _idle(self) -> bool:
        with self._lock:
            latest = time.monotonic() - LINGER_SECONDS
            return not any(one.waiting or one.wanted > latest for one in self._keys.values())

    def _heard(self, payloads: Iterable[str]) -> None:
        with self._lock:
            for payload in payloads:
                seqno, _, key = payload.partition(" ")
                followed = self._keys.get(key)
                if followed is not None and seqno.isdecimal():
                    followed.saw(int(seqno))

    def _poll(self, awake: int, thread: Supervised) -> None:
        """Poll the awaited keys, often while entries arrive, until there are no followers."""
        with self._lock:
            self._generation += 1
            self._live = True
        pause = _FIRST_POLL
        while not (self._closed or self._idle()):
            wanted = self._wanted()
            news = bool(wanted) and self._look(wanted, self._database.options.connect_timeout)
            thread.well()
            with self._lock:
                for key in wanted:
                    self._keys[key].synced = self._generation
            pause = _FIRST_POLL if news else min(_LONGEST_POLL, pause * 1.5)
            _sleep(awake, pause)

    def close(self) -> None:
        """End waits and the thread. Idempotent."""
        with self._lock:
            self._closed = True
            for followed in self._keys.values():
                followed.changed.notify_all()
            self._wake()
            thread = self._thread
        if thread is not None:
            thread.stop()
            thread.join()


_forks: weakref.WeakSet[Followers] = weakref.WeakSet()


def _renew_all() -> None:
    for followers in list(_forks):
        followers.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def _drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)


def _sleep(awake: int, seconds: float) -> None:
    """Sleep for so many seconds, or until woken."""
    poll = select.poll()
    poll.register(awake, select.POLLIN)
    poll.poll(seconds * 1000)
    _drain(awake)
