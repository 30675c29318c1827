"""Views are right after every step, and do no more work than the change asks for."""

from __future__ import annotations

import random
import time
from collections import Counter

import compute_kit as kit
import pyarrow.parquet as pq
import pytest

from mzsql.compute.protocol import ObjectHydrationStatus, OperatorHydrationStatus
from mzsql.persist import PersistClient, Settings, ShardHeld
from mzsql.repr.errors import NotReadable

pytestmark = pytest.mark.spark


@pytest.fixture
def world(spark, tmp_path):
    with kit.in_files(spark, tmp_path) as made:
        yield made


class Changes:
    """Random inserts and deletes with NULL keys and values, several times a step, rows that leave and come back."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.live: dict[str, list] = {"u1": [], "u2": []}
        self.time = 1

    def row(self, gid):
        r = self.random
        if gid == "u1":
            return (r.choice([None, *range(6)]), r.choice([None, *range(-3, 9)]), r.choice("xy"))
        return (r.choice([None, *range(6)]), r.choice([None, "north", "south", "east"]))

    def step(self, storage, *, size=6, times=3):
        """Write one step; the first time that is not complete then."""
        rows: dict[str, list] = {"u1": [], "u2": []}
        for offset in range(times):
            for gid, live in self.live.items():
                for _ in range(self.random.randrange(size)):
                    if live and self.random.random() < 0.4:
                        row, diff = live.pop(self.random.randrange(len(live))), -1
                    else:
                        row, diff = self.row(gid), 1
                        live.append(row)
                    rows[gid].append((*row, self.time + offset, diff))
        self.time += times
        for gid, written in rows.items():
            storage.write(gid, written, upper=self.time)
        return self.time


def install(world, controller, desc, as_of, columns):
    """Create the view's shard (or find it) and its dataflow."""
    gid = desc.export.id
    shard = world.storage.shards.get(gid, (None, True))[0]
    if shard is None:
        shard = world.storage.add(gid, columns, errors=True)
    controller.install(gid, desc, output_shard=shard, as_of=as_of, name=f"view_{gid}")


TOTALS = (kit.TXT, kit.BIG, kit.BIG)


def check_totals(world, times):
    for ts in times:
        expected = kit.recomputed(world.storage, kit.REGION_TOTALS, ["u1", "u2"], ts)
        assert kit.stored(world.storage, "u3", ts) == expected, ts


@pytest.mark.parametrize(
    ("seed", "engine", "steps"),
    [(1, "spark", 2), (2, "duckdb", 12), pytest.param(3, "duckdb", 12, marks=pytest.mark.long)],
)
def test_a_view_stays_right_over_random_steps_and_restarts(world, seed, engine, steps):
    changes = Changes(seed)
    upper = changes.step(world.storage)
    controller = world.controller(step_engine=engine)
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    controller.wait_until("u3", upper - 1, 60)
    check_totals(world, [upper - 1])
    shards = world.registry.entries("r1")
    assert shards
    for number in range(steps):
        lower, upper = upper, changes.step(world.storage)
        controller.wait_until("u3", upper - 1, 60)
        check_totals(world, range(lower, upper))
        if number == (steps - 1) // 2:
            controller.close()
            controller = world.controller(step_engine=engine)
            install(world, controller, kit.region_totals(), 0, TOTALS)
            controller.wait_until("u3", upper - 1, 60)
            assert not [r for r in controller.refreshes() if r.kind == "hydration"]
    assert world.registry.entries("r1") == shards
    kinds = {refresh.kind for refresh in controller.refreshes()}
    assert "step" in kinds
    assert bool(controller.refreshes()[-1].jobs) == (engine == "spark")
    controller.close()


