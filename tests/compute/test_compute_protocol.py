"""What a controller and a replica tell each other: it travels as bytes, in order, in bounds, and is answered by responses alone."""

from __future__ import annotations

import itertools
import threading
import time
import typing

import compute_kit as kit
import msgspec
import pyarrow as pa
import pytest

from mzsql.compute import protocol as p
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.logs import FRONTIERS, over_logs, whole
from mzsql.compute.replica.replica import Replica
from mzsql.compute.replica.scheduling import commands
from mzsql.lir.sealed import SealedDataflow
from mzsql.repr.errors import ObjectInUse
from mzsql.threads import Supervisor

WAIT = 60.0

COMMANDS = [
    p.CreateInstance("r1", ComputeSettings(workers=3, step_engine="duckdb")),
    p.InitializationComplete(),
    p.UpdateConfiguration("spark"),
    p.CreateDataflow("u3", "totals", SealedDataflow.of(kit.region_totals()), "s1", 7),
    p.AllowCompaction("u7", 12),
    p.DropDataflow("u3"),
    p.Peek("a", "u7", 5, ("c0",)),
    p.CancelPeek("a"),
    p.CreateIntrospection("t1", "mz_internal.x", over_logs(whole(FRONTIERS)), 2.0),
    p.CancelIntrospection("t1"),
    p.Ping(4),
]
RESPONSES = [
    p.Frontiers("u3", None),
    p.ReadFrontier("u3", 6),
    p.ReadFrontier("u3", None),
    p.Status("u3", "r1", "failed", 8, 7, True, "no", 2, True),
    p.HydrationStatus(
        (
            (p.OperatorHydrationStatus("u3", 4, "r1", 1, False), -1),
            (p.ObjectHydrationStatus("u3", "r1", True), 1),
        )
    ),
    p.Refreshed(p.RefreshStats("u3", 7, 9, 1, 2, 3, 0, 0.5, "step", "duckdb", "small")),
    p.PeekResponse("a", pa.table({"c0": [1, None], "mz_diff": [1, 2]})),
    p.PeekResponse("a", error="no"),
    p.IntrospectionUpdates("t1", "mz_internal.x", ((("u1", None, True, 7), -1),), True, "no"),
    p.Parted(),
    p.Pong(4),
]


def test_every_command_and_response_is_the_same_after_it_has_travelled():
    assert {type(one) for one in COMMANDS} == set(typing.get_args(p.Command))
    assert {type(one) for one in RESPONSES} == set(typing.get_args(p.Response))
    for command in COMMANDS:
        assert p.decode_command(p.encode(command)) == command
    for response in RESPONSES:
        assert p.decode_response(p.encode(response)) == response
    with pytest.raises(msgspec.DecodeError):
        p.decode_command(p.encode(RESPONSES[0]))


class Told:
    """The responses of a replica."""

    def __init__(self):
        self.changed = threading.Condition()
        self.all = []

    def __call__(self, response):
        # As they would arrive in another process.
        with self.changed:
            self.all.append(p.decode_response(p.encode(response)))
            self.changed.notify_all()

    def until(self, found):
        with self.changed:
            assert self.changed.wait_for(lambda: any(map(found, self.all)), WAIT), self.all
            return next(filter(found, self.all))


@pytest.fixture
def world():
    with kit.in_memory() as made:
        made.storage.write("u1", [(1, 10, "x", 1, 1), (2, 20, "y", 1, 1)], upper=2)
        made.storage.write("u2", [(1, "north", 1, 1)], upper=2)
        yield made


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def replica(world, told):
    settings = ComputeSettings(step_engine="duckdb", since_seconds=0.0, retry_seconds=0.01)
    made = Replica(
        p.CreateInstance("r1", settings),
        told,
        persist=world.persist,
        spark=world.spark,
        storage=world.storage,
        registry=world.registry,
    )
    yield made
    made.close()


def send(replica, command):
    """As it would arrive from another process."""
    replica.send(p.decode_command(p.encode(command)))


