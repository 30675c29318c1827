"""Views that are refreshed at some times only hold at each time what their query was at the last refresh."""

from __future__ import annotations

import time

import compute_kit as kit
import pytest
from test_compute_dropped import COLUMNS, index, view
from test_compute_views import TOTALS, Changes

from mzsql.repr.refresh import RefreshEvery, RefreshSchedule

pytestmark = pytest.mark.spark

EVERY = RefreshSchedule((RefreshEvery(5, 2),), (9, 10, 23))
ONCE = RefreshSchedule((), (7, 12))


@pytest.fixture
def world(spark, tmp_path):
    with kit.in_files(spark, tmp_path) as made:
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


# --- history that is gone, and history that nobody needs any more ---

HERE = {"step_engine": "duckdb", "hydrate_here_bytes": 1 << 30}

SUMS = """
    SELECT c0, sum(c1 * mz_diff)::BIGINT, sum(mz_diff)::BIGINT FROM u1
    GROUP BY c0 HAVING sum(mz_diff) <> 0"""

PLAIN = "SELECT c0, c1, c2 FROM u1, range(mz_diff)"


@pytest.fixture
def here():
    """A world without Spark."""
    with kit.in_memory() as made:
        yield made


def plain(gid="u3"):
    """Orders as they are: nothing is arranged."""
    return kit.dataflow(gid, kit.get(0, "u1", kit.ORDERS), kit.ORDERS, {"u1": kit.ORDERS})


def write(world, rows, upper):
    """Orders; customers stay."""
    world.storage.write("u1", rows, upper=upper)
    world.storage.write("u2", [], upper=upper)


def lose_history(world, since):
    """What was held is let go of, and nothing before a time can be read any more."""
    for gid in ("u1", "u2"):
        reader = world.storage.readers[gid]
        for holder in world.persist.holders(reader.shard_id):
            if holder.id.startswith("hold-"):
                world.persist.open_critical_reader(reader.shard_id, holder.id).release()
        reader.downgrade_since(since)


def soon(found, seconds=60.0):
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until, "it has not come to be so"
        time.sleep(0.01)


def put(world, controller, plan, columns, refresh, as_of):
    gid = plan.export.id
    known = world.storage.shards.get(gid)
    shard = known[0] if known else world.storage.add(gid, columns, errors=True)
    controller.install(gid, plan, output_shard=shard, as_of=as_of, name=gid, refresh=refresh)


@pytest.mark.parametrize(
    ("plan", "columns", "query"),
    [
        pytest.param(kit.region_totals, TOTALS, kit.REGION_TOTALS, id="arranged"),
        pytest.param(plain, kit.ORDERS, PLAIN, id="plain"),
    ],
)
def test_a_view_whose_inputs_history_is_gone_is_right_from_a_refresh_on(here, plan, columns, query):
    """It waits for the first refresh that its inputs can be read at, and holds what it had until then."""
    every = RefreshSchedule((RefreshEvery(10, 5),))

    def expected(ts):
        return kit.recomputed(here.storage, query, ["u1", "u2"], ts)

    here.storage.write("u2", [(1, "north", 1, 1), (2, "south", 1, 1)], upper=6)
    here.storage.write("u1", [(1, 5, "x", 1, 1), (2, 7, "y", 1, 1)], upper=6)
    controller = here.controller(**HERE)
    put(here, controller, plan(), columns, every, 5)
    controller.wait_until("u3", 14, 60)
    before = expected(5)
    controller.close()
    # Two refreshes are missed, and not even the time of the second can be read any more.
    write(here, [(1, 1, "z", 8, 1), (2, 7, "y", 17, -1), (2, 2, "z", 28, 1)], 30)
    lose_history(here, 27)
    controller = here.controller(**HERE)
    put(here, controller, plan(), columns, every, 5)
    soon(lambda: controller.status()[0].reason.startswith("waits until"))
    assert upper_of(here) == 15
    write(here, [(1, 3, "late", 33, 1), (2, 4, "too late", 37, 1)], 40)
    controller.wait_until("u3", 44, 60)
    assert controller.status()[0].failures == 0
    assert upper_of(here) == 45
    for ts in (5, 14, 15, 25, 34):
        assert kit.stored(here.storage, "u3", ts) == before, ts
    for ts in (35, 44):
        assert kit.stored(here.storage, "u3", ts) == expected(35), ts
    # It goes on from there, also over a restart.
    controller.close()
    controller = here.controller(**HERE)
    put(here, controller, plan(), columns, every, 5)
    write(here, [(1, 3, "late", 41, -1)], 50)
    controller.wait_until("u3", 54, 60)
    assert not [one for one in controller.refreshes() if one.kind == "hydration"]
    assert kit.stored(here.storage, "u3", 44) == expected(35)
    assert kit.stored(here.storage, "u3", 45) == expected(45)
    controller.close()


