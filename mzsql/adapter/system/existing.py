"""Which shards exist, for rows about very many objects.

Promise: a shard that existed when the first row was computed is never said not to exist. Most objects of a large
environment may have no shard yet, and asking Consensus for each would take most of the time of a count; asking for all
of them at once takes longer than asking for a few.
"""

from __future__ import annotations

from mzsql.persist import PersistClient

#: So many shards are asked for one by one.
_FEW = 64


class ExistingShards:
    """Tells which shards may exist. For one statement, in one thread."""

    def __init__(self, persist: PersistClient) -> None:
        self._persist = persist
        self._asked = 0
        self._all: frozenset[str] | None = None

    def may_have(self, shard: str) -> bool:
        """Whether a shard may exist; whoever reads its state learns whether it does."""
        self._asked += 1
        if self._all is None and self._asked > _FEW:
            self._all = self._persist.shard_ids()
        return self._all is None or shard in self._all
