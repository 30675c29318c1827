"""The peeks that a replica has to answer: those whose time has not come, and those that are being read.

Promise: each peek is answered once: with rows, with an error, or with neither if it was canceled before they were
there. At most `MOST_PEEKS` are held. A waiting peek costs next to nothing: it is checked when the scheduler runs,
which the step that completes its time wakes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from mzsql.compute.protocol import MOST_PEEKS, Peek, PeekResponse, Respond
from mzsql.repr.errors import ObjectInUse
from mzsql.repr.frontier import Frontier, less_than
from mzsql.repr.ids import GlobalId


class PendingPeeks:
    """The unanswered peeks of one replica. Thread-safe.

    Args:
        respond: takes the answers.
        frontier: how far an index can be read: 0 before it is hydrated, None if it is sealed or gone (reading it
            then fails with the reason).
        rows: reads what a peek asks for; its error becomes the answer.
    """

    def __init__(
        self,
        respond: Respond,
        frontier: Callable[[GlobalId], Frontier],
        rows: Callable[[Peek], pa.Table],
    ) -> None:
        self._respond = respond
        self._frontier = frontier
        self._rows = rows
        self._lock = threading.Lock()
        self._waiting: dict[str, Peek] = {}
        self._read: set[str] = set()

    def add(self, peek: Peek) -> None:
        """Accept a peek.

        Raises:
            ObjectInUse: there are too many.
        """
        with self._lock:
            if len(self._waiting) + len(self._read) < MOST_PEEKS:
                self._waiting[peek.uuid] = peek
                return
        raise ObjectInUse(f"the replica has {MOST_PEEKS} peeks to answer already")

    def cancel(self, uuid: str) -> None:
        """Answer a peek without rows, unless it was answered."""
        with self._lock:
            known = self._waiting.pop(uuid, None) is not None or uuid in self._read
            self._read.discard(uuid)
        if known:
            self._respond(PeekResponse(uuid))

    def ready(self) -> list[Callable[[], None]]:
        """The jobs that answer the peeks whose index is complete at their time. Each job is returned once."""
        if not self._waiting:
            return []
        with self._lock:
            found = [p for p in self._waiting.values() if less_than(p.as_of, self._frontier(p.id))]
            for peek in found:
                del self._waiting[peek.uuid]
                self._read.add(peek.uuid)
        return [partial(self._answer, peek) for peek in found]

    def _answer(self, peek: Peek) -> None:
        """Read a peek's rows and answer it, unless it was canceled meanwhile."""
        try:
            response = PeekResponse(peek.uuid, self._rows(peek))
        except Exception as error:  # told to who has asked
            response = PeekResponse(peek.uuid, error=str(error))
        with self._lock:
            if peek.uuid not in self._read:
                return
            self._read.discard(peek.uuid)
        self._respond(response)
