"""When a history is collected that is collected from time to time, and which of its rows are too old.

Promise: it is time every so often as a setting says, first `SETTLED_SECONDS` after this process has begun to lead, and never
where it says 0. What is older than another setting says is deleted with each collection; nothing is read for that where nothing
is. One thread calls all but `append`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.builtin import own_builtin
from mzsql.catalog.settings import MOST_KEPT_MS, milliseconds, system_value
from mzsql.catalog.state import CatalogState
from mzsql.repr.frontier import Timestamp
from mzsql.storage import ManagedRow

#: Seconds of leading before the first collection, which makes that of short-lived processes the exception.
SETTLED_SECONDS = 60.0


class Periodic:
    """One such history.

    Args:
        env: the environment.
        name: the relation in ``mz_internal``, whose kind says which of its columns has the time.
        interval: the setting that says how often.
        retention: the one that says for how long rows are kept.
    """

    def __init__(self, env: Environment, name: str, interval: str, retention: str) -> None:
        self._env = env
        self._relation = own_builtin("mz_internal", name).id
        self._interval = interval
        self._retention = retention
        self._begun = 0.0
        self._collected: float | None = None

    def begin(self) -> None:
        """Start anew: this process leads from now on."""
        self._begun, self._collected = self._env.clock.monotonic(), None

    def due(self, state: CatalogState) -> Timestamp | None:
        """The time of the collection that is to be made now, before which what is too old is deleted; None where it is not time for one."""
        now, every = self._env.clock.monotonic(), _setting(state, self._interval)
        since, pause = self._begun, min(SETTLED_SECONDS, every / 1000)
        if self._collected is not None:
            since, pause = self._collected, every / 1000
        if now < since + pause or not every:
            return None
        self._collected = now
        present = self._env.oracle.present_ms()
        kept = _setting(state, self._retention, MOST_KEPT_MS)
        self._env.manager.expire(self._relation, moment(max(0, present - kept)))
        return present

    def append(self, rows: Iterable[ManagedRow]) -> None:
        """Write rows of a collection."""
        updates = [(row, 1) for row in rows]
        if updates:
            self._env.manager.append(self._relation, updates)


def moment(ms: Timestamp) -> datetime.datetime:
    """A time as rows have it."""
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


def _setting(state: CatalogState, name: str, *most: int) -> int:
    return milliseconds(system_value(state.settings, name), name, *most)
