"""What a controller tells replicas and holds for them, where what it asks for fails."""

from __future__ import annotations

import compute_kit as kit
import msgspec
import pytest

from mzsql.catalog.objects import Cluster, Index, MaterializedView, Replica, ReplicaProcess
from mzsql.catalog.state import CatalogState
from mzsql.compute import protocol as p
from mzsql.compute.controller.controller import ComputeController
from mzsql.compute.controller.introspection import SUBSCRIBES
from mzsql.lir.sealed import SealedDataflow
from mzsql.repr.errors import NotReadable, ObjectInUse
from mzsql.repr.ids import TransientIds
from mzsql.repr.types import RelationDesc, RelationType

PLAN = SealedDataflow.of(kit.region_totals())
VIEW = MaterializedView(
    "u3",
    "totals",
    "s",
    "",
    ("u1", "u2"),
    desc=RelationDesc((), RelationType(())),
    shard="shard",
    cluster="c",
    as_of=1,
)
FRONTIERS = "mz_internal.mz_compute_frontiers_unified"
APART = ReplicaProcess("w", "h", 1, "", "")


class Hold:
    def __init__(self, holder, gid, since):
        self.holder, self.gid, self.since = holder, gid, since
        holder.open.append(self)

    def downgrade(self, since):
        self.since = since

    def release(self):
        self.holder.open.remove(self)


class Holder:
    """Holds inputs, but for those that are `lost`."""

    def __init__(self):
        self.open = []
        self.lost: dict[str, Exception] = {}

    def hold(self, gid, since):
        if gid in self.lost:
            raise self.lost[gid]
        return Hold(self, gid, since)

    @property
    def held(self):
        return sorted(hold.gid for hold in self.open)


class Link:
    """The way to a replica that takes what it is told, unless it is `refusing` such commands."""

    def __init__(self, apart, respond):
        self.apart, self.respond = apart, respond
        self.offline, self.gone = None, False
        self.refusing: tuple[type, ...] = ()
        #: so many of such it takes before it refuses
        self.takes = 0
        self.sent = []
        #: the frontiers of what runs there already
        self.runs = ()

    def send(self, command):
        if isinstance(command, self.refusing):
            if not self.takes:
                raise ObjectInUse("it takes no commands")
            self.takes -= 1
        self.sent.append(command)
        for row in self.runs if isinstance(command, p.CreateIntrospection) else ():
            told = ((row, 1),) if command.relation == FRONTIERS else ()
            self.respond(p.IntrospectionUpdates(command.id, command.relation, told, True, None))

    def of(self, *kinds):
        return [one for one in self.sent if isinstance(one, kinds)]

    def close(self):
        pass

    release = close


class Sink(kit.Sink):
    def __init__(self):
        super().__init__()
        self.deleted = []

    def delete_replica(self, replica_id):
        super().delete_replica(replica_id)
        self.deleted.append(replica_id)


class Leader:
    """A controller of the replicas r1, which is in its process, and r2, which is not."""

    def __init__(self, sink=None, runs=(), **settings):
        self.storage, self.sink, self.links = Holder(), sink or Sink(), {}
        self.runs = runs
        replicas = {
            "r1": Replica("r1", "r1", "c1", "1", 1),
            "r2": Replica("r2", "r2", "c1", "1", 1, APART),
        }
        self.state = CatalogState(
            clusters={"c1": Cluster("c1", "c", managed=False)},
            replicas=replicas,
            items={"u3": VIEW},
        )
        #: where tables are complete
        self.present = 0
        self.confirmed = lambda: True
        self.controller = ComputeController(
            self._connect,
            self.storage,
            self.sink,
            present=lambda: self.present,
            history_seconds=-1.0,
            **settings,
        )

    def _connect(self, first, respond):
        apart = self.state.replicas[first.replica_id].process is not None
        link = self.links[first.replica_id] = Link(apart, respond)
        # In this process nothing runs before it is told to.
        link.runs = self.runs if apart else ()
        return link

    def look(self, **settings):
        missing = self.controller.reconcile(self.state, step_engine="duckdb", **settings)
        self.controller.install(missing, {"u3": PLAN}, self.state)
        self.controller.maintain(lambda: self.confirmed())


@pytest.mark.parametrize("failure", [NotReadable("planted"), RuntimeError("planted")])
def test_what_cannot_be_held_again_is_held_by_a_later_look_and_keeps_nothing_from_others(failure):
    leader = Leader()
    leader.look()
    assert leader.storage.held == ["u1", "u1", "u2", "u2"]
    leader.links["r2"].offline = "away"
    leader.look()
    assert leader.storage.held == ["u1", "u2"]
    leader.links["r2"].offline = None
    leader.storage.lost["u2"] = failure
    leader.links["r1"].gone = True
    leader.look()
    # It holds nothing of it, does not take it for held, and the other one was looked after.
    assert leader.storage.held == ["u1", "u2"]
    assert not leader.controller.heard
    assert leader.sink.deleted == ["r1"]
    del leader.storage.lost["u2"]
    leader.look()
    assert leader.storage.held == ["u1", "u1", "u2", "u2"]


def test_what_a_closed_replica_holds_is_let_go_of_only_when_all_else_is_held():
    leader = Leader()
    leader.look()
    leader.links["r2"].offline = "away"
    leader.look()
    leader.links["r2"].offline = None
    leader.storage.lost["u2"] = NotReadable("planted")
    left = {"r2": leader.state.replicas["r2"]}
    leader.state = msgspec.structs.replace(leader.state, replicas=left)
    leader.look()
    assert leader.storage.held == ["u1", "u2"]
    del leader.storage.lost["u2"]
    leader.look()
    assert leader.storage.held == ["u1", "u2"]
    assert p.CreateDataflow in {type(one) for one in leader.links["r2"].sent}


