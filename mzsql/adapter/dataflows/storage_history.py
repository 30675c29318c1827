"""The history of what is stored: the rows of ``mz_storage_usage_by_shard``.

Promise: every `STORAGE_INTERVAL`, each shard of a table or materialized view gets a row, all of one collection with the same
time. Shards are looked at some at a time, so that many delay nothing else. Rows are kept for `STORAGE_RETENTION`
(`periodic`). One thread calls.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from mzsql.adapter.dataflows.periodic import Periodic, moment
from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.settings import STORAGE_INTERVAL, STORAGE_RETENTION
from mzsql.catalog.state import CatalogState
from mzsql.persist import CorruptPart, MissingPart, NewerVersion, ShardState
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Timestamp
from mzsql.storage import ManagedRow

_log = logging.getLogger(__name__)

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
        self._periodic = Periodic(
            env, "mz_storage_usage_by_shard", STORAGE_INTERVAL, STORAGE_RETENTION
        )
        # The collection under way.
        self._pages: Iterator[list[ManagedRow]] = iter(())

    def begin(self) -> None:
        """Start anew: this process leads from now on."""
        self._periodic.begin()
        self._pages = iter(())

    def look(self, state: CatalogState) -> None:
        """Go on with a collection, or begin one where it is time to."""
        rows = next(self._pages, None)
        if rows is not None:
            self._periodic.append(rows)
            return
        at = self._periodic.due(state)
        if at is not None:
            self._pages = self._read(sorted({item.shard for item in state.stored}), at)

    def _read(self, shards: list[str], at: Timestamp) -> Iterator[list[ManagedRow]]:
        """The rows of a collection, some at a time. A shard that does not exist yet has none."""
        taken = moment(at)
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
