"""Views that are refreshed at some times only hold at each time what their query was at the last refresh."""

from __future__ import annotations

import compute_kit as kit
import pytest
from test_compute_views import TOTALS, Changes

from mzsql.persist import PersistClient
from mzsql.repr.refresh import RefreshEvery, RefreshSchedule

pytestmark = pytest.mark.spark

EVERY = RefreshSchedule((RefreshEvery(5, 2),), (9, 10, 23))
ONCE = RefreshSchedule((), (7, 12))


@pytest.fixture
def world(spark, tmp_path):
    with PersistClient.open(
        blob=f"file:{tmp_path}/blob", consensus=f"sqlite:{tmp_path}/consensus.db"
    ) as persist:
        made = kit.World(persist, spark)
        made.storage.add("u1", kit.ORDERS)
        made.storage.add("u2", kit.CUSTOMERS)
        yield made


def install(world, controller, as_of, refresh):
    known = world.storage.shards.get("u3")
    shard = known[0] if known else world.storage.add("u3", TOTALS, errors=True)
    plan = kit.region_totals()
    controller.install("u3", plan, output_shard=shard, as_of=as_of, name="view_u3", refresh=refresh)


def check(world, refresh, first, end):
    """At each time from the first refresh on, the contents are those of the latest refresh."""
    for ts in range(first, end):
        refreshed_at = refresh.last_before(ts + 1)
        expected = kit.recomputed(world.storage, kit.REGION_TOTALS, ["u1", "u2"], refreshed_at)
        assert kit.stored(world.storage, "u3", ts) == expected, (ts, refreshed_at)


def upper_of(world):
    return world.storage.upper("u3")


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"step_engine": "duckdb"}, 8),
        pytest.param({"step_engine": "spark"}, 2, marks=pytest.mark.soak),
        pytest.param({"driver_rows": 1, "driver_bytes": 1}, 2, marks=pytest.mark.soak),
    ],
)
def test_a_view_goes_from_refresh_to_refresh(world, settings, steps):
    changes = Changes(5)
    upper = changes.step(world.storage)
    first = EVERY.round_up(upper - 1)
    controller = world.controller(**settings)
    install(world, controller, first, EVERY)
    for number in range(steps):
        upper = changes.step(world.storage)
        last = EVERY.last_before(upper)
        if last is None or last < first:
            continue
        following = EVERY.round_up(last + 1)
        # It can be read until just before the next refresh, and no further.
        controller.wait_until("u3", following - 1, 240)
        assert upper_of(world) == following
        check(world, EVERY, first, following)
        if number == steps // 2:
            controller.close()
            controller = world.controller(**settings)
            install(world, controller, first, EVERY)
    assert controller.status()[0].failures == 0
    controller.close()


def test_a_view_is_complete_after_its_last_refresh(world):
    changes = Changes(6)
    changes.step(world.storage)
    controller = world.controller(step_engine="duckdb")
    install(world, controller, 7, ONCE)
    while changes.step(world.storage) <= 12:
        pass
    controller.wait_until("u3", 1_000_000, 60)
    assert upper_of(world) is None
    check(world, ONCE, 7, 30)
    before = kit.stored(world.storage, "u3", 1_000)
    changes.step(world.storage)
    controller.close()
    controller = world.controller(step_engine="duckdb")
    install(world, controller, 7, ONCE)
    controller.wait_until("u3", 1_000_000, 60)
    assert kit.stored(world.storage, "u3", 1_000) == before
    controller.close()
