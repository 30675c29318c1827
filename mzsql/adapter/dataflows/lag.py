"""How far the dataflows that this process commands were behind the clock, minute by minute: what ``mz_wallclock_lag_history`` has.

Promise: an object that was behind, or is known for the first time, has an entry a minute on each replica, and one when it has caught up;
what was behind nothing and still is has none, so an environment in which nothing happens writes nothing. One thread calls.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.builtin import builtins_by_name
from mzsql.compute.protocol import Status
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: It is looked so often, in seconds.
LAG_SECONDS = 60.0


class LagHistory:
    """Writes that history while this process leads.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._relation = builtins_by_name()["mz_internal", "mz_wallclock_lag_history"].id
        self._at: float | None = None
        # Those that were behind nothing when it was looked last.
        self._current: set[tuple[GlobalId, str]] = set()

    def begin(self) -> None:
        """This process leads from now on."""
        self._at, self._current = self._env.clock.monotonic(), set()

    def look(self, statuses: Iterable[Status]) -> None:
        """Take down how dataflows stand, where it is time to."""
        now = self._env.clock.monotonic()
        if self._at is None or now < self._at + LAG_SECONDS:
            return
        self._at = now
        clock = self._env.oracle.present_ms()
        committed = self._env.wal.state.upper
        at = datetime.datetime.fromtimestamp(clock / 1000, datetime.UTC)
        before, self._current = self._current, set()
        rows = []
        for one in statuses:
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
    """How many milliseconds an object is behind; None where nothing of it is complete yet."""
    if frontier is None or frontier >= committed:
        return 0
    return None if frontier == 0 else max(0, now_ms - frontier)
