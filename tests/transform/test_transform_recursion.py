"""Recursions go through every transform: their meaning is kept round by round, and what is said of their bindings holds."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_interpreter_kit import Bag, run_mir
from random_plans_kit import TABLES, PlanGenerator, random_tables
from transforms_kit import TRANSFORMS
from typecheck_kit import typecheck

from mzsql.expr import relation as mir
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Call, Column, Literal
from mzsql.expr.typing import relation_type
from mzsql.repr.types import BOOLEAN, INTEGER, ColumnType, RelationType
from mzsql.transform import IndexDesc, OptimizerContext, pipeline
from mzsql.transform.non_negative import non_negative
from mzsql.transform.normalize_lets import normalize_lets
from mzsql.transform.predicate_pushdown import predicate_pushdown
from mzsql.transform.relation_cse import relation_cse

Seed = st.integers(0, 10**9)
U1 = mir.Get("u1", TABLES["u1"])
TWO = RelationType((ColumnType(INTEGER), ColumnType(INTEGER)))
FOREVER = (5, True)


@pytest.fixture(scope="module")
def ctx() -> Iterator[OptimizerContext]:
    evaluator = Evaluator()
    index = IndexDesc("u7", "u1", (Column(0),))
    yield OptimizerContext(evaluator, lambda gid: (index,) if gid == "u1" else ())
    evaluator.close()


def rows_of(plan: mir.Relation, seed: int) -> list[Bag]:
    return [run_mir(plan, random_tables(random.Random(seed + n))) for n in range(2)]


def check(before: mir.Relation, after: mir.Relation, seed: int) -> None:
    typecheck(after, relation_type(before))
    found = rows_of(after, seed)
    assert found == rows_of(before, seed)
    typ = relation_type(after)
    for rows in found:
        if non_negative(after, {}):
            assert all(diff >= 0 for diff in rows.values())
        for number, column in enumerate(typ.columns):
            assert column.nullable or all(row[number] is not None for row in rows)
        for key in typ.keys:
            seen = [tuple(row[c] for c in key) for row in rows.elements()]
            assert len(seen) == len(set(seen))


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_a_transform_keeps_the_meaning_of_a_recursion(name: str, ctx: OptimizerContext) -> None:
    @given(Seed)
    @settings(max_examples=15, deadline=None)
    def run(seed: int) -> None:
        plan = PlanGenerator(seed).recursive_plan()
        normal = normalize_lets(plan)
        check(plan, normal, seed)
        check(plan, TRANSFORMS[name].run(normal, ctx), seed)

    run()


@given(Seed)
@settings(max_examples=60, deadline=None)
def test_the_pipeline_keeps_the_meaning_of_a_recursion(ctx: OptimizerContext, seed: int) -> None:
    plan = PlanGenerator(seed).recursive_plan()
    check(plan, pipeline.optimize(plan, ctx), seed)


@given(Seed)
@settings(max_examples=60, deadline=None)
def test_bindings_are_normal_after_one_pass(seed: int) -> None:
    once = normalize_lets(PlanGenerator(seed).recursive_plan())
    assert normalize_lets(once) == once


def local(number: int) -> mir.Get:
    return mir.Get(number, TWO)


def less(column: int, bound: int) -> Call:
    return Call("lt_integer", (Column(column), Literal(bound, INTEGER)), BOOLEAN)


def test_a_filter_moves_into_a_binding_that_only_later_ones_read() -> None:
    low = mir.Filter(local(0), (less(0, 2),))
    plan = mir.LetRec(
        (0, 1),
        (mir.Union((U1, local(1))), mir.Union((low, mir.Project(low, (1, 0))))),
        (FOREVER, FOREVER),
        local(1),
    )
    pushed = predicate_pushdown(plan)
    assert isinstance(pushed, mir.LetRec)
    assert not any(isinstance(node, mir.Filter) for node in mir.walk(pushed.values[1]))
    assert sum(isinstance(node, mir.Filter) for node in mir.walk(pushed.values[0])) == 2


def test_a_filter_stays_out_of_a_binding_that_is_read_in_the_next_round() -> None:
    plan = mir.LetRec(
        (0,), (mir.Union((U1, local(0))),), (FOREVER,), mir.Filter(local(0), (less(0, 2),))
    )
    assert predicate_pushdown(plan) == plan


def test_a_binding_moves_only_where_what_it_reads_is_the_same() -> None:
    # The first reads what the second was a round ago; behind the second that is gone.
    old = mir.Project(local(1), (1, 0))
    values = (old, mir.Union((U1, local(1))), mir.Union((local(0), local(1))))
    plan = mir.LetRec((0, 1, 2), values, (FOREVER,) * 3, local(2))
    normal = normalize_lets(plan)
    assert isinstance(normal, mir.LetRec)
    assert len(normal.ids) == 2
    for seed in range(5):
        assert rows_of(plan, seed) == rows_of(normal, seed)


def test_what_is_repeated_in_a_recursion_is_bound_in_it() -> None:
    part = mir.Filter(U1, (less(0, 3),))
    joined = mir.Join((part, local(0)), ((Column(0), Column(2)),))
    value = mir.Union((part, mir.Project(joined, (1, 3))))
    plan = mir.LetRec((0,), (value,), (FOREVER,), local(0))
    shared = relation_cse(plan)
    assert isinstance(shared, mir.LetRec)
    assert len(shared.ids) == 2
    assert sum(isinstance(node, mir.Filter) for node in mir.walk(shared)) == 1
