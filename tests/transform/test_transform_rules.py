"""What single rules of the optimizer promise, on plans written by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from mzsql.expr import relation as mir
from mzsql.expr.canonical import by_cost, ordered
from mzsql.expr.dataflow import MaterializedViewExport, MirSource
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Call, Column, Literal, Scalar
from mzsql.frontend.depth import deep
from mzsql.lir import lower
from mzsql.repr.types import BOOLEAN, INTEGER
from mzsql.testing.interpreter import run_mir
from mzsql.testing.plans import TABLES, PlanGenerator, random_tables
from mzsql.transform import (
    IndexDesc,
    OptimizerContext,
    OptimizerFeatures,
    build_dataflow,
    optimize_dataflow,
    pipeline,
)
from mzsql.transform.literal_constraints import literal_constraints
from mzsql.transform.redundant_join import redundant_join
from mzsql.transform.scalars import may_error, simplify

U1, U2 = (mir.Get(gid, TABLES[gid]) for gid in ("u1", "u2"))
A, B, C = Column(0), Column(1), Column(2)
KEY_AB = IndexDesc("u7", "u1", (A, B))
KEY_A = IndexDesc("u8", "u1", (A,))


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator()
    yield evaluator
    evaluator.close()


def lit(value: int) -> Literal:
    return Literal(value, INTEGER)


def eq(left: Scalar, right: Scalar | int) -> Scalar:
    return Call("eq_integer", (left, lit(right) if isinstance(right, int) else right), BOOLEAN)


def both(*args: Scalar) -> Scalar:
    return Call("and", args, BOOLEAN)


def either(*args: Scalar) -> Scalar:
    return Call("or", args, BOOLEAN)


def lookups(plan: mir.Relation) -> list[mir.IndexedFilter]:
    return [
        node.implementation
        for node in mir.walk(plan)
        if isinstance(node, mir.Join) and isinstance(node.implementation, mir.IndexedFilter)
    ]


def context(evaluator: Evaluator, *indexes: IndexDesc, eager: bool = True) -> OptimizerContext:
    features = OptimizerFeatures(enable_eager_delta_joins=eager)
    return OptimizerContext(
        evaluator, lambda gid: tuple(i for i in indexes if i.on_id == gid), features
    )


@pytest.mark.parametrize(
    ("pred", "rows", "left"),
    [
        (both(eq(A, 1), eq(B, 2)), ((1, 2),), 0),
        (either(both(eq(A, 1), eq(B, 2)), both(eq(B, 4), eq(A, 3))), ((1, 2), (3, 4)), 0),
        (both(eq(A, 1), either(eq(B, 4), eq(B, 2))), ((1, 2), (1, 4)), 0),
        # The shorter key is all that every alternative says something of.
        (either(eq(A, 1), both(eq(A, 3), eq(B, 4))), ((1,), (3,)), 1),
        (both(either(eq(A, 1), eq(A, 2)), either(eq(A, 2), eq(A, 3))), ((2,),), 0),
    ],
)
def test_a_lookup_reads_the_keys_that_a_filter_leaves_possible(
    evaluator: Evaluator, pred: Scalar, rows: tuple[object, ...], left: int
) -> None:
    plan = mir.Filter(U1, (pred,))
    planned = literal_constraints(plan, context(evaluator, KEY_A, KEY_AB))
    (found,) = lookups(planned)
    assert found.rows == rows
    filters = [node for node in mir.walk(planned) if isinstance(node, mir.Filter)]
    assert len(filters) == left
    for seed in range(20):
        tables = random_tables(random.Random(seed))
        assert run_mir(planned, tables) == run_mir(plan, tables)


def test_contradicting_literals_need_no_lookup(evaluator: Evaluator) -> None:
    plan = mir.Filter(U1, (eq(A, 1), eq(A, 2)))
    planned = literal_constraints(plan, context(evaluator, KEY_A))
    assert any(isinstance(node, mir.Constant) and not node.rows for node in mir.walk(planned))


def test_the_youngest_of_equal_indexes_is_looked_up(evaluator: Evaluator) -> None:
    other = IndexDesc("u9", "u1", (A,))
    planned = literal_constraints(mir.Filter(U1, (eq(A, 1),)), context(evaluator, KEY_A, other))
    assert [found.index for found in lookups(planned)] == ["u9"]


def test_a_predicate_that_can_fail_waits_for_those_before_it() -> None:
    guard = Call("not_eq_integer", (Call("add_integer", (A, B), INTEGER), lit(0)), BOOLEAN)
    division = eq(Call("div_integer", (lit(1), A), INTEGER), 1)
    cheap = Call("lt_integer", (C, lit(9)), BOOLEAN)
    once = ordered([guard, division, cheap], by_cost, may_error)
    assert once == [cheap, guard, division]
    assert ordered(once, by_cost, may_error) == once


def test_conjunctions_and_disjunctions_are_absorbed_and_factored(evaluator: Evaluator) -> None:
    columns = TABLES["u1"].columns
    ctx = context(evaluator)
    assert simplify(either(eq(A, 1), both(eq(B, 2), eq(A, 1))), columns, ctx) == eq(A, 1)
    factored = either(both(eq(A, 1), eq(B, 2)), both(eq(B, 3), eq(A, 1)))
    assert simplify(factored, columns, ctx) == both(eq(A, 1), either(eq(B, 2), eq(B, 3)))
    # What can fail is not left out.
    failing = eq(Call("div_integer", (lit(1), B), INTEGER), 1)
    kept = simplify(either(eq(A, 1), both(eq(A, 1), failing)), columns, ctx)
    assert isinstance(kept, Call)
    assert kept.func == "or"


def test_the_distinct_values_of_an_expression_joined_back_are_redundant() -> None:
    total = Call("add_integer", (A, B), INTEGER)
    values = mir.Reduce(mir.Project(mir.Map(U1, (total,)), (2,)), (A,), ())
    plan = mir.Join((U1, values), ((total, C),))
    smaller = redundant_join(plan)
    assert not any(isinstance(node, mir.Join) for node in mir.walk(smaller))
    for seed in range(20):
        tables = random_tables(random.Random(seed))
        assert run_mir(smaller, tables) == run_mir(plan, tables)


def test_each_reader_says_what_it_reads_an_index_for(evaluator: Evaluator) -> None:
    join = mir.Join((U1, U2), ((A, C),))
    plan = mir.Union((mir.Project(join, (0,)), mir.Project(U1, (1,))))
    ctx = context(evaluator, KEY_A)
    df = build_dataflow(
        MaterializedViewExport("u99"), plan, lambda _: None, lambda g: MirSource(g, TABLES[g]), ctx
    )
    done = optimize_dataflow(df, ctx)
    read = [
        node.access.uses
        for node in mir.walk(done.objects[0].plan)
        if isinstance(node, mir.Get) and isinstance(node.access, mir.AccessIndex)
    ]
    assert sorted(read) == [(("u8", "*** full scan ***"),), (("u8", "differential join"),)]
    assert [i.usages for i in done.index_imports] == [("*** full scan ***", "differential join")]


def test_columns_that_a_lifted_projection_repeats_are_one_class(evaluator: Evaluator) -> None:
    indexes = (
        IndexDesc("u7", "u1", (B,)),
        IndexDesc("u8", "u1", (A,)),
        IndexDesc("u9", "u2", (C,)),
        IndexDesc("u10", "u2", (A,)),
    )
    ctx = context(evaluator, *indexes, eager=False)
    for seed in (1324, *range(60)):
        df = build_dataflow(
            MaterializedViewExport("u99"),
            PlanGenerator(seed).plan(),
            lambda _: None,
            lambda gid: MirSource(gid, TABLES[gid]),
            ctx,
        )
        done = optimize_dataflow(df, ctx)
        lower(done, ctx.features)
        for node in mir.walk(done.objects[0].plan):
            if isinstance(node, mir.Join):
                members = [expr for cls in node.equivalences for expr in cls]
                assert len(members) == len(set(members))


def test_a_plan_of_two_thousand_nodes_optimizes(evaluator: Evaluator) -> None:
    parts: list[mir.Relation] = []
    size = seed = 0
    while size < 2000:
        plan = PlanGenerator(seed).plan(3)
        seed += 1
        if mir.arity(plan):
            parts.append(mir.Project(plan, (0, mir.arity(plan) - 1)))
            size += sum(1 for _ in mir.walk(parts[-1]))
    with deep():
        done = pipeline.optimize(mir.Union(tuple(parts)), context(evaluator))
    assert sum(1 for _ in mir.walk(done)) < size
