"""Every transform keeps the meaning of random plans, applied twice does no more than once, and types promise no more than holds."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plan_interpreter_kit import run_mir
from random_plans_kit import PlanGenerator, random_tables
from transforms_kit import TRANSFORMS

from mzsql.expr import relation as mir
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Column
from mzsql.expr.typing import relation_type
from mzsql.repr.depth import deep
from mzsql.transform import IndexDesc, OptimizerContext, OptimizerFeatures, pipeline

Seed = st.integers(0, 10**9)
EXAMPLES = settings(max_examples=40, deadline=None)


@pytest.fixture(scope="module")
def ctx() -> Iterator[OptimizerContext]:
    evaluator = Evaluator()
    indexes = {
        "u1": (IndexDesc("u7", "u1", (Column(0),)), IndexDesc("u8", "u1", (Column(1),))),
        "u2": (IndexDesc("u9", "u2", (Column(0),)),),
    }
    features = OptimizerFeatures(enable_reduce_reduction=True, enable_coalesce_case_transform=True)
    yield OptimizerContext(evaluator, lambda gid: indexes.get(gid, ()), features)
    evaluator.close()


def check(before: mir.Relation, after: mir.Relation, seed: int) -> None:
    assert [c.type for c in relation_type(after).columns] == [
        c.type for c in relation_type(before).columns
    ]
    for round_ in range(3):
        tables = random_tables(random.Random(seed + round_))
        rows = run_mir(after, tables)
        assert rows == run_mir(before, tables)
        for typ in (relation_type(before), relation_type(after)):
            for number, column in enumerate(typ.columns):
                assert column.nullable or all(row[number] is not None for row in rows)
            for key in typ.keys:
                seen = [tuple(row[c] for c in key) for row in rows.elements()]
                assert len(seen) == len(set(seen))


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_a_transform_keeps_the_meaning_and_is_idempotent(name: str, ctx: OptimizerContext) -> None:
    transform = TRANSFORMS[name]

    @given(Seed)
    @example(seed=420663621)  # what an input put out said more after it was rewritten
    @example(seed=79)  # an equality of what was put out said more of what else was
    @example(seed=118)  # a column that repeats one that is a literal
    @example(seed=146)  # a literal below another Map
    @example(seed=211)  # literals that met on their way
    @example(seed=686)  # a Reduce over a join that a pushed one stands over
    @example(seed=689)  # a computed column of one that is a literal
    @EXAMPLES
    def run(seed: int) -> None:
        plan = PlanGenerator(seed).plan()
        normal = TRANSFORMS["normalize_lets"].run(plan, ctx)
        once = transform.run(normal, ctx)
        check(plan, once, seed)
        twice = transform.run(once, ctx)
        assert twice == once

    run()


@given(Seed)
@settings(max_examples=150, deadline=None)
def test_the_whole_pipeline_keeps_the_meaning(ctx: OptimizerContext, seed: int) -> None:
    plan = PlanGenerator(seed).plan()
    check(plan, pipeline.optimize(plan, ctx), seed)


def test_a_deep_plan_optimizes(ctx: OptimizerContext) -> None:
    plan = PlanGenerator(1).plan(1)
    width = mir.arity(plan)
    for _ in range(1000):
        plan = mir.Project(mir.Map(plan, (Column(0),)), tuple(range(1, width + 1)))
    with deep():
        optimized = pipeline.optimize(plan, ctx)
    assert sum(1 for _ in mir.walk(optimized)) < 10
