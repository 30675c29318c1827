"""A crash at any write leaves what the next process makes right; replicas that write the same view agree."""

from __future__ import annotations

import contextlib
import threading

import compute_kit as kit
import pytest
from test_compute_views import TOTALS, Changes, check_totals, install

from mzsql.compute.replica.hydration import hydration
from mzsql.location import consensus_around, open_blob, open_consensus
from mzsql.persist import PersistClient

pytestmark = pytest.mark.spark


class Died(Exception):
    """Not an error of a location: nothing tries again."""


def bury(controller):
    """End the threads of a dead process."""
    with contextlib.suppress(Died):
        controller.close()


class Mortal:
    """A Consensus of a process that dies at a given write: before or after it takes effect, and from then on does nothing more."""

    def __init__(self, inner):
        self.inner = inner
        self.left: int | None = None
        self.after = False
        self.dead = False
        self.lock = threading.Lock()

    def die_at(self, write, *, after):
        self.left, self.after = write, after

    def compare_and_set(self, key, expected, new):
        with self.lock:
            self.check()
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    self.dead = True
                    if self.after:
                        self.inner.compare_and_set(key, expected, new)
                    raise Died
            return self.inner.compare_and_set(key, expected, new)

    def check(self):
        if self.dead:
            raise Died

    def head(self, key):
        self.check()
        return self.inner.head(key)

    def scan(self, key, from_seqno, limit):
        self.check()
        return self.inner.scan(key, from_seqno, limit)

    def truncate(self, key, seqno):
        self.check()
        return self.inner.truncate(key, seqno)

    def list_keys(self):
        return self.inner.list_keys()

    def close(self):
        pass


@pytest.fixture
def backends():
    blob, consensus = open_blob("mem:"), open_consensus("mem:")
    yield blob, consensus
    blob.close()
    consensus.close()


@pytest.fixture
def world(spark, backends):
    blob, consensus = backends
    with PersistClient(blob, consensus, background=False) as persist:
        made = kit.World(persist, spark).with_inputs()
        yield made


def process(world, backends, **settings):
    """A compute process with backends of its own that can die."""
    blob, consensus = backends
    mortal = Mortal(consensus)
    client = PersistClient(blob, mortal, background=False)
    controller = world.controller(
        persist=client, step_engine="duckdb", retry_max_seconds=0.05, **settings
    )
    return mortal, client, controller


def wait_for_death(mortal, controller, gid, ts):
    """Whether the process died before the view got to a time."""
    while not mortal.dead:
        try:
            controller.wait_until(gid, ts, 0.02)
        except Exception:
            continue
        return mortal.dead
    return True


def flushed_or_dead(mortal, controller):
    """Make durable what its steps have added; whether the process died of it."""
    (flow,) = controller.replica._installed.all()
    with contextlib.suppress(BaseException):
        flow.flush()
    return mortal.dead


@pytest.mark.parametrize(
    ("after", "first"),
    [
        pytest.param(False, 0, id="before"),
        pytest.param(True, 1, id="after", marks=pytest.mark.long),
    ],
)
def test_a_crash_at_any_write_of_a_step(world, backends, after, first):
    changes = Changes(21)
    upper = changes.step(world.storage)
    mortal, _, controller = process(world, backends)
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    controller.wait_until("u3", upper - 1, 60)
    shards = world.registry.entries("r1")
    write, crashes = first, 0
    while True:
        lower, upper = upper, changes.step(world.storage, times=2)
        controller.wait_until("u3", upper - 1, 60)
        mortal.die_at(write, after=after)
        lower, upper = upper, changes.step(world.storage, times=2)
        died = wait_for_death(mortal, controller, "u3", upper - 1)
        died = died or flushed_or_dead(mortal, controller)
        bury(controller)
        if not died:
            break
        crashes += 1
        mortal, _, controller = process(world, backends)
        install(world, controller, kit.region_totals(), 0, TOTALS)
        controller.wait_until("u3", upper - 1, 60)
        check_totals(world, range(lower, upper))
        assert not [r for r in controller.refreshes() if r.kind == "hydration"]
        write += 2
    assert crashes >= 3  # of at least five writes: four arrangements and the view
    assert world.registry.entries("r1") == shards
    check_totals(world, range(lower, upper))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_write_of_a_hydration(world, backends, after):
    changes = Changes(22)
    upper = changes.step(world.storage, size=20)
    gid_sources = kit.region_totals()
    kept: set[str] = set()
    for write in range(0, 60, 2):
        mortal, _, controller = process(world, backends)
        mortal.die_at(write, after=after)
        try:
            install(world, controller, gid_sources, upper - 1, TOTALS)
            died = wait_for_death(mortal, controller, "u3", upper - 1)
        except Died:
            died = True
        bury(controller)
        kept |= {n for n in world.registry.entries("r1") if not n.startswith("filling")}
        if not died:
            break
    assert write > 4
    check_totals(world, [upper - 1])
    _, client, controller = process(world, backends)
    install(world, controller, gid_sources, 0, TOTALS)
    lower, upper = upper, changes.step(world.storage)
    controller.wait_until("u3", upper - 1, 60)
    check_totals(world, range(lower, upper))
    # what was filled before a crash was used, what was left half filled is found and removed
    filled = {n for n in world.registry.entries("r1") if not n.startswith("filling")}
    assert filled == kept
    controller.retire_unused()
    left = {n: s for n, s in world.registry.entries("r1").items() if n not in kept}
    # What a process that died was reading stays, and is remembered, until its lease runs out; nobody reads it anew.
    assert all(name == f"filling {shard}" for name, shard in left.items())
    for shard in left.values():
        holders = client.retire(shard)
        assert holders
        assert {holder.kind for holder in holders} == {"reader"}
    controller.close()


