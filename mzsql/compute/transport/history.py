"""What a replica of another process is to be told when it is met again: the commands sent until now, without those that later ones undo.

Promise: pure bookkeeping. A replica that takes `CommandHistory.commands` from nothing stands where one stands that took all commands in
their order; they are as many as there are dataflows, not as there were commands. Whoever sends the commands drops no index before the
dataflows that read it (`compute.controller.client`), so that these can always be made.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mzsql.compute.protocol import (
    AllowCompaction,
    CancelIntrospection,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateIntrospection,
    DropDataflow,
    InitializationComplete,
    UpdateConfiguration,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId


class CommandHistory:
    """The commands to one replica. Not thread-safe."""

    def __init__(self, first: CreateInstance) -> None:
        self._first = first
        self._dataflows: dict[GlobalId, CreateDataflow] = {}
        self._allowed: dict[GlobalId, Timestamp] = {}
        self._subscribes: dict[GlobalId, CreateIntrospection] = {}
        self._initialized = False

    def add(self, command: Command) -> None:
        """Remember a command; peeks and pings are of one moment, and are not."""
        match command:
            case CreateDataflow():
                # One that was refused may be sent again, as another one that reads what came since.
                self._dataflows.pop(command.id, None)
                self._dataflows[command.id] = command
            case DropDataflow(id=gid):
                self._dataflows.pop(gid, None)
                self._allowed.pop(gid, None)
            case AllowCompaction(id=gid, frontier=frontier):
                self._allowed[gid] = frontier
            case CreateIntrospection(id=gid):
                self._subscribes[gid] = command
            case CancelIntrospection(id=gid):
                self._subscribes.pop(gid, None)
            case InitializationComplete():
                self._initialized = True
            case UpdateConfiguration():
                settings = command.of(self._first.settings)
                self._first = msgspec.structs.replace(self._first, settings=settings)

    def commands(self) -> Iterator[Command]:
        """Those that a replica is told when it is met."""
        yield self._first
        yield from self._dataflows.values()
        for gid, frontier in self._allowed.items():
            yield AllowCompaction(gid, frontier)
        yield from self._subscribes.values()
        if self._initialized:
            yield InitializationComplete()
