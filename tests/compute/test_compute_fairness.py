"""A hydration that does not end keeps no other view waiting: neither its hydration nor its ticks."""

from __future__ import annotations

import threading

import compute_kit as kit
import pytest

from mzsql.persist import PersistClient
from mzsql.repr.errors import DuplicateObject, NotReadable

pytestmark = pytest.mark.spark

WAIT = 120.0


class Holding(kit.ShardStorage):
    """Who reads u2 for a hydration waits until it is let go."""

    def __init__(self, persist: PersistClient) -> None:
        super().__init__(persist)
        self.free = threading.Event()
        self.held = 0
        self.changed = threading.Condition()

    def parts(self, gid, as_of):
        if gid == "u2":
            with self.changed:
                self.held += 1
                self.changed.notify_all()
            assert self.free.wait(WAIT)
        return super().parts(gid, as_of)

    def until_held(self, number):
        with self.changed:
            assert self.changed.wait_for(lambda: self.held >= number, WAIT)


@pytest.fixture
def world(spark, tmp_path):
    with PersistClient.open(
        blob=f"file:{tmp_path}/blob", consensus=f"sqlite:{tmp_path}/consensus.db"
    ) as persist:
        made = kit.World(persist, spark)
        made.storage = Holding(persist)
        made.with_inputs()
        made.storage.write("u1", [(1, 10, "x", 1, 1)], upper=2)
        made.storage.write("u2", [(1, "north", 1, 1)], upper=2)
        yield made


def install(world, controller, gid, source, columns):
    shard = world.storage.add(gid, columns, errors=True)
    desc = kit.dataflow(gid, kit.get(1, source, columns), columns, {source: columns})
    controller.install(gid, desc, output_shard=shard, as_of=1, name=gid)


@pytest.mark.parametrize(
    ("large", "settings"), [(1, {}), (4, {"hydration_patience": 0.0})], ids=["one", "many"]
)
def test_others_hydrate_and_tick_beside_hydrations_that_do_not_end(world, large, settings):
    controller = world.controller(step_engine="duckdb", **settings)
    try:
        for number in range(large):
            install(world, controller, f"u{10 + number}", "u2", kit.CUSTOMERS)
        world.storage.until_held(large)
        install(world, controller, "u5", "u1", kit.ORDERS)
        controller.wait_until("u5", 1, WAIT)
        assert kit.stored(world.storage, "u5", 1) == {(1, 10, "x"): 1}
        world.storage.write("u1", [(2, 20, "y", 2, 1)], upper=3)
        controller.wait_until("u5", 2, WAIT)
        assert kit.stored(world.storage, "u5", 2) == {(1, 10, "x"): 1, (2, 20, "y"): 1}
        with pytest.raises(NotReadable):
            controller.wait_until("u10", 1, 0.0)
        world.storage.free.set()
        for number in range(large):
            controller.wait_until(f"u{10 + number}", 1, WAIT)
            assert kit.stored(world.storage, f"u{10 + number}", 1) == {(1, "north"): 1}
    finally:
        world.storage.free.set()
        controller.close()


def test_what_is_dropped_while_it_is_at_work_goes_once_that_has_ended(world):
    controller = world.controller(step_engine="duckdb")
    try:
        install(world, controller, "u10", "u2", kit.CUSTOMERS)
        world.storage.until_held(1)
        controller.drop("u10")
        controller.drop("u10")
        assert controller.status() == ()
        with pytest.raises(DuplicateObject):
            install(world, controller, "u10", "u2", kit.CUSTOMERS)
        world.storage.free.set()
        controller.gone("u10")
        install(world, controller, "u10", "u2", kit.CUSTOMERS)
        assert [status.object_id for status in controller.status()] == ["u10"]
    finally:
        world.storage.free.set()
        controller.close()
