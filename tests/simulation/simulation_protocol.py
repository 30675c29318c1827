"""Controllers and replicas that talk, under a seeded scheduler: connections break, processes die, hang and wake, leaders change.

The controllers' side is the real one (`ComputeController`, `ReplicaClient`, `Conversation`), and so is what a replica's process keeps
between controllers (`ReconciledReplica`); behind it is a model of the replica (`simulation_replica`). A connection delivers in order,
and loses whatever it has not delivered when it breaks; each side finds that out when the scheduler lets it, so what an old connection
has still to say comes after a new one has begun. `simulation_protocol_run` runs schedules and judges them.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from simulation_replica import Durable, Hold, ModelReplica, Violation

from mzsql.catalog.objects import (
    Cluster,
    Index,
    Maintained,
    MaterializedView,
    Replica,
    ReplicaProcess,
)
from mzsql.catalog.state import CatalogState
from mzsql.compute import protocol as p
from mzsql.compute.controller.controller import ComputeController
from mzsql.compute.transport.conversation import Conversation
from mzsql.compute.transport.reconciled import ReconciledReplica
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Column
from mzsql.lir import plan as lir
from mzsql.lir.sealed import SealedDataflow
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import INTEGER, ColumnType, RelationDesc, RelationType

SOURCES = ("u1", "u2")
TYPE = RelationType((ColumnType(INTEGER),))
DESC = RelationDesc(("a",), TYPE)
KEY = (Column(0),)
#: A replica may be away for so long, in events, before no history is kept for it alone.
HISTORY = 25.0
#: For what is counted in seconds.
EVENTS_A_SECOND = 10


def described(
    gid: GlobalId,
    sources: tuple[GlobalId, ...],
    index: tuple[GlobalId, GlobalId] | None,
    export: lir.Export,
    *,
    another: bool,
) -> SealedDataflow:
    """A plan, or another one that reads the same."""
    read = lir.Get(
        0, sources[0] if sources else SOURCES[0], lir.AvailableCollections(True),
        lir.GetCollection(MapFilterProject.identity(1)), TYPE.columns,
    )  # fmt: skip
    imports = () if index is None else (lir.IndexImport(index[0], index[1], KEY, TYPE),)
    desc = lir.DataflowDescription(
        tuple(lir.SourceImport(one, TYPE) for one in sources),
        imports,
        (lir.BuildDesc(gid, read, TYPE),) * (2 if another else 1),
        export,
    )
    return SealedDataflow.of(desc)


@dataclass(eq=False)
class Connection:
    """Between a link and a replica's process; each side finds out by itself that it has broken."""

    link: Link
    process: Process
    to_replica: deque[p.Command] = field(default_factory=deque)
    to_controller: deque[p.Response] = field(default_factory=deque)
    broken: bool = False
    known_here: bool = True
    known_there: bool = True

    def respond(self, response: p.Response) -> None:
        if self.known_there:
            self.to_controller.append(response)


