"""The history of what is stored: the rows of ``mz_storage_usage_by_shard``.

Promise: every `STORAGE_INTERVAL`, first `SETTLED_SECONDS` after this process has begun to lead, each shard of a table or materialized view
gets a row, all of one collection with the same time. Shards are looked at some at a time, so that many delay nothing else. Rows older than
`STORAGE_RETENTION` are deleted with each collection. One thread calls.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator, Mapping, Sequence

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.builtin import builtins_by_name
from mzsql.catalog.settings import (
    MOST_KEPT_MS,
    STORAGE_INTERVAL,
    STORAGE_RETENTION,
    milliseconds,
    system_value,
)
from mzsql.catalog.state import CatalogState
from mzsql.persist import CorruptPart, MissingPart, NewerVersion, ShardState
from mzsql.repr.errors import SqlError
from mzsql.storage import ManagedRow

_log = logging.getLogger(__name__)

#: Seconds of leading before the first collection, which makes that of short-lived processes the exception.
SETTLED_SECONDS = 60.0
#: How many shards one look asks for.
_AT_ONCE = 256
#: Room for the number of a row within its collection; the time is before it.
_NUMBERED = 1_000_000


class StorageHistory:
    """Writes the history while this process leads.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._relation = builtins_by_name()["mz_internal", "mz_storage_usage_by_shard"].id
        self._begun = 0.0
        self._collected: float | None = None
        # The collection under way.
        self._pages: Iterator[list[ManagedRow]] = iter(())

    def begin(self) -> None:
        """Start anew: this process leads from now on."""
        self._begun, self._collected = self._env.clock.monotonic(), None
        self._pages = iter(())

    def look(self, state: CatalogState) -> None:
        """Go on with a collection, or begin one where it is time to."""
        rows = next(self._pages, None)
        if rows is not None:
            if rows:
                self._env.manager.append(self._relation, [(row, 1) for row in rows])
            return
        now, every = self._env.clock.monotonic(), _setting(state, STORAGE_INTERVAL)
        since, pause = self._begun, min(SETTLED_SECONDS, every / 1000)
        if self._collected is not None:
            since, pause = self._collected, every / 1000
        if now < since + pause or not every:
            return
        self._collected = now
        present = self._env.oracle.present_ms()
        oldest = _time(max(0, present - _setting(state, STORAGE_RETENTION, MOST_KEPT_MS)))
        self._env.manager.delete(self._relation, lambda row: row[3] < oldest)
        self._pages = self._read(sorted({item.shard for item in state.stored}), present)

    def _read(self, shards: list[str], at: int) -> Iterator[list[ManagedRow]]:
        """The rows of a collection, some at a time. A shard that does not exist yet has none."""
        taken = _time(at)
        for first in range(0, len(shards), _AT_ONCE):
            page = shards[first : first + _AT_ONCE]
            found = self._states(page)
            yield [
                (at * _NUMBERED + n, one, sum(batch.size for batch in found[one].trace), taken)
                for n, one in enumerate(page, first)
                if one in found
            ]

    def _states(self, shards: Sequence[str]) -> Mapping[str, ShardState]:
        """The states of those of the shards that exist and can be read; that others cannot is logged."""
        try:
            return self._env.persist.inspect_many(shards)
        except SqlError as failure:
            damaged = isinstance(failure, CorruptPart | MissingPart | NewerVersion)
            if len(shards) == 1 or not damaged:
                _log.warning("it is not noted how much %s takes: %s", ", ".join(shards), failure)
                return {}
        # One that cannot be read is no reason to leave out the others.
        return {name: state for one in shards for name, state in self._states([one]).items()}


def _time(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


def _setting(state: CatalogState, name: str, *most: int) -> int:
    return milliseconds(system_value(state.settings, name), name, *most)
