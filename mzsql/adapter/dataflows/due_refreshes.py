"""When views with a REFRESH schedule are due.

Promise: a refresh needs its inputs to be complete at its time, which the next write makes them. Where nobody writes,
`due` tells the leader to advance time. Between refreshes time is not advanced for their sake.
"""

from __future__ import annotations

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.objects import MaterializedView
from mzsql.catalog.state import CatalogState
from mzsql.repr.refresh import RefreshSchedule


class DueRefreshes:
    """The refresh schedules of an environment's views. Not thread-safe."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._items: object = None
        self._schedules: tuple[RefreshSchedule, ...] = ()

    def due(self, state: CatalogState) -> bool:
        """Whether a refresh time has passed at which the tables are not complete yet."""
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