def indexed(gid="u7"):
    key = (kit.Column(0),)
    plan = kit.arrange(1, kit.get(0, "u1", kit.ORDERS), [0], kit.ORDERS)
    export = kit.lir.IndexExport(gid, "u1", key)
    return kit.dataflow(gid, plan, kit.ORDERS, {"u1": kit.ORDERS}, export=export)


def at(gid, frontier):
    return lambda r: (
        isinstance(r, p.Frontiers | p.Status)
        and ((r.id, r.write_frontier) if isinstance(r, p.Frontiers) else (r.object_id, r.frontier))
        == (gid, frontier)
    )


def standing(gid, state):
    return lambda r: isinstance(r, p.Status) and (r.object_id, r.state) == (gid, state)


def test_a_dataflow_is_told_of_from_its_creation_to_its_end(world, told, replica):
    shard = world.storage.add("u3", (kit.TXT, kit.BIG, kit.BIG), errors=True)
    send(
        replica, p.CreateDataflow("u3", "totals", SealedDataflow.of(kit.region_totals()), shard, 1)
    )
    told.until(at("u3", 2))
    world.storage.write("u1", [(1, 5, "z", 2, 1)], upper=3)
    world.storage.write("u2", [], upper=3)
    told.until(at("u3", 3))
    stepped = next(r for r in told.all if isinstance(r, p.Refreshed) and r.stats.kind == "step")
    assert (stepped.stats.lower, stepped.stats.upper, stepped.stats.rows_in) == (2, 3, 1)
    # What a step did is told before the frontier that it has moved.
    assert told.all.index(stepped) < told.all.index(told.until(at("u3", 3)))
    send(replica, p.DropDataflow("u3"))
    told.until(standing("u3", "dropped"))
    statuses = [r for r in told.all if isinstance(r, p.Status)]
    states = [state for state, _ in itertools.groupby(r.state for r in statuses)]
    assert states == ["waiting", "hydrating", "running", "dropped"]
    # While it is not hydrated each says why, and at which nodes it is: inputs before what is computed from them.
    assert all(r.reason for r in statuses if not r.hydrated)
    nodes = [r.plan_node_id for r in statuses if r.plan_node_id is not None]
    assert [node for node, _ in itertools.groupby(nodes)][-2:] == [5, 7]
    assert set(nodes) == {1, 3, 5, 7}
    rows = [update for r in told.all if isinstance(r, p.HydrationStatus) for update in r.updates]
    left = {row for row, _ in rows}
    assert {row: sum(d for r, d in rows if r == row) for row in left} == dict.fromkeys(left, 0)
    assert world.registry.entries("r1") == {}


def test_what_cannot_be_installed_is_refused_and_keeps_nothing_else_waiting(told, replica):
    send(replica, p.CreateDataflow("u7", "i", SealedDataflow.of(indexed()), "s1", 1))
    refused = told.until(standing("u7", "refused"))
    assert "an index has no output shard" in refused.error
    send(replica, p.CreateDataflow("u7", "i", SealedDataflow.of(indexed()), None, 1))
    send(replica, p.CreateDataflow("u7", "i", SealedDataflow.of(indexed()), None, 1))
    again = told.until(lambda r: standing("u7", "refused")(r) and r != refused)
    assert again.error == 'dataflow "i" (u7) is already installed'
    told.until(standing("u7", "running"))


def test_a_peek_is_answered_once_at_its_time(world, told, replica):
    def answer(uuid):
        return told.until(lambda r: isinstance(r, p.PeekResponse) and r.uuid == uuid)

    send(replica, p.Peek("none", "u7", 1))
    assert answer("none").error == "no dataflow u7 is installed on r1"
    send(replica, p.CreateDataflow("u7", "i", SealedDataflow.of(indexed()), None, 1))
    send(replica, p.Peek("now", "u7", 1, ("c0", "c1")))
    found = answer("now").rows
    assert sorted(zip(found["c0"].to_pylist(), found["c1"].to_pylist(), strict=True)) == [
        (1, 10),
        (2, 20),
    ]
    for uuid in ("later", "never"):
        send(replica, p.Peek(uuid, "u7", 2, ("c1",)))
    send(replica, p.CancelPeek("never"))
    assert answer("never") == p.PeekResponse("never")
    assert not [r for r in told.all if isinstance(r, p.PeekResponse) and r.uuid == "later"]
    world.storage.write("u1", [(1, 10, "x", 2, -1)], upper=3)
    assert answer("later").rows["c1"].to_pylist() == [20]
    send(replica, p.DropDataflow("u7"))
    told.until(standing("u7", "dropped"))
    answers = [r.uuid for r in told.all if isinstance(r, p.PeekResponse)]
    assert sorted(answers) == ["later", "never", "none", "now"]


