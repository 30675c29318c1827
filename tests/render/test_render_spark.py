"""The same statements on Spark: equal to DuckDB's answers, and in few jobs."""

from __future__ import annotations

import random

import pytest
import test_render_queries as queries
from render_plans import (
    BIG,
    INT,
    PLANS,
    Build,
    accumulable,
    add,
    agg,
    c,
    chain_delta,
    flow,
    mfp,
)
from render_runner import Runner, duck
from test_render_steps import TIMES, expected, random_updates

from mzsql.compute.engines.statements import run as run_statement
from mzsql.expr.engines import SPARK_STEP_SETTINGS, duckdb_connection
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import render
from mzsql.repr.types import RelationType

pytestmark = pytest.mark.spark


def on_spark(session):
    """Runs a statement over relations in Spark."""

    def run(statement, relations) -> list[dict]:
        for name, table in relations.items():
            # Spark drops what follows an empty chunk.
            session.createDataFrame(table.combine_chunks()).createOrReplaceTempView(name)
        return run_statement(session, statement).toArrow().to_pylist()

    run.engine = Engine.SPARK
    return run


@pytest.fixture(scope="module")
def session(spark):
    session = spark.newSession()
    for key, value in SPARK_STEP_SETTINGS.items():
        session.conf.set(key, value)
    for key, value in {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.leafNodeDefaultParallelism": "1",
    }.items():
        session.conf.set(key, value)
    return session


def jobs_of(spark, action) -> int:
    spark.sparkContext.setJobGroup("render", "count jobs")
    before = set(spark.sparkContext.statusTracker().getJobIdsForGroup("render"))
    action()
    return len(set(spark.sparkContext.statusTracker().getJobIdsForGroup("render")) - before)


#: One of each construct; the others differ in plans, not in what SQL they are made of.
CONSTRUCTS = (
    "row_wise",
    "linear_three",
    "delta_failing",
    "delta_self",
    "sums",
    "sums_distinct",
    "extremes",
    "collation",
    "top_two",
    "except_all",
    "having_join",
    "left_join",
    "series",
    "indexed",
)


@pytest.mark.parametrize("name", CONSTRUCTS)
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


@pytest.mark.parametrize("name", ["array", "floats"])
def test_spark_aggregates_groups_anew(name, session):
    catalog = queries.MemoryCatalog()
    catalog.run(queries.SMALL)
    text = queries.QUERIES[name]
    con = duckdb_connection()
    queries.maintain(con, catalog, text, text, queries.random_small, 1, step_with=on_spark(session))


def test_a_three_way_join_with_groups_takes_few_jobs(session, spark):
    """A broadcast for each of the four lookups, and the result."""
    b = Build()
    inputs = [b.get("u1"), b.get("u2"), b.get("u3")]
    join = chain_delta(b, inputs, mfp(6, [add(c(0), c(5))], (), [4, 3, 6]))
    groups = b.reduce(join, 3, [c(0), c(1)], accumulable(agg("sum_integer", c(2))), [c(2)])
    rendered = render(flow(groups, typ=RelationType((INT, INT, BIG))), errors_in=lambda _: False)
    inputs = {spec.id: random_updates(random.Random(7), spec) for spec in rendered.inputs}
    runner = Runner(rendered, duck(duckdb_connection()))
    runner.hydrate(inputs, 2)
    run = on_spark(session)
    counted = []

    def count(statement, relations):
        answer = []
        counted.append(jobs_of(spark, lambda: answer.extend(run(statement, relations))))
        return answer

    count.engine = Engine.SPARK
    runner.run = count
    runner.step(inputs, 3, TIMES + 1)
    assert 0 < counted[0] <= 6
