"""Lowering: the physical plan, run by its own row layouts, yields what the MIR means; ids are numbered as EXPLAIN numbers them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_interpreter_kit import run_lir, run_mir
from random_plans_kit import TABLES, PlanGenerator, random_tables

from mzsql.expr import relation as mir
from mzsql.expr.dataflow import IndexExport, MaterializedViewExport, MirSource, PeekExport
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import AggregateExpr, Call, Column, Literal
from mzsql.lir import lower
from mzsql.lir import plan as lir
from mzsql.lir.forms import arrangement_form
from mzsql.lir.reductions import buckets
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER, ColumnType, RelationType
from mzsql.transform import (
    IndexDesc,
    OptimizerContext,
    OptimizerFeatures,
    build_dataflow,
    optimize_dataflow,
)

T, U, V = (mir.Get(gid, typ) for gid, typ in TABLES.items())


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator()
    yield evaluator
    evaluator.close()


INDEXES = {
    "u1": (IndexDesc("u7", "u1", (Column(1),)), IndexDesc("u8", "u1", (Column(0),))),
    "u2": (IndexDesc("u9", "u2", (Column(2),)), IndexDesc("u10", "u2", (Column(0),))),
}


def plan(
    rel: mir.Relation,
    evaluator: Evaluator | None = None,
    *,
    indexed: bool = False,
    peek: bool = True,
    features: OptimizerFeatures | None = None,
) -> lir.DataflowDescription:
    features = features or OptimizerFeatures()
    indexes = INDEXES if indexed else {}
    ctx = OptimizerContext(evaluator, lambda gid: indexes.get(gid, ()), features)
    export = PeekExport("t1") if peek else MaterializedViewExport("u99")
    df = build_dataflow(export, rel, lambda _: None, lambda gid: MirSource(gid, TABLES[gid]), ctx)
    return lower(optimize_dataflow(df, ctx), features)


TWO, NULL = Literal(2, INTEGER), Literal(None, INTEGER)
SUM = Call("add_integer", (Literal(1, INTEGER), Literal(1, INTEGER)), INTEGER)
PAIR = mir.Constant((((2, 1), 1),), RelationType((ColumnType(INTEGER), ColumnType(INTEGER))))


@pytest.mark.parametrize(
    "join",
    [
        mir.Join((T,), ((Column(0), TWO),)),
        mir.Join((T,), ((Column(0), Column(1), SUM),)),
        mir.Join((T,), ((Column(0), NULL),)),
        mir.Join((T,), ((TWO, SUM), (Column(0), Column(1)))),
        mir.Join((T,), ((TWO, Literal(3, INTEGER)),)),
        mir.Join((T, PAIR), ((Column(0), Column(2), SUM), (Column(1), Column(3)))),
        mir.Join((T, V), ((Column(0), Column(2), SUM),)),
    ],
)
def test_what_is_to_equal_a_constant_is_compared_with_it(
    evaluator: Evaluator, join: mir.Join
) -> None:
    """Of a class whose other members read no column, or none of another input, no lookup compares anything."""
    desc = plan(join, evaluator)
    one_input = unrewritten(desc, join) if len(join.inputs) == 1 else desc
    for seed in range(20):
        tables = random_tables(random.Random(seed))
        assert run_lir(desc, tables) == run_lir(one_input, tables) == run_mir(join, tables)


def unrewritten(desc: lir.DataflowDescription, join: mir.Join) -> lir.DataflowDescription:
    """The plan of a join that no rule has turned into a filter."""
    ctx = OptimizerContext(None, lambda _: ())
    source = lambda gid: MirSource(gid, TABLES[gid])  # noqa: E731
    df = build_dataflow(desc.export, join, lambda _: None, source, ctx)
    return lower(df)


@given(st.integers(0, 10**9), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=250, deadline=None)
def test_the_physical_plan_means_what_the_query_means(
    evaluator: Evaluator, seed: int, indexed: bool, peek: bool, eager: bool
) -> None:
    rel = PlanGenerator(seed).plan()
    features = OptimizerFeatures(enable_eager_delta_joins=eager)
    desc = plan(rel, evaluator, indexed=indexed, peek=peek, features=features)
    for round_ in range(2):
        tables = random_tables(random.Random(seed + round_))
        assert run_lir(desc, tables) == run_mir(rel, tables)
    check_ids(desc)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(desc), type=lir.DataflowDescription)
    assert again == desc


def check_ids(desc: lir.DataflowDescription) -> None:
    """From 0, each once, children before parents, the root last."""
    ids: list[int] = []
    for obj in desc.objects:
        for node in lir.walk(obj.plan):
            ids.append(node.lir_id)
            assert all(kid.lir_id < node.lir_id for kid in lir.children(node))
    assert sorted(ids) == list(range(len(ids)))
    assert desc.root.plan.lir_id == len(ids) - 1


def test_unarranging_is_numbered_after_all_inputs_of_a_union() -> None:
    total = mir.Reduce(T, (), (AggregateExpr("sum_integer", Column(1), False, BIGINT),))
    get = mir.Get(0, RelationType((ColumnType(BIGINT),)))
    default = mir.Map(
        mir.Union((mir.Negate(mir.Project(get, ())), mir.Constant((((), 1),), RelationType(())))),
        (Literal(None, BIGINT),),
    )
    rel = mir.Let(0, total, mir.Union((get, default)))
    root = plan(rel).root.plan
    assert isinstance(root, lir.Let)
    assert root.lir_id == 10
    union = root.body
    assert isinstance(union, lir.Union)
    assert (union.lir_id, [part.lir_id for part in union.inputs]) == (9, [8, 7])
    assert union.inputs[0].input.lir_id == 2  # type: ignore[union-attr]


def test_filters_and_projections_go_into_the_source() -> None:
    five = Call("eq_integer", (Column(1), Literal(5, INTEGER)), BOOLEAN)
    desc = plan(mir.Project(mir.Filter(U, (five,)), (2,)))
    (source,) = desc.source_imports
    assert source.mfp is not None
    assert source.mfp.projection == (2,)
    assert [pred for _, pred in source.mfp.predicates] == [five]
    root = desc.root.plan
    assert isinstance(root, lir.Get)
    assert root.columns == (TABLES["u2"].columns[2],)


def test_a_union_that_subtracts_consolidates() -> None:
    desc = plan(mir.Threshold(mir.Union((V, mir.Negate(mir.Project(T, (0,)))))))
    (union,) = [n for n in lir.walk(desc.root.plan) if isinstance(n, lir.Union)]
    assert union.consolidate_output


@pytest.mark.parametrize(("limit", "kind"), [(1, "MonotonicTop1"), (2, "MonotonicTopK")])
def test_a_single_time_makes_top_k_monotonic(limit: int, kind: str) -> None:
    rel = mir.TopK(T, (0,), (), Literal(limit, BIGINT), 0)
    node = plan(rel).root.plan
    assert isinstance(node, lir.TopK)
    assert (node.plan.kind, node.plan.must_consolidate) == (kind, True)
    lasting = plan(rel, peek=False).root.plan
    assert isinstance(lasting, lir.TopK)
    assert lasting.plan.kind == "Basic"


def test_kinds_of_aggregates_are_collated() -> None:
    aggregates = (
        AggregateExpr("count", Column(1), True, BIGINT, False),
        AggregateExpr("min_integer", Column(1), False, INTEGER),
        AggregateExpr("sum_integer", Column(1), False, BIGINT),
        AggregateExpr("max_integer", Column(1), False, INTEGER),
    )
    node = plan(mir.Reduce(T, (Column(0),), aggregates), peek=False).root.plan
    assert isinstance(node, lir.Reduce)
    collation = node.plan
    assert isinstance(collation, lir.ReduceCollation)
    assert collation.aggregate_types == ("a", "h", "a", "h")
    assert collation.hierarchical is not None
    assert collation.hierarchical.skips == (1, 1)
    assert collation.accumulable is not None
    assert [a.output_index for a in collation.accumulable.distinct] == [0]
    assert [(a.kind_index, a.output_index) for a in collation.accumulable.simple] == [(1, 2)]


def test_buckets_are_powers_of_sixteen_below_the_group_size() -> None:
    assert buckets(None) == (268435456, 16777216, 1048576, 65536, 4096, 256, 16)
    assert buckets(1000) == (256, 16)
    assert buckets(16) == ()


def test_the_form_of_an_arrangement() -> None:
    form = arrangement_form([Column(2)], 3)
    assert (form.permutation, form.thinning) == ((1, 2, 0), (0, 1))
    computed = arrangement_form([Call("add_integer", (Column(0), Column(1)), INTEGER)], 2)
    assert (computed.permutation, computed.thinning) == ((1, 2), (0, 1))


def test_an_index_on_a_view_builds_the_view_first() -> None:
    view = mir.Filter(T, (Call("is_null", (Column(0),), BOOLEAN),))
    ctx = OptimizerContext()
    export = IndexExport("u21", "u20", (Column(1),))
    df = build_dataflow(
        export,
        None,
        lambda gid: view if gid == "u20" else None,
        lambda gid: MirSource(gid, TABLES[gid]),
        ctx,
    )
    desc = lower(optimize_dataflow(df, ctx))
    assert [obj.id for obj in desc.objects] == ["u20", "u21"]
    index = desc.root.plan
    assert isinstance(index, lir.ArrangeBy)
    assert [form.key for form in index.forms.arranged] == [(Column(1),)]
    check_ids(desc)
