"""Watching an environment: being told that some collection may have moved, whoever moved it.

Promise: a watcher is called after every move of the write-ahead log, and after whatever this process says has moved; one that fails
keeps no other from being told. There is one thread, from the first watcher on, and it waits in Consensus rather than asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mzsql.persist import Clock
from mzsql.storage.following import FOLLOW_SECONDS
from mzsql.storage.wal import WriteAheadLog
from mzsql.threads import Supervised, Supervisor, ThreadStatus

_log = logging.getLogger(__name__)

#: A wait that ends earlier and has seen nothing is followed by a pause of that length.
_EARLY_SECONDS = 0.02


class Watchers:
    """Whoever is told of one environment's moves, in one process. Thread-safe.

    Args:
        wal: the log that is followed.
        supervisor: runs the thread that follows it.
        clock: times its waits.

    Attributes:
        told: whether no move of the log is missed, so that what is known of it here is all there is to know.
    """

    def __init__(self, wal: WriteAheadLog, supervisor: Supervisor, clock: Clock) -> None:
        self._wal = wal
        self._supervisor = supervisor
        self._clock = clock
        self._lock = threading.Lock()
        self._watchers: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._follower: Supervised | None = None
        self._stop = threading.Event()
        self.told = False

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` whenever some collection's upper may have moved; the result ends that."""
        with self._lock:
            number = self._next
            self._next += 1
            self._watchers[number] = callback
            if self._follower is None:
                self._follower = self._supervisor.start(
                    "log-follower",
                    self._follow,
                    thread_name="mzsql-follow-log",
                    changed=self._follower_changed,
                )

        def end() -> None:
            with self._lock:
                self._watchers.pop(number, None)

        return end

    def notify(self) -> None:
        """Tell the watchers that something moved; called after a commit of this process."""
        with self._lock:
            watchers = list(self._watchers.values())
        for callback in watchers:
            try:
                callback()
            except Exception:
                # The others are told all the same, and whoever tells goes on.
                _log.exception("a watcher of the collections failed")

    def _follower_changed(self, status: ThreadStatus) -> None:
        """The follower has failed, or goes on: whoever relies on being told asks for himself until it does, and looks again now."""
        if status.status != "running":
            self.told = False
        self.notify()

    def _follow(self, thread: Supervised) -> None:
        wal = self._wal
        seen = -1  # what moved before this began is told, too
        while not self._stop.is_set():
            began = self._clock.monotonic()
            if wal.notified and not self.told:
                wal.follow()
                thread.well()
                self.told = True  # from here on no move is missed
            state = wal.next_move(seen, FOLLOW_SECONDS)
            thread.well()
            if state.upper > seen:
                seen = state.upper
                self.notify()
            elif self._clock.monotonic() - began < _EARLY_SECONDS:
                self._stop.wait(_EARLY_SECONDS)

    def close(self) -> None:
        """Stop following. Idempotent."""
        self._stop.set()
        if self._follower is not None:
            self._follower.stop()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end: it may be in a wait that ends when Consensus is closed."""
        if self._follower is not None:
            self._follower.join(timeout)
