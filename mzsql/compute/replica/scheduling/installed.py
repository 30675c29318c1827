"""The dataflows that are installed on a replica.

Promise: what is known of the dataflows changes under one lock (`Installed.changed`), and whoever changes something
that a thread may wait for wakes that thread. A dropped dataflow is closed once no other dataflow reads its index and
no thread works at it; only then is it reported as dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

import msgspec

from mzsql.compute.protocol import Respond, Status
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
from mzsql.render.rendered import InputSpec
from mzsql.repr.errors import DuplicateObject, SqlError, UndefinedObject
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId

_LOG = logging.getLogger(__name__)


class Installed:
    """The dataflows of one replica, in the order in which they were installed. Thread-safe.

    Attributes:
        changed: the lock of everything that is known of the dataflows; notified when there may be work.
        closing: whether the replica is about to end, so that no work is begun any more.
        opening: the dataflows that are not open yet.
        added: how many dataflows were installed.
        looked_after: whether those to be opened are looked for soon in any case, so that an installed one wakes nobody.
    """

    def __init__(self, replica_id: str, respond: Respond) -> None:
        self._replica = replica_id
        self._respond = respond
        self._flows: dict[GlobalId, DataflowLifecycle] = {}
        #: dataflows that are being closed: they read their indexes until that is done, so these must not be closed
        #: before
        self._leaving: list[DataflowLifecycle] = []
        self.opening: dict[GlobalId, DataflowLifecycle] = {}
        self.added = 0
        self.looked_after = False
        self._woken = True
        self.changed = threading.Condition()
        self.closing = False

    def all(self) -> list[DataflowLifecycle]:
        """Every installed dataflow, including dropped ones that are not closed yet."""
        with self.changed:
            return list(self._flows.values())

    def idle(self) -> list[DataflowLifecycle]:
        """The dataflows that are open and that no thread works at."""
        with self.changed:
            return [
                flow
                for flow in self._flows.values()
                if not flow.busy and flow.state is not State.OPENING
            ]

    def find(self, gid: GlobalId) -> DataflowLifecycle | None:
        """The dataflow of this id, or None."""
        with self.changed:
            return self._flows.get(gid)

    def get(self, gid: GlobalId) -> DataflowLifecycle:
        """The dataflow of this id.

        Raises:
            UndefinedObject: none is installed under this id.
        """
        flow = self.find(gid)
        if flow is None:
            raise UndefinedObject(f"no dataflow {gid} is installed on {self._replica}")
        return flow

    def needed(self, gids: Iterable[GlobalId]) -> Iterator[DataflowLifecycle]:
        """The dataflows of these ids and those that they read, themselves or through others: each once, after what it reads."""
        seen: set[GlobalId] = set()
        for gid in gids:
            left = [(gid, False)]
            while left:
                at, below_seen = left.pop()
                flow = self.find(at)
                if flow is None:
                    continue
                if below_seen:
                    yield flow
                elif at not in seen:
                    seen.add(at)
                    left.append((at, True))
                    left += [(one.id, False) for one in reversed(flow.rendered.inputs)]

    def has(self, flow: DataflowLifecycle) -> bool:
        """Whether this very dataflow (not a later one of the same id) is installed."""
        return self.find(flow.gid) is flow

    def frontier(self, gid: GlobalId) -> Frontier:
        """How far a dataflow's output is complete.

        Raises:
            UndefinedObject: none is installed under this id.
        """
        return self.get(gid).frontier

    def readable(self, gid: GlobalId) -> Frontier:
        """How far an index can be read: 0 before it is hydrated, None when it is sealed or not installed."""
        with self.changed:
            flow = self._flows.get(gid)
            if flow is None:
                return None
            return flow.frontier if flow.state is State.RUNNING else 0

    # --- coming and going ---

    def check_new(self, gid: GlobalId, name: str, inputs: Iterable[InputSpec]) -> None:
        """Check that a dataflow can be installed.

        Raises:
            DuplicateObject: it is installed already.
            UndefinedObject: an index that it reads is not installed.
        """
        with self.changed:
            if gid in self._flows:
                raise DuplicateObject(f'dataflow "{name}" ({gid}) is already installed')
            for one in inputs:
                index = self._flows.get(one.id)
                if one.index and (index is None or index.dropped):
                    raise UndefinedObject(f"index {one.id}, which {gid} reads, is not installed")

    def add(self, flow: DataflowLifecycle) -> None:
        """Install a dataflow, and report its status."""
        with self.changed:
            self._flows[flow.gid] = self.opening[flow.gid] = flow
            self.added += 1
            self._respond(flow.status())
            if not self.looked_after:
                self.wake()

    def allow(self, gid: GlobalId, frontier: Timestamp) -> None:
        """Record that an index need not be readable before ``frontier`` any more. An unknown id is ignored."""
        with self.changed:
            flow = self._flows.get(gid)
            if flow is not None:
                flow.allowed = max(flow.allowed, frontier)

    def drop(self, gid: GlobalId) -> None:
        """Drop the dataflow of this id. It is closed as soon as no thread works at it and no other dataflow reads its
        index.

        A `Status` of ``dropped`` is reported when it is closed, or at once if there is none of this id.
        """
        with self.changed:
            flow = self._flows.get(gid)
            if flow is None:
                self._respond(Status(gid, self._replica, "dropped", 0, 0, False))
                return
            if flow.dropped:
                return
            flow.drop()
        flow.report.retract()
        self.close_dropped()
        self.wake()

    def close_dropped(self) -> None:
        """Close the dropped dataflows that no dataflow reads and no thread works at. The others are closed by a later
        call.
        """
        while True:
            with self.changed:
                read = {
                    one.id
                    for flow in (*self._flows.values(), *self._leaving)
                    for one in flow.rendered.inputs
                    if one.index
                }
                unread = [f for f in self._flows.values() if f.dropped and f.gid not in read]
                for flow in unread:
                    flow.left = True
                idle = (f for f in unread if not (f.busy or f.flushing or f.warming))
                # One at a time, since closing calls backends and so happens without the lock: what is read may have
                # changed afterwards.
                gone = next(idle, None)
                if gone is None:
                    return
                del self._flows[gone.gid]
                self._leaving.append(gone)
                self.opening.pop(gone.gid, None)
            try:
                gone.close(retire=True)
            except (SqlError, OSError) as error:
                # What it leaves behind is deleted later, with the arrangements that nobody uses.
                _LOG.warning("closing a dropped dataflow: %s", error)
            finally:
                with self.changed:
                    self._leaving.remove(gone)
            self._respond(msgspec.structs.replace(gone.status(), state="dropped"))

    # --- being opened again ---

    def open_again(self, flow: DataflowLifecycle) -> None:
        """Have a dataflow opened as after a restart, as soon as no thread works at it: it cannot go on where it stands.

        Those that read its index are opened again with it, because it may be made anew, in another shard.
        """
        with self.changed:
            lost, left = dict[GlobalId, DataflowLifecycle](), [flow]
            while left:
                one = left.pop()
                lost[one.gid] = one
                left += [f for f in self._flows.values() if f.gid not in lost and _reads(f, one)]
            for one in lost.values():
                # One that waits to be opened has opened nothing yet.
                one.lost = one.busy or one.state is not State.OPENING
        self.close_lost()

    def close_lost(self) -> None:
        """Close the dataflows to be opened again that no thread works at, and let them be opened. The others are closed by
        a later call.
        """
        while True:
            with self.changed:
                idle = (
                    flow
                    for flow in self._flows.values()
                    if flow.lost and not (flow.left or flow.busy or flow.flushing or flow.warming)
                )
                lost = next(idle, None)
                if lost is None or self.closing:
                    return
                # It is among those to be opened before its handles are closed, so that what it uses is not retired meanwhile.
                lost.lost, lost.busy, lost.state = False, True, State.OPENING
                self.opening[lost.gid] = lost
            try:
                lost.close_to_open()
            except (SqlError, OSError) as error:
                # Handles that cannot be closed lapse with their leases.
                _LOG.warning("closing %s to open it again: %s", lost.gid, error)
            finally:
                with self.changed:
                    lost.busy = False
                    self._respond(lost.status())
            if lost.left:
                self.close_dropped()
            self.wake()

    def worked(self, flow: DataflowLifecycle) -> None:
        """Close a dataflow that a thread has just finished to work at, if it waits for that."""
        with self.changed:
            left, lost = flow.left, flow.lost
        if left:
            self.close_dropped()
        if lost:
            self.close_lost()

    # --- waking ---

    def wake(self) -> None:
        """Wake the scheduler: something has changed, so there may be work."""
        with self.changed:
            self._woken = True
            self.changed.notify_all()

    def woken(self) -> bool:
        """Whether `wake` was called since the last call of this."""
        with self.changed:
            woken, self._woken = self._woken, False
            return woken

    def wait(self, seconds: float) -> None:
        """Wait for `wake` or the beginning of closing, up to `seconds`."""
        with self.changed:
            self.changed.wait_for(lambda: self._woken or self.closing, seconds)

    def begin_closing(self) -> bool:
        """Let no more work begin. Returns False if this was called before."""
        with self.changed:
            if self.closing:
                return False
            self.closing = True
            self.changed.notify_all()
            return True


def _reads(flow: DataflowLifecycle, index: DataflowLifecycle) -> bool:
    """Whether a dataflow reads the index of another."""
    return any(one.index and one.id == index.gid for one in flow.rendered.inputs)
