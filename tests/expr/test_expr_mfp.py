"""MFPs mean what their steps mean one after another, however they are composed, optimized or extracted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.expr import relation as mir
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.mfp import MapFilterProject, compose, extract_mfp, to_relation
from mzsql.expr.scalar import Call, Column, If, Literal, Scalar
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BOOLEAN, INTEGER, ColumnType, RelationType

EVALUATOR = Evaluator()
_ROWS: list[tuple[Row, int]] = [
    ((a, b, c), d)
    for d, (a, b, c) in enumerate(
        [(0, 1, 2), (None, 1, 1), (2147483647, 1, 0), (-7, 3, None)], start=1
    )
]  # fmt: skip
_TYPES = [ColumnType(INTEGER)] * 3


def numbers(arity: int) -> st.SearchStrategy[Scalar]:
    """Integer expressions; additions and divisions may fail."""
    leaves = st.integers(0, arity - 1).map(Column) | st.sampled_from(
        [Literal(v, INTEGER) for v in (0, 1, -3, None)]
    )

    def grow(inner: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            st.tuples(
                st.sampled_from(["add_integer", "div_integer", "coalesce", "greatest"]), pair
            ).map(lambda made: Call(made[0], made[1], INTEGER)),
            st.tuples(_comparison(inner), inner, inner).map(lambda made: If(*made)),
        )

    return st.recursive(leaves, grow, max_leaves=4)


def _comparison(inner: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
    ops = st.sampled_from(["lt_integer", "eq_integer", "gte_integer"])
    return st.tuples(ops, st.tuples(inner, inner)).map(lambda made: Call(made[0], made[1], BOOLEAN))


def predicates(arity: int) -> st.SearchStrategy[Scalar]:
    simple = _comparison(numbers(arity)) | numbers(arity).map(
        lambda e: Call("is_null", (e,), BOOLEAN)
    )
    return st.tuples(st.sampled_from(["and", "or"]), st.lists(simple, min_size=1, max_size=2)).map(
        lambda made: Call(made[0], tuple(made[1]), BOOLEAN)
    )


@st.composite
def mfps(draw: st.DrawFn, arity: int) -> MapFilterProject:
    mfp = MapFilterProject.identity(arity)
    for kind in draw(st.lists(st.sampled_from(["map", "filter", "project"]), max_size=3)):
        width = mfp.output_arity
        if kind == "map":
            mfp = mfp.map([draw(numbers(width))])
        elif kind == "filter":
            mfp = mfp.filter([draw(predicates(width))])
        else:
            mfp = mfp.project(draw(st.lists(st.integers(0, width - 1), min_size=1, max_size=4)))
    return mfp


def run(mfp: MapFilterProject, rows: list[tuple[Row, int]]) -> list[tuple[Row, int]] | EvalError:
    return EVALUATOR.evaluate_mfp(mfp, rows, [ColumnType(INTEGER)] * mfp.input_arity)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_composition_is_one_after_the_other(data: st.DataObject) -> None:
    first = data.draw(mfps(3))
    then = data.draw(mfps(first.output_arity))
    whole = compose(first, then)
    for row in _ROWS:
        between = run(first, [row])
        after = between if isinstance(between, EvalError) else run(then, between)
        together = run(whole, [row])
        # A row that a later filter would have dropped may fail earlier; only rows that come through are the same either way.
        if isinstance(after, EvalError) or isinstance(together, EvalError):
            assert isinstance(after, EvalError) or isinstance(together, EvalError)
        else:
            assert together == after


@settings(max_examples=30, deadline=None)
@given(mfps(3))
def test_optimizing_changes_no_row_and_adds_no_failure(mfp: MapFilterProject) -> None:
    small = mfp.optimize()
    assert small.optimize() == small
    for row in _ROWS:
        before, after = run(mfp, [row]), run(small, [row])
        if not isinstance(before, EvalError):
            assert after == before


@settings(max_examples=15, deadline=None)
@given(mfps(3))
def test_an_mfp_survives_its_way_through_nodes(mfp: MapFilterProject) -> None:
    source = mir.Get(GlobalId("u1"), RelationType(tuple(_TYPES)))
    again, below = extract_mfp(to_relation(mfp, source))
    assert below == source
    for row in _ROWS:
        assert run(again, [row]) == run(mfp, [row])


def test_a_predicate_that_can_fail_is_not_asked_before_one_that_drops_its_row() -> None:
    less = Call("add_integer", (Literal(-3, INTEGER), Column(0)), INTEGER)
    never = Call("lt_integer", (less, less), BOOLEAN)
    doubled = Call("add_integer", (Column(0), Column(0)), INTEGER)
    fails = Call("lt_integer", (Column(0), doubled), BOOLEAN)
    mfp = MapFilterProject.identity(3).filter([never]).filter([fails])
    row = ((2147483647, 0, 0), 1)
    assert run(mfp, [row]) == []
    assert run(mfp.optimize(), [row]) == []


def test_what_another_operand_forgives_is_not_shared_out_of_its_place() -> None:
    quotient = Call("div_integer", (Column(0), Column(0)), INTEGER)
    fails = Call("lt_integer", (Column(0), quotient), BOOLEAN)
    nulls = [
        Call(
            "is_null", (Call("add_integer", (Column(c), Literal(None, INTEGER)), INTEGER),), BOOLEAN
        )
        for c in (0, 1)
    ]
    mfp = MapFilterProject.identity(3)
    mfp = mfp.filter([Call("or", (fails, null), BOOLEAN) for null in nulls])
    row = ((0, 0, 0), 1)
    assert run(mfp, [row]) == [row]
    assert run(mfp.optimize(), [row]) == [row]


def test_a_predicate_with_parts_to_share_still_spares_rows_from_what_stands_behind_it() -> None:
    less = Call("lt_integer", (Column(0), Column(0)), BOOLEAN)
    never = Call("and", (less, less), BOOLEAN)
    doubled = Call("add_integer", (Column(0), Column(0)), INTEGER)
    mfp = MapFilterProject.identity(3).filter([never]).map([Column(0), doubled])
    row = ((2147483647, 0, 0), 1)
    assert run(mfp, [row]) == []
    assert run(mfp.optimize(), [row]) == []
