"""Read holds: what a query, a transaction, a cursor or a subscription reads stays readable while it does.

Promise: from taking a hold until its release, the since of the held collection does not advance beyond the time of the
hold, in this process or any other. Taking one writes nothing: each process has one leased reader per collection, whose
since keeps the collection readable for every process. That reader's since is downgraded from time to time, to the
retention window or the earliest hold taken here (`Collections.release_history`), and its lease is renewed in the
background. The trade-off: history is kept a little longer than needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from mzsql.repr.errors import TransactionError
from mzsql.repr.frontier import Frontier, Timestamp, join
from mzsql.repr.ids import GlobalId
from mzsql.storage import Collections
from mzsql.storage.collection import Hold


class Held:
    """Holds on several collections, released together. A context manager: released when its block ends."""

    def __init__(self, holds: Iterable[tuple[GlobalId, Hold]]) -> None:
        self._holds = dict(holds)

    @property
    def ids(self) -> frozenset[GlobalId]:
        """The collections held."""
        return frozenset(self._holds)

    @property
    def since(self) -> Frontier:
        """The earliest time at which all of them are readable."""
        return join(*(hold.since for hold in self._holds.values()))

    def downgrade(self, since: Timestamp) -> None:
        """Release the times before ``since``."""
        for hold in self._holds.values():
            hold.downgrade(since)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release all holds. Idempotent."""
        for hold in self._holds.values():
            hold.release()


class TimeDomain:
    """The relations that a transaction may read: all in the schemas that its first query touched, held readable until
    it ends.

    All of them are read at one timestamp, so all must be readable there from the start.

    Attributes:
        held: the holds.
        names: the relations' full names.
    """

    def __init__(self, held: Held, names: Iterable[str]) -> None:
        self.held = held
        self.names = tuple(sorted(names))

    def check(self, read: Iterable[tuple[GlobalId, str]]) -> None:
        """Refuse relations outside the time domain.

        Args:
            read: ids and full names of the relations that a query reads.

        Raises:
            TransactionError: one of them is outside.
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
        """Hold collections at their present sinces; the caller releases the result.

        Raises:
            UndefinedTable: one does not exist; nothing is held then.
        """
        gids = sorted(gids)
        if not gids:
            return Held(())
        with ExitStack() as undo:
            taken: list[tuple[GlobalId, Hold]] = []
            for gid in gids:
                hold = self._collections.hold(gid, 0)
                undo.callback(hold.release)
                taken.append((gid, hold))
            undo.pop_all()
        return Held(taken)

    def of(self, gids: Iterable[GlobalId]) -> Held:
        """Hold collections while a block runs, as its context manager; they are held from the call on."""
        return self.acquire(gids)
