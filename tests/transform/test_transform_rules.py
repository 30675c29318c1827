"""What single rules of the optimizer promise, on plans written by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from plan_interpreter_kit import run_mir
from random_plans_kit import TABLES, PlanGenerator, random_tables

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import by_cost, ordered
from mzsql.expr.dataflow import MaterializedViewExport, MirSource
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Call, Column, Literal, Scalar
from mzsql.lir import lower
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER
from mzsql.transform import (
    IndexDesc,
    OptimizerContext,
    OptimizerFeatures,
    build_dataflow,
    optimize_dataflow,
    pipeline,
)
from mzsql.transform.cardinality import cardinality, shown
from mzsql.transform.coalesce_case import coalesce_case
from mzsql.transform.join_implementation import join_implementation
from mzsql.transform.literal_constraints import literal_constraints
from mzsql.transform.projection_pushdown import projection_pushdown
from mzsql.transform.reduce_reduction import reduce_reduction
from mzsql.transform.redundant_join import redundant_join
from mzsql.transform.scalars import may_error, simplify
from mzsql.transform.semijoin_idempotence import semijoin_idempotence

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


def test_a_coalesce_of_a_case_asks_for_no_more_than_before(evaluator: Evaluator) -> None:
    null = Literal(None, INTEGER)
    failing = Call("div_integer", (lit(1), A), INTEGER)
    forms = (
        sc.If(eq(A, 0), null, failing),
        sc.If(eq(B, 1), sc.If(eq(A, 0), lit(7), null), null),
        sc.If(eq(A, 0), lit(7), failing),
    )
    features = OptimizerFeatures(enable_coalesce_case_transform=True)
    ctx = OptimizerContext(evaluator, features=features)
    columns = TABLES["u1"].columns
    changed = 0
    for form in forms:
        before = Call("coalesce", (form, B, lit(9)), INTEGER)
        plan = coalesce_case(mir.Map(U1, (before,)), ctx)
        assert isinstance(plan, mir.Map)
        (after,) = plan.scalars
        changed += after != before
        for row in ((a, b) for a in (None, 0, 2) for b in (None, 1)):
            assert evaluator.evaluate([after], row, columns) == evaluator.evaluate(
                [before], row, columns
            )
        assert coalesce_case(plan, ctx) == plan
    assert changed == 2
    assert coalesce_case(mir.Map(U1, (before,)), context(evaluator)) == mir.Map(U1, (before,))


def test_aggregates_of_two_kinds_meet_in_the_groups_that_they_share(evaluator: Evaluator) -> None:
    aggregates = (
        sc.AggregateExpr("sum_integer", B, False, BIGINT),
        sc.AggregateExpr("max_integer", B, False, INTEGER),
        sc.AggregateExpr("count", A, False, BIGINT, nullable=False),
    )
    plan = mir.Reduce(U1, (A,), aggregates)
    ctx = OptimizerContext(evaluator, features=OptimizerFeatures(enable_reduce_reduction=True))
    split = reduce_reduction(plan, ctx)
    parts = [node for node in mir.walk(split) if isinstance(node, mir.Reduce)]
    assert [len(part.aggregates) for part in parts] == [2, 1]
    for seed in range(20):
        tables = random_tables(random.Random(seed))
        assert run_mir(split, tables) == run_mir(plan, tables)
    assert reduce_reduction(plan, context(evaluator)) is plan


def test_which_row_of_a_group_is_kept_matters_where_it_is_read_or_may_fail() -> None:
    def first(below: mir.Relation, by: int, limit: int = 1, offset: int = 0) -> mir.Relation:
        return mir.TopK(below, (0,), (sc.ColumnOrder(by, desc=True),), lit(limit), offset)

    def added(*scalars: Scalar) -> mir.Relation:
        return mir.Map(U1, scalars)

    failing, sound = Call("add_integer", (B, lit(1)), INTEGER), sc.If(eq(B, 1), A, B)
    wide = mir.arity(U1)
    joined = mir.Join((U1, U2), ((A, Column(wide)),))
    cases = (
        (first(U1, 1), (0,), True),
        (first(added(sound), wide), (0,), True),
        (first(joined, wide + 1), (0,), True),
        (first(mir.Union((U1, U1)), 1), (0,), True),
        (first(added(failing), wide), (0,), False),
        (first(added(failing, Column(wide)), wide + 1), (0,), False),
        (first(U1, 1), (0, 1), False),
        (first(U1, 1, limit=2), (0,), False),
        (first(U1, 1, offset=1), (0,), False),
    )
    for kept, columns, any_will_do in cases:
        plan = mir.Project(kept, columns)
        pushed = projection_pushdown(plan)
        assert any(isinstance(node, mir.TopK) for node in mir.walk(pushed)) != any_will_do
        for seed in range(20):
            tables = random_tables(random.Random(seed))
            assert run_mir(pushed, tables) == run_mir(plan, tables)


def test_what_a_semijoin_has_chosen_is_not_asked_again() -> None:
    chosen = mir.Join((U1, mir.Reduce(U2, (C,), ())), ((A, C),))
    again = mir.Reduce(mir.Filter(chosen, (eq(A, 2),)), (A,), ())
    for repeated, changes in ((mir.Reduce(chosen, (A,), ()), True), (again, False)):
        plan = mir.Join((mir.Filter(U1, (eq(B, 1),)), repeated), ((A, C),))
        simpler = semijoin_idempotence(plan)
        assert (simpler != plan) == changes
        for seed in range(30):
            tables = random_tables(random.Random(seed))
            assert run_mir(simpler, tables) == run_mir(plan, tables)


def test_a_small_relation_is_joined_first_where_rows_are_counted(evaluator: Evaluator) -> None:
    rows = {"u1": 1000, "u2": 5, "u3": 200}
    features = OptimizerFeatures(enable_cardinality_estimates=True, enable_eager_delta_joins=False)
    plan = mir.Join((U1, mir.Get(GlobalId("u3"), TABLES["u3"]), U2), ((A, Column(2), Column(4)),))
    found = []
    for counting in (rows.get, lambda _: None):
        ctx = OptimizerContext(evaluator, features=features, statistics=counting)
        (join,) = [n for n in mir.walk(join_implementation(plan, ctx)) if isinstance(n, mir.Join)]
        assert isinstance(join.implementation, mir.Differential)
        steps = [(step.input, step.characteristics) for step in join.implementation.order]
        found.append((join.implementation.start, steps))
    counted, uncounted = found
    assert counted == (2, [(1, "K|200|"), (0, "K|1000|")])
    assert uncounted == (0, [(1, "K"), (2, "K")])


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (U1, 100),
        (mir.Filter(U1, (eq(A, 1),)), 10),
        (mir.Filter(U1, (Call("lt_integer", (A, lit(1)), BOOLEAN),)), 33),
        (mir.Filter(U1, (either(eq(A, 1), eq(A, 2)),)), 19),
        (mir.Filter(U1, (Call("not", (Call("is_null", (A,), BOOLEAN),), BOOLEAN),)), 90),
        (mir.Join((U1, U1), ((A, C),)), 10000),
        # Each row of the first meets one of the second at most: its key is unique.
        (mir.Join((U1, U2), ((A, C),)), 100),
        (mir.Join((U2, U2), ((A, Column(3)),)), 20),
        (mir.Reduce(U1, (A,), ()), 100),
        (mir.Reduce(U1, (), ()), 1),
        (mir.Reduce(U1, (A,), (), expected_group_size=4), 25),
        (mir.TopK(U1, (), (), lit(7)), 7),
        (mir.Union((U1, mir.Negate(U2))), 120),
        (mir.Let(0, U2, mir.Union((mir.Get(0, TABLES["u2"]), mir.Get(0, TABLES["u2"])))), 40),
        (mir.Get(GlobalId("u3"), TABLES["u3"]), None),
        (mir.Join((U1, mir.Get(GlobalId("u3"), TABLES["u3"])), ()), None),
    ],
)
def test_rows_are_estimated_from_statistics_keys_and_filters(
    plan: mir.Relation, rows: int | None
) -> None:
    found = cardinality(plan, {"u1": 100, "u2": 20}.get, {}, {})
    assert found == (None if rows is None else pytest.approx(rows))
    assert shown(rows) == ("<UNKNOWN>" if rows is None else str(rows))


def test_an_estimate_beyond_all_numbers_is_shown() -> None:
    many = mir.Join(tuple(mir.Get("u1", TABLES["u1"]) for _ in range(60)), ())
    assert shown(cardinality(many, lambda _: 10**6, {}, {})) == "Infinity"
