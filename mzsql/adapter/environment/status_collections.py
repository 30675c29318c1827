"""The sink of status responses that compute needs: rows of storage-managed collections.

Promise: responses of replicas become rows in the order in which they arrive. See docs/architecture.md, "The way of a status to its
relation".
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.opening import MANAGED
from mzsql.catalog.builtin import own_builtin
from mzsql.catalog.change import Change
from mzsql.catalog.state import CatalogState
from mzsql.compute import OperatorHydrationStatus, RefreshStats, Status, StatusRow
from mzsql.compute.controller.introspection import SUBSCRIBES
from mzsql.compute.logs import LogRow
from mzsql.repr.ids import GlobalId
from mzsql.storage import CollectionManager, ManagedRow

#: An object and the replica that runs its dataflow; "" for no replica.
_Dataflow: TypeAlias = tuple[GlobalId, str]


class StatusCollections:
    """Writes the replicas' status responses into the collections that show them, in order of arrival: compute's
    `StatusSink`. Thread-safe.

    Args:
        manager: writes the collections.
        monotonic: seconds from an arbitrary start, never going backwards; durations are measured with it.
        now_ms: the wall clock, in milliseconds since the epoch.
    """

    def __init__(
        self,
        manager: CollectionManager,
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        def named(name: str) -> GlobalId:
            return own_builtin("mz_internal", name).id

        self.operators = named("mz_compute_operator_hydration_statuses_per_worker")
        self.times = named("mz_compute_hydration_times")
        self.dataflows = named("mz_compute_dataflow_statuses")
        self.refreshes = named("mz_refreshes")
        self.elapsed = named("mz_compute_elapsed_unified")
        self._unified = {
            one.relation: own_builtin(*one.relation.split(".")).id for one in SUBSCRIBES
        }
        self._manager = manager
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._lock = threading.Lock()
        # Dataflows that have reported since their replica connected.
        self._told: set[_Dataflow] = set()
        self._hydrating: dict[_Dataflow, _Times] = {}
        # The introspection rows reported, by relation and replica.
        self._introspection: dict[tuple[str, str], set[LogRow]] = {}

    def connected(self, replica_id: str) -> None:
        """A replica connected. The rows of each of its objects stay until the replica reports on that object again."""
        with self._lock:
            self._told = {one for one in self._told if one[1] != replica_id}

    def update(self, rows: Sequence[tuple[StatusRow, int]]) -> None:
        """Append status rows with their diffs."""
        operators: dict[_Dataflow, list[tuple[ManagedRow, int]]] = {}
        hydrated: set[_Dataflow] = set()
        with self._lock:
            for row, diff in rows:
                one = row.object_id, row.replica_id
                known = operators.setdefault(one, [])
                if isinstance(row, OperatorHydrationStatus):
                    known.append((_operator_row(row), diff))
                elif diff > 0:
                    self._object(one, row.hydrated)
                    if row.hydrated:
                        hydrated.add(one)
            for one, updates in operators.items():
                # Who sees that it is hydrated sees what that took.
                after = self.elapsed if one in hydrated else None
                if one in self._told:
                    self._manager.append(self.operators, updates, after=after)
                    continue
                # First report since the replica connected: it replaces all rows of before, so retractions of those are
                # dropped.
                self._told.add(one)
                there = [(row, diff) for row, diff in updates if diff > 0]
                self._manager.append(self.operators, there, anew=one, after=after)

    def _object(self, one: _Dataflow, hydrated: bool) -> None:
        """Record that an object is, or is not yet, hydrated; the lock is held."""
        if not hydrated:
            self._hydrating[one] = _Times(self._monotonic(), self._now())
        elif one in self._hydrating:
            times = self._hydrating.pop(one)
            times.hydrated, times.hydrated_at = self._monotonic(), self._now()
            self._show_times(one, times)
            return
        else:
            # It was hydrated when it was started; the process that hydrated it has recorded how long that took.
            return
        self._show_times(one, self._hydrating[one])

    def _show_times(self, one: _Dataflow, times: _Times) -> None:
        self._manager.append(self.times, [(times.row(*one), 1)], anew=one)

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._now_ms() / 1000, datetime.UTC)

    def stands(self, status: Status) -> None:
        """Record a dataflow's status; every row of a dropped one is removed."""
        one = status.object_id, status.replica_id
        with self._lock:
            if status.state == "dropped":
                self._told.discard(one)
                self._hydrating.pop(one, None)
                for gid in (self.operators, self.times, self.dataflows):
                    self._manager.append(gid, (), anew=one)
                self._introspection_gone(one)
                return
            times = self._hydrating.get(one)
            if times is not None and times.started is None and status.plan_node_id is not None:
                times.started, times.started_at = self._monotonic(), self._now()
                self._show_times(one, times)
            row = (
                *one,
                status.state,
                status.hydrated,
                status.plan_node_id,
                status.reason or None,
                status.error,
                status.failures,
                self._now(),
            )
            after = self.elapsed if status.hydrated else None
            self._manager.append(self.dataflows, [(row, 1)], anew=one, after=after)

    def refreshed(self, replica_id: str, stats: RefreshStats) -> None:
        """Record a step or a hydration of a replica."""
        row = (
            stats.object_id,
            stats.lower,
            stats.upper,
            stats.kind,
            stats.rows_in,
            stats.rows_out,
            stats.bytes_read,
            stats.jobs,
            stats.seconds,
            stats.engine,
            stats.reason,
            replica_id,
            self._now(),
        )
        self._manager.append(self.refreshes, [(row, 1)])

    def introspected(
        self,
        relation: str,
        replica_id: str,
        updates: Sequence[tuple[LogRow, int]],
        *,
        anew: bool,
    ) -> None:
        """Record rows of a unified introspection relation with their diffs, the replica's id added as the first column.

        Rows form a set. Reporting a row again, retracting one that was not reported, or one that went with its
        dataflow, changes nothing.

        Args:
            relation: the relation's full name.
            replica_id: the replica that reports.
            updates: rows with their diffs.
            anew: whether the updates replace everything that the replica reported before.
        """
        with self._lock:
            held = self._introspection.setdefault((relation, replica_id), set())
            if anew:
                held.clear()
            changes: list[tuple[ManagedRow, int]] = []
            for row, diff in updates:
                if (diff > 0) != (row in held):
                    (held.add if diff > 0 else held.discard)(row)
                    changes.append(((replica_id, *row), 1 if diff > 0 else -1))
            self._manager.append(
                self._unified[relation], changes, anew=(replica_id,) if anew else None
            )

    def _introspection_gone(self, one: _Dataflow) -> None:
        """Retract the rows about a dropped dataflow; the lock is held. A row's first column is the id of the object
        that it is about.
        """
        gid, replica_id = one
        for (relation, of), held in self._introspection.items():
            gone = [row for row in held if row[0] == gid] if of == replica_id else []
            if gone:
                held.difference_update(gone)
                rows = [((replica_id, *row), -1) for row in gone]
                self._manager.append(self._unified[relation], rows)

    def keep(self, dataflows: Collection[_Dataflow]) -> None:
        """Retract the rows of all dataflows but these, given as object and replica."""
        kept = frozenset(dataflows)
        self._manager.delete(self.operators, lambda row: (row[0], row[2]) not in kept)
        self._manager.delete(self.times, lambda row: (row[1], row[0]) not in kept)
        self._manager.delete(self.dataflows, lambda row: (row[0], row[1]) not in kept)
        replicas = frozenset(replica_id for _, replica_id in kept)
        for gid in self._unified.values():
            self._manager.delete(gid, lambda row: row[0] not in replicas)

    def delete_replica(self, replica_id: str) -> None:
        """Retract every row of the replica that was appended before."""
        with self._lock:
            self._told = {one for one in self._told if one[1] != replica_id}
            for key in [key for key in self._introspection if key[1] == replica_id]:
                del self._introspection[key]
            # Under the lock, so that no row reported from here on is deleted with the earlier ones.
            self._manager.delete(self.operators, lambda row: row[2] == replica_id)
            self._manager.delete(self.times, lambda row: row[0] == replica_id)
            self._manager.delete(self.dataflows, lambda row: row[1] == replica_id)
            for gid in self._unified.values():
                self._manager.delete(gid, lambda row: row[0] == replica_id)


