"""What steps will look into is loaded before they do, which costs time only: neither its failure nor its length is anybody's else."""

from __future__ import annotations

import threading
import time

import compute_kit as kit
import pytest
from test_compute_views import Changes, check_totals, install

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.engines.driver import Driver
from mzsql.compute.protocol import CreateDataflow
from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.arrangements.arrangement_shards import ArrangementShards
from mzsql.compute.replica.arrangements.hot import Hot
from mzsql.compute.replica.dataflows.dataflow import arrangement_desc
from mzsql.compute.replica.scheduling import lifecycle
from mzsql.compute.replica.scheduling.lifecycle import State
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.dataflow import render

WAIT = 20.0

TOTALS = (kit.TXT, kit.BIG, kit.BIG)


@pytest.fixture
def world():
    with kit.in_memory() as made:
        yield made


def begin(world):
    return world.controller(step_engine="duckdb", hydrate_here_bytes=1 << 30)


def wait_for(what):
    until = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def no_space(*_, **__):
    raise OSError("no space left")


def test_a_hydration_whose_traces_cannot_be_made_has_not_failed(world, monkeypatch, caplog):
    changes = Changes(41)
    upper = changes.step(world.storage, size=20)
    controller = begin(world)
    with monkeypatch.context() as full:
        full.setattr(Hot, "give", no_space)
        full.setattr(Arrangement, "trace", no_space)
        install(world, controller, kit.region_totals(), upper - 1, TOTALS)
        controller.wait_until("u3", upper - 1, WAIT)
        wait_for(controller.refreshes)
        # The view is told to be hydrated before what its steps look into is loaded.
        wait_for(lambda: "what u3 looks into is loaded later: no space left" in caplog.text)
    assert {one.error for one in world.sink.statuses["u3", "r1"]} == {None}
    lower, upper = upper, changes.step(world.storage)
    controller.wait_until("u3", upper - 1, WAIT)
    check_totals(world, range(lower - 1, upper))
    assert [one.kind for one in controller.refreshes()].count("hydration") == 1
    controller.close()


def test_nobody_who_looks_for_work_waits_for_who_opens_an_arrangement(world):
    """The store may take long to answer; what is looked at and let go of meanwhile is of other dataflows."""
    asked, free = threading.Event(), threading.Event()

    class Slow(kit.Registry):
        def arrangement_shard(self, replica, fingerprint):
            asked.set()
            assert free.wait(WAIT)
            return super().arrangement_shard(replica, fingerprint)

    driver = Driver()
    arrangements = ArrangementShards(world.persist, Slow(), "r1", driver, ComputeSettings())
    spec, *_ = render(kit.region_totals()).arrangements
    opening = threading.Thread(target=arrangements.find, args=(arrangement_desc(spec),))
    looking = threading.Thread(target=lambda: (arrangements.cool(), arrangements.left))
    opening.start()
    assert asked.wait(WAIT)
    looking.start()
    looking.join(1.0)
    waits = looking.is_alive()
    free.set()
    for thread in (opening, looking):
        thread.join(WAIT)
    driver.close()
    assert not waits


def test_nobody_who_looks_for_work_waits_for_what_is_rendered():
    asked, free = threading.Event(), threading.Event()
    desc = kit.region_totals()
    outline = render(desc).outline

    def errors_in(_):
        asked.set()
        assert free.wait(WAIT)
        return True

    rendered = render(desc, errors_in=errors_in, outline=outline)
    rendering = threading.Thread(target=lambda: rendered.lookups)
    looking = threading.Thread(target=rendered.warm, args=(0.0,))
    rendering.start()
    assert asked.wait(WAIT)
    looking.start()
    looking.join(1.0)
    waits = looking.is_alive()
    free.set()
    for thread in (rendering, looking):
        thread.join(WAIT)
    assert not waits
    assert rendered.warm(0.0)


def opened_again(world, *gids, outline=None):
    """Views that were hydrated before, on a replica that begins anew."""
    upper = Changes(43).step(world.storage, size=20)
    controller = begin(world)
    for gid in gids:
        install(world, controller, kit.region_totals(gid), upper - 1, TOTALS)
        controller.wait_until(gid, upper - 1, WAIT)
    controller.close()
    again = begin(world)
    for gid in gids:
        desc = SealedDataflow.of(kit.region_totals(gid))
        shard, _ = world.storage.shards[gid]
        again.create_dataflow(CreateDataflow(gid, gid, desc, shard, upper - 1, outline))
        assert again.settle(WAIT)
        wait_for(lambda gid=gid: again.replica._installed.get(gid).state is State.RUNNING)
    return again


@pytest.fixture
def loading(monkeypatch):
    """Every view is worth to be loaded for, which lasts until it is said: whether it has begun, and what lets it end."""
    begun, free, trace = threading.Event(), threading.Event(), Arrangement.trace

    def slow(arrangement, as_of):
        begun.set()
        assert free.wait(WAIT)
        return trace(arrangement, as_of)

    # Not while they are hydrated at first: what that fills is loaded by then.
    monkeypatch.setattr(Arrangement, "trace", slow)
    monkeypatch.setattr(lifecycle, "WARMED_ROWS", 1)
    yield begun, free
    free.set()


def test_a_hydration_does_not_wait_for_what_is_loaded_for_others(world, loading):
    begun, free = loading
    controller = opened_again(world, "u3", "u4", "u5")
    assert begun.wait(WAIT)
    assert controller.replica._work.beside(lambda: "sorted").result(WAIT / 4) == "sorted"
    free.set()
    controller.close()


def test_a_view_is_not_closed_while_something_is_loaded_for_it(world, loading):
    begun, free = loading
    controller = opened_again(world, "u3")
    assert begun.wait(WAIT)
    controller.drop("u3")
    told = [one.state for one in world.sink.statuses["u3", "r1"]]
    free.set()
    controller.gone("u3")
    assert "dropped" not in told
    assert world.registry.entries("r1") == {}
    controller.close()


def test_no_plan_is_rendered_for_what_is_too_small_to_be_loaded(world):
    outline = render(kit.region_totals("u3")).outline
    controller = opened_again(world, "u3", outline=outline)
    assert all(lane.rest(WAIT) for lane in controller.replica._work._lanes)
    assert not controller.replica._installed.get("u3").rendered.is_rendered
    controller.close()
