"""What a dataflow's first steps run is made before anything changes, and it is no other step for that."""

from __future__ import annotations

import compute_kit as kit
import duckdb
import pytest
from test_compute_views import Changes, check_totals, install
from test_compute_warming import TOTALS, WAIT, begin, wait_for

from mzsql.compute.engines.driver import Driver
from mzsql.compute.replica.step import preparing
from mzsql.expr.functions.table import Engine
from mzsql.render.rewrites.templates import StepTemplate


@pytest.fixture
def world():
    with kit.in_memory() as made:
        yield made


def hydrated(world, changes):
    upper = changes.step(world.storage, size=20)
    controller = begin(world)
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    controller.wait_until("u3", upper - 1, WAIT)
    wait_for(controller.refreshes)
    return controller, upper


def rest(controller):
    assert all(lane.rest(WAIT) for lane in controller.replica._work._lanes)


def test_first_steps_render_and_plan_nothing(world, monkeypatch):
    changes = Changes(47)
    controller, upper = hydrated(world, changes)
    rest(controller)
    made: list[str] = []

    def told(owner, name):
        work = getattr(owner, name)

        def tell(*args, **kwargs):
            made.append(name)
            return work(*args, **kwargs)

        monkeypatch.setattr(owner, name, tell)

    told(Driver, "step")
    told(Driver, "_plan")
    told(Driver, "_run")
    told(StepTemplate, "_make")
    rendered = controller.replica._installed.get("u3").rendered
    known = dict(rendered._steps)
    for size in (6, 9):
        lower, upper = upper, changes.step(world.storage, size=size, times=1)
        controller.wait_until("u3", upper - 1, WAIT)
        check_totals(world, range(lower - 1, upper))
    assert rendered._steps == known
    # Each step ran its statement, and nothing else was made or run.
    assert made == ["step", "step"]
    controller.close()


def texts_run(monkeypatch):
    """The texts of steps, as they are run."""
    run, found = Driver.step, []

    def step(driver, text, *args):
        found.append((text, driver.is_planned(text)))
        return run(driver, text, *args)

    monkeypatch.setattr(Driver, "step", step)
    return found


def test_counts_that_are_equal_are_expected_to_stay_equal(world, monkeypatch):
    """As of values that are never NULL. A step in which they differ runs the full text."""
    seen = []
    expect = StepTemplate.expect

    def told(template, relations, *args):
        seen.append(relations)
        return expect(template, relations, *args)

    monkeypatch.setattr(StepTemplate, "expect", told)
    changes = Changes(48)
    controller, upper = hydrated(world, changes)
    rest(controller)
    ((same,),) = [[one.same for one in relations.values() if one.same] for relations in seen]
    assert set(same.values()) == {"c2"}
    changes.step(world.storage, size=6, times=1)
    controller.wait_until("u3", upper, WAIT)
    check_totals(world, range(upper - 1, upper + 1))


def test_the_first_step_runs_a_lean_text_and_what_nobody_expected_the_full_one(world, monkeypatch):
    changes = Changes(61)
    controller, upper = hydrated(world, changes)
    rest(controller)
    found = texts_run(monkeypatch)
    rendered = controller.replica._installed.get("u3").rendered
    full = rendered.template(Engine.DUCKDB, at_once=True).text
    for value, is_full in ((7, False), (-(10**17), True), (None, False), (3 * 10**18, True)):
        lower, upper = upper, upper + 1
        row = (2, value, "x", lower, 1)
        changes.time = upper
        for gid, rows in (("u1", [row]), ("u2", [])):
            world.storage.write(gid, rows, upper=upper)
        controller.wait_until("u3", upper - 1, WAIT)
        check_totals(world, range(lower - 1, upper))
        (text, planned), *more = found
        assert not more
        assert planned
        assert (text is full) == is_full, value
        found.clear()
    controller.close()


def test_steps_do_without_what_could_not_be_prepared(world, monkeypatch, caplog):
    def fails(*_):
        raise duckdb.OutOfMemoryException("no memory to plan it")

    changes = Changes(53)
    monkeypatch.setattr(Driver, "plan", fails)
    with caplog.at_level("INFO"):
        controller, upper = hydrated(world, changes)
        wait_for(lambda: "is made later: no memory to plan it" in caplog.text)
    for size in (6, 3, 6):
        lower, upper = upper, changes.step(world.storage, size=size, times=1)
        controller.wait_until("u3", upper - 1, WAIT)
        check_totals(world, range(lower - 1, upper))
    controller.close()


def test_nothing_is_prepared_for_what_nobody_wants_any_more(world, monkeypatch):
    asked = []
    monkeypatch.setattr(Driver, "plan", lambda *_: asked.append("plan"))
    controller, _ = hydrated(world, Changes(59))
    rest(controller)
    asked.clear()
    flow = controller.replica._installed.get("u3")
    replica = flow.replica
    preparing.prepare_steps(
        flow.dataflow, replica.driver, replica.deltas, lambda: True, several=True
    )
    assert asked == []
    controller.close()


def test_a_dropped_dataflow_leaves_its_place_to_another(world, monkeypatch):
    monkeypatch.setattr("mzsql.compute.replica.scheduling.work.MOST_WARMED", 1)

    def full_is_planned(gid):
        # The end of a hydration gives another lane work.
        for _ in range(2):
            rest(controller)
        flow = controller.replica._installed.get(gid)
        text = flow.rendered.template(Engine.DUCKDB, at_once=True).text
        return flow.replica.driver.is_planned(text)

    controller, upper = hydrated(world, Changes(59))
    assert full_is_planned("u3")
    for gid, planned in (("u4", False), ("u5", True)):
        install(world, controller, kit.region_totals(gid), upper - 1, TOTALS)
        controller.wait_until(gid, upper - 1, WAIT)
        assert full_is_planned(gid) == planned
        controller.drop("u3")
    controller.close()
