"""What shards of very many objects hold, for rows that are computed one after another.

Promise: a shard that existed when the first row was computed is never said not to exist. Most objects of a large
environment may have no shard yet, and asking Consensus for each would take most of the time of a count; asking for all
of them at once takes longer than asking for a few. What is asked for in the order of the rows is fetched ahead, in
steps that grow; what is asked for here and there is fetched alone. Of a shard is told what it holds though one fetched
with it cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from mzsql.persist import PersistClient, ShardState
from mzsql.repr.errors import SqlError

T = TypeVar("T")
#: Gives the state of a shard; None where it does not exist.
StateOf: TypeAlias = Callable[[str], ShardState | None]

#: So many shards are asked for one by one.
_FEW = 64
#: At most so many are fetched ahead.
_MOST = 256


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


class FetchedAhead(Generic[T]):
    """What many shards hold, fetched ahead of who asks for it. For one statement, in one thread.

    Args:
        persist: the client of the environment's shards.
        shards: the shards that may be asked for, about in the order in which they will be.
        fetch: gives what each of some shards holds; those that it leaves out do not exist.
        absent: what a shard that does not exist holds.
    """

    def __init__(
        self,
        persist: PersistClient,
        shards: Iterable[str],
        fetch: Callable[[Sequence[str]], Mapping[str, T]],
        absent: T,
    ) -> None:
        self._shards = list(dict.fromkeys(shards))
        self._places = {shard: place for place, shard in enumerate(self._shards)}
        self._may_have = ExistingShards(persist).may_have
        self._fetch = fetch
        self._absent = absent
        self._known: dict[str, T] = {}
        self._next = 0
        self._step = 1

    def of(self, shard: str) -> T:
        """What a shard holds."""
        if shard not in self._known:
            self._known = self._page(shard)
        return self._known[shard]

    def _page(self, shard: str) -> dict[str, T]:
        """A shard and those after it, as many as it is worth while."""
        place = self._places.get(shard)
        if place is None:
            return self._found([shard], [shard])
        # Some of those fetched ahead may be left out by who asks.
        goes_on = self._next <= place <= self._next + self._step
        self._step = min(2 * self._step, _MOST) if goes_on else 1
        there: list[str] = []
        self._next = place
        while self._next < len(self._shards) and len(there) < self._step:
            if self._may_have(one := self._shards[self._next]):
                there.append(one)
            self._next += 1
        try:
            return self._found(self._shards[place : self._next], there)
        except SqlError:
            if len(there) < 2:
                raise
            # It may be another one that cannot be read, or all of them together take too long.
            self._step, self._next = 1, place + 1
            return self._found([shard], [shard] if shard in there else [])

    def _found(self, shards: Sequence[str], there: Sequence[str]) -> dict[str, T]:
        found = self._fetch(there) if there else {}
        return {one: found.get(one, self._absent) for one in shards}


def states_ahead(persist: PersistClient, shards: Iterable[str]) -> FetchedAhead[ShardState | None]:
    """The states of shards; None where one does not exist."""
    return FetchedAhead(persist, shards, persist.inspect_many, None)
