"""A dataflow that cannot go on where it stands is opened again, as after a restart, while its process lives."""

from __future__ import annotations

import contextlib
import time

import compute_kit as kit
import pytest
from test_compute_dropped import COLUMNS, index, view
from test_compute_views import TOTALS

from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.persist import ExpiredHandle

HERE = {
    "step_engine": "duckdb", "hydrate_here_bytes": 1 << 30, "flush_seconds": 0.1, "apply_seconds": 0.1
}  # fmt: skip
WAIT = 60

SUMS = """
    SELECT c0, sum(c1 * mz_diff)::BIGINT, sum(mz_diff)::BIGINT FROM u1
    GROUP BY c0 HAVING sum(mz_diff) <> 0"""


@pytest.fixture
def world():
    with kit.with_rows() as made:
        yield made


@pytest.fixture
def holds(world, monkeypatch):
    """Every hold on an input, as it is taken."""
    taken = []
    hold = world.storage.hold
    monkeypatch.setattr(world.storage, "hold", lambda *a: taken.append(hold(*a)) or taken[-1])
    return taken


def put(world, controller, plan, columns, as_of=1):
    gid = plan.export.id
    shard = None if columns is None else world.storage.add(gid, columns, errors=True)
    controller.install(gid, plan, output_shard=shard, as_of=as_of, name=gid)


def soon(found):
    until = time.monotonic() + WAIT
    while not found():
        assert time.monotonic() < until, "it has not come to be so"
        time.sleep(0.01)


def well(controller, gid):
    return any(
        one.object_id == gid and one.state == "running" and one.failures == 0
        for one in controller.status()
    )


def history_goes(world, holds, to, monkeypatch):
    """The inputs advance, and are given up until a time, before the replica sees that: its process was stopped meanwhile."""
    with monkeypatch.context() as patched:
        patched.setattr(world.storage, "upper", lambda _: 4)
        for gid, row in (("u1", (1, 7, "y", to - 2, 1)), ("u2", (2, "south", to - 2, 1))):
            world.storage.write(gid, [row], upper=to + 5, notify=False)
            for hold in holds:
                with contextlib.suppress(ExpiredHandle):  # the controller's, which it has released
                    hold.downgrade(to)
            world.storage.readers[gid].downgrade_since(to)
    world.storage.notify()


def test_what_cannot_be_read_any_more_is_hydrated_anew(world, holds, monkeypatch):
    controller = world.controller(**HERE)
    put(world, controller, index(), None)
    put(world, controller, view(), COLUMNS)
    put(world, controller, kit.region_totals(), TOTALS)
    for gid in ("u7", "u8", "u3"):
        controller.wait_until(gid, 3, WAIT)
    before = world.registry.entries("r1")
    history_goes(world, holds, 20, monkeypatch)
    for gid, query in (("u8", SUMS), ("u3", kit.REGION_TOTALS)):
        controller.wait_until(gid, 24, WAIT)
        assert kit.stored(world.storage, gid, 24) == kit.recomputed(
            world.storage, query, ["u1", "u2"], 24
        )
    # Those that read the index have moved to the shard in which it was made anew, and go on there.
    assert not set(before.values()) & set(world.registry.entries("r1").values())
    world.storage.write("u1", [(1, 1, "z", 26, 1)], upper=30)
    world.storage.write("u2", [], upper=30)
    for gid in ("u7", "u8", "u3"):
        controller.wait_until(gid, 29, WAIT)
        soon(lambda gid=gid: well(controller, gid))
    assert kit.stored(world.storage, "u8", 29) == {(1, 13, 3): 1}
    assert all(row.hydrated for row in world.sink.current())
    controller.close()


def test_what_reads_an_index_that_is_made_anew_waits_for_that(world, holds, monkeypatch):
    """Its thread is still at the index when what reads that is closed already."""
    controller = world.controller(**HERE)
    put(world, controller, index(), None)
    put(world, controller, view(), COLUMNS)
    controller.wait_until("u8", 3, WAIT)
    open_again = Installed.open_again

    def slowly(self, flow):
        open_again(self, flow)
        if flow.gid == "u7":
            reader, until = self.get("u8"), time.monotonic() + 1
            while reader.dataflow is None and time.monotonic() < until:
                time.sleep(0.01)

    monkeypatch.setattr(Installed, "open_again", slowly)
    history_goes(world, holds, 20, monkeypatch)
    controller.wait_until("u8", 24, WAIT)
    assert kit.stored(world.storage, "u8", 24) == {(1, 12, 2): 1}
    controller.close()


def test_what_is_still_to_be_hydrated_is_hydrated_when_it_can_be(world, holds, monkeypatch):
    controller = world.controller(**HERE)
    put(world, controller, kit.region_totals(), TOTALS, as_of=10)
    soon(lambda: any(one.state == "hydrating" for one in controller.status()))
    history_goes(world, holds, 20, monkeypatch)
    controller.wait_until("u3", 24, WAIT)
    assert kit.stored(world.storage, "u3", 24) == kit.recomputed(
        world.storage, kit.REGION_TOTALS, ["u1", "u2"], 24
    )
    controller.close()


def take_hold(world):
    """As a process does that ran the replica before and has not noticed yet: it opens the view, too."""
    before = world.controller(**HERE)
    before.install("u7", index(), output_shard=None, as_of=1, name="i")
    shard = world.storage.shards["u8"][0]
    before.install("u8", view(), output_shard=shard, as_of=1, name="v")
    before.wait_until("u8", 3, WAIT)
    before.close()


def advance(world, upper):
    for gid, rows in (("u1", [(1, 7, "y", upper - 1, 1)]), ("u2", [])):
        world.storage.write(gid, rows, upper=upper)


def held(world):
    """The view's hold on the index: until when, and whose."""
    (found,) = (
        one
        for shard in world.registry.entries("r1").values()
        for one in world.persist.holders(shard)
        if one.id == "r1/u8"
    )
    return found.since, found.token


def test_a_hold_that_another_process_has_taken_is_taken_back(world):
    controller = world.controller(**HERE)
    put(world, controller, index(), None)
    put(world, controller, view(), COLUMNS)
    controller.wait_until("u8", 3, WAIT)
    take_hold(world)
    for upper in (6, 8):
        advance(world, upper)
        controller.wait_until("u8", upper - 1, WAIT)
        soon(lambda to=upper - 2: held(world)[0] >= to)
        soon(lambda: well(controller, "u8"))
    assert kit.stored(world.storage, "u8", 7) == {(1, 19, 3): 1}
    controller.close()


def test_a_hold_is_left_to_the_process_that_runs_the_replica(world, monkeypatch):
    controller = world.controller(**HERE)
    put(world, controller, index(), None)
    put(world, controller, view(), COLUMNS)
    controller.wait_until("u8", 3, WAIT)
    take_hold(world)
    asked, ours = [], [False]
    monkeypatch.setattr(world.registry, "runs", lambda _: asked.append(held(world)) or ours[0])
    taken = held(world)
    advance(world, 6)
    soon(lambda: asked)
    assert held(world) == taken == asked[0]
    # Once it is the one to run the replica, it takes the hold back.
    ours[0] = True
    advance(world, 8)
    soon(lambda: held(world)[0] >= 6)
    assert held(world)[1] != taken[1]
    controller.close()
