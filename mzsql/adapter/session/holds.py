"""Read holds: what a query, a transaction, a cursor or a subscription reads stays readable while it does.

Promise: from the moment a hold is taken until it is released, the since of what it holds does not move past the time at which it was
taken, in this process or any other. Taking one writes nothing: each process has one leased reader a collection, whose since keeps
the collection readable for every process; it is brought forward now and then, to the retention window or the earliest hold taken here
(`Collections.release_history`), and the lease is renewed in the background. Trade-off: what a short query holds another may find held
for a little longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from mzsql.repr.errors import TransactionError
from mzsql.repr.frontier import Frontier, Timestamp, join
from mzsql.repr.ids import GlobalId
from mzsql.storage import Collections
from mzsql.storage.collection import Hold


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


class TimeDomain:
    """What a transaction may read: everything in the schemas that its first query touched, held readable until it ends.

    All of it is read at one time, so it must all be readable at that time from the start.

    Attributes:
        held: the holds.
        names: the whole names of what may be read.
    """

    def __init__(self, held: Held, names: Iterable[str]) -> None:
        self.held = held
        self.names = tuple(sorted(names))

    def check(self, read: Iterable[tuple[GlobalId, str]]) -> None:
        """Refuse what lies outside.

        Args:
            read: ids and whole names of what a query reads.

        Raises:
            TransactionError: something lies outside.
        """
        outside = sorted(name for gid, name in read if gid not in self.held.ids)
        if outside:
            raise TransactionError(
                "Transactions can only reference objects in the same timedomain. "
                "See https://materialize.com/docs/sql/begin/#same-timedomain-error",
                detail="The following relations in the query are outside the transaction's time domain:\n"
                + "\n".join(f'"{name}"' for name in outside)
                + "\nOnly the following relations are available:\n"
                + "\n".join(f'"{name}"' for name in self.names),
                sqlstate="25000",
            )


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
