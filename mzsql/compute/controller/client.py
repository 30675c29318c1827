"""A controller's side of one replica: sends commands, and knows the replica by its responses.

Promise: nothing is known of the replica except what it reported, and it is asked only by commands. The inputs of a dataflow, and what
the indexes that it reads are made of, are held at its `as_of` until the replica has reported a status, because then it holds them
itself. If the replica's holds would end with its process, they are held for as long as the dataflow is wanted, at the time the replica
reports. An index stays readable for dataflows that are to read it and have not opened it yet. An index that is dropped while dataflows
read it is not reported any more, but the replica is told only when the last of them is dropped, so that a restarted replica is given
everything that its dataflows read. Only `settle`, `wait_until` and `peek` wait for the replica, each for a stated time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence

import msgspec
import pyarrow as pa

from mzsql.compute.controller.answers import Answers
from mzsql.compute.controller.dataflow_state import (
    DataflowState,
    Holder,
    StatusSink,
    compactions,
    release_all,
    stored_below,
)
from mzsql.compute.controller.introspection import SUBSCRIBES, Subscribed
from mzsql.compute.dependencies import ComputeSettings, ReadHold
from mzsql.compute.protocol import (
    AllowCompaction,
    CancelIntrospection,
    Connect,
    CreateDataflow,
    CreateInstance,
    DropDataflow,
    Frontiers,
    HydrationStatus,
    InitializationComplete,
    IntrospectionUpdates,
    Parted,
    PeekResponse,
    Pong,
    ReadFrontier,
    Refreshed,
    RefreshStats,
    Response,
    Status,
    UpdateConfiguration,
)
from mzsql.repr.errors import DuplicateObject, NotReadable, UndefinedObject
from mzsql.repr.frontier import Frontier, Timestamp, join, less_than
from mzsql.repr.ids import GlobalId, sort_key


class ReplicaClient:
    """Commands one replica and knows what it reported. Thread-safe.

    Args:
        connect: makes the link to the replica.
        replica_id: the replica.
        settings: its settings at the beginning.
        storage: holds inputs.
        sink: takes its statuses. What an earlier run of it reported of an object stays until this one reports of the object.
        subscribed: its introspection subscribes; None if it has none.
    """

    def __init__(
        self,
        connect: Connect,
        replica_id: str,
        settings: ComputeSettings,
        storage: Holder,
        sink: StatusSink,
        subscribed: Subscribed | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.settings = settings
        self._storage = storage
        self._sink = sink
        self._changed = threading.Condition()
        self._dataflows: dict[GlobalId, DataflowState] = {}
        # Dropped here, but the replica was not told so yet, because a dataflow there reads it.
        self._dropped: dict[GlobalId, DataflowState] = {}
        # Kept as a set because every look asks whether there are any.
        self._temporal: set[GlobalId] = set()
        # Dataflows whose inputs are not held any more, because the replica was away for too long.
        self._forgone: set[GlobalId] = set()
        self._refreshes: deque[RefreshStats] = deque(maxlen=settings.refreshes_kept)
        self._answers = Answers(self._changed)
        self._subscribed = subscribed
        # Whether all rows of its introspection were deleted.
        self._forgotten = False
        # Whether its statuses were deleted because it was gone.
        self._taken_back = False
        self._initialized = False
        sink.connected(replica_id)
        self._link = connect(CreateInstance(replica_id, settings), self._receive)

    # --- commands -----------------------------------------------------------------------------

    def create_dataflow(self, command: CreateDataflow) -> None:
        """Have a dataflow maintained.

        Raises:
            DuplicateObject: it is installed, or was dropped and is not gone yet.
            UndefinedObject: it imports an index that the replica does not have.
            ObjectInUse: the replica takes no commands.
            ThreadFailed: the replica has failed.
        """
        gid = command.id
        with self._changed:
            known = self._dataflows.get(gid)
            if known is not None and (known.dropped or not known.refused):
                raise DuplicateObject(f'dataflow "{command.name}" ({gid}) is already installed')
            for index in command.dataflow.indexes:
                there = self._dataflows.get(index)
                if there is None or there.dropped:
                    raise UndefinedObject(f"index {index}, which {gid} reads, is not installed")
            stored = stored_below(command, self._dataflows)
            made = self._dataflows[gid] = DataflowState(command, [], stored)
        try:
            for source in stored:
                made.holds.append(self._storage.hold(source, command.as_of))
            self._link.send(command)
        except BaseException:
            with self._changed:
                del self._dataflows[gid]
            release_all(made.holds)
            raise

    def drop(self, gid: GlobalId) -> None:
        """Drop a dataflow; an index that others read is dropped with the last of these. Idempotent.

        Raises:
            ObjectInUse: the replica takes no commands.
            ThreadFailed: the replica has failed.
        """
        with self._changed:
            known = self._dataflows.get(gid)
            if known is None or known.dropped:
                return
            known.dropped = True
            self._dropped[gid] = known
            if self._is_read(known):
                known.unseen = True
                shown = known.shown(self.replica_id)
                self._sink.stands(msgspec.structs.replace(shown, state="dropped"))
                return
        try:
            self.let_go()
        except BaseException:
            with self._changed:
                if self._dropped.pop(gid, None) is not None:
                    known.dropped = False
            raise

    def let_go(self) -> None:
        """Tell the replica to drop what no dataflow reads any more. Call it again if it raises.

        Raises:
            ObjectInUse: the replica takes no commands.
            ThreadFailed: the replica has failed.
        """
        while (one := self._next_unread()) is not None:
            gid = one.command.id
            try:
                self._link.send(DropDataflow(gid))
            except BaseException:
                with self._changed:
                    self._dropped[gid] = one
                raise

    def _is_read(self, index: DataflowState) -> bool:
        """Whether the replica may read an index for another dataflow, by what it was told. The caller holds the lock."""
        gid = index.command.id
        return index.command.output_shard is None and any(
            one.reads(gid)
            for one in self._dataflows.values()
            if not one.dropped or one.command.id in self._dropped
        )

    def _next_unread(self) -> DataflowState | None:
        """A dropped dataflow that the replica can be told of now."""
        with self._changed:
            for gid, one in self._dropped.items():
                if not self._is_read(one):
                    return self._dropped.pop(gid)
        return None

    def configure(self, wanted: ComputeSettings) -> None:
        """Send the settings that differ from what is wanted, if a running replica's may change."""
        change = UpdateConfiguration.between(self.settings, wanted)
        if change != UpdateConfiguration():
            self._link.send(change)
            self.settings = change.of(self.settings)

    def introspect(self, seconds: float | None) -> None:
        """Have the replica report its introspection, or stop that and delete the rows. Idempotent; call it again if it raises.

        Args:
            seconds: how often the replica checks for changes; None to stop.

        Raises:
            ObjectInUse: the replica takes no commands.
            ThreadFailed: the replica has failed.
        """
        if self._subscribed is None:
            return
        if seconds is not None:
            self._forgotten = False
            self._end(self._subscribed.outdated(seconds))
            self._subscribe(self._subscribed, seconds)
        else:
            self._unsubscribe(self._subscribed)

    def _subscribe(self, subscribed: Subscribed, seconds: float) -> None:
        for command in subscribed.create(seconds):
            with self._changed:
                subscribed.created(command)
            try:
                self._link.send(command)
            except BaseException:
                with self._changed:
                    subscribed.cancelled(command.id)
                raise

    def _end(self, commands: Iterable[CancelIntrospection]) -> None:
        for command in commands:
            self._link.send(command)
            with self._changed:
                if self._subscribed is not None:
                    self._subscribed.cancelled(command.id)

    def _unsubscribe(self, subscribed: Subscribed) -> None:
        self._end(subscribed.cancel())
        if not self._forgotten:
            # What an earlier process has left of it goes as well.
            for one in SUBSCRIBES:
                self._sink.introspected(one.relation, self.replica_id, (), anew=True)
            self._forgotten = True

    def forgo(self, forward: Collection[GlobalId]) -> None:
        """Release the holds for a replica that has been away for too long: it hydrates its dataflows anew when it comes back.

        Args:
            forward: the views that another replica maintains. Holds for others stay, as their shards would lack what is compacted.
        """
        holds = list[ReadHold]()
        with self._changed:
            for gid, known in self._dataflows.items():
                if known.holds and self._may_lack(known, forward):
                    holds += known.holds
                    known.holds = []
                    self._forgone.add(gid)
        release_all(holds)

    def _may_lack(self, known: DataflowState, forward: Collection[GlobalId]) -> bool:
        """Whether a dataflow may begin anew at whatever time its inputs begin, without a gap in a view. The caller holds the lock."""
        if known.command.dataflow.indexes:
            # It begins where the index does, which keeps less than the view may need.
            return False
        if known.command.output_shard is None:
            return not self._is_read(known)
        return known.command.id in forward

    @property
    def brought_forward(self) -> frozenset[GlobalId]:
        """The dataflows whose inputs are all held back to where their views are complete."""
        with self._changed:
            return frozenset(
                gid
                for gid, known in self._dataflows.items()
                if not (known.command.dataflow.indexes or known.dropped or known.refused)
            )

    @property
    def forgone(self) -> frozenset[GlobalId]:
        """The dataflows that the replica must hydrate anew when it comes back."""
        with self._changed:
            return frozenset(self._forgone)

    def hold_again(self, forward: Collection[GlobalId] | None = None) -> None:
        """Hold what was forgone, from the earliest time possible: the replica is back, or no other one maintains the view any more.

        Args:
            forward: as in `forgo`, for a replica that is still away; None: it is back.

        Raises:
            Exception: the first failure to hold; what could not be held stays forgone, the rest is held.
        """
        with self._changed:
            flows = ((gid, self._dataflows.get(gid)) for gid in self._forgone)
            back = {
                gid: one
                for gid, one in flows
                if one is None or forward is None or not self._may_lack(one, forward)
            }
        failures = list[Exception]()
        for gid, known in back.items():
            try:
                if known is not None:
                    self._hold(known)
            except Exception as failure:
                failures.append(failure)
                continue
            with self._changed:
                self._forgone.discard(gid)
        if failures:
            raise failures[0]

    def _hold(self, known: DataflowState) -> None:
        """Hold everything that a dataflow reads; hold nothing of it if that raises."""
        since, holds = join(known.command.as_of, known.needs), list[ReadHold]()
        if since is None:
            return
        try:
            for source in known.stored:
                holds.append(self._storage.hold(source, since))
            with self._changed:
                there = self._dataflows.get(known.command.id) is known
                if there and not known.refused and not known.holds:
                    known.holds, holds = holds, []
        finally:
            release_all(holds)

    def look_after(self) -> None:
        """Delete the statuses of a replica that is gone. It reports all of them when it comes back."""
        gone = self._link.gone
        if gone and not self._taken_back:
            self._sink.delete_replica(self.replica_id)
        self._taken_back = gone

    def initialization_complete(self) -> None:
        """Let the replica delete what it has kept of dataflows that were not sent. Sent once."""
        if not self._initialized:
            self._link.send(InitializationComplete())
            self._initialized = True

    def compactions(self, present: Timestamp) -> list[AllowCompaction]:
        """What would allow indexes to compact times before the last complete one (see `compactions`), to be given to `allow`."""
        with self._changed:
            return compactions(self._dataflows.values(), present)

    def allow(self, found: Iterable[AllowCompaction]) -> None:
        """Allow what `compactions` has found."""
        for command in found:
            self._link.send(command)
            with self._changed:
                if command.id in self._dataflows:
                    self._dataflows[command.id].allowed = command.frontier

    def ping(self) -> int:
        """Ask the replica to report when it has taken all commands; return what to give to `settled`.

        A replica that has not answered an earlier ping in time is not asked again before it has.
        """
        return self._answers.ping(self._link)

    def settled(self, nonce: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the answer to a ping; return whether it came.

        A replica that is away is not waited for, since it is told everything when it is back; nor is one that has let an earlier wait
        pass.
        """
        return self._answers.settled(self._link, nonce, timeout)

    def settle(self, timeout: float) -> bool:
        """Wait until the replica has taken all commands, as `ping` and `settled` do."""
        return self.settled(self.ping(), timeout)

    def peek(
        self,
        gid: GlobalId,
        as_of: Timestamp,
        timeout: float,
        *,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The contents of an index: its arrangement's columns (key, value, mz_error), mz_time and mz_diff.

        Raises:
            NotReadable: the index is not complete at the time within `timeout` seconds, or cannot be read at it.
        """
        found = self._answers.peek(self._link, gid, as_of, timeout, columns)
        if found is None:
            raise self._unreadable(gid, as_of)
        if found.rows is None:
            raise NotReadable(f"index {gid} cannot be read at {as_of}: {found.error}")
        return found.rows

    # --- responses ----------------------------------------------------------------------------

    def _receive(self, response: Response) -> None:
        match response:
            case Frontiers(id=gid, write_frontier=frontier):
                with self._changed:
                    known = self._dataflows.get(gid)
                    if known is not None:
                        known.frontier = frontier
                    self._changed.notify_all()
            case ReadFrontier(id=gid, since=since):
                self._let_go(gid, since)
            case Refreshed(stats=stats):
                with self._changed:
                    self._refreshes.append(stats)
                if stats.kind != "empty" and not self._unseen(stats.object_id):
                    self._sink.refreshed(self.replica_id, stats)
            case HydrationStatus(updates=updates):
                with self._changed:
                    self._sink.update(
                        [(row, diff) for row, diff in updates if not self._unseen(row.object_id)]
                    )
            case Status():
                self._stands(response)
            case IntrospectionUpdates():
                self._introspected(response)
            case Parted():
                with self._changed:
                    if self._subscribed is not None:
                        self._subscribed.parted()
                self._sink.connected(self.replica_id)
            case PeekResponse() | Pong():
                self._answers.answered(response)

    def _unseen(self, gid: GlobalId) -> bool:
        known = self._dataflows.get(gid)
        return known is not None and known.unseen

    def _introspected(self, batch: IntrospectionUpdates) -> None:
        with self._changed:
            if self._subscribed is None or not self._subscribed.takes(batch):
                return
            # A subscribe that has failed leaves no rows behind.
            anew = batch.snapshot or batch.error is not None
            updates = [one for one in batch.updates if self._is_shown(one[0][0])]
            self._sink.introspected(batch.relation, self.replica_id, updates, anew=anew)

    def _is_shown(self, gid: object) -> bool:
        """Whether a row's dataflow is reported, which a dropped index is not. The caller holds the lock."""
        known = self._dataflows.get(GlobalId(str(gid)))
        return known is not None and not known.unseen

    def _stands(self, status: Status) -> None:
        gid, holds = status.object_id, list[ReadHold]()
        with self._changed:
            known = self._dataflows.get(gid)
            if known is None:
                return
            known.status, known.frontier = status, status.frontier
            if status.temporal:
                self._temporal.add(gid)
            else:
                self._temporal.discard(gid)
            gone = status.state == "dropped"
            if gone or not known.unseen:
                self._sink.stands(status)
            if gone or status.state == "refused" or not self._link.apart:
                holds, known.holds = known.holds, []
            if gone:
                del self._dataflows[gid]
                self._temporal.discard(gid)
            self._changed.notify_all()
        release_all(holds)

    def _let_go(self, gid: GlobalId, since: Frontier) -> None:
        """A dataflow reads its inputs only from `since` on; None: not at all."""
        with self._changed:
            known = self._dataflows.get(gid)
            if known is None:
                return
            holds = list(known.holds) if since is None or self._link.apart else []
            known.needs = join(known.needs, since)
            if since is None:
                known.holds = []
        if since is None:
            release_all(holds)
            return
        for hold in holds:
            # Reading `since` opens the collection; in a leading process only what is open is released.
            if less_than(hold.since, since):
                hold.downgrade(since)

    # --- what is known ------------------------------------------------------------------------

    @property
    def apart(self) -> bool:
        """Whether the replica is another process."""
        return self._link.apart

    @property
    def offline(self) -> str | None:
        """Why the replica cannot be used now, as a message for a person; None while it can."""
        return self._link.offline

    @property
    def dataflows(self) -> tuple[GlobalId, ...]:
        """Every dataflow that was sent to the replica and that it has not reported dropped."""
        with self._changed:
            return tuple(self._dataflows)

    def status(self) -> tuple[Status, ...]:
        """The statuses of all dataflows that were not dropped, by id."""
        with self._changed:
            known = [one for one in self._dataflows.values() if not one.dropped]
            shown = [one.shown(self.replica_id) for one in known]
        return tuple(sorted(shown, key=lambda one: sort_key(one.object_id)))

    @property
    def waiting(self) -> bool:
        """Whether some dataflow waits to be opened, or for the replica's first report of it."""
        with self._changed:
            known = [one.status for one in self._dataflows.values() if not one.dropped]
        return any(status is None or status.state == "waiting" for status in known)

    def failure(self, gid: GlobalId) -> str | None:
        """The message of a dataflow's last failure, while it fails; else None."""
        with self._changed:
            known = self._dataflows.get(gid)
            return None if known is None or known.status is None else known.status.error

    @property
    def temporal(self) -> bool:
        """Whether some dataflow's rows appear and disappear as time passes, without updates."""
        with self._changed:
            return bool(self._temporal)

    def refreshes(self) -> tuple[RefreshStats, ...]:
        """The latest refresh statistics, oldest first."""
        with self._changed:
            return tuple(self._refreshes)

    def frontier(self, gid: GlobalId) -> Frontier:
        """The output's upper as the replica reported it.

        Raises:
            UndefinedObject: no such dataflow is installed there.
        """
        with self._changed:
            if (known := self._dataflows.get(gid)) is None:
                raise UndefinedObject(f"no dataflow {gid} is installed on {self.replica_id}")
            return known.frontier

    def wait_until(self, gid: GlobalId, ts: Timestamp, timeout: float) -> None:
        """Wait until ``ts`` is complete in the output.

        Raises:
            NotReadable: it is not after ``timeout`` seconds; the message names frontier, time and replica.
        """

        def done() -> bool:
            known = self._dataflows.get(gid)
            return self._answers.closed or known is None or less_than(ts, known.frontier)

        with self._changed:
            self._changed.wait_for(done, timeout)
            known = self._dataflows.get(gid)
            if known is None or not less_than(ts, known.frontier):
                raise self._unreadable(gid, ts)

    def _unreadable(self, gid: GlobalId, ts: Timestamp) -> NotReadable:
        """The error of a wait that ended at its timeout."""
        with self._changed:
            known = self._dataflows.get(gid)
            status = None if known is None else known.shown(self.replica_id)
        if known is None or status is None:
            return NotReadable(
                f'"{gid}" is not maintained by replica {self.replica_id}, so it cannot be read at {ts} here'
            )
        frontier = "[]" if status.frontier is None else f"[{status.frontier}]"
        error = f": {status.error}" if status.error else ""
        return NotReadable(
            f'timed out: "{known.command.name}" ({gid}) has frontier {frontier}, and time {ts} is needed',
            detail=f"It is maintained by replica {self.replica_id}, which is {status.state}{error}.",
        )

    def close(self) -> None:
        """Stop the replica; shards, statuses and all holds stay. Idempotent."""
        self._answers.close()
        self._link.close()

    def release(self) -> None:
        """Release all holds on inputs, after `close`. Idempotent."""
        self._link.release()
        with self._changed:
            holds = [hold for one in self._dataflows.values() for hold in one.holds]
        release_all(holds)
