"""What a controller knows of one dataflow of a replica, and what it asks of its neighbours.

Promise: values and protocols alone; whoever has them guards them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from mzsql.compute.logs import LogRow
from mzsql.compute.protocol import CreateDataflow, RefreshStats, Status, StatusRow
from mzsql.compute.protocols import ReadHold
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId


class StatusSink(Protocol):
    """Where statuses and refreshes go: storage-managed collections behind FIFO queues. Calls return at once."""

    def connected(self, replica_id: str) -> None:
        """A replica begins anew: what was told of it before stays, object by object, until it tells of the object itself."""

    def update(self, rows: Sequence[tuple[StatusRow, int]]) -> None:
        """Append the rows with their diffs (+1 or -1), all at one time."""

    def stands(self, status: Status) -> None:
        """How a dataflow stands now; nothing is left of one that was dropped."""

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
        """Rows of a unified introspection relation with their diffs, without the replica's id; `anew`: instead of all that it has of it."""

    def keep(self, dataflows: Collection[tuple[GlobalId, str]]) -> None:
        """Retract what is told of other dataflows than these, given as object and replica."""

    def delete_replica(self, replica_id: str) -> None:
        """Retract every row of the replica that was appended before this call, by this process or another."""


class Holder(Protocol):
    """What holds inputs readable; a `compute.protocols.StorageReader` does."""

    def hold(self, gid: GlobalId, since: Timestamp) -> ReadHold:
        """Hold the collection's since at `since` or the present since, whichever is later."""


@dataclass
class Dataflow:
    """A dataflow that the replica was told of."""

    command: CreateDataflow
    holds: list[ReadHold]
    #: what storage keeps of all that it reads, itself or through indexes
    stored: tuple[GlobalId, ...] = ()
    status: Status | None = None
    frontier: Frontier = 0
    dropped: bool = False
    #: dropped, and read by dataflows that are not: nothing is told of it any more
    unseen: bool = False
    #: from where on it needs what it reads, as it was told last; None: it reads nothing any more
    needs: Frontier = 0
    #: to where its index was allowed to be compacted
    allowed: Timestamp = field(default=-1)

    @property
    def opened(self) -> bool:
        """Whether it holds what it reads by itself, indexes too."""
        return self.status is not None and (
            self.status.state in ("hydrating", "running", "refused") or self.status.hydrated
        )

    @property
    def refused(self) -> bool:
        """Whether it could not be installed."""
        return self.status is not None and self.status.state == "refused"

    def reads(self, gid: GlobalId) -> bool:
        """Whether it reads an index."""
        return gid in self.command.dataflow.indexes

    def shown(self, replica_id: str) -> Status:
        """How it stands as far as it is known."""
        if self.status is None:
            command = self.command
            return Status(command.id, replica_id, "waiting", 0, command.as_of, False)
        return msgspec.structs.replace(self.status, frontier=self.frontier)


def stored_below(
    command: CreateDataflow, known: Mapping[GlobalId, Dataflow]
) -> tuple[GlobalId, ...]:
    """What a dataflow reads of storage, itself or through indexes.

    An index ends with its last reader, and may be further than that: whoever plans a view again without it is to find in storage what the
    view lacks.
    """
    read = command.dataflow
    below = (one for index in read.indexes for one in known[index].stored)
    return tuple(dict.fromkeys((*read.sources, *below)))


def release_all(holds: Sequence[ReadHold]) -> None:
    """Let go of all of them."""
    for hold in holds:
        hold.release()
