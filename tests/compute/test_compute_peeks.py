"""One-shot queries and indexes: the same rows in process and on Spark."""

from __future__ import annotations

from collections import Counter

import compute_kit as kit
import pytest
from test_compute_views import Changes, install

from mzsql.compute import Peeks
from mzsql.compute.peek.spark import pieces_of
from mzsql.repr.errors import UndefinedObject
from mzsql.repr.ids import TransientIds

pytestmark = pytest.mark.spark


@pytest.fixture
def world(spark):
    with kit.in_memory(spark) as made:
        yield made


def rows(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def whole(pieces):
    """The contents that pieces of a one-shot statement's result add up to; an error is raised."""
    found = Counter()
    for piece in pieces:
        for row in piece.to_pylist():
            error, diff = row.pop("mz_error"), row.pop("mz_diff")
            assert error is None
            found[tuple(row.values())] += diff
    return +found


def test_a_peek_answers_at_its_time(world, spark):
    changes = Changes(31)
    upper = changes.step(world.storage, size=20)
    changes.step(world.storage)
    desc = kit.region_totals("t9")
    desc = kit.lir.DataflowDescription(
        desc.source_imports, (), desc.objects, kit.lir.PeekExport("t9")
    )
    found = whole(Peeks(spark, world.storage, TransientIds()).rows(desc, upper - 1))
    expected = kit.recomputed(world.storage, kit.REGION_TOTALS, ["u1", "u2"], upper - 1)
    assert found == expected


def test_an_error_is_a_row_of_its_time(world, spark):
    world.storage.write("u1", [(1, 5, "x", 1, 3), (2, 0, "y", 2, 1)], upper=4)
    mfp = kit.MapFilterProject(
        3, (kit.divide(kit.Literal(100, kit.BIGINT), kit.Column(1)),), (), (2, 3)
    )
    plan = kit.lir.Get(
        0, "u1", kit.lir.AvailableCollections(True), kit.lir.GetCollection(mfp), kit.ORDERS
    )
    peek = kit.lir.PeekExport("t1")
    desc = kit.dataflow("t1", plan, (kit.TXT, kit.BIG), {"u1": kit.ORDERS}, export=peek)
    peeks = Peeks(spark, world.storage, TransientIds())
    assert whole(peeks.rows(desc, 1)) == Counter({("x", 20): 3})
    errors = [row["mz_error"] for piece in peeks.rows(desc, 2) for row in piece.to_pylist()]
    assert ["division by zero" in error for error in errors if error is not None] == [True]


def test_rows_that_nobody_takes_are_not_made(spark):
    """A frame of as many partitions as rows, each of which says when it is computed."""
    made = spark.sparkContext.accumulator(0)

    def noted(batches):
        for batch in batches:
            made.add(batch.num_rows)
            yield batch

    frame = spark.range(0, 64, 1, 64).mapInArrow(noted, "id bigint")
    pieces = pieces_of(frame)
    assert [next(pieces).column("id").to_pylist() for _ in range(3)] == [[0], [1], [2]]
    pieces.close()
    assert 3 <= made.value < 16


def indexed(gid="u7"):
    """An index on orders by customer."""
    key = (kit.Column(0),)
    plan = kit.arrange(1, kit.get(0, "u1", kit.ORDERS), [0], kit.ORDERS)
    export = kit.lir.IndexExport(gid, "u1", key)
    return kit.dataflow(gid, plan, kit.ORDERS, {"u1": kit.ORDERS}, export=export)


def through_index(index="u7"):
    """Orders through the index, summed by customer."""
    key = (kit.Column(0),)
    form = kit.arranged_by([0], 3)
    read = kit.lir.Get(
        0,
        "u1",
        kit.lir.AvailableCollections(False, (form,), kit.ORDERS),
        kit.lir.PassArrangements(),
        kit.ORDERS,
    )
    reduce = kit.reduce_sum_count(1, read, key=[0], value=1, arity=3)
    reduce = kit.lir.Reduce(reduce.lir_id, read, key, reduce.key_val, reduce.plan, reduce.mfp_after)
    columns = (kit.INT, kit.BIG, kit.BIG)
    imported = kit.lir.IndexImport(index, "u1", key, kit.RelationType(kit.ORDERS))
    return kit.dataflow(
        "u8", kit.read_back(2, reduce, 1, columns), columns, {}, indexes=(imported,)
    )


SUMS = """SELECT c0, sum(c1 * mz_diff)::BIGINT, sum(mz_diff)::BIGINT FROM u1
    GROUP BY c0 HAVING sum(mz_diff) <> 0"""


def test_an_index_is_read_by_views_and_peeks(world):
    changes = Changes(33)
    upper = changes.step(world.storage, size=12)
    controller = world.controller(step_engine="duckdb")
    with pytest.raises(UndefinedObject, match="index u7"):
        install(world, controller, through_index(), upper - 1, (kit.INT, kit.BIG, kit.BIG))
    controller.install("u7", indexed(), output_shard=None, as_of=upper - 1, name="i")
    install(world, controller, through_index(), upper - 1, (kit.INT, kit.BIG, kit.BIG))
    for number in range(5):
        lower, upper = upper, changes.step(world.storage)
        if number == 3:
            controller.close()
            controller = world.controller(step_engine="duckdb")
            controller.install("u7", indexed(), output_shard=None, as_of=0, name="i")
            install(world, controller, through_index(), 0, (kit.INT, kit.BIG, kit.BIG))
        if number == 4:
            controller.drop("u7")  # still read: maintained, but no longer shown
            assert [s.object_id for s in controller.status()] == ["u8"]
        controller.wait_until("u8", upper - 1, 60)
        for ts in range(lower, upper):
            expected = kit.recomputed(world.storage, SUMS, ["u1"], ts)
            assert kit.stored(world.storage, "u8", ts) == expected
    contents = controller.peek("u7", upper - 1, 60, columns=["c0", "c1", "c2"])
    orders = world.storage.contents("u1", upper - 1)
    assert rows(contents.drop_columns(["mz_time"])) == rows(orders.drop_columns(["mz_time"]))
    assert not [r for r in controller.refreshes() if r.kind == "hydration"]
    controller.drop("u8")
    controller.gone("u7", "u8")
    assert world.registry.entries("r1") == {}
    controller.close()
