"""What rendering says about a dataflow: state, lookups, workers, what it refuses."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from render_plans import PLANS, Build, agg, c, flow, lit, mfp

from mzsql.expr.engines import duckdb_connection
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import Call, ColumnOrder, Unmaterializable
from mzsql.lir import plan as lir
from mzsql.render.dataflow import finish, one_shot, render
from mzsql.render.statement import col
from mzsql.render.worker import worker_of
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    INTEGER,
    MZ_TIMESTAMP,
    TEXT,
    TIMESTAMP,
    SqlType,
    arrow_type,
)


def test_a_delta_join_keeps_one_arrangement_for_each_key_that_is_looked_up():
    rendered = render(PLANS["delta_chain"]())
    assert [spec.lir_id for spec in rendered.arrangements] == [4, 5, 5, 6] or len(
        rendered.arrangements
    ) == 4
    assert len({spec.fingerprint for spec in rendered.arrangements}) == 4


def test_equal_state_has_equal_fingerprints_whatever_stands_above_or_beside_it():
    def shifted() -> lir.DataflowDescription:
        b = Build()
        b.next = 7
        reduce = b.reduce(
            b.get("u1"), 2, [c(1), c(0)], lir.ReduceDistinct(), [], mfp(2, (), (), [0, 1])
        )
        return flow(b.mfp(reduce, mfp(2, [lit(1)], (), [0, 2]), (c(0), c(1))), ("u1",))

    ours = render(PLANS["distinct"]()).arrangements
    theirs = render(shifted()).arrangements
    assert [s.fingerprint for s in ours] == [s.fingerprint for s in theirs]
    assert ours[0].name != theirs[0].name


def test_paths_that_meet_share_a_lookup():
    """Four lookups for the six of the three paths; the streams are broadcast, so a job each."""
    text = render(PLANS["delta_chain"]()).step(Engine.SPARK, 5, 9).statement.sql("spark")
    assert text.count("BROADCAST") == 4


def test_a_step_and_its_hydration_speak_of_the_same_state():
    for name, make in PLANS.items():
        rendered = render(make())
        step = rendered.step(Engine.DUCKDB, 5, 9)
        kept = {output.arrangement for output in step.outputs if output.arrangement}
        assert kept == {spec.name for spec in rendered.arrangements}, name
        filled = [stage.target for stage in rendered.hydration(Engine.DUCKDB, 4)]
        assert filled == [*(spec.name for spec in rendered.arrangements), None], name
        read = {lookup.arrangement for lookup in rendered.lookups}
        assert read == {n for n in step.reads if n.startswith("arr_")}, name


def test_nodes_turn_hydrated_one_after_another():
    stages = render(PLANS["having_join"]()).hydration(Engine.DUCKDB, 4)
    assert len(stages) > 4
    assert sum(bool(stage.completes) for stage in stages) > 3


def test_what_changes_with_the_clock_is_refused():
    b = Build()
    now = Unmaterializable("mz_now", MZ_TIMESTAMP)
    later = Call("lt_mz_timestamp", (now, now), BOOLEAN)
    with pytest.raises(Unsupported, match="mz_now"):
        render(flow(b.mfp(b.get("u1"), mfp(2, (), [later])), ("u1",)))


def test_finishing_orders_limits_and_never_hides_an_error():
    shot = one_shot(PLANS["distinct"]())
    columns = shot.output_columns
    how = RowSetFinishing((ColumnOrder(0, True, False),), 2, 1, (1, 0))
    statement = finish(shot.rendered(Engine.DUCKDB)[0], how, columns, Engine.DUCKDB)
    con = duckdb_connection()

    def answer(errors: list) -> list:
        rows = [(1, 10), (2, 20), (3, 30), (4, None)]
        table = pa.table(
            {
                "c0": pa.array([r[0] for r in rows] + [None] * len(errors), pa.int32()),
                "c1": pa.array([r[1] for r in rows] + [None] * len(errors), pa.int32()),
                "mz_error": pa.array([None] * len(rows) + errors, pa.string()),
                "mz_diff": pa.array([1] * (len(rows) + len(errors)), pa.int64()),
            }
        )
        con.register("snap_u1", table)
        return con.sql(statement.sql("duckdb", identify=True)).fetchall()

    assert answer([]) == [(30, 3, None), (20, 2, None)] or answer([]) == [
        (3, 30, None),
        (2, 20, None),
    ]
    assert answer(["no"])[0] == (None, None, "no")


KEYS = [
    (INTEGER, [1, -7, None, 2**31 - 1]),
    (BIGINT, [2**62, 0, None]),
    (TEXT, ["", "a", "ä€", None]),
    (SqlType("numeric", scale=18), [Decimal("-1.5"), Decimal("0"), Decimal("12345678.25"), None]),
    (BOOLEAN, [True, False, None]),
    (BYTEA, [b"\x00\xff", None]),
    (DATE, [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    (TIMESTAMP, [dt.datetime(1969, 12, 31, 23, 59, 59, 5), None]),
    (SqlType("double"), [1.5, float("nan"), None]),
]


def key_table(typ: SqlType, values: list) -> pa.Table:
    return pa.table(
        {"c0": pa.array(values, arrow_type(typ)), "c1": pa.array(range(len(values)), pa.int64())}
    )


def worker_query(typ: SqlType, engine: Engine) -> str:
    keys = [Sql(col("c0"), typ), Sql(col("c1"), BIGINT)]
    dialect = engine.value
    return f"SELECT {worker_of(keys, 16, engine).sql(dialect, identify=True)} AS w FROM keys ORDER BY c1"


def test_workers_are_spread_and_in_range():
    con = duckdb_connection()
    con.register("keys", key_table(INTEGER, list(range(1000))))
    workers = [w for (w,) in con.sql(worker_query(INTEGER, Engine.DUCKDB)).fetchall()]
    assert set(workers) == set(range(16))
    assert max(workers.count(w) for w in range(16)) < 120


@pytest.mark.spark
def test_both_engines_know_the_same_worker(spark):
    con = duckdb_connection()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for typ, values in KEYS:
        table = key_table(typ, values)
        con.register("keys", table)
        theirs = [w for (w,) in con.sql(worker_query(typ, Engine.DUCKDB)).fetchall()]
        frame = spark.createDataFrame(table.combine_chunks())
        if typ == TIMESTAMP:
            frame = frame.selectExpr("CAST(c0 AS timestamp_ntz) AS c0", "c1")
        frame.createOrReplaceTempView("keys")
        ours = [r.w for r in spark.sql(worker_query(typ, Engine.SPARK)).collect()]
        assert ours == theirs, typ


__all__ = ["agg"]
