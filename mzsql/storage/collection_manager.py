"""Storage-managed collections: what mzsql itself records (hydration statuses, histories), on shards, in the order of
commands.

Promise: a command returns at once and becomes durable in its turn (`mzsql.storage.managed_collection`). There are
two kinds: a *differential* collection mirrors small state, whose desired contents are in memory; an *append-only*
one is a history. Lasting rows of a mirror are replaced without a moment in which they are absent. Times are
wall-clock milliseconds. Source: Materialize's design document on unified compute introspection.
docs/architecture.md, "The way of a status to its relation".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from mzsql.persist import Clock, PersistClient, SystemClock
from mzsql.repr.errors import UndefinedTable
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType
from mzsql.storage.managed import Append, Delete, Group, ManagedKind, ManagedRow
from mzsql.storage.managed_collection import ManagedCollection


class CollectionManager:
    """The storage-managed collections that this process writes."""

    def __init__(self, persist: PersistClient, *, clock: Clock | None = None) -> None:
        self._persist = persist
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._collections: dict[GlobalId, ManagedCollection] = {}

    def register(
        self,
        gid: GlobalId,
        shard_id: str,
        columns: tuple[ColumnType, ...],
        *,
        kind: ManagedKind,
        name: str,
    ) -> None:
        """Take a collection over: from now on this process writes it. A mirror becomes empty, except for lasting rows."""
        with self._lock:
            if gid not in self._collections:
                self._collections[gid] = ManagedCollection(
                    self._persist,
                    shard_id,
                    columns,
                    kind=kind,
                    name=name,
                    clock=self._clock,
                )

    def append(
        self,
        gid: GlobalId,
        updates: Sequence[tuple[ManagedRow, int]],
        *,
        anew: Group | None = None,
        after: GlobalId | None = None,
    ) -> None:
        """Append rows with their diffs, all at one time. Returns at once.

        Args:
            gid: the collection.
            updates: the rows.
            anew: a group of a mirror's rows that is removed at the same time, whoever wrote it.
            after: another collection, which is never written after this one: who reads these rows finds there what was
                appended before this call, unless that cannot be written within `FIRST_SECONDS`.

        Raises:
            UndefinedTable: this process does not write the collection.
        """
        other = None if after is None else self._written(after)
        self._written(gid).send(
            Append(tuple(updates), anew), None if other is None else (other, other.given)
        )

    def delete(self, gid: GlobalId, predicate: Callable[[ManagedRow], bool]) -> None:
        """Retract every row appended before this call for which ``predicate`` holds. Returns at once.

        Raises:
            UndefinedTable: this process does not write the collection.
        """
        self._written(gid).send(Delete(predicate))

    def expire(self, gid: GlobalId, before: Any) -> None:
        """Retract every row appended before this call whose value in the kind's `oldest_by` is less than ``before``. Returns at
        once, and a history's rows are read only where some may be.

        Raises:
            UndefinedTable: this process does not write the collection.
        """
        collection = self._written(gid)
        column = collection.kind.oldest_by
        collection.send(Delete(lambda row: row[column] < before, before))

    def _written(self, gid: GlobalId) -> ManagedCollection:
        with self._lock:
            collection = self._collections.get(gid)
        if collection is None:
            raise UndefinedTable(
                f"unknown catalog item '{gid}'",
                detail="This process does not write a storage-managed collection of that id.",
                hint="Register the collection first; a manager that was closed has none.",
            )
        return collection

    def is_registered(self, gid: GlobalId) -> bool:
        """Whether this process writes the collection."""
        return gid in self._collections

    def flush(self, gid: GlobalId, timeout: float = 30.0) -> None:
        """Wait until all commands given before for the collection are durable.

        Raises:
            UndefinedTable: this process does not write the collection.
            NotReadable: they are not within ``timeout`` seconds.
            ThreadFailed: the writer has ended for good.
        """
        self._written(gid).flush(timeout)

    def close(self) -> None:
        """Write what is queued and stop. Idempotent."""
        with self._lock:
            collections, self._collections = list(self._collections.values()), {}
        for collection in collections:
            collection.close()
