"""Read holds: what a query, a transaction, a cursor or a subscription reads stays readable while it does (reference facts 9.5).

Promise: from the moment a hold is taken until it is released, the since of what it holds does not move past the time at which it was
taken, in this process or any other. Taking one writes nothing: each process has one leased reader a collection, whose since keeps
the collection readable for every process; it is brought forward now and then, to the retention window or the earliest hold taken here
(`Collections.release_history`), and the lease is renewed in the background. Trade-off: what a short query holds another may find held
for a little longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from mzsql.repr.frontier import Frontier, Timestamp, join
from mzsql.repr.ids import GlobalId
from mzsql.storage import Collections
from mzsql.storage.collections import Hold


class Held:
    """Holds on several collections, released together."""

    def __init__(self, holds: Iterable[tuple[GlobalId, Hold]]) -> None:
        self._holds = dict(holds)

    @property
    def ids(self) -> frozenset[GlobalId]:
        """What is held."""
        return frozenset(self._holds)

    @property
    def since(self) -> Frontier:
        """The earliest time at which all that is held can be read."""
        return join(*(hold.since for hold in self._holds.values()))

    def downgrade(self, since: Timestamp) -> None:
        """Let go of the times before ``since``."""
        for hold in self._holds.values():
            hold.downgrade(since)

    def release(self) -> None:
        """Let go of everything. Idempotent."""
        for hold in self._holds.values():
            hold.release()


class ReadHolds:
    """Takes holds in one process. Thread-safe."""

    def __init__(self, collections: Collections) -> None:
        self._collections = collections

    def acquire(self, gids: Iterable[GlobalId]) -> Held:
        """Hold collections at their present sinces; the caller releases.

        Raises:
            UndefinedTable: one is not there; nothing is held then.
        """
        with ExitStack() as undo:
            taken: list[tuple[GlobalId, Hold]] = []
            for gid in sorted(gids):
                hold = self._collections.hold(gid, 0)
                undo.callback(hold.release)
                taken.append((gid, hold))
            undo.pop_all()
        return Held(taken)

    @contextmanager
    def of(self, gids: Iterable[GlobalId]) -> Iterator[Held]:
        """Hold collections while the block runs."""
        held = self.acquire(gids)
        try:
            yield held
        finally:
            held.release()
