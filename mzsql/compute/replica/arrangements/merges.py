"""Merges the runs of traces at moments without steps.

Promise: a trace with unsorted updates or many runs is tidied soon (`Hot.merge`), once for however often it was put
here, and no step waits for it. One job does all that are due, so that if steps leave few free moments, one is
enough. A merge that fails keeps no other from being tried; the first failure is raised at the end. Trade-off: until
then lookups search more runs. A trace with too many merges them itself (`trace.MOST_RUNS`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mzsql.compute.replica.arrangements.hot import Hot
from mzsql.compute.replica.endings import each_by_itself


class Merges:
    """The traces that are to be merged. Thread-safe.

    Args:
        later: runs a job at a moment without steps.
    """

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self._later = later
        self._lock = threading.Lock()
        self._due: dict[int, Hot] = {}

    def put(self, hot: Hot) -> None:
        """Have a trace merged soon."""
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
