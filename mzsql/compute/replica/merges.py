"""Merges of traces, put off to a moment without steps.

Promise: a trace with many runs is merged soon after (`Hot.merge`), once for however often it was put here, and none of it is a step's to
wait for. All that are due are merged by one job, so that where steps leave few such moments none of these is lost by waiting for the next.
One that fails keeps none of the others from it; the first failure is raised when all were tried.
Trade-off: until then lookups search more runs; a trace that has too many merges them itself (`trace.MOST_RUNS`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.hot import Hot


class Merges:
    """The traces that are due. Thread-safe.

    Args:
        later: runs a job at a moment that suits.
    """

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self._later = later
        self._lock = threading.Lock()
        self._due: dict[int, Hot] = {}

    def put(self, hot: Hot) -> None:
        """Have a trace merged."""
        with self._lock:
            first = not self._due
            self._due[id(hot)] = hot
        if first:
            self._later(self._run)

    def _run(self) -> None:
        with self._lock:
            due = list(self._due.values())
            self._due.clear()
        each_by_itself(hot.merge for hot in due)