@pytest.mark.parametrize("plan", [kit.region_totals, plain])
def test_a_first_refresh_whose_time_cannot_be_read_any_more_is_the_next_one(here, plan):
    every = RefreshSchedule((RefreshEvery(10, 5),))
    columns, query = {"region_totals": (TOTALS, kit.REGION_TOTALS)}.get(
        plan.__name__, (kit.ORDERS, PLAIN)
    )
    here.storage.write("u2", [(1, "north", 1, 1)], upper=12)
    here.storage.write("u1", [(1, 5, "x", 1, 1), (1, 6, "y", 11, 1)], upper=12)
    lose_history(here, 8)
    controller = here.controller(**HERE)
    put(here, controller, plan(), columns, every, 5)
    write(here, [(1, 7, "z", 14, 1), (1, 8, "z", 16, 1)], 20)
    controller.wait_until("u3", 24, 60)
    controller.close()
    assert upper_of(here) == 25
    assert not kit.stored(here.storage, "u3", 14)
    expected = kit.recomputed(here.storage, query, ["u1", "u2"], 15)
    assert kit.stored(here.storage, "u3", 15) == kit.stored(here.storage, "u3", 24) == expected


def test_a_first_refresh_is_at_its_time_where_arrangements_are_not_so_far(here):
    """Another view's that are found there are not what its contents are made of: these are of the refresh."""
    here.storage.write("u2", [(1, "north", 1, 1)], upper=4)
    here.storage.write("u1", [(1, 5, "x", 1, 1)], upper=4)
    controller = here.controller(**HERE)
    put(here, controller, kit.region_totals("u4"), TOTALS, None, 3)
    controller.wait_until("u4", 3, 60)
    put(here, controller, kit.region_totals(), TOTALS, RefreshSchedule((), (9, 14)), 9)
    write(here, [(1, 7, "z", 8, 1)], 12)
    controller.wait_until("u3", 13, 60)
    write(here, [(1, 9, "z", 13, 1)], 16)
    controller.wait_until("u3", 1_000, 60)
    controller.wait_until("u4", 15, 60)
    controller.close()
    assert not kit.stored(here.storage, "u3", 8)
    for ts in (9, 14):
        expected = kit.recomputed(here.storage, kit.REGION_TOTALS, ["u1", "u2"], ts)
        assert kit.stored(here.storage, "u3", ts) == expected
    assert kit.stored(here.storage, "u3", 13) == kit.stored(here.storage, "u3", 9)


def test_a_last_refresh_whose_time_cannot_be_read_any_more_is_made_as_soon_as_it_can(here):
    here.storage.write("u1", [(1, 5, "x", 1, 1)], upper=6)
    controller = here.controller(**HERE)
    put(here, controller, plain(), kit.ORDERS, RefreshSchedule((), (5, 9)), 5)
    controller.wait_until("u3", 8, 60)
    controller.close()
    here.storage.write("u1", [(1, 6, "y", 7, 1), (1, 7, "z", 15, 1)], upper=20)
    here.storage.write("u2", [], upper=20)
    lose_history(here, 17)
    controller = here.controller(**HERE)
    put(here, controller, plain(), kit.ORDERS, RefreshSchedule((), (5, 9)), 5)
    controller.wait_until("u3", 1_000, 60)
    controller.close()
    assert upper_of(here) is None
    assert kit.stored(here.storage, "u3", 16) == kit.stored(here.storage, "u3", 5)
    expected = kit.recomputed(here.storage, PLAIN, ["u1"], 17)
    assert kit.stored(here.storage, "u3", 17) == kit.stored(here.storage, "u3", 900) == expected


def held(world, gid):
    """Who holds an input for dataflows, by the holds' names."""
    shard = world.storage.shards[gid][0]
    return [one.id for one in world.persist.holders(shard) if one.id.startswith("hold-")]


def holds_nothing(world):
    return not held(world, "u1") and not held(world, "u2")


