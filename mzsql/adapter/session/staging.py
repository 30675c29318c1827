"""Statements that give things other names, several of them in one transaction: tried as they are said, carried out together by COMMIT.

Promise: each is checked when it is said, against the catalog as those before it leave it, and what follows in the transaction sees their
names. Nobody else does before COMMIT, which writes all of them in one compare-and-append, or none. If somebody else has changed an
object meanwhile the transaction fails: its names were resolved in a catalog that is gone.
"""

from __future__ import annotations

import msgspec

from mzsql.catalog.change import Change
from mzsql.catalog.state import CatalogState, applied
from mzsql.repr.errors import TransactionError

_OBJECTS = ("items", "clusters", "replicas", "schemas", "databases", "roles", "comments")


class Staged(msgspec.Struct, frozen=True):
    """What a transaction has done to the catalog so far.

    Attributes:
        base: the catalog that its first statement found.
        state: the catalog as it would be.
        change: what makes the one of the other.
    """

    base: CatalogState
    state: CatalogState
    change: Change

    def then(self, change: Change) -> Staged:
        """With another statement's change."""
        return Staged(self.base, applied(self.state, change), self.change | change)

    def check(self, now: CatalogState) -> None:
        """Raise TransactionError where the objects are no longer those that the transaction began with."""
        if any(getattr(self.base, one) != getattr(now, one) for one in _OBJECTS):
            raise TransactionError(
                "object state changed while transaction was in progress",
                hint="Run the transaction again.",
                sqlstate="40001",
            )