def _operator_row(row: OperatorHydrationStatus) -> tuple[str, int, str, int, bool]:
    return row.object_id, row.plan_node_id, row.replica_id, row.worker_id, row.hydrated


@dataclass
class _Times:
    """When a hydration was requested, begun and completed, by the monotonic clock (seconds) and by the wall clock."""

    installed: float
    installed_at: datetime.datetime
    started: float | None = None
    started_at: datetime.datetime | None = None
    hydrated: float | None = None
    hydrated_at: datetime.datetime | None = None

    def row(self, gid: GlobalId, replica_id: str) -> ManagedRow:
        """A row of ``mz_compute_hydration_times``."""
        began = self.installed if self.started is None else self.started
        taken = None if self.hydrated is None else round((self.hydrated - began) * 1e9)
        queued = None
        if self.started is not None or self.hydrated is not None:
            queued = (0, 0, round((began - self.installed) * 1e6))
        at = self.installed_at, self.started_at, self.hydrated_at
        return replica_id, gid, taken, *at, queued


def register_managed(env: Environment) -> None:
    """Let this process write the storage-managed collections, after creating those that an older release did not have."""
    made = {f"{schema}.{name}": env.persist.new_shard_id() for schema, name in MANAGED}

    def add_missing(state: CatalogState) -> tuple[Change, None]:
        missing = {name: shard for name, shard in made.items() if name not in state.managed}
        return Change(managed=missing), None

    if not env.catalog.state.managed.keys() >= made.keys():
        env.catalog.transact(add_missing)
        env.seen()
    managed = env.catalog.state.managed
    for (schema, name), kind in MANAGED.items():
        builtin = own_builtin(schema, name)
        assert builtin.desc is not None
        env.manager.register(
            builtin.id,
            managed[builtin.full_name],
            builtin.desc.typ.columns,
            kind=kind,
            name=builtin.full_name,
        )