@pytest.mark.parametrize(
    "blob",
    [
        pytest.param("file", marks=pytest.mark.long),
        pytest.param("mem", marks=pytest.mark.soak),
    ],
)
def test_what_exceeds_the_driver_is_left_to_spark(spark, tmp_path, blob):
    """With bounds of next to nothing every delta, lookup and result goes through Parquet, and is as right."""
    with PersistClient.open(
        blob=f"file:{tmp_path}/blob" if blob == "file" else "mem:",
        consensus="mem:",
        settings=Settings(inline_bytes=0, inline_total_bytes=0),
    ) as persist:
        world = kit.World(persist, spark)
        world.storage.add("u1", kit.ORDERS)
        world.storage.add("u2", kit.CUSTOMERS)
        changes = Changes(41)
        upper = changes.step(world.storage, size=20)
        controller = world.controller(
            driver_rows=1, driver_bytes=1, inline_rows=0, small_hydration_bytes=0
        )
        install(world, controller, kit.region_totals(), upper - 1, TOTALS)
        controller.wait_until("u3", upper - 1, 600)
        check_totals(world, [upper - 1])
        lower, upper = upper, changes.step(world.storage, size=20)
        controller.wait_until("u3", upper - 1, 600)
        check_totals(world, range(lower, upper))
        assert controller.status()[0].failures == 0
        controller.close()
    if blob == "file":
        left = [path for path in (tmp_path / "blob").rglob("*") if path.is_file()]
        assert all(path.name[0] not in "._" for path in left if path.suffix in (".crc", ".parquet"))


def test_what_is_missing_is_filled_after_a_restart(world):
    """Without its arrangements (of another format) a view goes on from what is stored."""
    changes = Changes(3)
    upper = changes.step(world.storage, size=20)
    controller = world.controller(arrangement_format="1")
    install(world, controller, kit.region_totals(), upper - 1, TOTALS)
    controller.wait_until("u3", upper - 1, 60)
    before = set(world.registry.entries("r1").values())
    controller.close()
    lower, upper = upper, changes.step(world.storage)
    controller = world.controller(arrangement_format="2")
    install(world, controller, kit.region_totals(), 0, TOTALS)
    controller.wait_until("u3", upper - 1, 60)
    check_totals(world, range(lower, upper))
    after = set(world.registry.entries("r1").values())
    assert len(after) == 2 * len(before)
    assert controller.retire_unused() == len(before)
    assert set(world.registry.entries("r1").values()) == after - before
    controller.close()


def test_an_empty_step_runs_no_job(world):
    world.storage.write("u1", [(1, 5, "x", 1, 1)], upper=2)
    world.storage.write("u2", [(1, "north", 1, 1)], upper=2)
    controller = world.controller(step_engine="spark")
    install(world, controller, kit.region_totals(), 1, TOTALS)
    controller.wait_until("u3", 1, 60)
    world.storage.write("u1", [], upper=7)
    world.storage.write("u2", [], upper=7)
    controller.wait_until("u3", 6, 60)
    last = controller.refreshes()[-1]
    assert (last.kind, last.jobs, last.rows_in, last.upper) == ("empty", 0, 0, 7)
    world.storage.write("u1", [(1, 6, "x", 8, 1)], upper=9)
    world.storage.write("u2", [], upper=9)
    controller.wait_until("u3", 8, 60)
    last = controller.refreshes()[-1]
    assert last.kind == "step"
    assert last.jobs > 0
    assert (last.rows_in, last.rows_out) == (1, 2)
    check_totals(world, [6, 7, 8])
    controller.close()


def test_statuses_come_false_then_true_once_and_go_with_the_view(world):
    changes = Changes(5)
    upper = changes.step(world.storage, size=10)
    controller = world.controller(workers=3)
    install(
        world, controller, kit.region_totals(), upper, TOTALS
    )  # inputs are not complete there yet
    rows = world.sink.current()
    nodes = {row for row in rows if isinstance(row, OperatorHydrationStatus)}
    assert {(r.plan_node_id, r.worker_id) for r in nodes} == {
        (node, worker) for node in range(8) for worker in range(3)
    }
    assert not any(row.hydrated for row in rows)
    assert controller.status()[0].state == "waiting" or controller.status()[0].state == "hydrating"
    upper = changes.step(world.storage)
    controller.wait_until("u3", upper - 1, 60)
    assert all(row.hydrated for row in world.sink.current())
    turned = [row for row, diff in world.sink.log if diff == 1 and row.hydrated]
    assert len(turned) == len(set(turned)) == 8 * 3 + 1
    assert isinstance(turned[-1], ObjectHydrationStatus)
    order = [row.plan_node_id for row in turned[:-1]]
    # the arrangements of the inputs before what is computed from them
    assert max(order.index(1), order.index(3)) < order.index(5)
    assert order.index(5) <= order.index(7)
    controller.close()
    assert world.sink.current()  # a restart finds them

    start = len(world.sink.log)
    before = world.sink.current()
    controller = world.controller(workers=3)
    assert world.sink.current() == before, "what was told stays until it is told anew"
    install(world, controller, kit.region_totals(), 0, TOTALS)
    controller.wait_until("u3", upper - 1, 60)
    assert all(row.hydrated and diff == 1 for row, diff in world.sink.log[start:])
    controller.drop("u3")
    controller.gone("u3")
    assert world.sink.current() == set()
    assert world.registry.entries("r1") == {}
    controller.close()


