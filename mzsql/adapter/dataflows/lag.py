"""The history of how far dataflows lag behind the clock: the rows of ``mz_wallclock_lag_history``.

Promise: every minute, an object that lags, or is seen for the first time, gets a row for each replica; one that has
just caught up gets a row with lag zero. An object that had caught up before and still has gets none, so an idle
environment writes nothing. One thread calls.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.builtin import own_builtin
from mzsql.compute.protocol import Status
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: Seconds between two looks.
LAG_SECONDS = 60.0


class LagHistory:
    """Writes the lag history while this process leads.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._relation = own_builtin("mz_internal", "mz_wallclock_lag_history").id
        self._at: float | None = None
        # The objects and replicas that had no lag at the last look.
        self._current: set[tuple[GlobalId, str]] = set()

    def begin(self) -> None:
        """Start anew: this process leads from now on."""
        self._at, self._current = self._env.clock.monotonic(), set()

    def look(self, statuses: Callable[[], Iterable[Status]]) -> None:
        """Record the lags of all dataflows, if `LAG_SECONDS` have passed since the last time; only then is asked for their statuses."""
        now = self._env.clock.monotonic()
        if self._at is None or now < self._at + LAG_SECONDS:
            return
        self._at = now
        clock = self._env.oracle.present_ms()
        committed = self._env.wal.state.upper
        at = datetime.datetime.fromtimestamp(clock / 1000, datetime.UTC)
        before, self._current = self._current, set()
        rows = []
        for one in statuses():
            lag = _lag(one.frontier, committed, clock)
            key = one.object_id, one.replica_id
            if lag == 0:
                self._current.add(key)
            if lag != 0 or key not in before:
                interval = None if lag is None else (0, 0, lag * 1000)
                rows.append(((*key, interval, at), 1))
        if rows:
            self._env.manager.append(self._relation, rows)


def _lag(frontier: Timestamp | None, committed: Timestamp, now_ms: int) -> int | None:
    """An object's lag in milliseconds: 0 where it is as complete as the tables; None where nothing of it is complete
    yet.
    """
    if frontier is None or frontier >= committed:
        return 0
    return None if frontier == 0 else max(0, now_ms - frontier)
