"""A controller's record of one dataflow of a replica, and the interfaces that a controller needs.

Promise: only values, what follows from them, and protocols; their owner does the locking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from mzsql.compute.dependencies import ReadHold
from mzsql.compute.logs import LogRow
from mzsql.compute.protocol import AllowCompaction, CreateDataflow, RefreshStats, Status, StatusRow
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId


class StatusSink(Protocol):
    """Takes statuses and refreshes: collections that the system writes, behind queues. Calls return at once."""

    def connected(self, replica_id: str) -> None:
        """A replica begins anew. What was reported of an object before stays until the replica reports of the object
        itself.
        """

    def update(self, rows: Sequence[tuple[StatusRow, int]]) -> None:
        """Add rows of hydration statuses with their diffs (+1 or -1), all at one time."""

    def stands(self, status: Status) -> None:
        """A dataflow's present status; the rows of a dropped one are deleted."""

    def refreshed(self, replica_id: str, stats: RefreshStats) -> None:
        """A replica has done a step or a hydration."""

    def introspected(
        self,
        relation: str,
        replica_id: str,
        updates: Sequence[tuple[LogRow, int]],
        *,
        anew: bool,
    ) -> None:
        """Add rows of a unified introspection relation, with diffs and without the replica's id.

        With `anew` they replace all that the replica has in the relation.
        """

    def keep(self, dataflows: Collection[tuple[GlobalId, str]]) -> None:
        """Retract the rows of all dataflows but these, given as object and replica."""

    def delete_replica(self, replica_id: str) -> None:
        """Retract every row of the replica that this process or another one wrote before the call."""


class Holder(Protocol):
    """Holds inputs readable, as a `compute.dependencies.StorageReader` does."""

    def hold(self, gid: GlobalId, since: Timestamp) -> ReadHold:
        """Hold the collection readable from `since` on, or from its present since where that is later."""


@dataclass
class DataflowState:
    """A dataflow that was sent to the replica."""

    command: CreateDataflow
    holds: list[ReadHold]
    #: the stored collections that it reads, itself or through indexes
    stored: tuple[GlobalId, ...] = ()
    status: Status | None = None
    frontier: Frontier = 0
    dropped: bool = False
    #: dropped, but read by dataflows that are not, so it runs on without being reported
    unseen: bool = False
    #: the earliest time at which it reads its inputs, as last reported; None: it reads nothing any more
    needs: Frontier = 0
    #: up to where its index was allowed to compact
    allowed: Timestamp = field(default=-1)

    @property
    def opened(self) -> bool:
        """Whether it has opened what it reads, indexes too, and holds it by itself."""
        return self.status is not None and (
            self.status.state in ("hydrating", "running", "refused") or self.status.hydrated
        )

    @property
    def refused(self) -> bool:
        """Whether it could not be installed."""
        return self.status is not None and self.status.state == "refused"

    def reads(self, gid: GlobalId) -> bool:
        """Whether it reads the index `gid`."""
        return gid in self.command.dataflow.indexes

    def shown(self, replica_id: str) -> Status:
        """Its status as far as it is known."""
        if self.status is None:
            command = self.command
            return Status(command.id, replica_id, "waiting", 0, command.as_of, False)
        return msgspec.structs.replace(self.status, frontier=self.frontier)


def stored_below(
    command: CreateDataflow, known: Mapping[GlobalId, DataflowState]
) -> tuple[GlobalId, ...]:
    """The stored collections that a dataflow reads, itself or through indexes.

    Those below an index matter because an index ends with its last reader: a view that is planned anew without the
    index must still find in storage what it has not taken in.
    """
    read = command.dataflow
    below = (one for index in read.indexes for one in known[index].stored)
    return tuple(dict.fromkeys((*read.sources, *below)))


def compactions(dataflows: Collection[DataflowState], present: Timestamp) -> list[AllowCompaction]:
    """What would allow the indexes of a replica to compact times before the last complete one, unless a dataflow that needs them is
    about to open the index.

    Never beyond the present, at which new dataflows begin; an index on a view with a refresh schedule is complete beyond it.
    """
    found = (_compaction(one, dataflows, present) for one in dataflows)
    return [one for one in found if one is not None]


def _compaction(
    one: DataflowState, dataflows: Iterable[DataflowState], present: Timestamp
) -> AllowCompaction | None:
    gid, frontier = one.command.id, one.frontier
    if one.command.output_shard is not None or frontier is None or frontier == 0:
        return None
    waiting = (
        other.command.as_of
        for other in dataflows
        if not (other.opened or other.dropped) and other.reads(gid)
    )
    allowed = min([frontier - 1, present, *waiting])
    return AllowCompaction(gid, allowed) if allowed > one.allowed else None


def release_all(holds: Sequence[ReadHold]) -> None:
    """Release all holds."""
    for hold in holds:
        hold.release()
