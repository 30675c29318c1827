"""What a run remembers of parts of plans: it is what would be found again, and parts are told apart by all that they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans_kit import TABLES, PlanGenerator

from mzsql.expr import relation as mir
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.memo import remembering
from mzsql.expr.parts import kinds_of, part_of, parts
from mzsql.expr.scalar import Call, Column, Literal
from mzsql.repr.types import BOOLEAN, INTEGER
from mzsql.transform import IndexDesc, OptimizerContext, pipeline
from mzsql.transform.remembered import Scope
from mzsql.transform.visit import shared

U1, U2 = (mir.Get(gid, TABLES[gid]) for gid in ("u1", "u2"))
LOCAL = mir.Get(0, U1.typ)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator()
    yield evaluator
    evaluator.close()


#: A transform, what it was given, what it made of that.
Step = tuple[pipeline.Transform, mir.Relation, mir.Relation]


def noted(stage: pipeline.Stage, steps: list[Step]) -> pipeline.Stage:
    """A stage whose transforms take down what they do."""
    if isinstance(stage, pipeline.Fixpoint):
        return replace(stage, transforms=tuple(noted(part, steps) for part in stage.transforms))

    def run(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
        found = stage.run(rel, ctx)
        steps.append((stage, rel, found))
        return found

    return replace(stage, run=run)


@given(st.integers(0, 10**9))
@settings(max_examples=8, deadline=None)
def test_a_transform_finds_in_a_run_what_it_finds_alone(evaluator: Evaluator, seed: int) -> None:
    steps: list[Step] = []
    ctx = OptimizerContext(evaluator)
    stages = [noted(stage, steps) for stage in (*pipeline.LOGICAL, *pipeline.PHYSICAL)]
    pipeline.run(stages, PlanGenerator(seed).plan(), ctx)
    # Outside of a run nothing is known of other plans, nor of what other transforms found.
    for stage, rel, found in steps:
        assert stage.run(rel, ctx) == found, stage.name


@given(st.integers(0, 10**9))
@settings(max_examples=8, deadline=None)
def test_a_plan_that_a_transform_has_seen_in_a_run_is_not_given_to_it_again(
    evaluator: Evaluator, seed: int
) -> None:
    """Of a query that reads no view, the dataflow's optimizer begins with the plan that the query's has ended with."""
    steps: list[Step] = []
    ctx = OptimizerContext(evaluator)
    rel = PlanGenerator(seed).plan()
    with pytest.MonkeyPatch.context() as patch, remembering():
        for stages in ("_SETTLING", "LOGICAL", "PHYSICAL"):
            noting = tuple(noted(stage, steps) for stage in getattr(pipeline, stages))
            patch.setattr(pipeline, stages, noting)
        pipeline.optimize(pipeline.optimize_query(rel, ctx.without_indexes), ctx)
        seen = [(stage.name, id(plan)) for stage, plan, _ in steps if not stage.by_indexes]
    assert len(seen) == len(set(seen))


def test_what_depends_on_indexes_is_made_for_each_context_of_a_run(evaluator: Evaluator) -> None:
    key = (Column(0),)
    index = IndexDesc("u9", "u1", key)
    without = OptimizerContext(evaluator)
    having = replace(without, indexes=lambda gid: (index,) if gid == "u1" else ())
    with remembering():
        plain, looking, again = (
            pipeline.optimize(over(U1, 1), ctx) for ctx in (without, having, without)
        )
    assert looking != plain == again
    assert any(
        isinstance(node, mir.Join) and isinstance(node.implementation, mir.IndexedFilter)
        for node in mir.walk(looking)
    )


def over(rel: mir.Relation, value: int) -> mir.Relation:
    equal = Call("eq_integer", (Column(0), Literal(value, INTEGER)), BOOLEAN)
    return mir.Filter(rel, (equal,))


def test_equal_parts_are_one_object_and_others_are_not() -> None:
    with remembering():
        one = shared(mir.Union((over(U1, 1), over(U1, 1), over(U1, 2))))
        assert isinstance(one, mir.Union)
        assert one.inputs[0] is one.inputs[1]
        assert one.inputs[0] is not one.inputs[2]
        assert shared(over(U1, 2)) is one.inputs[2]
        assert shared(one) is one
    assert one == mir.Union((over(U1, 1), over(U1, 1), over(U1, 2)))


def test_parts_know_what_they_read_and_which_nodes_are_in_them() -> None:
    bound = mir.Let(0, over(U1, 1), mir.Union((LOCAL, mir.Get(1, U1.typ))))
    recursion = mir.LetRec((2,), (mir.Union((mir.Get(2, U1.typ), LOCAL)),), (None,), U1)
    with remembering():
        known = parts()
        assert part_of(bound, known).reads == {1}
        assert part_of(bound.body, known).reads == {0, 1}
        assert part_of(recursion, known).reads == {0}
        kinds = part_of(bound, known).kinds
        assert kinds & kinds_of(mir.Union)
        assert kinds & kinds_of(mir.Filter)
        assert not kinds & kinds_of(mir.Join, mir.Reduce, mir.LetRec)


def test_a_part_is_known_again_only_where_its_bindings_stand_for_the_same() -> None:
    with remembering():
        first, same, other, third = Scope(), Scope(), Scope(), Scope()
        reader = over(LOCAL, 3)
        chain = mir.Get(1, U1.typ)
        first.bind(0, U1)
        same.bind(0, U1)
        other.bind(0, U2)
        assert first.key(reader) == same.key(reader) != other.key(reader)
        assert first.key(U2) == other.key(U2)
        # What a binding stands for is more than its value: also what that reads.
        for scope in (first, same, other):
            scope.bind(1, reader)
        assert first.key(chain) == same.key(chain) != other.key(chain)
        first.unbind(0)
        assert first.key(reader) == third.key(reader) != same.key(reader)
