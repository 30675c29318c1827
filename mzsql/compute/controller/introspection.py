"""The introspection subscribes: what every replica is asked to tell of itself, and which relation of the catalog it is put into.

Promise: a unified introspection relation has three parts, each in one place. The first is here, in `SUBSCRIBES`: a LIR plan over the logs
of a replica (`mzsql.compute.logs`), whose columns are those of the relation but for the first, the replica's id, which is put before them.
The second is the kind of the collection that takes the rows (`MANAGED` in `mzsql.adapter.environment.opening`), the third the relation's
file in ``catalog/``.

A plan is over logs alone: neither the catalog nor the optimizer is known here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mzsql.compute.logs import ELAPSED, FRONTIERS, IMPORT_FRONTIERS, over_logs, whole
from mzsql.compute.protocol import (
    CancelIntrospection,
    CreateIntrospection,
    IntrospectionUpdates,
)
from mzsql.lir.plan import DataflowDescription
from mzsql.repr.ids import GlobalId


class IntrospectionSubscribe(msgspec.Struct, frozen=True):
    """The first part of a unified introspection relation.

    Attributes:
        relation: the relation's whole name.
        dataflow: what comes behind the replica's id.
    """

    relation: str
    dataflow: DataflowDescription


#: All that there are.
SUBSCRIBES: tuple[IntrospectionSubscribe, ...] = (
    IntrospectionSubscribe(
        "mz_internal.mz_compute_frontiers_unified",
        over_logs(whole(FRONTIERS)),
    ),
    IntrospectionSubscribe(
        "mz_internal.mz_compute_import_frontiers_unified",
        over_logs(whole(IMPORT_FRONTIERS)),
    ),
    IntrospectionSubscribe(
        "mz_internal.mz_compute_elapsed_unified",
        over_logs(whole(ELAPSED)),
    ),
)


class Subscribed:
    """The introspection subscribes of one replica. For one thread at a time.

    Args:
        transient_ids: gives an id that no other dataflow of this process has.
    """

    def __init__(self, transient_ids: Callable[[], GlobalId]) -> None:
        self._transient_ids = transient_ids
        self._told: dict[GlobalId, CreateIntrospection] = {}
        self._met: set[GlobalId] = set()

    def outdated(self, seconds: float) -> list[CancelIntrospection]:
        """What ends those that look at other times whether there is a change."""
        return [
            CancelIntrospection(one.id) for one in self._told.values() if one.seconds != seconds
        ]

    def create(self, seconds: float) -> list[CreateIntrospection]:
        """What installs those that the replica was not told of; it is to be looked so often whether there is a change."""
        told = frozenset(one.relation for one in self._told.values())
        return [
            CreateIntrospection(self._transient_ids(), one.relation, one.dataflow, seconds)
            for one in SUBSCRIBES
            if one.relation not in told
        ]

    def cancel(self) -> list[CancelIntrospection]:
        """What ends those that the replica was told of."""
        return [CancelIntrospection(gid) for gid in self._told]

    def created(self, command: CreateIntrospection) -> None:
        """The replica is about to be told of one: what it answers is known."""
        self._told[command.id] = command

    def cancelled(self, gid: GlobalId) -> None:
        """The replica was told of the end of one, or could not be told of its begin."""
        self._told.pop(gid, None)
        self._met.discard(gid)

    def parted(self) -> None:
        """The replica is to be met again: what it tells until it has told all is not of these."""
        self._met = set()

    def takes(self, batch: IntrospectionUpdates) -> bool:
        """Whether a batch is one of theirs, in its place."""
        told = self._told.get(batch.id)
        if told is None or told.relation != batch.relation:
            return False
        if batch.snapshot or batch.error is not None:
            self._met.add(batch.id)
        return batch.id in self._met
