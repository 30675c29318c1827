"""The commands that bring a replica in another process up to date when it is connected: those sent so far, without
those that later ones undo.

Promise: pure bookkeeping. A new replica that takes `CommandHistory.commands` reaches the state of one that took all
commands in order. Their number grows with the dataflows there are, not with the commands sent. The sender drops no
index before the dataflows that read it (`compute.controller.client`), so these commands can always be carried out.
Materialize reconciles reconnected replicas in the same way.
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
        """Remember a command. Peeks and pings concern one moment and are not remembered."""
        match command:
            case CreateDataflow():
                # A refused dataflow may be sent again, with a plan that reads dataflows created since; it then belongs
                # after them.
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
        """The commands to send to a replica when it is connected."""
        yield self._first
        yield from self._dataflows.values()
        for gid, frontier in self._allowed.items():
            yield AllowCompaction(gid, frontier)
        yield from self._subscribes.values()
        if self._initialized:
            yield InitializationComplete()
