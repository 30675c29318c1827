"""Who may write which table of this process at the same time.

Promise: writes that read nothing share a table; a statement that computes what it writes from what it has read has what it read for itself,
from before its read to its answer, so that it need not lose to others of this process. All locks of a statement are granted at once and in
the order asked for: nobody starves and nobody waits in a circle. A wait ends with the statement. They are no part of correctness, which the
check at the commit is (`mzsql.adapter.commit.group_commit`), also between processes; they are what keeps statements from running in vain.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import Interrupt

WRITE = "write"
"""The table is written: others may write it too."""
READ = "read"
"""The table's contents decide what is written elsewhere: others may read it so too, nobody writes it."""
EXCLUSIVE = "exclusive"
"""The table is written by what was read of it."""

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
        """Hold locks on tables, in the modes given, within the block.

        Raises:
            QueryCanceled: the statement was over before they were granted.
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
                for requests in (self._held, self._waiting):
                    if request in requests:
                        requests.remove(request)
                self._serve()

    def _serve(self) -> None:
        """Grant what fits to all that is held and to all that waits before it; the lock is held."""
        blocking = list(self._held)
        still: list[_Request] = []
        for request in self._waiting:
            if all(request.fits(other) for other in blocking):
                self._held.append(request)
                request.grant()
            else:
                still.append(request)
            blocking.append(request)
        self._waiting = still