class Link:
    """A controller's way to a replica's process, as `RemoteLink` is, moved by the scheduler."""

    apart = True

    def __init__(self, world: World, leader: Leader, first: p.CreateInstance, respond: p.Respond):
        self.world, self.leader, self.replica_id = world, leader, first.replica_id
        self._respond = respond
        self.conversation = Conversation(first)
        self.connection: Connection | None = None
        self.closed = False

    @property
    def offline(self) -> str | None:
        return None if self.conversation.there else "away"

    @property
    def gone(self) -> bool:
        """Nobody is at its address, and has not been for long."""
        return not self.conversation.there and self._finds() is None

    def send(self, command: p.Command) -> None:
        self._tell(self.conversation.send(command))

    def _tell(self, answers: list[p.Response]) -> None:
        for one in answers:
            self._respond(one)

    def close(self) -> None:
        self.closed = True
        self.lose()

    def release(self) -> None:
        pass

    def lose(self) -> None:
        """Find out that there is no connection."""
        if self.connection is not None:
            self.connection.broken, self.connection.known_here = True, False
            self.connection = None
        answers = self.conversation.end("away")
        if not self.closed:
            self._tell(answers)

    def work(self) -> list[Callable[[], None]]:
        if self.closed:
            return []
        if self.connection is None:
            return [self._connect] if self._finds() is not None else []
        todo: list[Callable[[], None]] = []
        if self.conversation.waiting:
            todo.append(self._write)
        if self.connection.to_controller and not self.connection.broken:
            todo.append(self._read)
        if self.connection.broken:
            todo.append(self.lose)
        return todo

    def _finds(self) -> Process | None:
        """The process at the address that the catalog has, where it would take commands from here."""
        entry = self.leader.catalog.replicas.get(self.replica_id)
        if entry is None or entry.process is None:
            return None
        found = self.world.processes.get(entry.process.secret)
        if found is None or not found.runs or found.epoch > self.leader.epoch:
            return None
        return found

    def _connect(self) -> None:
        found = self._finds()
        assert found is not None
        self.world.note("met")
        self.connection = Connection(self, found)
        self.conversation.begin()
        found.meet(self.connection)

    def _write(self) -> None:
        command = self.conversation.next()
        assert command is not None
        assert self.connection is not None
        if not self.connection.broken:
            self.connection.to_replica.append(command)

    def _read(self) -> None:
        assert self.connection is not None
        response = self.connection.to_controller.popleft()
        self.conversation.heard(response)
        self._respond(response)


class Process:
    """``mzsql replica``."""

    def __init__(self, world: World, replica_id: str) -> None:
        self.world, self.replica_id = world, replica_id
        self.alive, self.stopped = True, False
        self.epoch = -1
        self.later: deque[Callable[[], None]] = deque()
        self.model: ModelReplica | None = None
        self.reconciled = ReconciledReplica(self._made, self.later.append)
        self.connections: list[Connection] = []

    @property
    def runs(self) -> bool:
        return self.alive and not self.stopped

    def _made(self, first: p.CreateInstance, respond: p.Respond) -> ModelReplica:
        # The lease of one that is stopped may run out.
        self.model = ModelReplica(
            self.world.durable,
            first,
            respond,
            owner=lambda: self.runs,
            promised=self.world.promised,
            now=lambda: self.world.now / EVENTS_A_SECOND,
        )
        return self.model

    def meet(self, connection: Connection) -> None:
        self.epoch = connection.link.leader.epoch
        for one in self.connections:
            one.broken = True
        self.connections.append(connection)
        self.reconciled.meet(connection.respond)

    def work(self) -> list[Callable[[], None]]:
        if not self.runs:
            return []
        todo = [] if self.model is None else self.model.work()
        if self.later:
            todo.append(lambda: self.later.popleft()())
        for one in self.connections:
            if one.to_replica:
                todo.append(
                    lambda one=one: self.reconciled.take(one.to_replica.popleft(), one.respond)
                )  # type: ignore[misc]
            if one.broken and one.known_there:
                todo.append(lambda one=one: self._part(one))  # type: ignore[misc]
        return todo

    def _part(self, connection: Connection) -> None:
        connection.known_there = False
        # One command that has come may be carried out yet.
        while len(connection.to_replica) > 1:
            connection.to_replica.pop()
        self.reconciled.part(connection.respond)

    def kill(self) -> None:
        self.alive = False
        for one in self.connections:
            one.broken = True


