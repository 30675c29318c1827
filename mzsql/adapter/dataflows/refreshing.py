"""Views that are refreshed at some times only: when one is due.

Promise: a view's refresh needs its inputs to be complete at its time, which they are with the next write; where nobody writes, whoever
leads is told that time has to be moved on. Between refreshes nothing is.
"""

from __future__ import annotations

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.objects import MaterializedView
from mzsql.catalog.state import CatalogState
from mzsql.repr.refresh import RefreshSchedule


class Refreshing:
    """Knows the schedules of an environment's views. For one thread at a time."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._items: object = None
        self._schedules: tuple[RefreshSchedule, ...] = ()

    def due(self, state: CatalogState) -> bool:
        """Whether the time of some refresh is over and tables are not complete there yet."""
        if self._items is not state.items:
            self._items = state.items
            self._schedules = tuple(
                view.refresh for view in state.of(MaterializedView) if view.refresh is not None
            )
        if not self._schedules:
            return False
        now, upper = self._env.oracle.present_ms(), self._env.wal.state.upper
        lasts = (one.last_before(now) for one in self._schedules)
        return any(last is not None and last >= upper for last in lasts)
