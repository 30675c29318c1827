"""Lanes of a replica's work: each runs a few jobs at a time, and no job keeps the others waiting without end.

Promise: jobs begin in the order in which they came, `at_once` of them at a time, but for two exceptions: one that
somebody waits for begins before the others, but `IN_A_ROW` such ones at most one after the other if others wait, and one
that is expected to take long lets those pass that come within `YIELDS` times as long after it, and `YIELDS_MOST` seconds
at most. So each has its turn, even where what somebody waits for comes faster than it can be done. A job that takes
longer than `patience` seconds goes on but is no longer counted, so the next one begins, until `most` jobs run at once;
so a job behind one of hours waits for seconds. Threads are added when needed, and kept. A lane does not wake by itself
when patience is over: `put`, the end of a job and `look` let jobs begin, and `look` says when to call it again.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from mzsql.persist import Clock
from mzsql.repr.errors import NoThread
from mzsql.threads import Supervised

_log = logging.getLogger(__name__)

Job = Callable[[], None]

#: A job lets others pass that come for so many times the seconds that it is expected to take …
YIELDS = 10.0
#: … and for so many seconds at most.
YIELDS_MOST = 3.0
#: After so many jobs one after the other that somebody waits for, the next is the one whose turn it is.
IN_A_ROW = 4


def _nobody() -> tuple[Hashable, ...]:
    return ()


class Lane:
    """Runs jobs on threads of its own. Thread-safe.

    Args:
        start: starts a thread, given its number and its work.
        at_once: how many jobs run at once, without those that have outlasted `patience`.
        patience: seconds.
        most: how many jobs run at once in all.
        clock: its monotonic time is used.
        awaited: returns the keys of the jobs that somebody waits for, the most urgent first; asked without any lock held.
    """

    def __init__(
        self,
        start: Callable[[int, Callable[[Supervised], None]], Supervised],
        *,
        at_once: int,
        patience: float,
        most: int,
        clock: Clock,
        awaited: Callable[[], Iterable[Hashable]] = _nobody,
    ) -> None:
        self._start = start
        self._at_once = at_once
        self._patience = patience
        self._most = max(most, at_once)
        self._clock = clock
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        #: notified when a job ends
        self._rested = threading.Condition(lock)
        self._awaited = awaited
        #: queued jobs, by the numbers that they got; in the order of `_order`, which has those that have begun, too
        self._waiting: dict[int, tuple[Hashable, Job]] = {}
        #: (when its turn is, number) of each job
        self._order: list[tuple[float, int]] = []
        #: how many jobs have begun since the last one whose turn it was
        self._in_a_row = 0
        #: the numbers of queued jobs that are awaited whatever `awaited` returns, in order
        self._asked: dict[int, None] = {}
        #: the numbers of queued jobs that have a key
        self._keys: dict[Hashable, int] = {}
        self._numbers = itertools.count()
        #: start time of each running job, by its thread's number
        self._begun: dict[int, float] = {}
        self._threads: list[Supervised] = []
        self._closed = False
        for number in range(at_once):
            self._threads.append(start(number, partial(self._work, number)))

    def put(
        self, job: Job, key: Hashable = None, seconds: float = 0.0, *, asked: bool = False
    ) -> None:
        """Queue a job.

        Args:
            job: the work.
            key: what `awaited` calls it; at most one of a key is queued at a time.
            seconds: how long it is expected to take.
            asked: whether somebody waits for this very job.
        """
        with self._changed:
            number = next(self._numbers)
            turn = self._clock.monotonic() + min(seconds * YIELDS, YIELDS_MOST)
            self._waiting[number] = key, job
            heapq.heappush(self._order, (turn, number))
            if key is not None:
                self._keys[key] = number
            if asked:
                self._asked[number] = None
        self.look()

    def _take(self, urgent: Iterable[Hashable]) -> Job:
        """Take the job whose turn it is out of the queue. The caller holds the lock."""
        found = self._awaited_one(urgent) if self._in_a_row < IN_A_ROW else None
        self._in_a_row = 0 if found is None else self._in_a_row + 1
        while found is None:
            _, number = heapq.heappop(self._order)
            found = number if number in self._waiting else None
        key, job = self._waiting.pop(found)
        self._asked.pop(found, None)
        if self._keys.get(key) == found:
            del self._keys[key]
        if not self._waiting:
            self._order.clear()
        return job

    def _awaited_one(self, urgent: Iterable[Hashable]) -> int | None:
        """The number of the queued job that is awaited most; None if none is. The caller holds the lock."""
        asked = next(iter(self._asked), None)
        if asked is not None:
            return asked
        return next((self._keys[key] for key in urgent if key in self._keys), None)

    def look(self) -> float | None:
        """Begin queued jobs whose turn has come.

        Returns:
            Seconds after which another call may begin more; None if no job waits for that.
        """
        with self._changed:
            turns = min(self._turns(), len(self._waiting))
            idle = len(self._threads) - len(self._begun)
            for _ in range(turns - idle if not self._closed else 0):
                self._add()
            if turns:
                self._changed.notify_all()
            if len(self._waiting) <= turns or len(self._begun) + turns >= self._most:
                return None
            now = self._clock.monotonic()
            young = [at for at in self._begun.values() if now - at < self._patience]
            return min((at + self._patience - now for at in young), default=self._patience)

    def _add(self) -> None:
        number = len(self._threads)
        try:
            thread = self._start(number, partial(self._work, number))
        except NoThread as failure:
            if len(self._begun) == number:
                # Every thread there is runs a job, so nothing begins before one of these ends.
                _log.warning("no thread for what waits: %s", failure)
            return
        self._threads.append(thread)

    def _turns(self) -> int:
        """How many jobs may begin now. The caller holds the lock."""
        now = self._clock.monotonic()
        counted = sum(now - at < self._patience for at in self._begun.values())
        return max(0, min(self._at_once - counted, self._most - len(self._begun)))

    def _work(self, number: int, thread: Supervised) -> None:
        # A thread that was restarted after a job's failure is well: the next job may be hours away.
        thread.well()
        while True:
            with self._changed:
                self._changed.wait_for(self._goes_on)
                choice = len(self._waiting) > 1
            # Where there is no choice nobody need be asked.
            urgent = tuple(self._awaited()) if choice else ()
            with self._changed:
                if self._closed:
                    return
                if not self._goes_on():
                    continue  # another thread was faster
                job = self._take(urgent)
                self._begun[number] = self._clock.monotonic()
            try:
                job()
            finally:
                with self._changed:
                    del self._begun[number]
                    self._rested.notify_all()
                self.look()
            thread.well()

    def _goes_on(self) -> bool:
        """Whether a thread has something to do: a job whose turn it is, or to end. The caller holds the lock."""
        return self._closed or bool(self._waiting and self._turns())

    def rest(self, timeout: float, *, but_long: bool = False) -> bool:
        """Wait up to `timeout` seconds for a moment in which nothing runs or is queued; return whether there was one. With
        `but_long` what has outlasted `patience` is not counted.
        """
        with self._rested:
            return self._rested.wait_for(self._nothing_short if but_long else self._rests, timeout)

    def _nothing_short(self) -> bool:
        if self._rests():
            return True
        now = self._clock.monotonic()
        return not self._waiting and all(now - at >= self._patience for at in self._begun.values())

    def _rests(self) -> bool:
        return self._closed or not (self._begun or self._waiting)

    def close(self) -> None:
        """Begin no more jobs, and discard those that are queued. Idempotent."""
        with self._changed:
            self._closed = True
            self._rested.notify_all()
            self._waiting.clear()
            self._order.clear()
            self._keys.clear()
            self._asked.clear()
            threads = list(self._threads)
            self._changed.notify_all()
        for thread in threads:
            thread.stop()

    def join(self, timeout: float) -> None:
        """Wait until running jobs have ended, up to `timeout` seconds for each thread."""
        for thread in list(self._threads):
            thread.join(timeout)
