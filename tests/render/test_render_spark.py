"""The same statements on Spark: equal to DuckDB's answers, and in few jobs."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from render_plans import PLANS
from render_runner import Runner, duck
from test_render_steps import TIMES, expected, random_updates

from mzsql.expr.engines import SPARK_STEP_SETTINGS, duckdb_connection
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import render

pytestmark = pytest.mark.spark


def on_spark(session):
    """Runs a statement over relations in Spark."""

    def run(statement, relations) -> list[dict]:
        for name, table in relations.items():
            # Spark drops what follows an empty chunk.
            session.createDataFrame(table.combine_chunks()).createOrReplaceTempView(name)
        found = session.sql(statement.sql("spark", identify=True)).toArrow()
        return found.to_pylist()

    run.engine = Engine.SPARK
    return run


@pytest.fixture(scope="module")
def session(spark):
    session = spark.newSession()
    for key, value in SPARK_STEP_SETTINGS.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def jobs_of(spark, action) -> int:
    spark.sparkContext.setJobGroup("render", "count jobs")
    before = set(spark.sparkContext.statusTracker().getJobIdsForGroup("render"))
    action()
    return len(set(spark.sparkContext.statusTracker().getJobIdsForGroup("render")) - before)


@pytest.mark.parametrize("name", PLANS)
def test_spark_computes_what_the_plan_means(name, session):
    rng = random.Random(name)
    rendered = render(PLANS[name](), errors_in=lambda gid: gid != "u2")
    inputs = {spec.id: random_updates(rng, spec) for spec in rendered.inputs}
    runner = Runner(rendered, duck(duckdb_connection()))
    runner.hydrate(inputs, 2)
    runner.run = on_spark(session)
    runner.step(inputs, 3, TIMES + 1)
    for t in range(2, TIMES + 1):
        assert runner.contents(t) == expected(rendered, inputs, t), (name, t)


@pytest.mark.parametrize("name", ["delta_chain", "sums_distinct", "top_global"])
def test_spark_hydrates(name, session):
    rng = random.Random(name)
    rendered = render(PLANS[name](), errors_in=lambda gid: gid != "u2")
    inputs = {spec.id: random_updates(rng, spec) for spec in rendered.inputs}
    runner = Runner(rendered, on_spark(session))
    runner.hydrate(inputs, TIMES)
    assert runner.contents(TIMES) == expected(rendered, inputs, TIMES)


__all__ = ["pa"]
