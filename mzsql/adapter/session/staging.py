"""Staging DDL that only renames objects: several such statements in one transaction, carried out together by COMMIT.

Promise: each statement is checked against the catalog as the ones before it left it, and later ones in the transaction
see its names. No other session does before COMMIT, which writes all changes in one compare-and-append, or none. If
another session has changed an object meanwhile the transaction fails, since its names were resolved in an older
catalog.
"""

from __future__ import annotations

import msgspec

from mzsql.catalog.change import Change
from mzsql.catalog.state import CatalogState, applied
from mzsql.repr.errors import TransactionError

_OBJECTS = ("items", "clusters", "replicas", "schemas", "databases", "roles", "comments")


class Staged(msgspec.Struct, frozen=True):
    """What a transaction has staged so far.

    Attributes:
        base: the catalog when its first statement ran.
        state: the catalog with its changes applied.
        change: the changes, from `base` to `state`.
    """

    base: CatalogState
    state: CatalogState
    change: Change

    def then(self, change: Change) -> Staged:
        """This with another statement's change added."""
        return Staged(self.base, applied(self.state, change), self.change | change)

    def check(self, now: CatalogState) -> None:
        """Check that the catalog ``now`` has the objects of `base`, from which the transaction began.

        Raises:
            TransactionError: an object differs (40001).
        """
        if any(getattr(self.base, one) != getattr(now, one) for one in _OBJECTS):
            raise TransactionError(
                "object state changed while transaction was in progress",
                hint="Run the transaction again.",
                sqlstate="40001",
            )
