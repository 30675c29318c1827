"""Locks between the statements of one process that write the same tables.

Promise: writes that read nothing share a table. A statement that computes its writes from reads locks what it reads,
from before the read until it is answered, so that it does not lose a race against this process's other statements. All
locks of a statement are granted at once and in order of request: no deadlock, no starvation. Waiting ends with the
statement. Correctness does not depend on these locks, within or between processes: the check at the commit ensures it
(`mzsql.adapter.commit.group_commit`). They only save statements from being retried.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import Interrupt

WRITE = "write"
"""The table is written; other statements may write it too."""
READ = "read"
"""The table's contents determine writes elsewhere; other statements may read it likewise, none may write it."""
EXCLUSIVE = "exclusive"
"""The table is written with rows computed from its own contents."""

Modes = Mapping[GlobalId, str]


class _Request:
    def __init__(self, modes: Modes) -> None:
        self.modes = modes
        self.granted = False
        self.changed = threading.Condition()

    def fits(self, other: _Request) -> bool:
        """Whether both may hold their locks at once."""
        return all(
            other.modes[gid] == mode != EXCLUSIVE
            for gid, mode in self.modes.items()
            if gid in other.modes
        )

    def grant(self) -> None:
        with self.changed:
            self.granted = True
            self.changed.notify_all()


class TableLocks:
    """The locks of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[_Request] = []
        self._waiting: list[_Request] = []

    @contextmanager
    def held(self, modes: Modes, interrupt: Interrupt) -> Iterator[None]:
        """Hold locks on tables, in the given modes, within the block.

        Raises:
            QueryCanceled: the statement was canceled or timed out before they were granted.
        """
        request = _Request(modes)
        try:
            with self._lock:
                self._waiting.append(request)
                self._serve()
            if not request.granted and not interrupt.wait(request.changed, lambda: request.granted):
                interrupt.check()
            yield
        finally:
            with self._lock:
                # Ctrl-C may have come at any moment, so nothing is assumed about how far the request got.
                for requests in (self._held, self._waiting):
                    if request in requests:
                        requests.remove(request)
                self._serve()

    def _serve(self) -> None:
        """Grant each waiting request that is compatible with all held ones and with all that wait before it; the lock
        is held.
        """
        blocking = list(self._held)
        still: list[_Request] = []
        for request in self._waiting:
            if all(request.fits(other) for other in blocking):
                self._held.append(request)
                request.grant()
            else:
                still.append(request)
            # One that waits blocks later ones, too: a statement that needs a table alone would otherwise wait as long as readers keep
            # coming.
            blocking.append(request)
        self._waiting = still
