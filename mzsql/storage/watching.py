"""Watches an environment: calls back when some collection may have moved, whoever moved it.

Promise: a watcher is called after every move of the write-ahead log, and after whatever this process reports; one
that fails does not affect the others. There is one thread, started with the first watcher, which waits for
Consensus's notifications instead of polling.
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

#: A wait that ends earlier than this without a change is followed by a pause of this length.
_EARLY_SECONDS = 0.02


class Watchers:
    """The watchers of one environment in one process. Thread-safe.

    Args:
        wal: the log that is followed.
        supervisor: runs the thread that follows it.
        clock: times its waits.

    Attributes:
        told: whether no move of the log is missed, so that the log's state as known here is current.
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
        """Call ``callback`` whenever some collection's upper may have moved; returns a function that ends this."""
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
        """Call the watchers; to be called after a commit of this process."""
        with self._lock:
            watchers = list(self._watchers.values())
        for callback in watchers:
            try:
                callback()
            except Exception:
                # The others must be called all the same.
                _log.exception("a watcher of the collections failed")

    def _follower_changed(self, status: ThreadStatus) -> None:
        """The follower has failed or is running again. Until it runs, those who rely on it must fetch states
        themselves; they should look now.
        """
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
        """Wait for the thread to end: it may be in a wait that ends only when Consensus is closed."""
        if self._follower is not None:
            self._follower.join(timeout)
