"""What is told of a hydration is told as soon as it is so."""

from __future__ import annotations

import threading

import compute_kit as kit
import pytest
from test_compute_views import TOTALS

from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle

WAIT = 60


@pytest.fixture
def world():
    with kit.with_rows() as made:
        yield made


def test_a_view_is_told_to_run_before_what_its_steps_look_into_is_loaded(world, monkeypatch):
    loads, hold, load = threading.Event(), threading.Event(), DataflowLifecycle._warm

    def slowly(self, *args, **how):
        loads.set()
        assert hold.wait(WAIT)
        load(self, *args, **how)

    monkeypatch.setattr(DataflowLifecycle, "_warm", slowly)
    controller = world.controller(step_engine="duckdb", hydrate_here_bytes=1 << 30)
    shard = world.storage.add("u3", TOTALS, errors=True)
    try:
        controller.install("u3", kit.region_totals(), output_shard=shard, as_of=1, name="v")
        assert loads.wait(WAIT)
        (status,) = controller.status()
        assert (status.state, status.hydrated) == ("running", True)
        assert all(row.hydrated for row in world.sink.current())
    finally:
        hold.set()
    world.storage.write("u1", [(1, 7, "y", 5, 1)], upper=8)
    world.storage.write("u2", [], upper=8)
    controller.wait_until("u3", 7, WAIT)
    assert kit.stored(world.storage, "u3", 7) == kit.recomputed(
        world.storage, kit.REGION_TOTALS, ["u1", "u2"], 7
    )
    controller.close()
