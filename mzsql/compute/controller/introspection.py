"""The introspection subscribes: what every replica is asked to report of itself, and the catalog relation that each
feeds.

Promise: a unified introspection relation is defined in three places. The first is `SUBSCRIBES` here: a LIR plan over
a replica's logs (`mzsql.compute.logs`), whose columns are those of the relation without the first, the replica's id.
The second is the kind of the collection that takes the rows (`MANAGED` in `mzsql.adapter.environment.opening`), the
third the relation's file in ``catalog/``. Plans read only logs: neither the catalog nor the optimizer is needed
here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mzsql.compute.logs import (
    ELAPSED,
    FRONTIERS,
    HYDRATION_PROGRESS,
    IMPORT_FRONTIERS,
    over_logs,
    whole,
)
from mzsql.compute.protocol import (
    CancelIntrospection,
    CreateIntrospection,
    IntrospectionUpdates,
)
from mzsql.lir.plan import DataflowDescription
from mzsql.repr.ids import GlobalId


class IntrospectionSubscribe(msgspec.Struct, frozen=True):
    """The plan of a unified introspection relation.

    Attributes:
        relation: the relation's full name.
        dataflow: the plan of its columns after the replica's id.
    """

    relation: str
    dataflow: DataflowDescription


#: All introspection subscribes.
SUBSCRIBES: tuple[IntrospectionSubscribe, ...] = (
    IntrospectionSubscribe(
        "mz_internal.mz_compute_hydration_progress_unified",
        over_logs(whole(HYDRATION_PROGRESS)),
    ),
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
        transient_ids: returns an id that no other dataflow of this process has.
    """

    def __init__(self, transient_ids: Callable[[], GlobalId]) -> None:
        self._transient_ids = transient_ids
        self._told: dict[GlobalId, CreateIntrospection] = {}
        self._met: set[GlobalId] = set()

    def outdated(self, seconds: float) -> list[CancelIntrospection]:
        """Commands that end the subscribes with another interval than `seconds`."""
        return [
            CancelIntrospection(one.id) for one in self._told.values() if one.seconds != seconds
        ]

    def create(self, seconds: float) -> list[CreateIntrospection]:
        """Commands that create the subscribes that the replica was not sent, each to check for changes every `seconds`."""
        told = frozenset(one.relation for one in self._told.values())
        return [
            CreateIntrospection(self._transient_ids(), one.relation, one.dataflow, seconds)
            for one in SUBSCRIBES
            if one.relation not in told
        ]

    def cancel(self) -> list[CancelIntrospection]:
        """Commands that end the subscribes that the replica was sent."""
        return [CancelIntrospection(gid) for gid in self._told]

    def created(self, command: CreateIntrospection) -> None:
        """Record that a command is about to be sent, so that its responses are accepted."""
        self._told[command.id] = command

    def cancelled(self, gid: GlobalId) -> None:
        """Record that the end of a subscribe was sent, or its creation could not be."""
        self._told.pop(gid, None)
        self._met.discard(gid)

    def parted(self) -> None:
        """The connection was lost. Until each subscribe's next snapshot, what arrives belongs to the old connection and
        is ignored.
        """
        self._met = set()

    def takes(self, batch: IntrospectionUpdates) -> bool:
        """Whether a batch belongs to one of these subscribes and follows its snapshot."""
        told = self._told.get(batch.id)
        if told is None or told.relation != batch.relation:
            return False
        if batch.snapshot or batch.error is not None:
            self._met.add(batch.id)
        return batch.id in self._met