class Leader:
    """A process that leads, or has and does not know it yet."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world, self.epoch = world, epoch
        self.catalog = world.catalog
        self.leads = True
        self.ready = False
        self.links: list[Link] = []
        self.here: list[ModelReplica] = []
        self.told: set[tuple[GlobalId, str]] = set()
        self._seen: CatalogState | None = None
        self.controller = ComputeController(
            self._connect,
            self,
            self,
            present=lambda: max(world.durable.uppers.values()) - 1,
            monotonic=lambda: world.now,
            history_seconds=HISTORY,
        )

    def _connect(self, first: p.CreateInstance, respond: p.Respond) -> p.ReplicaLink:
        link: Link | None = None

        def noting(response: p.Response) -> None:
            if isinstance(response, p.PeekResponse):
                self.world.asked.setdefault(link, set()).discard(response.uuid)
            elif isinstance(response, p.Pong):
                open_ = self.world.asked.setdefault(link, set())
                open_ -= {one for one in open_ if one.isdigit() and int(one) <= response.nonce}
            respond(response)

        entry = self.catalog.replicas[first.replica_id]
        if entry.process is not None:
            link = Link(self.world, self, first, noting)
            self.links.append(link)
            return link
        here = ModelReplica(
            self.world.durable,
            first,
            noting,
            owner=lambda: self.leads,
            promised=self.world.promised,
        )
        self.here.append(here)
        return here

    def tick(self) -> None:
        """Bring what is installed in line with the catalog, as `adapter.dataflows` does."""
        if self.leads:
            self.catalog = self.world.catalog
        if self.catalog is not self._seen or not self.controller.heard:
            missing = self.controller.reconcile(self.catalog, step_engine="duckdb")
            self._seen = self.catalog
            self.controller.install(
                missing, {one.id: self._plan(one) for one in missing}, self.catalog
            )
        self.controller.maintain(lambda: self.leads and self.catalog is self.world.catalog)
        self._excuse()
        self.ready = True

    def _excuse(self) -> None:
        """What was forgone may be made anew, and so may what was made by another plan than the present leader's."""
        durable = self.world.durable
        for client in self.controller.replicas:
            self.world.durable.note("forgone") if client.forgone else None
            plans = {gid: one.command.dataflow.digest for gid, one in client._dataflows.items()}
            for key in durable.arrangements:
                replica, gid, plan = key
                if replica != client.replica_id:
                    continue
                other = gid in plans and not plan.startswith(f"{plans[gid]}/")
                if gid in client.forgone or (other and self.leads):
                    durable.excused.add(key)

    def _plan(self, item: Maintained) -> SealedDataflow:
        another = item.id in self.world.planned_anew
        if isinstance(item, Index):
            own = lir.IndexExport(item.id, item.on_id, KEY)
            return described(item.id, (item.on_id,), None, own, another=another)
        sources = tuple(one for one in item.depends_on if one in SOURCES)
        index = self.world.indexes.get(item.id)
        found = None if index is None else self.catalog.items.get(index)
        export = lir.MaterializedViewExport(item.id)
        if isinstance(found, Index):
            rest = tuple(one for one in sources if one != found.on_id)
            reads = found.id, found.on_id
            return described(item.id, rest, reads, export, another=another)
        return described(item.id, sources, None, export, another=another)

    def work(self) -> list[Callable[[], None]]:
        todo = [act for link in self.links for act in link.work()]
        return todo + [act for one in self.here for act in one.work()]

    # --- what holds inputs --------------------------------------------------------------------

    def hold(self, gid: GlobalId, since: int) -> Hold:
        return self.world.durable.hold(gid, since, lambda: self.leads)

    # --- where statuses go --------------------------------------------------------------------

    def connected(self, replica_id: str) -> None:
        self.told = {one for one in self.told if one[1] != replica_id}

    def update(self, rows: list[tuple[p.StatusRow, int]]) -> None:
        if not self.leads:
            return
        for row, diff in rows:
            one = row.object_id, row.replica_id
            if one not in self.told:
                self.told.add(one)
                self.world.forget(*one)
            self.world.rows[row] += diff
            if self.world.rows[row] not in (0, 1):
                raise Violation(f"{row} is there {self.world.rows[row]} times")

    def stands(self, status: p.Status) -> None:
        if self.leads and status.state == "dropped":
            self.world.forget(status.object_id, status.replica_id)
            self.told.discard((status.object_id, status.replica_id))

    def refreshed(self, replica_id: str, stats: p.RefreshStats) -> None:
        pass

    def keep(self, dataflows: frozenset[tuple[GlobalId, str]]) -> None:
        if self.leads:
            for row in list(self.world.rows):
                if (row.object_id, row.replica_id) not in dataflows:
                    self.world.rows[row] = 0

    def delete_replica(self, replica_id: str) -> None:
        if self.leads:
            for row in self.world.rows:
                if row.replica_id == replica_id:
                    self.world.rows[row] = 0


