"""What compute asks of the catalog and of storage-managed collections: the arrangement registry and the status sink."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.opening import MANAGED
from mzsql.catalog.builtin import builtins_by_name
from mzsql.catalog.change import Change
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.state import CatalogState
from mzsql.compute import ObjectHydrationStatus, OperatorHydrationStatus, StatusRow
from mzsql.persist import PersistClient
from mzsql.repr.ids import GlobalId
from mzsql.storage import CollectionManager, end_shard

_OPERATORS = ("mz_internal", "mz_compute_operator_hydration_statuses_per_worker")
_OBJECTS = ("mz_internal", "mz_compute_hydration_statuses")


class CatalogArrangements:
    """Which shard holds which arrangement, in the catalog: compute's `ArrangementRegistry`."""

    def __init__(self, catalog: DurableCatalog) -> None:
        self._catalog = catalog

    def arrangement_shard(self, replica: str, fingerprint: str) -> str | None:
        """The shard that was put for the fingerprint, if any."""
        return self._catalog.state.arrangements.get(f"{replica}/{fingerprint}")

    def update(self, replica: str, shards: Mapping[str, str | None]) -> None:
        """Remember the shard of each fingerprint instead of the one before, forget it where it is None, in one change of the catalog."""

        def command(state: CatalogState) -> tuple[Change, None]:
            named = {f"{replica}/{fingerprint}": shard for fingerprint, shard in shards.items()}
            return Change(
                arrangements={
                    name: shard
                    for name, shard in named.items()
                    if shard is not None or name in state.arrangements
                }
            ), None

        self._catalog.transact(command)

    def entries(self, replica: str) -> Mapping[str, str]:
        """Every fingerprint of the replica with its shard."""
        prefix = f"{replica}/"
        return {
            name.removeprefix(prefix): shard
            for name, shard in self._catalog.state.arrangements.items()
            if name.startswith(prefix)
        }

    def retire(self, persist: PersistClient) -> bool:
        """End and forget the shards of dropped objects, and what replicas have left that are not there any more.

        Returns:
            Whether none is left: one that somebody still reads is ended, and forgotten, by a later call.
        """
        state = self._catalog.state
        ended: list[str] = []
        left = False
        for name, shard in state.arrangements.items():
            if name.partition("/")[0] in state.replicas:
                continue
            # A crash may have come between the shard's name and the shard; a table that was never written has none.
            if persist.exists(shard) and end_shard(persist, shard):
                left = True
            else:
                ended.append(name)
        if ended:

            def command(state: CatalogState) -> tuple[Change, None]:
                known = [name for name in ended if name in state.arrangements]
                return Change(arrangements=dict.fromkeys(known)), None

            self._catalog.transact(command)
        return not left


class HydrationSink:
    """Hydration statuses into their collections, in the order in which they come: compute's `StatusSink`.

    Args:
        manager: writes the collections.
        monotonic: seconds from an arbitrary start, never backwards: an object's hydration time is measured here.
    """

    def __init__(self, manager: CollectionManager, monotonic: Callable[[], float]) -> None:
        by_name = builtins_by_name()
        self._operators: GlobalId = by_name[_OPERATORS].id
        self._objects: GlobalId = by_name[_OBJECTS].id
        self._manager = manager
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._started: dict[tuple[GlobalId, str], float] = {}
        self._taken: dict[tuple[GlobalId, str], tuple[int, int, int] | None] = {}

    def update(self, rows: Sequence[tuple[StatusRow, int]]) -> None:
        """Append the rows with their diffs."""
        operators, objects = [], []
        shown: Counter[tuple[GlobalId, str]] = Counter()
        with self._lock:
            for row, diff in rows:
                if isinstance(row, OperatorHydrationStatus):
                    operators.append((_operator_row(row), diff))
                else:
                    objects.append((self._object_row(row, diff), diff))
                    shown[row.object_id, row.replica_id] += diff
            for key in [key for key, diff in shown.items() if diff < 0]:
                self._started.pop(key, None)
                self._taken.pop(key, None)
        if operators:
            self._manager.append(self._operators, operators)
        if objects:
            self._manager.append(self._objects, objects)

    def _object_row(
        self, row: ObjectHydrationStatus, diff: int
    ) -> tuple[str, str, bool, tuple[int, int, int] | None]:
        key = (row.object_id, row.replica_id)
        if not row.hydrated:
            if diff > 0:
                self._started[key] = self._monotonic()
            return row.object_id, row.replica_id, False, None
        if diff > 0:
            # Of a dataflow that goes on from its shards, never seen unhydrated, it is not known how long that took.
            started = self._started.pop(key, None)
            if started is None:
                self._taken[key] = None
            else:
                self._taken[key] = (0, 0, round((self._monotonic() - started) * 1000) * 1000)
        return row.object_id, row.replica_id, True, self._taken.get(key)

    def delete_replica(self, replica_id: str) -> None:
        """Retract every row of the replica that was appended before."""
        self._manager.delete(self._operators, lambda row: row[2] == replica_id)
        self._manager.delete(self._objects, lambda row: row[1] == replica_id)


def _operator_row(row: OperatorHydrationStatus) -> tuple[str, int, str, int, bool]:
    return row.object_id, row.plan_node_id, row.replica_id, row.worker_id, row.hydrated


def register_managed(env: Environment) -> None:
    """Let this process write the storage-managed collections."""
    by_name = builtins_by_name()
    managed = env.catalog.state.managed
    for (schema, name), differential in MANAGED.items():
        builtin = by_name[schema, name]
        assert builtin.desc is not None
        env.manager.register(
            builtin.id,
            managed[builtin.full_name],
            builtin.desc.typ.columns,
            differential=differential,
            name=builtin.full_name,
        )
