"""What is left of dataflows that were dropped: nothing, whoever closes them, and whatever fails meanwhile."""

from __future__ import annotations

import threading
import time

import compute_kit as kit
import pytest

from mzsql.compute.protocol import DropDataflow
from mzsql.location import open_blob, open_consensus
from mzsql.persist import PersistClient

WAIT = 60.0


class Storage(kit.ShardStorage):
    """Who releases a hold on u2 waits until it is let go."""

    def __init__(self, persist: PersistClient) -> None:
        super().__init__(persist)
        self.releasing = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def hold(self, gid, since):
        hold = super().hold(gid, since)
        if gid != "u2":
            return hold
        release = hold.release

        def released():
            self.releasing.set()
            assert self.free.wait(WAIT)
            release()

        hold.release = released
        return hold


@pytest.fixture
def world():
    with PersistClient(open_blob("mem:"), open_consensus("mem:"), background=False) as persist:
        made = kit.World(persist, kit.no_spark)
        made.storage = Storage(persist)
        made.with_inputs()
        made.storage.write("u1", [(1, 5, "x", 1, 1), (2, 7, "y", 1, 1)], upper=2)
        made.storage.write("u2", [(1, "north", 1, 1)], upper=2)
        yield made


@pytest.fixture
def controller(world):
    made = world.controller(step_engine="duckdb", hydrate_here_bytes=1 << 30)
    yield made
    world.storage.free.set()
    made.close()


def index(gid="u7"):
    """An index on orders by customer."""
    plan = kit.arrange(1, kit.get(0, "u1", kit.ORDERS), [0], kit.ORDERS)
    export = kit.lir.IndexExport(gid, "u1", (kit.Column(0),))
    return kit.dataflow(gid, plan, kit.ORDERS, {"u1": kit.ORDERS}, export=export)


COLUMNS = (kit.INT, kit.BIG, kit.BIG)


def view(gid="u8", over="u7"):
    """Orders through the index, summed by customer; customers are held, too."""
    key = (kit.Column(0),)
    there = kit.lir.AvailableCollections(False, (kit.arranged_by([0], 3),), kit.ORDERS)
    read = kit.lir.Get(0, "u1", there, kit.lir.PassArrangements(), kit.ORDERS)
    reduce = kit.reduce_sum_count(1, read, key=[0], value=1, arity=3)
    reduce = kit.lir.Reduce(reduce.lir_id, read, key, reduce.key_val, reduce.plan, reduce.mfp_after)
    imported = kit.lir.IndexImport(over, "u1", key, kit.RelationType(kit.ORDERS))
    return kit.dataflow(
        gid,
        kit.read_back(2, reduce, 1, COLUMNS),
        COLUMNS,
        {"u2": kit.CUSTOMERS},
        indexes=(imported,),
    )


def install(world, controller):
    """The index and the view on it, hydrated."""
    controller.install("u7", index(), output_shard=None, as_of=1, name="i")
    shard = world.storage.add("u8", COLUMNS, errors=True)
    controller.install("u8", view(), output_shard=shard, as_of=1, name="v")
    controller.wait_until("u8", 1, WAIT)
    assert kit.stored(world.storage, "u8", 1) == {(1, 5, 1): 1, (2, 7, 1): 1}


def test_an_index_that_another_thread_finds_dropped_while_its_reader_is_closed(world, controller):
    install(world, controller)
    controller.drop("u7")
    controller.replica.send(DropDataflow("u7"))
    assert controller.settle(WAIT)
    world.storage.free.clear()
    world.storage.releasing.clear()
    dropping = threading.Thread(target=controller.drop, args=("u8",))
    dropping.start()
    assert world.storage.releasing.wait(WAIT)
    # As a thread does on which the last work of some other dropped dataflow has ended.
    controller.replica._installed.close_dropped()
    world.storage.free.set()
    dropping.join(WAIT)
    controller.gone("u7", "u8")
    assert world.registry.entries("r1") == {}


def refuse(what):
    def refused(*_, **__):
        raise OSError(f"no way to {what}")

    return refused


def test_what_cannot_be_given_up_keeps_nothing_else_held(world, controller, caplog, monkeypatch):
    install(world, controller)
    view = controller.replica._installed.get("u8").dataflow
    (held, *_), (own,), (through,) = (
        view.inputs,
        view.arrangements.values(),
        view.indexes.values(),
    )
    assert len(world.persist.holders(through.shard_id)) == 3
    with monkeypatch.context() as outage:
        outage.setattr(held._hold, "release", refuse("release u2"))
        outage.setattr(through.writer, "expire", refuse("expire the index's writer"))
        outage.setattr(own.writer, "expire", refuse("expire the view's own writer"))
        controller.drop("u8")
        controller.gone("u8")
    assert "closing a dropped dataflow: no way to release u2" in caplog.text
    assert "no way to expire the view's own writer" in caplog.text
    # The index's own, which is still there; neither the view's hold nor what it read with.
    assert len(world.persist.holders(through.shard_id)) == 1
    (name,) = world.registry.entries("r1")
    assert name.startswith("index u7")
    controller.drop("u7")
    controller.gone("u7")
    assert world.registry.entries("r1") == {}


def held(world, gid):
    """From when on each durable hold keeps a collection readable, the earliest first."""
    holders = world.persist.holders(world.storage.shards[gid][0])
    return sorted(one.since for one in holders if one.id.startswith("hold-"))


def held_from(world, controller, gid, wanted):
    """Bring what is behind up until a collection is held so."""
    until = time.monotonic() + WAIT
    while (found := held(world, gid)) != wanted:
        assert time.monotonic() < until, f"{gid} is held from {found}, not {wanted}"
        for flow in controller.replica._installed.all():
            flow.flush()


def test_what_an_index_is_made_of_is_held_for_a_view_that_is_behind_it(world, controller):
    """Planned again without the index, it is to find what it lacks."""
    install(world, controller)
    world.storage.write("u1", [(1, 4, "z", 8, 1)], upper=10)
    controller.wait_until("u7", 9, WAIT)
    held_from(world, controller, "u1", [1, 9])
    controller.drop("u7")
    world.storage.write("u2", [], upper=10)
    controller.wait_until("u8", 9, WAIT)
    held_from(world, controller, "u1", [9, 9])
    controller.drop("u8")
    controller.gone("u7", "u8")
    assert held(world, "u1") == held(world, "u2") == []