class World:
    """Everything there is in one schedule."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.durable = Durable(dict.fromkeys(SOURCES, 2), dict.fromkeys(SOURCES, 0))
        self.catalog = CatalogState(clusters={"c1": Cluster("c1", "c", managed=False)})
        self.indexes: dict[GlobalId, GlobalId] = {}
        # What leaders from now on plan in another way.
        self.planned_anew: set[GlobalId] = set()
        self.processes: dict[str, Process] = {}
        self.rows: Counter[p.StatusRow] = Counter()
        # Questions that are not answered, by who was asked.
        self.asked: dict[Link | None, set[str]] = {}
        self._numbers = itertools.count(100)
        self._epochs = itertools.count(1)
        for number in (1, 2):
            self._add_replica(number)
        self.leader = Leader(self, next(self._epochs))
        self.leaders = [self.leader]

    def note(self, what: str) -> None:
        self.durable.note(what)

    def forget(self, gid: GlobalId, replica_id: str) -> None:
        for row in self.rows:
            if (row.object_id, row.replica_id) == (gid, replica_id):
                self.rows[row] = 0

    def promised(self, replica_id: str, gid: GlobalId) -> bool:
        """Whether the leader has told a replica to maintain an object that is wanted, and holds what that reads."""
        controller = self.leader.controller
        client = controller._replicas.get(replica_id)
        return (
            gid in self.catalog.items
            and gid in controller._on.get(replica_id, ())
            and (client is None or gid not in client.forgone)
        )

    # --- the catalog --------------------------------------------------------------------------

    def change(self, **fields: object) -> None:
        before, self.catalog = self.catalog, msgspec.structs.replace(self.catalog, **fields)
        worked = {one.id for one in self.catalog.working("c1")}
        gone = {one.id for one in before.working("c1")} - worked
        excused = [
            key for key in self.durable.arrangements if key[0] not in worked or key[0] in gone
        ]
        self.durable.excused.update(excused)

    def _add_replica(self, number: int) -> None:
        made = Replica(f"r{number}", f"r{number}", "c1", "1", 1)
        self.change(replicas={**self.catalog.replicas, made.id: made})

    def add_replica(self) -> None:
        if len(self.catalog.replicas) < 3:
            self._add_replica(next(self._numbers))

    def drop_replica(self) -> None:
        if len(self.catalog.replicas) > 1:
            gone = self.rng.choice(sorted(self.catalog.replicas))
            self.note("replica dropped")
            left = {name: one for name, one in self.catalog.replicas.items() if name != gone}
            self.change(replicas=left)
            for process in self.processes.values():
                if process.replica_id == gone:
                    process.kill()

    def resize(self) -> None:
        one = self.catalog.replicas[self.rng.choice(sorted(self.catalog.replicas))]
        # What it had in its size before is held by nobody from now on, though it may be asked for in that size again.
        made = self.durable.arrangements
        self.durable.excused.update(key for key in made if key[0] == one.id)
        self._set(msgspec.structs.replace(one, workers=one.workers % 3 + 1))

    def _set(self, one: Replica) -> None:
        self.change(replicas={**self.catalog.replicas, one.id: one})

    def create(self) -> None:
        if len(self.catalog.items) > 8:
            return
        gid, rng = f"u{next(self._numbers)}", self.rng
        sources = SOURCES if rng.random() < 0.3 else (rng.choice(SOURCES),)
        as_of = max(min(self.durable.uppers[one] for one in sources) - 1, 0)
        as_of = max([as_of, *(self.durable.sinces[one] for one in sources)])
        if rng.random() < 0.1:
            self.durable.refused.add(gid)
        item: Maintained
        if rng.random() < 0.4:
            item = Index(gid, gid, "s", "", sources[:1], on_id=sources[0], cluster="c", as_of=as_of)
        else:
            useful = [
                one
                for one in self.catalog.items.values()
                if isinstance(one, Index)
                and one.on_id in sources
                and one.id not in self.durable.refused
            ]
            if useful and rng.random() < 0.8:
                index = rng.choice(useful)
                self.indexes[gid] = index.id
                # It begins now, when none has let go of; as soon as the index does at least.
                at = [at for one, at in self.durable.index_sinces.items() if one[1] == index.id]
                as_of = max(as_of, index.as_of, *at)
            shard = f"shard of {gid}"
            item = MaterializedView(
                gid, gid, "s", "", sources, desc=DESC, shard=shard, cluster="c", as_of=as_of
            )
        self.change(items={**self.catalog.items, gid: item})

    def drop(self) -> None:
        if self.catalog.items:
            read = {index for view, index in self.indexes.items() if view in self.catalog.items}
            some = sorted(read & self.catalog.items.keys())
            if not some or self.rng.random() < 0.5:
                some = sorted(self.catalog.items)
            gone = self.rng.choice(some)
            self.note("object dropped")
            self.change(
                items={name: one for name, one in self.catalog.items.items() if name != gone}
            )

    # --- processes ----------------------------------------------------------------------------

    def _process_of(self, one: Replica) -> Process | None:
        return None if one.process is None else self.processes.get(one.process.secret)

    def start(self) -> None:
        """Start a process for a replica that has none that lives."""
        free = [one for one in self.catalog.replicas.values() if not self._lives(one)]
        if free:
            self._start(self.rng.choice(free))

    def _lives(self, one: Replica) -> bool:
        found = self._process_of(one)
        return found is not None and found.alive

    def _start(self, one: Replica) -> None:
        secret = f"p{next(self._numbers)}"
        self.processes[secret] = Process(self, one.id)
        self._set(msgspec.structs.replace(one, process=ReplicaProcess("h 1", "h", 1, secret, "1")))

    def _some_process(self) -> Process | None:
        found = [one for one in self.processes.values() if one.alive]
        return self.rng.choice(found) if found else None

    def kill(self) -> None:
        if (one := self._some_process()) is not None:
            self.note("killed")
            one.kill()

    def stop(self) -> None:
        if (one := self._some_process()) is not None:
            self.note("stopped")
            one.stopped = True

    def wake(self) -> None:
        for one in self.processes.values():
            one.stopped = False

    def leave(self) -> None:
        """A process ends as it was asked to, and gives its entry back."""
        for one in self.catalog.replicas.values():
            found = self._process_of(one)
            if found is not None and found.runs and self.rng.random() < 0.5:
                found.kill()
                self._set(msgspec.structs.replace(one, process=None))
                return

    def cut(self) -> None:
        """A connection breaks."""
        found = [link.connection for one in self.leaders for link in one.links if link.connection]
        if found:
            self.note("cut")
            self.rng.choice(found).broken = True

    def fail_over(self) -> None:
        """Another process leads; the one before does not know that yet, and its replicas of its own are stopped with it."""
        self.note("another leader")
        self.leader.leads = False
        if self.catalog.items and self.rng.random() < 0.5:
            self.planned_anew ^= {self.rng.choice(sorted(self.catalog.items))}
        for here in self.leader.here:
            here.close()
            here.release()
        self.leader = Leader(self, next(self._epochs))
        self.leaders = [*self.leaders[-1:], self.leader]

    # --- time ---------------------------------------------------------------------------------

    def write(self) -> None:
        for one in SOURCES:
            self.durable.uppers[one] += self.rng.randrange(3)

    def compact(self) -> None:
        if self.leader.ready and self.leader.catalog is self.catalog:
            for one in SOURCES:
                self.durable.compact(one)

    def tick(self) -> None:
        self.rng.choice(self.leaders).tick()

    def ask(self) -> None:
        """Peek at an index, or ping, without waiting."""
        leader = self.leader
        for link in leader.links:
            indexes = [g for g, one in leader.catalog.items.items() if isinstance(one, Index)]
            number = next(self._numbers)
            open_ = self.asked.setdefault(link, set())
            if indexes and self.rng.random() < 0.5:
                open_.add(f"peek {number}")
                at = self.durable.uppers["u1"]
                link.send(p.Peek(f"peek {number}", self.rng.choice(indexes), at))
            else:
                open_.add(str(number))
                link.send(p.Ping(number))

    def work(self) -> list[Callable[[], None]]:
        todo = [act for one in self.leaders for act in one.work()]
        return todo + [act for one in self.processes.values() for act in one.work()]