def test_errors_are_rows_that_come_and_go(world):
    """SELECT amount / customer FROM orders WHERE …: division by zero fails the view while the row is there."""
    mfp = kit.MapFilterProject(
        3,
        (kit.divide(kit.Literal(100, kit.BIGINT), kit.Column(1)),),
        (),
        (0, 3),
    )
    plan = kit.lir.Get(
        0,
        "u1",
        kit.lir.AvailableCollections(True),
        kit.lir.GetCollection(mfp),
        kit.ORDERS,
    )
    desc = kit.dataflow("u3", plan, (kit.INT, kit.BIG), {"u1": kit.ORDERS})
    world.storage.write("u1", [(1, 5, "x", 1, 1), (2, 0, "x", 1, 2)], upper=2)
    controller = world.controller()
    install(world, controller, desc, 1, (kit.INT, kit.BIG))
    controller.wait_until("u3", 1, 60)
    assert kit.errors(world.storage, "u3", 1) == {"division by zero": 2}
    world.storage.write("u1", [(2, 0, "x", 2, -2), (3, 10, "x", 2, 1)], upper=4)
    controller.wait_until("u3", 3, 60)
    assert kit.errors(world.storage, "u3", 2) == {}
    assert kit.stored(world.storage, "u3", 3) == Counter({(1, 20): 1, (3, 10): 1})
    controller.close()


