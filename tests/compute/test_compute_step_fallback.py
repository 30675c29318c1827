"""A step that one engine cannot do for reasons of its own is done by the other, which says why; then the usual one is back at work."""

from __future__ import annotations

import contextlib

import compute_kit as kit
import pytest
from msgspec import structs
from test_compute_views import TOTALS, Changes, check_totals, install

from mzsql.compute.engines.driver import Driver
from mzsql.expr.engines import locked_connection
from mzsql.persist import PersistClient


@pytest.fixture
def persist():
    with PersistClient.open(blob="mem:", consensus="mem:") as made:
        yield made


def world_of(persist, spark):
    return kit.World(persist, spark).with_inputs()


def next_step(world, controller, changes, upper):
    """The view's refresh to a further step of its inputs; it is right then."""
    lower, upper = upper, changes.step(world.storage)
    controller.wait_until("u3", upper - 1, 60)
    check_totals(world, range(lower, upper))
    return controller.refreshes()[-1], upper


@pytest.mark.spark
def test_a_step_for_which_there_is_no_memory_is_run_by_spark(spark, persist, monkeypatch):
    world, changes = world_of(persist, spark), Changes(31)
    upper = changes.step(world.storage)
    controller = world.controller(hydrate_here_bytes=1 << 20)
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    refresh, upper = next_step(world, controller, changes, upper)
    assert refresh.engine == "duckdb"

    def poor(self, text, lower, upper, relations, _later):
        """DuckDB with less memory than it needs for anything, and no disk."""
        settings = {"memory_limit": "1KiB", "temp_directory": ""}
        with contextlib.closing(locked_connection(settings=settings)) as connection:
            return self._run(connection, text.at(lower, upper), relations)

    with monkeypatch.context() as patched:
        patched.setattr(Driver, "step", poor)
        refresh, upper = next_step(world, controller, changes, upper)
    assert refresh.engine == "spark"
    assert refresh.jobs > 0
    assert refresh.reason.startswith("DuckDB failed: Out of Memory Error")
    refresh, upper = next_step(world, controller, changes, upper)
    assert refresh.engine == "duckdb"
    assert controller.status()[0].failures == 0
    controller.close()


def test_a_large_step_is_run_in_process_where_there_is_no_spark(persist):
    def start():
        raise ConnectionRefusedError("nobody listens at the gateway")

    world, changes = world_of(persist, start), Changes(32)
    upper = changes.step(world.storage)
    controller = world.controller(driver_rows=2)
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    refresh, upper = next_step(world, controller, changes, upper)
    assert refresh.rows_in > 2
    assert refresh.engine == "duckdb"
    assert refresh.reason == "Spark failed: nobody listens at the gateway"
    assert controller.status()[0].failures == 0
    controller.close()


def test_an_engine_that_was_asked_for_is_the_only_one(persist):
    def start():
        raise ConnectionRefusedError("nobody listens at the gateway")

    world, changes = world_of(persist, start), Changes(33)
    upper = changes.step(world.storage)
    controller = world.controller(step_engine="duckdb")
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    next_step(world, controller, changes, upper)
    controller.configure(structs.replace(controller.settings, step_engine="spark"))
    assert controller.settle(60)
    changes.step(world.storage)
    while not (failed := controller.status()[0]).failures:
        controller._changed.acquire()
        controller._changed.wait(0.05)
        controller._changed.release()
    assert failed.state == "failed"
    assert failed.error == "ConnectionRefusedError: nobody listens at the gateway"
    controller.close()