def test_peeks_that_wait_are_bounded(told, replica, monkeypatch):
    monkeypatch.setattr("mzsql.compute.replica.peeks.MOST_PEEKS", 2)
    send(replica, p.CreateDataflow("u7", "i", SealedDataflow.of(indexed()), None, 1))
    for number in range(3):
        send(replica, p.Peek(str(number), "u7", 100))
    refused = told.until(lambda r: isinstance(r, p.PeekResponse))
    assert (refused.uuid, refused.error) == ("2", "the replica has 2 peeks to answer already")


def test_an_index_is_readable_from_what_it_is_told_on(world, told, replica):
    send(replica, p.CreateDataflow("u7", "i", SealedDataflow.of(indexed()), None, 1))
    told.until(standing("u7", "running"))
    for upper in range(3, 8):
        world.storage.write("u1", [(upper, upper, "w", upper - 1, 1)], upper=upper)
        told.until(at("u7", upper))
    (flow,) = replica._installed.all()
    assert flow.dataflow.output.since == 1
    send(replica, p.AllowCompaction("u7", 5))
    send(replica, p.Ping(1))
    told.until(lambda r: r == p.Pong(1))
    world.storage.write("u1", [], upper=9)
    told.until(at("u7", 9))
    flow.flush()
    world.storage.write("u1", [], upper=10)
    told.until(at("u7", 10))
    assert flow.dataflow.output.since == 5


def test_an_index_lets_go_of_what_it_is_told_although_nothing_is_written_any_more(
    world, told, replica
):
    send(replica, p.CreateDataflow("u7", "i", SealedDataflow.of(indexed()), None, 1))
    told.until(standing("u7", "running"))
    for upper in range(3, 8):
        world.storage.write("u1", [(upper, upper, "w", upper - 1, 1)], upper=upper)
        told.until(at("u7", upper))
    (flow,) = replica._installed.all()
    # All of it is durable, and nobody has said yet what of it may go.
    flow.flush()
    assert flow.dataflow.output.since == 1
    for allowed in (4, 6):
        send(replica, p.AllowCompaction("u7", allowed))
        end = time.monotonic() + WAIT
        while world.persist.inspect(flow.dataflow.output.shard_id).since != allowed:
            assert time.monotonic() < end, flow.dataflow.output.since
            time.sleep(0.01)


def test_the_engine_of_steps_is_changed_by_a_command(told, replica):
    send(replica, p.UpdateConfiguration("auto"))
    send(replica, p.Ping(1))
    told.until(lambda r: r == p.Pong(1))
    assert replica._settings.engine == "auto"
    assert replica._arrangements._settings.rows_here == replica._settings.driver_rows


def test_commands_are_taken_in_order_and_in_bounds(monkeypatch):
    monkeypatch.setattr(commands, "MOST_COMMANDS", 3)
    taken, free, first = [], threading.Event(), threading.Event()

    def take(command):
        first.set()
        assert free.wait(WAIT)
        taken.append(command.nonce)

    supervisor = Supervisor()
    queue = commands.Commands("r1", take, supervisor.start, 0.05)
    queue.send(p.Ping(0))
    assert first.wait(WAIT)
    for number in range(1, 4):
        queue.send(p.Ping(number))
    with pytest.raises(ObjectInUse, match="replica r1 does not take commands: 3 wait"):
        queue.send(p.Ping(4))
    done = threading.Event()
    queue.after(done.set)
    free.set()
    assert done.wait(WAIT)
    assert taken == [0, 1, 2, 3]
    queue.close()
    queue.join(WAIT)
