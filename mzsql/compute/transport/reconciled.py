"""The replica's side of a change of controllers: its dataflows run on while leaders come and go.

Promise: a newly connected controller sends everything that it wants. A dataflow that runs as wanted goes on, and its
state is reported again. One that differs from what is wanted is dropped, and created when that is done. One that was
not asked for by `InitializationComplete` is dropped. Responses about a dataflow reach only the present controller,
and only if it has asked for the dataflow. Commands are sent to the replica without holding the lock that its
responses take. This is what Materialize calls reconciliation.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.protocol import (
    CancelIntrospection,
    Command,
    Connect,
    CreateDataflow,
    CreateInstance,
    CreateIntrospection,
    DropDataflow,
    Frontiers,
    HydrationStatus,
    InitializationComplete,
    ReadFrontier,
    Refreshed,
    ReplicaLink,
    Respond,
    Response,
    Status,
    StatusRow,
    UpdateConfiguration,
)
from mzsql.repr.ids import GlobalId


class _Known:
    """A dataflow that runs here, and its last responses."""

    def __init__(self, command: CreateDataflow) -> None:
        self.command = command
        self.dropping = False
        self.status: Status | None = None
        self.frontiers: Frontiers | None = None
        self.reads: ReadFrontier | None = None
        self.rows: Counter[StatusRow] = Counter()

    def runs(self, command: CreateDataflow) -> bool:
        """Whether it is what the command wants."""
        own = self.command
        return (
            not self.dropping
            and not self.refused
            and own.output_shard == command.output_shard
            and own.dataflow == command.dataflow
        )

    @property
    def refused(self) -> bool:
        """Whether it could not be installed, so that nothing of it exists."""
        return self.status is not None and self.status.state == "refused"

    def told(self) -> list[Response]:
        """The responses that tell a new controller its state."""
        rows = tuple((row, count) for row, count in self.rows.items() if count)
        all_of_it: list[Response | None] = [
            HydrationStatus(rows) if rows else None,
            self.status,
            self.frontiers,
            self.reads,
        ]
        return [one for one in all_of_it if one is not None]


def _nobody(_: Response) -> None:
    """Discards responses while there is no controller."""


class ReconciledReplica:
    """A replica and its controllers, one after the other. `take` is called by one thread at a time, that of the present
    controller.

    Args:
        connect: makes the replica when a controller first sends its settings.
        defer: calls a function soon, on another thread.
    """

    def __init__(self, connect: Connect, defer: Callable[[Callable[[], None]], None]) -> None:
        self._connect = connect
        self._defer = defer
        self._taking = threading.Lock()
        self._lock = threading.Lock()
        self._replica: ReplicaLink | None = None
        self._replica_id = ""
        self._settings: ComputeSettings | None = None
        self._known: dict[GlobalId, _Known] = {}
        # Commands to carry out as soon as an older dataflow of the same id, or an index to be replaced, is gone.
        self._waiting: dict[GlobalId, CreateDataflow] = {}
        self._respond: Respond = _nobody
        self._adopted: set[GlobalId] = set()
        self._unclaimed: set[GlobalId] = set()
        # The introspection subscribes of the present or the last controller; guarded by `_taking`.
        self._subscribes: set[GlobalId] = set()

    def meet(self, respond: Respond) -> None:
        """A new controller commands from now on; the previous one gets no more responses."""
        with self._taking, self._lock:
            self._respond = respond
            self._adopted = set()
            # What the new controller has not asked for when it says that it has asked for everything is dropped: it knows the catalog,
            # and nobody here does.
            self._unclaimed = set(self._known)
            self._waiting.clear()

    def part(self, respond: Respond) -> None:
        """A controller has disconnected, if it is still the present one."""
        with self._lock:
            if self._respond == respond:
                self._respond = _nobody

    # --- commands -----------------------------------------------------------------------------

    def take(self, command: Command, respond: Respond) -> None:
        """Carry out a controller's command; ignored if another controller has connected since.

        Raises:
            ObjectInUse: the replica takes no commands.
            ThreadFailed: the replica has failed.
        """
        with self._taking:
            with self._lock:
                if self._respond != respond:
                    return
            match command:
                case CreateInstance():
                    self._begin(command)
                case CreateDataflow():
                    self._create(command)
                case DropDataflow(id=gid):
                    self._drop_wanted(gid)
                case InitializationComplete():
                    for gid in sorted(self._unclaimed):
                        self._drop(gid)
                    self._unclaimed = set()
                    self._send(command)
                case CreateIntrospection(id=gid):
                    self._subscribes.add(gid)
                    self._send(command)
                case CancelIntrospection(id=gid):
                    self._subscribes.discard(gid)
                    self._send(command)
                case UpdateConfiguration():
                    if self._settings is not None:
                        self._settings = command.of(self._settings)
                    self._send(command)
                case _:
                    self._send(command)

    def _send(self, command: Command) -> None:
        if self._replica is not None:
            self._replica.send(command)

    def _begin(self, first: CreateInstance) -> None:
        before, now = self._settings, first.settings
        # Results of an earlier controller's subscribes would reach nobody, and the present one creates its own.
        for gid in self._subscribes:
            self._send(CancelIntrospection(gid))
        self._subscribes = set()
        self._settings = now
        if self._replica is not None and before is not None:
            change = UpdateConfiguration.between(before, now)
            if change.of(before) == now:
                if before != now:
                    self._replica.send(change)
                return
            # Settings that cannot change while it runs, such as the number of workers, need a new replica. The
            # controller holds what that will read, so the old one's holds can go.
            self._replica.close()
            self._replica.release()
            with self._lock:
                self._known.clear()
                self._unclaimed.clear()
        self._replica_id = first.replica_id
        self._replica = self._connect(first, self._told)

    def _create(self, command: CreateDataflow) -> None:
        gid = command.id
        with self._lock:
            known = self._known.get(gid)
            self._unclaimed.discard(gid)
            if known is not None and known.runs(command) and not self._in_the_way(command):
                self._adopted.add(gid)
                for one in known.told():
                    self._respond(one)
                return
            if known is not None and known.refused:
                del self._known[gid]
                known = None
            if known is not None or self._in_the_way(command):
                self._waiting[gid] = command
            waits = gid in self._waiting
        if waits:
            self._drop(gid)
        else:
            self._make(command)

    def _in_the_way(self, command: CreateDataflow) -> bool:
        """Whether an index that the dataflow reads is still to be replaced. The caller holds the lock."""
        return any(one in self._waiting for one in command.dataflow.indexes)

    def _make(self, command: CreateDataflow) -> None:
        with self._lock:
            # Known before it is sent: the replica may respond before `send` returns.
            self._known[command.id] = _Known(command)
            self._adopted.add(command.id)
        try:
            self._send(command)
        except BaseException:
            with self._lock:
                # The replica did not take it; when the command is sent again the dataflow must not be found here.
                self._known.pop(command.id, None)
                self._adopted.discard(command.id)
            raise

    def _drop_wanted(self, gid: GlobalId) -> None:
        with self._lock:
            waited = self._waiting.pop(gid, None)
            there = gid in self._known
            if waited is not None or not there:
                # The controller's own dataflow never existed here; what is still ending under its id is an earlier
                # controller's.
                self._respond(Status(gid, self._replica_id, "dropped", 0, 0, False))
                self._adopted.discard(gid)
        if there and waited is None:
            self._drop(gid)

    def _drop(self, gid: GlobalId) -> None:
        with self._lock:
            known = self._known.get(gid)
            if known is None or known.dropping:
                return
            known.dropping = True
        try:
            self._send(DropDataflow(gid))
        except BaseException:
            known.dropping = False
            raise

    def _make_what_waits(self) -> None:
        """Carry out the waiting commands that nothing is in the way of any more."""
        with self._taking:
            for gid, command in list(self._waiting.items()):
                with self._lock:
                    ready = gid not in self._known
                    ready = ready and not self._in_the_way(command)
                    if ready:
                        del self._waiting[gid]
                if ready:
                    self._make(command)

    # --- responses ----------------------------------------------------------------------------

    def _told(self, response: Response) -> None:
        """Take a response of the replica, on any of its threads."""
        with self._lock:
            gid = self._note(response)
            if gid is None or gid in self._adopted:
                self._respond(response)
            if isinstance(response, Status) and response.state == "dropped":
                self._adopted.discard(response.object_id)
                if self._waiting:
                    # On another thread: the lock held here is the one that must not be held while commands are sent.
                    self._defer(self._make_what_waits)

    def _note(self, response: Response) -> GlobalId | None:
        """Remember a response; return the dataflow that it is about, if any."""
        match response:
            case Status(object_id=gid):
                known = self._known.get(gid)
                if known is not None and response.state == "dropped":
                    del self._known[gid]
                elif known is not None:
                    known.status = response
            case Frontiers(id=gid):
                if gid in self._known:
                    self._known[gid].frontiers = response
            case ReadFrontier(id=gid):
                if gid in self._known:
                    self._known[gid].reads = response
            case Refreshed(stats=stats):
                return stats.object_id
            case HydrationStatus(updates=updates):
                if not updates:
                    return None
                gid = updates[0][0].object_id
                if gid in self._known:
                    for row, diff in updates:
                        self._known[gid].rows[row] += diff
            case _:
                return None
        return gid

    def close(self) -> None:
        """Close the replica; its shards stay. Idempotent."""
        with self._lock:
            self._respond = _nobody
            replica, self._replica = self._replica, None
        if replica is not None:
            replica.close()