def test_what_a_hydration_fills_is_named_in_few_changes(world, backends):
    changes = Changes(25)
    upper = changes.step(world.storage, size=20)
    counted: list[dict] = []
    update = world.registry.update

    def count(replica, shards):
        counted.append(dict(shards))
        update(replica, shards)

    world.registry.update = count
    _, _, controller = process(world, backends, publish_seconds=1e9)
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    controller.wait_until("u3", upper - 1, 60)
    # their shards are remembered, then named, all at once
    reserved, named = counted
    assert all(name.startswith("filling ") for name in reserved)
    assert dict.fromkeys(reserved) == {n: s for n, s in named.items() if s is None}
    assert set(world.registry.entries("r1").values()) == set(reserved.values())
    controller.close()


def test_two_replicas_write_one_view(world, backends):
    changes = Changes(23)
    upper = changes.step(world.storage)
    blob, consensus = backends
    controllers = []
    for number, replica in enumerate(("r1", "r2")):
        client = PersistClient(blob, consensus, background=False)
        controller = world.controller(replica=replica, persist=client, step_engine="duckdb")
        # the second starts from a later time: what it hydrates must fit what the first has written
        install(world, controller, kit.region_totals(), upper - 2 + number, TOTALS)
        controllers.append(controller)
    for _ in range(6):
        lower, upper = upper, changes.step(world.storage)
        for controller in controllers:
            controller.wait_until("u3", upper - 1, 60)
        check_totals(world, range(lower, upper))
    assert {name for name, _ in world.registry.names} == {"r1", "r2"}
    controllers[0].close()
    lower, upper = upper, changes.step(world.storage)
    controllers[1].wait_until("u3", upper - 1, 60)
    check_totals(world, range(lower, upper))
    controllers[1].close()


def test_a_hydration_that_is_not_written_is_taken_back(world, backends, monkeypatch):
    """Workers whose files were complete, and then are not kept as the store fails, are not hydrated."""
    monkeypatch.setattr(hydration, "_LOOK_SECONDS", 0.001)
    changes = Changes(24)
    upper = changes.step(world.storage, size=20)
    failing, failed = threading.Event(), threading.Event()
    told = threading.Condition()
    update = world.sink.update

    def around(operation, act):
        if operation == "compare_and_set" and failing.is_set():
            raise Died
        return act()

    def tell(rows):
        update(rows)
        if threading.current_thread().name == "mzsql-hydration-watch" and not failed.is_set():
            failed.set()
            failing.set()
        with told:
            told.notify_all()

    def taken_back():
        done = {row for row, diff in world.sink.log if row.hydrated and diff == 1}
        return any(row in done and diff == -1 for row, diff in world.sink.log)

    world.sink.update = tell
    client = PersistClient(backends[0], consensus_around(backends[1], around), background=False)
    # Everything is written by Spark, whose files are looked at meanwhile.
    controller = world.controller(
        persist=client, small_hydration_bytes=0, retry_max_seconds=0.05, workers=2
    )
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    with told:
        assert told.wait_for(taken_back, 180)
    assert not controller.status()[0].hydrated
    failing.clear()
    controller.close()
