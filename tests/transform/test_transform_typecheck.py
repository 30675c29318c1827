"""Plans stay well formed between every two transforms, and what is not is told apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans_kit import TABLES, PlanGenerator
from typecheck_kit import IllTyped, typecheck

import mzsql
from mzsql.expr import relation as mir
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Call, Column, Literal
from mzsql.expr.typing import relation_type
from mzsql.repr.types import BOOLEAN, INTEGER, TEXT, ColumnType, RelationType
from mzsql.transform import IndexDesc, OptimizerContext, pipeline
from mzsql.transform.attributes import Derivation

Seed = st.integers(0, 10**9)
U1, U2 = (mir.Get(gid, TABLES[gid]) for gid in ("u1", "u2"))
ONE = RelationType((ColumnType(INTEGER),))
CORPUS = Path(__file__).with_name("plans.txt")


def checked(plan: mir.Relation, evaluator: Evaluator) -> list[str]:
    """Optimize with a look between every two transforms; the names of those that did something."""
    expected = relation_type(plan)
    names: list[str] = []

    def check(name: str, rel: mir.Relation) -> None:
        names.append(name)
        typecheck(rel, expected)

    indexes = (IndexDesc("u7", "u1", (Column(0),)), IndexDesc("u8", "u2", (Column(2),)))
    ctx = OptimizerContext(
        evaluator, lambda gid: tuple(i for i in indexes if i.on_id == gid), check=check
    )
    typecheck(pipeline.optimize(plan, ctx), expected)
    return names


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator()
    yield evaluator
    evaluator.close()


@given(Seed)
@settings(max_examples=60, deadline=None)
def test_random_plans_stay_well_formed(evaluator: Evaluator, seed: int) -> None:
    checked(PlanGenerator(seed).plan(), evaluator)


@given(Seed)
@settings(max_examples=40, deadline=None)
def test_recursions_stay_well_formed(evaluator: Evaluator, seed: int) -> None:
    checked(PlanGenerator(seed).recursive_plan(), evaluator)


def test_every_transform_that_ran_was_looked_at(evaluator: Evaluator) -> None:
    seen = {name for seed in range(40) for name in checked(PlanGenerator(seed).plan(), evaluator)}
    assert {"fusion", "predicate_pushdown", "projection_pushdown", "join_implementation"} <= seen


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (mir.Project(U1, (2,)), "Project reads column #2 where there are 2"),
        (mir.Filter(U1, (Column(0),)), "a predicate is of type integer"),
        (mir.Map(U1, (Column(2),)), "Map reads column #2"),
        (mir.Get(0, ONE), "l0 is not bound where it is read"),
        (mir.Union((U1, U2)), "a branch of a union has columns"),
        (mir.Let(0, U1, mir.Let(0, U2, mir.Get(0, TABLES["u2"]))), "l0 is bound twice"),
        (mir.Let(0, U1, mir.Get(0, ONE)), "l0 has columns of"),
        (
            mir.Join((U1, mir.Map(U1, (Literal("a", TEXT),))), ((Column(0), Column(4)),)),
            "an equivalence is of integer and text",
        ),
        (mir.TopK(U1, (), (), Column(7)), "TopK reads column #7"),
        (mir.LetRec((0,), (U1,), (), U1), "as many values and limits as bindings"),
    ],
)
def test_what_is_ill_formed_is_refused(plan: mir.Relation, why: str) -> None:
    with pytest.raises(IllTyped, match=re.escape(why)):
        typecheck(plan)


def test_attributes_of_a_plan_are_derived_in_one_place() -> None:
    less = Call("lt_integer", (Column(0), Literal(2, INTEGER)), BOOLEAN)
    part = mir.Union((U2, mir.Negate(mir.Filter(U2, (less,)))))
    let = mir.Let(0, part, mir.TopK(mir.Get(0, TABLES["u2"]), (), (), Literal(3, INTEGER)))
    derived = Derivation()
    derived.bind(let)
    known = derived.of(let.body)
    assert known.at_most == 3
    assert known.non_negative
    assert not known.monotonic
    assert derived.of(part).non_negative
    assert not derived.of(mir.Negate(U2)).non_negative
    assert derived.of(mir.Reduce(U2, (), ())).at_most == 1
    assert derived.of(U2).typ.keys == ((0,),)
    grows = Derivation(["u1"])
    assert grows.of(mir.Reduce(U1, (Column(0),), ())).monotonic
    rec = mir.LetRec(
        (0,), (mir.Union((U1, mir.Get(0, TABLES["u1"]))),), (None,), mir.Get(0, TABLES["u1"])
    )
    grows.bind(rec)
    assert grows.of(rec.body).monotonic


# --- plans of SQL -------------------------------------------------------------------------------


def entries(text: str) -> Iterator[tuple[str, str, str]]:
    """The corpus: setup statements, then ``-- what it shows``, a query, ``----`` and its plan."""
    setup, *rest = re.split(r"^-- (?=\S)", text, flags=re.MULTILINE)
    yield "", setup, ""
    for entry in rest:
        title, _, body = entry.partition("\n")
        query, _, plan = body.partition("\n----\n")
        yield title, query.strip(), plan.strip("\n")


SETUP, *ENTRIES = entries(CORPUS.read_text()) if CORPUS.exists() else [("", "", "")]


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    con = mzsql.connect(str(tmp_path_factory.mktemp("plans")))
    for statement in filter(None, map(str.strip, SETUP[1].split(";"))):
        con.execute(statement)

    def plan(query: str) -> str:
        ((text,),) = con.execute(f"EXPLAIN OPTIMIZED PLAN {query}").fetchall()
        return str(text)

    yield plan
    con.close()


@pytest.mark.parametrize(
    ("title", "query", "plan"), ENTRIES, ids=[title for title, _, _ in ENTRIES]
)
def test_sql_is_planned_as_before(
    plan_of: Callable[[str], str], title: str, query: str, plan: str
) -> None:
    assert title
    assert plan_of(query).strip("\n") == plan
