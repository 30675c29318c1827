"""Random queries, optimized and lowered as they would be, brought forward in random steps: at every time what the MIR means."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_interpreter_kit import run_mir
from random_plans_kit import TABLES, PlanGenerator, random_tables
from render_runner import Runner, duck, relation, row_of

from mzsql.expr import relation as mir
from mzsql.expr.dataflow import MaterializedViewExport, MirSource
from mzsql.expr.engines import duckdb_connection
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.functions.table import Engine
from mzsql.expr.scalar import Column
from mzsql.lir import lower
from mzsql.lir.forms import arrangement_form
from mzsql.render.dataflow import one_shot, render
from mzsql.transform import (
    IndexDesc,
    OptimizerContext,
    OptimizerFeatures,
    build_dataflow,
    optimize_dataflow,
)

INDEXES = {
    "u1": (IndexDesc("u7", "u1", (Column(1),)), IndexDesc("u8", "u1", (Column(0),))),
    "u2": (IndexDesc("u9", "u2", (Column(2),)), IndexDesc("u10", "u2", (Column(0),))),
}
TIMES = 4


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator()
    yield evaluator
    evaluator.close()


@pytest.fixture(scope="module")
def connection():
    con = duckdb_connection()
    con.execute("SET threads = 1")
    return con


def planned(rel: mir.Relation, evaluator: Evaluator, *, indexed: bool, eager: bool):
    indexes = INDEXES if indexed else {}
    features = OptimizerFeatures(enable_eager_delta_joins=eager)
    ctx = OptimizerContext(evaluator, lambda gid: indexes.get(gid, ()), features)
    df = build_dataflow(
        MaterializedViewExport("u99"),
        rel,
        lambda _: None,
        lambda gid: MirSource(gid, TABLES[gid]),
        ctx,
    )
    return lower(optimize_dataflow(df, ctx), features)


def changing(seed: int) -> tuple[dict, list[dict]]:
    """Contents of the tables at each time, and the updates between them, some rows leaving and returning at once."""
    rng = random.Random(seed)
    history = [random_tables(rng)]
    for _ in range(TIMES):
        now = {gid: Counter(rows) for gid, rows in history[-1].items()}
        fresh = random_tables(rng)
        for gid in rng.sample(sorted(now), rng.randint(0, 2)):
            now[gid] = fresh[gid]
        history.append(now)
    updates: dict = {gid: [] for gid in TABLES}
    for time, (before, after) in enumerate(zip([{}, *history], history, strict=False)):
        for gid in TABLES:
            change = Counter(after[gid])
            change.subtract(before.get(gid, Counter()))
            for row, diff in change.items():
                if diff:
                    updates[gid].append((row, time, diff))
            if after[gid] and rng.random() < 0.3:
                row = rng.choice(sorted(after[gid], key=repr))
                updates[gid] += [(row, time, 1), (row, time, -1)]
    return updates, history


def arranged(updates: list, key: Column, arity: int) -> list:
    form = arrangement_form([key], arity)
    order = [key.index, *form.thinning]
    return [(tuple(row[i] for i in order), t, d) for row, t, d in updates]


def inputs_of(rendered, updates: dict) -> dict:
    inputs = {}
    for spec in rendered.inputs:
        if spec.index:
            imported = next(i for i in rendered.desc.index_imports if i.id == spec.id)
            inputs[spec.id] = arranged(updates[imported.on_id], imported.key[0], len(spec.columns))
        else:
            inputs[spec.id] = updates[spec.id]
    return inputs


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_random_queries_are_maintained(evaluator, connection, seed, indexed, eager):
    maintain(evaluator, connection, seed, indexed=indexed, eager=eager)


@pytest.mark.long
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
@settings(max_examples=25, deadline=None)
def test_many_random_queries_are_maintained(evaluator, connection, seed, indexed, eager):
    maintain(evaluator, connection, seed, indexed=indexed, eager=eager)


@pytest.mark.soak
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
@settings(max_examples=1_500, deadline=None)
def test_very_many_random_queries_are_maintained(evaluator, connection, seed, indexed, eager):
    maintain(evaluator, connection, seed, indexed=indexed, eager=eager)


def maintain(evaluator, connection, seed: int, *, indexed: bool, eager: bool) -> None:
    rel = PlanGenerator(seed).plan()
    rendered = render(
        planned(rel, evaluator, indexed=indexed, eager=eager), errors_in=lambda _: False
    )
    updates, history = changing(seed)
    inputs = inputs_of(rendered, updates)
    rng = random.Random(seed)
    answers = [run_mir(rel, tables) for tables in history]
    runner = Runner(rendered, duck(connection))
    runner.hydrate(inputs, 0)
    lower_bound = 1
    while lower_bound <= TIMES:
        upper = rng.randint(lower_bound + 1, TIMES + 1)
        runner.step(inputs, lower_bound, upper)
        lower_bound = upper
    for time, answer in enumerate(answers):
        assert runner.contents(time) == (answer, set()), (seed, time)
    shot = Runner(rendered, duck(connection))
    relations = {
        f"snap_{s.id}": relation(s.columns, inputs[s.id], errors=False, timed=False)
        for s in rendered.inputs
    }
    statement, _ = one_shot(rendered.desc, errors_in=lambda _: False).rendered(Engine.DUCKDB)
    for record in shot.run(statement, relations):
        row = row_of(record, range(len(rendered.output_columns)))
        shot.output.append((row, TIMES, record["mz_diff"]))
    assert shot.contents(TIMES) == (answers[TIMES], set()), seed