def test_a_small_step_reads_little(world):
    world.storage.write(
        "u1", [(i, i % 17, "x" * 30, 1, 1) for i in range(60_000)], upper=2, notify=False
    )
    world.storage.write("u2", [(i, f"r{i % 5}", 1, 1) for i in range(60_000)], upper=2)
    desc = kit.dataflow(
        "u3",
        kit.joined_orders(),
        (*kit.ORDERS, *kit.CUSTOMERS),
        {"u1": kit.ORDERS, "u2": kit.CUSTOMERS},
    )
    # small enough to be collected, but this is to be written by Spark
    controller = world.controller(small_hydration_bytes=0, inline_rows=1000)
    install(world, controller, desc, 1, (*kit.ORDERS, *kit.CUSTOMERS))
    controller.wait_until("u3", 1, 90)
    sizes = 0
    for shard in world.registry.entries("r1").values():
        reader = world.persist.open_reader(shard)
        parts = reader.parts(1)
        assert {part.worker for part in parts} == {0, 1}
        files = [pq.ParquetFile(part.spark_path.removeprefix("file:")) for part in parts]
        # laid out as persist lays its own parts out
        for file in files:
            expected = -(-file.metadata.num_rows // 1000)
            assert abs(file.metadata.num_row_groups - expected) <= 1
        sizes += sum(part.bytes for part in parts)
    world.storage.write("u1", [(777, 1, "new", 2, 1)], upper=3)
    world.storage.write("u2", [], upper=3)
    controller.wait_until("u3", 2, 60)
    last = controller.refreshes()[-1]
    assert (last.rows_in, last.rows_out) == (1, 1)
    assert 0 < last.bytes_read < sizes / 3
    sql = """SELECT o.c0, o.c1, o.c2, c.c0, c.c1 FROM u1 o JOIN u2 c ON o.c0 = c.c0"""
    assert kit.stored(world.storage, "u3", 2) == kit.recomputed(world.storage, sql, ["u1", "u2"], 2)
    controller.close()


def test_dataflows_advance_together_and_share_state(world):
    """Two views over the same arrangements, one over another view, and min/max: each right at every time."""
    changes = Changes(7)
    upper = changes.step(world.storage, size=15)
    controller = world.controller(step_engine="duckdb", step_threads=3)
    install(world, controller, kit.region_totals("u3"), upper - 1, TOTALS)
    joined = (*kit.ORDERS, *kit.CUSTOMERS)
    sources = {"u1": kit.ORDERS, "u2": kit.CUSTOMERS}
    install(
        world,
        controller,
        kit.dataflow("u4", kit.joined_orders(), joined, sources),
        upper - 1,
        joined,
    )
    extremes = (kit.TXT, kit.BIG, kit.BIG)
    reduce = kit.reduce_min_max(1, kit.get(0, "u4", joined), key=[4], value=1, arity=5)
    install(
        world,
        controller,
        kit.dataflow("u5", kit.read_back(2, reduce, 1, extremes), extremes, {"u4": joined}),
        upper - 1,
        extremes,
    )
    sql4 = "SELECT o.c0, o.c1, o.c2, c.c0, c.c1, o.mz_diff * c.mz_diff FROM u1 o JOIN u2 c ON o.c0 IS NOT DISTINCT FROM c.c0"
    sql5 = f"SELECT r, min(a), max(a) FROM ({sql4}) AS t(k, a, n, k2, r, d) GROUP BY r"
    for _ in range(4):
        lower, upper = upper, changes.step(world.storage)
        controller.wait_until("u5", upper - 1, 60)
        controller.wait_until("u3", upper - 1, 60)
        check_totals(world, range(lower, upper))
        for ts in range(lower, upper):
            rows = kit.recomputed(world.storage, sql4, ["u1", "u2"], ts)
            expected: Counter = Counter()
            for (*row, diff), count in rows.items():
                expected[tuple(row)] += diff * count
            assert kit.stored(world.storage, "u4", ts) == expected
            assert kit.stored(world.storage, "u5", ts) == kit.recomputed(
                world.storage, sql5, ["u1", "u2"], ts
            )
    entries = world.registry.entries("r1")
    assert len(set(entries.values())) == len(entries)
    controller.drop("u4")  # its arrangements are u3's too
    lower, upper = upper, changes.step(world.storage)
    controller.wait_until("u3", upper - 1, 60)
    check_totals(world, range(lower, upper))
    controller.close()


def test_a_failing_dataflow_is_shown_and_does_not_hold_up_others(world):
    changes = Changes(11)
    upper = changes.step(world.storage)
    controller = world.controller(retry_max_seconds=0.1, step_engine="duckdb")
    install(world, controller, kit.region_totals("u3"), upper - 1, TOTALS)
    gone = world.storage.add("u9", kit.ORDERS)
    world.storage.write("u9", [(1, 1, "x", 0, 1)], upper=upper, notify=False)
    desc = kit.dataflow("u4", kit.get(0, "u9", kit.ORDERS), kit.ORDERS, {"u9": kit.ORDERS})
    install(world, controller, desc, upper - 1, kit.ORDERS)
    controller.wait_until("u4", upper - 1, 60)
    with pytest.raises(ShardHeld) as held:
        world.persist.finalize(gone)
    for holder in held.value.holders:
        world.persist.open_critical_reader(gone, holder.id).release()
    world.persist.finalize(gone)
    changes.step(world.storage)
    upper = changes.step(world.storage)
    controller.wait_until("u3", upper - 1, 60)
    check_totals(world, [upper - 1])
    deadline = time.monotonic() + 20
    # While it is tried again it is said to run.
    while (
        (status := controller.status()[1]).failures < 2 or status.state != "failed"
    ) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (status.object_id, status.state) == ("u4", "failed")
    assert gone in status.error
    assert controller.status()[0].state == "running"
    controller.close()


def test_a_wait_that_ends_says_what_is_behind(world):
    controller = world.controller()
    world.storage.write("u1", [], upper=5)
    world.storage.write("u2", [], upper=5)
    install(world, controller, kit.region_totals(), 4, TOTALS)
    controller.wait_until("u3", 4, 60)
    with pytest.raises(
        NotReadable, match=r'"view_u3" \(u3\) has frontier \[5\], and time 7 is needed'
    ) as e:
        controller.wait_until("u3", 7, 0.1)
    assert "replica r1, which is running" in str(e.value)
    with pytest.raises(NotReadable, match="u77"):
        controller.wait_until("u77", 7, 0.1)
    controller.close()


def test_a_view_of_constants_is_sealed(world):
    plan = kit.lir.Constant(0, (((1, 2), 1), ((3, 4), 2)), None, (kit.INT, kit.BIG))
    desc = kit.dataflow("u3", plan, (kit.INT, kit.BIG), {})
    controller = world.controller()
    install(world, controller, desc, 5, (kit.INT, kit.BIG))
    controller.wait_until("u3", 10**12, 60)
    assert controller.frontier("u3") is None
    assert kit.stored(world.storage, "u3", 10**12) == Counter({(1, 2): 1, (3, 4): 2})
    controller.close()