def subscribes(link):
    """Those that the replica was told of and has not been told to end, by relation."""
    ended = {one.id for one in link.of(p.CancelIntrospection)}
    return sorted(one.relation for one in link.of(p.CreateIntrospection) if one.id not in ended)


def tell(link, row, *, snapshot=True):
    """The replica tells a row of the frontiers."""
    (one,) = [one for one in link.of(p.CreateIntrospection) if one.relation == FRONTIERS][-1:]
    link.respond(p.IntrospectionUpdates(one.id, FRONTIERS, ((row, 1),), snapshot, None))


def test_subscribes_that_a_replica_does_not_take_are_told_again():
    leader = Leader(transient_ids=TransientIds())
    leader.look()
    link = leader.links["r1"]
    every = subscribes(link)
    assert every == sorted({one.relation for one in SUBSCRIBES})
    tell(link, ("u3", 5))
    assert leader.sink.introspection[FRONTIERS] == {("r1", "u3", 5): 1}
    link.refusing = (p.CancelIntrospection,)
    leader.look(introspect=False)
    assert not leader.controller.heard
    link.refusing = ()
    leader.look(introspect=False)
    assert subscribes(link) == []
    assert leader.sink.introspection[FRONTIERS] == {}
    link.refusing = (p.CreateIntrospection,)
    leader.look()
    assert not leader.controller.heard
    link.refusing = ()
    leader.look()
    leader.look()
    assert subscribes(link) == every
    tell(link, ("u3", 7))
    assert leader.sink.introspection[FRONTIERS] == {("r1", "u3", 7): 1}


@pytest.mark.parametrize("takes", range(len(SUBSCRIBES) + 1))
@pytest.mark.parametrize("refused", [p.CancelIntrospection, p.CreateIntrospection])
def test_subscribes_look_as_often_as_is_wanted_whatever_a_replica_did_not_take(refused, takes):
    leader = Leader(transient_ids=TransientIds())
    leader.look()
    link = leader.links["r1"]
    every = subscribes(link)
    link.refusing, link.takes = (refused,), takes
    r1 = msgspec.structs.replace(leader.state.replicas["r1"], introspection_ms=9000)
    replicas = {**leader.state.replicas, "r1": r1}
    leader.state = msgspec.structs.replace(leader.state, replicas=replicas)
    leader.look()
    assert leader.controller.heard == (takes == len(SUBSCRIBES))
    link.refusing = ()
    leader.look()
    told = {one.id: one for one in link.of(p.CreateIntrospection)}
    for one in link.of(p.CancelIntrospection):
        del told[one.id]
    assert sorted(one.relation for one in told.values()) == every
    assert {one.seconds for one in told.values()} == {9.0}
    before = link.of(p.CreateIntrospection, p.CancelIntrospection)
    leader.look()
    assert link.of(p.CreateIntrospection, p.CancelIntrospection) == before


def test_what_an_earlier_process_has_left_of_introspection_goes_where_it_is_switched_off():
    sink = Sink()
    sink.introspected(FRONTIERS, "r1", [(("u3", 5), 1)], anew=True)
    leader = Leader(sink, transient_ids=TransientIds())
    leader.look(introspect=False)
    assert sink.introspection[FRONTIERS] == {}
    assert subscribes(leader.links["r1"]) == []


def test_what_a_replica_ran_before_this_process_led_is_shown_although_it_tells_it_once():
    leader = Leader(transient_ids=TransientIds(), runs=(("u3", 5),))
    leader.look()
    assert leader.sink.introspection[FRONTIERS] == {("r2", "u3", 5): 1}


def test_an_index_that_is_complete_beyond_the_present_stays_readable_at_it():
    leader = Leader()
    index = Index("u3", "i", "s", "", ("u1", "u2"), on_id="u1", cluster="c", as_of=1)
    leader.state = msgspec.structs.replace(leader.state, items={"u3": index})
    leader.present = 4
    leader.look()
    # As on a view whose next refresh is far ahead, and as on a table.
    frontiers = {"r1": 3_600_000, "r2": 5}
    allowed: dict[str, list[int]] = {one: [] for one in frontiers}
    for leader.present in (4, 5, 5, 9):
        for name, link in leader.links.items():
            link.respond(p.Frontiers("u3", frontiers[name]))
        leader.look()
        for name, link in leader.links.items():
            allowed[name] = [one.frontier for one in link.of(p.AllowCompaction)]
    assert allowed == {"r1": [4, 5, 9], "r2": [4]}


@pytest.mark.parametrize("failing", [False, True])
def test_an_index_is_allowed_to_compact_by_who_has_confirmed_that_it_leads_since(failing):
    asked: list[int] = []
    confirms = False

    def confirmed() -> bool:
        asked.append(leader.present)
        if failing and not confirms:
            raise ObjectInUse("the catalog cannot be read")
        return confirms

    leader = Leader()
    leader.confirmed = confirmed
    index = Index("u3", "i", "s", "", ("u1", "u2"), on_id="u1", cluster="c", as_of=1)
    leader.state = msgspec.structs.replace(leader.state, items={"u3": index})
    leader.present = 4
    leader.look()
    assert asked == []
    for link in leader.links.values():
        link.respond(p.Frontiers("u3", 5))
    leader.look()
    links = leader.links.values()
    assert (asked, [link.of(p.AllowCompaction) for link in links]) == ([4], [[], []])
    confirms = True
    for _ in range(3):
        leader.look()
    told = [[one.frontier for one in link.of(p.AllowCompaction)] for link in links]
    assert (asked, told) == ([4, 4], [[4], [4]])
