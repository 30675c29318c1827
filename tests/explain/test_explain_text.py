"""EXPLAIN as text: plans in, letters out."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import msgspec
import pytest

from mzsql.explain import (
    ExplainConfig,
    Frame,
    Notice,
    explain_fast_path,
    explain_lir,
    explain_mir,
    explain_relation,
    lir_json,
)
from mzsql.explain.scalars import ScalarPrinter, columns
from mzsql.expr import relation as mir
from mzsql.expr.dataflow import MirDataflow, MirSource, PeekExport
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import AggregateExpr, Call, Column, ColumnOrder, If, Literal
from mzsql.lir import lower
from mzsql.repr.errors import SqlError
from mzsql.repr.types import BIGINT, BOOLEAN, DATE, INTEGER, TEXT, ColumnType, RelationType
from mzsql.transform import IndexDesc, OptimizerContext, build_dataflow, optimize_dataflow
from mzsql.transform.fast_path import peek_plan

NAMES = {"u1": "pets", "u2": "owners", "u3": "visits", "u4": "pets_owner_idx"}
TYPES = {
    "u1": RelationType((ColumnType(INTEGER), ColumnType(TEXT))),
    "u2": RelationType((ColumnType(INTEGER, False), ColumnType(TEXT)), ((0,),)),
    "u3": RelationType((ColumnType(INTEGER), ColumnType(DATE))),
}
PETS, OWNERS, VISITS = (mir.Get(gid, typ) for gid, typ in TYPES.items())


class Names:
    def name(self, gid: str) -> str:
        return f"materialize.public.{NAMES[gid]}" if gid in NAMES else gid

    def column_names(self, _gid: str) -> None:
        return None


@pytest.fixture(scope="module")
def ctx() -> Iterator[OptimizerContext]:
    evaluator = Evaluator()
    index = IndexDesc("u4", "u1", (Column(0),))
    yield OptimizerContext(evaluator, lambda gid: (index,) if gid == "u1" else ())
    evaluator.close()


def optimized(rel: mir.Relation, ctx: OptimizerContext) -> MirDataflow:
    df = build_dataflow(
        PeekExport("t1"), rel, lambda _: None, lambda gid: MirSource(gid, TYPES[gid]), ctx
    )
    return optimize_dataflow(df, ctx)


def physical(rel: mir.Relation, ctx: OptimizerContext, **options: bool) -> str:
    config = ExplainConfig.from_options(options)
    return explain_lir(lower(optimized(rel, ctx)), None, Names(), config)


def text(block: str) -> str:
    return dedent(block).lstrip("\n")


def equal(a: int, b: int) -> Call:
    return Call("eq_integer", (Column(a), Column(b)), BOOLEAN)


def test_a_join_through_an_index_with_ids(ctx: OptimizerContext) -> None:
    rel = mir.Project(mir.Filter(mir.Join((PETS, OWNERS), ()), (equal(0, 2),)), (1, 3))
    assert physical(rel, ctx, node_ids=True) == text(
        """
        Explained Query:
          Join::Linear // { node_id: 3 }
            linear_stage[0]
              closure
                project=(#2, #1)
              lookup={ relation=0, key=[#0] }
              stream={ key=[#0], thinning=(#1) }
            source={ relation=1, key=[#0] }
            Get::PassArrangements materialize.public.pets // { node_id: 0 }
              raw=false
              arrangements[0]={ key=[#0], permutation=id, thinning=(#1) }
              types=[integer?, text?]
            ArrangeBy // { node_id: 2 }
              raw=true
              arrangements[0]={ key=[#0], permutation=id, thinning=(#1) }
              types=[integer, text?]
              Get::PassArrangements materialize.public.owners // { node_id: 1 }
                raw=true

        Source materialize.public.owners

        Used Indexes:
          - materialize.public.pets_owner_idx (differential join)

        Target cluster: quickstart
        """
    )


def test_ids_are_shown_only_when_asked_for(ctx: OptimizerContext) -> None:
    plain = physical(OWNERS, ctx)
    assert "node_id" not in plain
    assert physical(OWNERS, ctx, **{"node identifiers": True}) == physical(
        OWNERS, ctx, node_ids=True
    )
    assert "Get::PassArrangements materialize.public.owners // { node_id: 0 }\n" in physical(
        OWNERS, ctx, node_ids=True
    )


def test_an_aggregate_and_what_is_pushed_into_its_source(ctx: OptimizerContext) -> None:
    after = Call("gt_date", (Column(1), Literal(9131, DATE)), BOOLEAN)
    count = AggregateExpr("count", Literal(True, BOOLEAN), False, BIGINT, False)
    rel = mir.Reduce(mir.Filter(VISITS, (after,)), (Column(0),), (count,))
    assert physical(rel, ctx) == text(
        """
        Explained Query:
          Reduce::Accumulable
            simple_aggrs[0]=(0, 0, count(*))
            val_plan
              project=(#1)
              map=(true)
            key_plan=id
            Get::Collection materialize.public.visits
              raw=true

        Source materialize.public.visits
          project=(#0)
          filter=((#1 > 1995-01-01))

        Target cluster: quickstart
        """
    )


def test_redacted_hides_every_literal(ctx: OptimizerContext) -> None:
    after = Call("gt_date", (Column(1), Literal(9131, DATE)), BOOLEAN)
    shown = physical(mir.Filter(VISITS, (after,)), ctx, redacted=True)
    assert "filter=((#1 > █))" in shown
    assert "1995" not in shown


def test_a_lookup_is_a_fast_path(ctx: OptimizerContext) -> None:
    five = Call("eq_integer", (Column(0), Literal(5, INTEGER)), BOOLEAN)
    plan = peek_plan(optimized(mir.Filter(PETS, (five,)), ctx), None, ctx.features)
    assert plan is not None
    assert explain_fast_path(plan, None, Names(), ExplainConfig()) == text(
        """
        Explained Query (fast path):
          Project (#0, #1)
            ReadIndex on=materialize.public.pets pets_owner_idx=[lookup value=(5)]

        Used Indexes:
          - materialize.public.pets_owner_idx (lookup)

        Target cluster: quickstart
        """
    )


def test_the_optimized_plan_with_annotations(ctx: OptimizerContext) -> None:
    rel = mir.Project(mir.Filter(mir.Join((PETS, OWNERS), ()), (equal(0, 2),)), (1, 3))
    config = ExplainConfig.from_options({"arity": True, "join implementations": True})
    notice = Notice("An index is never used.", "Drop it.")
    shown = explain_mir(optimized(rel, ctx), None, Names(), config, Frame(notices=(notice,)))
    assert shown == text(
        """
        Explained Query:
          Project (#1, #3) // { arity: 2 }
            Join on=(#0 = #2) type=differential // { arity: 4 }
              implementation
                %1:owners[#0]UK » %0:pets[#0]KA
              ArrangeBy keys=[[#0]] // { arity: 2 }
                ReadIndex on=pets pets_owner_idx=[differential join] // { arity: 2 }
              ArrangeBy keys=[[#0]] // { arity: 2 }
                ReadStorage materialize.public.owners // { arity: 2 }

        Source materialize.public.owners

        Used Indexes:
          - materialize.public.pets_owner_idx (differential join)

        Target cluster: quickstart

        Notices:
          - Notice: An index is never used.
            Hint: Drop it.
        """
    )


def test_bindings_print_last_first_and_the_finishing_on_top() -> None:
    inner = mir.Get(0, TYPES["u2"])
    rel = mir.Let(0, OWNERS, mir.Union((inner, mir.Negate(inner))))
    finishing = RowSetFinishing((ColumnOrder(1, True, False),), 3, 1, (1,))
    assert explain_relation(rel, finishing, Names(), ExplainConfig(), Frame(cluster=None)) == text(
        """
        Finish order_by=[#1 desc nulls_first] limit=3 offset=1 output=[#1]
          Return
            Union
              Get l0
              Negate
                Get l0
          With
            cte l0 =
              Get materialize.public.owners
        """
    )


def test_scalars() -> None:
    printer = ScalarPrinter()
    null_check = Call("is_null", (Column(0),), BOOLEAN)
    assert printer.scalar(Call("not", (null_check,), BOOLEAN)) == "(#0) IS NOT NULL"
    both = Call("and", (null_check, equal(0, 1)), BOOLEAN)
    assert printer.scalar(both) == "((#0) IS NULL AND (#0 = #1))"
    choice = If(null_check, Literal('say "hi"', TEXT), Literal(None, TEXT))
    assert printer.scalar(choice) == 'case when (#0) IS NULL then "say \\"hi\\"" else null end'
    distinct = AggregateExpr("sum_integer", Column(1), True, BIGINT)
    assert printer.aggregate(distinct) == "sum(distinct #1)"


@pytest.mark.parametrize(
    ("indexes", "shown"),
    [
        ([], ""),
        ([0, 1], "#0, #1"),
        ([0, 1, 2], "#0..=#2"),
        ([3, 4, 5, 7, 8, 0], "#3..=#5, #7, #8, #0"),
        ([2, 1, 0], "#2, #1, #0"),
    ],
)
def test_lists_of_columns(indexes: list[int], shown: str) -> None:
    assert columns(indexes) == shown


def test_an_mfp_prints_outermost_first() -> None:
    mfp = MapFilterProject.identity(2).map([Literal(1, INTEGER)]).filter([equal(0, 1)]).project([2])
    assert ScalarPrinter().mfp_lines(mfp) == ["project=(#2)", "filter=((#0 = #1))", "map=(1)"]


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(SqlError, match="explain plan option name") as caught:
        ExplainConfig.from_options({"nodeids": True})
    assert "node identifiers" in (caught.value.hint or "")


def test_json_carries_ids_without_being_asked(ctx: OptimizerContext) -> None:
    shown = lir_json(lower(optimized(mir.Negate(OWNERS), ctx)), Names())
    assert not shown.endswith("\n")
    (plan,) = msgspec.json.decode(shown)["plans"]
    assert plan["id"] == "Explained Query"
    assert plan["plan"]["lir_id"] == 1
    assert plan["plan"]["node"]["Negate"]["input"]["node"]["Get"]["id"] == {"Global": {"User": 2}}