def test_a_view_that_is_not_refreshed_any_more_holds_nothing(here):
    """Neither its inputs, nor after a restart, nor what another view uses with it; and that one goes on."""
    once = RefreshSchedule((), (3,))
    here.storage.write("u2", [(1, "north", 1, 1)], upper=4)
    here.storage.write("u1", [(1, 5, "x", 1, 1)], upper=4)
    controller = here.controller(**HERE)
    put(here, controller, kit.region_totals("u4"), TOTALS, None, 3)
    controller.wait_until("u4", 3, 60)
    alone = len(held(here, "u1"))
    put(here, controller, kit.region_totals(), TOTALS, once, 3)
    controller.wait_until("u3", 1_000, 60)
    soon(lambda: len(held(here, "u1")) == alone)
    write(here, [(1, 7, "z", 8, 1)], 12)
    controller.wait_until("u4", 11, 60)
    totals = kit.recomputed(here.storage, kit.REGION_TOTALS, ["u1", "u2"], 11)
    assert kit.stored(here.storage, "u4", 11) == totals
    shards = set(here.registry.entries("r1").values())
    assert shards

    def follow():
        """The arrangements are let go of as far as the other view is."""
        return all(
            one.since is None or one.since > 3
            for shard in shards
            for one in here.persist.holders(shard)
        )

    write(here, [(1, 8, "z", 13, 1)], 14)
    controller.wait_until("u4", 13, 60)
    for flow in controller.replica._installed.all():
        flow.flush()
    soon(follow)
    controller.drop("u4")
    controller.gone("u4")
    soon(lambda: holds_nothing(here))
    before = kit.stored(here.storage, "u3", 1_000)
    assert before == kit.recomputed(here.storage, kit.REGION_TOTALS, ["u1", "u2"], 3)
    controller.close()
    # A restart fills nothing that no step will read, and keeps nothing either.
    lose_history(here, 13)
    controller = here.controller(**HERE)
    put(here, controller, kit.region_totals(), TOTALS, once, 3)
    controller.wait_until("u3", 1_000, 60)
    soon(lambda: holds_nothing(here))
    assert not [one for one in controller.refreshes() if one.kind == "hydration"]
    controller.initialization_complete()
    assert controller.settle(60)
    soon(lambda: not here.registry.entries("r1"))
    assert kit.stored(here.storage, "u3", 1_000) == before
    # Others begin anew what it had.
    put(here, controller, kit.region_totals("u4"), TOTALS, None, 13)
    write(here, [(1, 9, "z", 15, 1)], 17)
    controller.wait_until("u4", 16, 60)
    totals = kit.recomputed(here.storage, kit.REGION_TOTALS, ["u1", "u2"], 16)
    assert kit.stored(here.storage, "u4", 16) == totals
    controller.drop("u3")
    controller.gone("u3")
    assert controller.status()[0].failures == 0
    controller.close()


def test_arrangements_that_a_view_has_let_go_of_are_filled_anew_for_others(here):
    here.storage.write("u2", [(1, "north", 1, 1)], upper=4)
    here.storage.write("u1", [(1, 5, "x", 1, 1)], upper=4)
    controller = here.controller(**HERE)
    put(here, controller, kit.region_totals(), TOTALS, RefreshSchedule((), (3,)), 3)
    controller.wait_until("u3", 1_000, 60)
    soon(lambda: holds_nothing(here))
    write(here, [(1, 7, "z", 8, 1)], 12)
    put(here, controller, kit.region_totals("u4"), TOTALS, None, 9)
    controller.wait_until("u4", 11, 60)
    totals = kit.recomputed(here.storage, kit.REGION_TOTALS, ["u1", "u2"], 11)
    assert kit.stored(here.storage, "u4", 11) == totals
    controller.drop("u3")
    controller.gone("u3")
    write(here, [(1, 8, "z", 13, 1)], 14)
    controller.wait_until("u4", 13, 60)
    assert controller.status()[0].failures == 0
    controller.close()


def test_a_view_that_is_not_refreshed_any_more_holds_no_index(here):
    here.storage.write("u2", [(1, "north", 1, 1)], upper=4)
    here.storage.write("u1", [(1, 5, "x", 1, 1), (2, 7, "y", 1, 1)], upper=4)
    once = RefreshSchedule((), (3,))
    sums = None

    def holders():
        """Whoever holds an arrangement here."""
        shards = here.registry.entries("r1").values()
        return {one.id for shard in shards for one in here.persist.holders(shard)}

    for begun_again in (False, True):
        controller = here.controller(**HERE)
        controller.install("u7", index(), output_shard=None, as_of=1, name="i")
        put(here, controller, view(), COLUMNS, once, 3)
        controller.wait_until("u8", 1_000, 60)
        soon(lambda: not held(here, "u2"))
        soon(lambda: "r1/u8" not in holders())
        sums = sums or kit.recomputed(here.storage, SUMS, ["u1"], 3)
        assert kit.stored(here.storage, "u8", 1_000) == sums
        upper = here.storage.upper("u1")
        write(here, [(1, 1, "z", upper, 1)], upper + 2)
        controller.wait_until("u7", upper + 1, 60)
        if not begun_again:
            controller.close()
            controller.release()
    # Both go.
    controller.drop("u7")
    controller.drop("u8")
    controller.gone("u7", "u8")
    soon(lambda: holds_nothing(here))
    controller.close()


def test_who_runs_a_replica_no_more_ends_no_hold_of_who_does(here):
    here.storage.write("u1", [(1, 5, "x", 1, 1)], upper=4)
    here.storage.write("u2", [(1, "north", 1, 1)], upper=4)
    controller, before = here.controller(**HERE), here.controller(**HERE)
    controller.install("u7", index(), output_shard=None, as_of=1, name="i")
    put(here, controller, view(), COLUMNS, None, 1)
    controller.wait_until("u8", 3, 60)
    before.install("u7", index(), output_shard=None, as_of=1, name="i")
    before.wait_until("u7", 3, 60)

    def held_by_the_view():
        shards = here.registry.entries("r1").values()
        return "r1/u8" in {one.id for shard in shards for one in here.persist.holders(shard)}

    # It does not know of the view, which was made after it was deposed, nor of that.
    here.registry.ours = False
    before.retire_unused()
    assert held_by_the_view()
    # One that runs the replica knows all of its dataflows.
    here.registry.ours = True
    before.retire_unused()
    assert not held_by_the_view()
    before.close()
    controller.close()
