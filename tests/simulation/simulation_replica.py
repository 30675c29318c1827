"""A replica as its controllers can tell: a model of `compute.replica` without threads, rows or stores, for `simulation_protocol`.

What it keeps between lives is in `Durable`. A step here is nothing but a frontier that moves, so what is looked at is whether it could
have been done: whether all that it would read is still readable, whether what it had made is still there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from mzsql.compute import protocol as p
from mzsql.compute.replica.scheduling.standby import Does, Standby, decide, stepped
from mzsql.repr.ids import GlobalId

#: A replica's arrangement of a dataflow: whose it is, for what object, of what plan.
Key: TypeAlias = tuple[str, GlobalId, str]


class Violation(AssertionError):
    """What must never be."""


@dataclass(eq=False)
class Hold:
    """What keeps a source readable from a time on, for as long as its owner lives."""

    source: GlobalId
    since: int
    owner: Callable[[], bool]
    released: bool = False

    def downgrade(self, since: int) -> None:
        self.since = max(self.since, since)

    def release(self) -> None:
        self.released = True


@dataclass
class Durable:
    """What outlives every process."""

    uppers: dict[GlobalId, int]
    sinces: dict[GlobalId, int]
    holds: set[Hold] = field(default_factory=set)
    outputs: dict[GlobalId, int] = field(default_factory=dict)
    #: which life of a replica has written an output last
    wrote: dict[GlobalId, ModelReplica] = field(default_factory=dict)
    arrangements: dict[Key, int] = field(default_factory=dict)
    #: from when on the index of a replica can be read, and what those who read it hold of it
    index_sinces: dict[tuple[str, GlobalId], int] = field(default_factory=dict)
    index_holds: dict[tuple[str, GlobalId, GlobalId], int] = field(default_factory=dict)
    #: arrangements that nobody has promised to keep history for
    excused: set[Key] = field(default_factory=set)
    #: plans that cannot be maintained
    refused: set[GlobalId] = field(default_factory=set)
    met: dict[str, int] = field(default_factory=dict)
    hydrated: list[Key] = field(default_factory=list)

    def hold(self, source: GlobalId, since: int, owner: Callable[[], bool]) -> Hold:
        made = Hold(source, max(since, self.sinces[source]), owner)
        self.holds.add(made)
        return made

    def living(self) -> list[Hold]:
        """The holds that count."""
        self.holds = {one for one in self.holds if not one.released}
        return [one for one in self.holds if one.owner()]

    def compact(self, source: GlobalId) -> None:
        """Let go of what nobody holds, as far as can be."""
        held = [one.since for one in self.living() if one.source == source]
        target = min([*held, self.uppers[source] - 1])
        self.sinces[source] = max(self.sinces[source], target)

    def note(self, what: str) -> None:
        self.met[what] = self.met.get(what, 0) + 1


@dataclass
class Flow:
    """A dataflow that is installed."""

    command: p.CreateDataflow
    key: Key
    #: of what it reads, and of what the indexes that it reads are made of
    holds: list[Hold]
    state: str = "waiting"
    as_of: int = 0
    upper: int = 0
    allowed: int = -1
    dropped: bool = False
    #: how far it has told that it is, which others may have written
    told: int = 0
    #: whether it waits for them, and what it knows of what they have written
    standby: Standby = field(default_factory=Standby)
    written: int = 0
    others: int = 0
    #: what was told of whether it is hydrated
    shown: bool | None = None

    # Asked at every act of a schedule.
    gid: GlobalId = field(init=False)
    is_index: bool = field(init=False)
    sources: list[GlobalId] = field(init=False)
    indexes: list[GlobalId] = field(init=False)

    def __post_init__(self) -> None:
        dataflow = self.command.dataflow
        self.gid, self.is_index = self.command.id, dataflow.exports_index
        self.sources, self.indexes = list(dataflow.sources), list(dataflow.indexes)


class ModelReplica:
    """One life of a replica; a `compute.protocol.ReplicaLink`.

    Args:
        durable: what it finds and leaves.
        first: who it is.
        respond: takes its responses.
        owner: whether its process lives, so that its own holds count.
        promised: whether whoever commands it now has promised to keep history for an object.
        now: the time; None if it never stands by for another replica.
    """

    apart = False
    offline = None
    gone = False

    def __init__(
        self,
        durable: Durable,
        first: p.CreateInstance,
        respond: p.Respond,
        *,
        owner: Callable[[], bool],
        promised: Callable[[str, GlobalId], bool],
        now: Callable[[], float] | None = None,
    ) -> None:
        self._now = now
        self.id = first.replica_id
        self.workers = first.settings.workers
        self._durable = durable
        self._respond = respond
        self._owner = owner
        self._promised = promised
        self.commands: deque[p.Command] = deque()
        self.flows: dict[GlobalId, Flow] = {}
        self._peeks: list[p.Peek] = []
        self._retire = False
        self.closed = False

    def send(self, command: p.Command) -> None:
        self.commands.append(command)

    def close(self) -> None:
        self.closed = True

    def release(self) -> None:
        for flow in self.flows.values():
            self._release(flow)

    # --- what can be done now -----------------------------------------------------------------

    def work(self) -> list[Callable[[], None]]:
        """What its threads could do next."""
        if self.closed:
            return []
        todo: list[Callable[[], None]] = []
        if self.commands:
            todo.append(self._take)
        for flow in self.flows.values():
            if (act := self._act(flow)) is not None:
                todo.append(lambda flow=flow, act=act: act(flow))  # type: ignore[misc]
        if self._unread() is not None:
            # When what it is at is done.
            todo.append(self._close)
        if self._retire and not any(one.state == "waiting" for one in self.flows.values()):
            todo.append(self._give_up)
        for peek in self._peeks:
            index = self.flows.get(peek.id)
            if index is None or index.upper > peek.as_of:
                todo.append(lambda peek=peek: self._answer(peek))  # type: ignore[misc]
        return todo

    def _act(self, flow: Flow) -> Callable[[Flow], None] | None:
        if flow.state == "waiting":
            found = [self.flows.get(index) for index in flow.indexes]
            ready = all(one is not None and one.state == "running" for one in found)
            return self._open if ready else None
        upper = min(self._uppers(flow))
        if flow.state == "hydrating":
            return self._hydrate if upper > flow.as_of else None
        match self._does(flow, upper):
            case Does.STEP:
                return self._step
            case Does.TAKE_OVER:
                return self._take_over
            case Does.FOLLOW:
                return self._follow
            case Does.GO_ON:
                return self._go_on
        durable = self._durable.arrangements.get(flow.key, 0)
        if durable < flow.upper or self._holds_more(flow):
            return self._flush
        return None

    def _does(self, flow: Flow, inputs: int) -> Does:
        if self._now is None or flow.is_index:
            return Does.STEP if inputs > flow.upper else Does.WAIT
        flow.standby, does, _ = decide(
            flow.standby,
            self._now(),
            inputs=inputs,
            frontier=flow.told,
            written=flow.written,
            others=flow.others,
        )
        return does

    def _uppers(self, flow: Flow) -> list[int]:
        uppers, flows = self._durable.uppers, self.flows
        found = [uppers[one] for one in flow.sources]
        for one in flow.indexes:
            found.append(flows[one].upper if one in flows else 0)
        return found

    # --- commands -----------------------------------------------------------------------------

    def _take(self) -> None:
        match self.commands.popleft():
            case p.CreateDataflow() as command:
                self._create(command)
            case p.DropDataflow(id=gid):
                self._drop(gid)
            case p.AllowCompaction(id=gid, frontier=frontier):
                if gid in self.flows:
                    self.flows[gid].allowed = max(self.flows[gid].allowed, frontier)
            case p.InitializationComplete():
                self._retire = True
            case p.Ping(nonce=nonce):
                self._respond(p.Pong(nonce))
            case p.Peek() as peek:
                self._peeks.append(peek)
            case p.CancelPeek(uuid=uuid):
                for one in [one for one in self._peeks if one.uuid == uuid]:
                    self._answer(one)

    def _answer(self, peek: p.Peek) -> None:
        self._peeks.remove(peek)
        self._respond(p.PeekResponse(peek.uuid))

    def _create(self, command: p.CreateDataflow) -> None:
        gid = command.id
        if gid in self.flows:
            raise Violation(f"{self.id} was told to make {gid}, which it has")
        for index in command.dataflow.indexes:
            if index not in self.flows or self.flows[index].dropped:
                raise Violation(f"{self.id} was told to make {gid} without the index {index}")
        if gid in self._durable.refused:
            self._durable.note("refused")
            failed = p.Status(gid, self.id, "refused", 0, command.as_of, False, "cannot be", 1)
            self._respond(failed)
            return
        read = command.dataflow
        below = (hold.source for index in read.indexes for hold in self.flows[index].holds)
        stored = dict.fromkeys((*read.sources, *below))
        holds = [self._durable.hold(one, command.as_of, self._owner) for one in stored]
        key = (self.id, gid, f"{command.dataflow.digest}/{self.workers}")
        flow = self.flows[gid] = Flow(command, key, holds, allowed=command.as_of)
        if key not in self._durable.arrangements:
            self._show(flow, False)
        self._stands(flow)

    def _drop(self, gid: GlobalId) -> None:
        flow = self.flows.get(gid)
        if flow is None:
            self._respond(p.Status(gid, self.id, "dropped", 0, 0, False))
            return
        if flow.dropped:
            return
        flow.dropped = True
        self._show(flow, None)

    def _unread(self) -> Flow | None:
        """What was dropped, and can be closed: nobody reads it."""
        gone = [flow for flow in self.flows.values() if flow.dropped]
        if not gone:
            return None
        read = {index for flow in self.flows.values() for index in flow.indexes}
        return next((flow for flow in gone if flow.gid not in read), None)

    def _close(self) -> None:
        flow = self._unread()
        assert flow is not None
        del self.flows[flow.gid]
        self._release(flow)
        self._durable.arrangements.pop(flow.key, None)
        for index in flow.indexes:
            self._durable.index_holds.pop((self.id, index, flow.gid), None)
        self._stands(flow, "dropped")

    def _give_up(self) -> None:
        """End what no dataflow uses."""
        self._retire = False
        used = {flow.key for flow in self.flows.values()}
        for key in [k for k in self._durable.arrangements if k[0] == self.id and k not in used]:
            del self._durable.arrangements[key]
        for held in [h for h in self._durable.index_holds if h[0] == self.id]:
            if held[2] not in self.flows and self._owner():
                del self._durable.index_holds[held]

    # --- work ---------------------------------------------------------------------------------

    def _open(self, flow: Flow) -> None:
        durable, gid = self._durable, flow.gid
        lows = [
            max(one.since, durable.sinces[one.source])
            for one in flow.holds
            if one.source in flow.sources
        ]
        for index in flow.indexes:
            since = durable.index_sinces[self.id, index]
            held = durable.index_holds.setdefault((self.id, index, gid), since)
            lows.append(held)
        low = max(lows)
        done = durable.arrangements.get(flow.key, 0)
        output = 0 if flow.is_index else durable.outputs.get(gid, 0)
        wanted = output - 1 if output else flow.command.as_of
        if done and done - 1 >= low:
            flow.as_of, flow.state, flow.upper = min(max(wanted, low), done - 1), "running", done
            self._begin(flow, done)
            durable.note("gone on")
            self._hydrated(flow)
            return
        if done and flow.key not in durable.excused and self._promised(self.id, gid):
            raise Violation(
                f"{self.id} hydrates {gid} anew: it is at {done}, inputs begin at {low}"
            )
        if output and low > wanted and self._promised(self.id, gid):
            raise Violation(f"{gid} is complete at {wanted}, and {self.id} can go on from {low}")
        flow.as_of, flow.state = max(wanted, low), "hydrating"
        self._stands(flow)

    def _hydrate(self, flow: Flow) -> None:
        if not self._is_readable(flow, flow.as_of):
            self._open_again(flow)
            return
        flow.upper, flow.state = flow.as_of + 1, "running"
        self._begin(flow, 0 if flow.gid in self._durable.outputs else flow.upper)
        self._durable.arrangements[flow.key] = flow.upper
        self._durable.excused.discard(flow.key)
        if flow.is_index:
            # Another shard, of which nobody holds anything yet.
            self._durable.index_sinces[self.id, flow.gid] = flow.as_of
            for held in [h for h in self._durable.index_holds if h[:2] == (self.id, flow.gid)]:
                del self._durable.index_holds[held]
        self._write(flow)
        self._durable.note("hydrated")
        self._durable.hydrated.append(flow.key)
        self._hydrated(flow)

    def _hydrated(self, flow: Flow) -> None:
        self._show(flow, True)
        self._stands(flow)

    def _step(self, flow: Flow) -> None:
        if not self._is_readable(flow, flow.upper - 1):
            # Whether it was to be readable is seen when it is opened: who has led before may have brought its arrangement
            # further than it knows.
            self._open_again(flow)
            return
        self._step_to(flow, min(self._uppers(flow)), Does.STEP)
        self._durable.note("stepped")

    def _step_to(self, flow: Flow, upper: int, does: Does) -> None:
        # Where it makes nothing it is no less right.
        empty = does is Does.STEP and upper % 5 == 0
        flow.upper, flow.standby = upper, stepped(flow.standby, upper, does, empty=empty)
        self._write(flow)
        self._respond(p.Refreshed(p.RefreshStats(flow.gid, 0, flow.upper, 0, 0, 0, 0, 0.0)))
        self._tell(flow)

    def _tell(self, flow: Flow) -> None:
        flow.told = max(flow.told, flow.upper, flow.written)
        self._respond(p.Frontiers(flow.gid, flow.told))

    def _write(self, flow: Flow) -> None:
        durable, gid = self._durable, flow.gid
        if flow.is_index:
            return
        if flow.upper > durable.outputs.get(gid, 0):
            durable.outputs[gid], durable.wrote[gid] = flow.upper, self
        self._look()

    # --- with another replica -----------------------------------------------------------------

    def _begin(self, flow: Flow, wrote: int) -> None:
        flow.standby = Standby(wrote, flow.upper)
        flow.written = flow.others = 0
        if not flow.is_index:
            flow.written = self._durable.outputs.get(flow.gid, 0)
        flow.told = max(flow.upper, flow.written)

    def _look(self) -> None:
        """Follow the log, which is one for all views."""
        durable = self._durable
        for flow in self.flows.values():
            if not flow.is_index and flow.state == "running":
                flow.written = max(flow.written, durable.outputs.get(flow.gid, 0))
                if durable.wrote.get(flow.gid) is not self:
                    flow.others = flow.written

    def _take_over(self, flow: Flow) -> None:
        """What is awaited is not known to be written."""
        self._look()
        assert flow.standby.awaited is not None
        if flow.written < flow.standby.awaited:
            self._durable.note("taken over")
            self._step(flow)
        else:
            self._go_on(flow)

    def _follow(self, flow: Flow) -> None:
        """Bring what was made of the inputs to where another has written the output."""
        if not self._is_readable(flow, flow.upper - 1):
            self._open_again(flow)
            return
        self._durable.note("followed")
        self._step_to(flow, flow.written, Does.FOLLOW)

    def _go_on(self, flow: Flow) -> None:
        self._durable.note("gone on with others")
        self._tell(flow)

    def _is_readable(self, flow: Flow, at: int) -> bool:
        begins = [self._durable.sinces[one] for one in flow.sources]
        begins += [self._durable.index_sinces[self.id, one] for one in flow.indexes]
        return max(begins) <= at

    def _open_again(self, flow: Flow) -> None:
        """What it reads cannot be read any more where it stands: it is opened as after a restart, and so is what reads it."""
        self._durable.note("opened again")
        again = [flow]
        for one in again:
            again += [f for f in self.flows.values() if one.gid in f.indexes and f not in again]
            if one.state != "waiting":
                one.state, one.upper, one.told = "waiting", 0, 0
                self._stands(one)

    def _lower(self, flow: Flow) -> int:
        """From where another life would go on."""
        done = self._durable.arrangements.get(flow.key, 0)
        return done if flow.is_index else min(done, self._durable.outputs.get(flow.gid, 0))

    def _holds_more(self, flow: Flow) -> bool:
        """Whether it could let go of something."""
        lower = self._lower(flow)
        if lower == 0:
            return False
        until, durable = lower - 1, self._durable
        for one in flow.holds:
            if one.since < until:
                return True
        for index in flow.indexes:
            if self._index_held(flow, index) < until:
                return True
        if not flow.is_index:
            return False
        since = durable.index_sinces[self.id, flow.gid]
        return since < min(until, flow.allowed, self._index_holds(flow))

    def _index_held(self, flow: Flow, index: GlobalId) -> int:
        """What a dataflow holds of an index; another life of the same replica may have made that anew."""
        since = self._durable.index_sinces[self.id, index]
        return self._durable.index_holds.get((self.id, index, flow.gid), since)

    def _index_holds(self, flow: Flow) -> int:
        held = [s for h, s in self._durable.index_holds.items() if h[:2] == (self.id, flow.gid)]
        return min(held, default=flow.upper)

    def _flush(self, flow: Flow) -> None:
        """Make durable what steps have added, and let go of what it was made of."""
        durable = self._durable
        durable.arrangements[flow.key] = max(flow.upper, durable.arrangements.get(flow.key, 0))
        until = self._lower(flow) - 1
        for hold in flow.holds:
            hold.downgrade(until)
        for index in flow.indexes:
            held = max(self._index_held(flow, index), until)
            durable.index_holds[self.id, index, flow.gid] = held
        if flow.is_index:
            since = min(until, flow.allowed, self._index_holds(flow))
            begins = durable.index_sinces[self.id, flow.gid]
            durable.index_sinces[self.id, flow.gid] = max(begins, since)
        self._respond(p.ReadFrontier(flow.gid, until))

    # --- responses ----------------------------------------------------------------------------

    def _stands(self, flow: Flow, state: str | None = None) -> None:
        told = state or flow.state
        upper = max(flow.upper, flow.told)
        status = p.Status(flow.gid, self.id, told, upper, flow.as_of, flow.state == "running")
        self._respond(status)

    def _show(self, flow: Flow, hydrated: bool | None) -> None:
        def row(of: bool) -> p.StatusRow:
            return p.OperatorHydrationStatus(flow.gid, 1, self.id, 0, of)

        updates = []
        if flow.shown is not None:
            updates.append((row(flow.shown), -1))
        if hydrated is not None:
            updates.append((row(hydrated), 1))
        flow.shown = hydrated
        if updates:
            self._respond(p.HydrationStatus(tuple(updates)))

    @staticmethod
    def _release(flow: Flow) -> None:
        for hold in flow.holds:
            hold.release()


def installed(replica: ModelReplica) -> Iterable[Flow]:
    """The dataflows of a replica that nobody has dropped."""
    return (flow for flow in replica.flows.values() if not flow.dropped)
