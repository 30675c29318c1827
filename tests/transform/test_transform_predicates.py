"""What predicates say about each other and about what is computed above them; CASE in terms of other operators."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from plan_interpreter_kit import Bag, run_mir

from mzsql.expr import relation as mir
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER, ColumnType, RelationType
from mzsql.transform import OptimizerContext, pipeline
from mzsql.transform.canonicalize_mfp import canonicalize_mfp
from mzsql.transform.conjunctions import reduce_across
from mzsql.transform.fold_constants import fold_constants
from mzsql.transform.scalars import FALSE, simplify

#: Two integers that can be NULL, one that cannot, two truths that cannot and one that can.
COLUMNS = (
    *(ColumnType(INTEGER, True), ColumnType(INTEGER, True), ColumnType(INTEGER, False)),
    *(ColumnType(BOOLEAN, False), ColumnType(BOOLEAN, False), ColumnType(BOOLEAN, True)),
)
A, B, C, X, Y, Z = map(Column, range(6))
T = mir.Get(GlobalId("u1"), RelationType(COLUMNS))


@pytest.fixture(scope="module")
def ctx() -> Iterator[OptimizerContext]:
    evaluator = Evaluator()
    yield OptimizerContext(evaluator)
    evaluator.close()


def op(func: str, *args: Scalar) -> Call:
    return Call(func, args, BOOLEAN)


def lit(value: int) -> Literal:
    return Literal(value, INTEGER)


def eq(left: Scalar, value: int) -> Call:
    return op("eq_integer", left, lit(value))


def plus(left: Scalar, value: int) -> Call:
    return Call("add_integer", (left, lit(value)), INTEGER)


NULL_A = op("is_null", A)
FAILING = op("eq_integer", lit(1), Call("div_integer", (lit(1), B), INTEGER))


def rows(seed: int) -> dict[GlobalId, Bag]:
    """Forty rows in which whatever is compared is true, false and NULL."""
    rng = random.Random(seed)

    def row() -> Row:
        numbers = [rng.choice([None, -1, 1, 2]), rng.choice([None, 1, 2]), rng.choice([-1, 1, 2])]
        truths = [rng.random() < 0.5, rng.random() < 0.5, rng.choice([None, True, False])]
        return (*numbers, *truths)

    return {GlobalId("u1"): Counter(row() for _ in range(40))}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # What is never NULL is TRUE in the others, what it negates FALSE.
        ((X, op("or", Y, op("not", X))), (X, Y)),
        ((op("not", X), op("or", X, Y)), (op("not", X), Y)),
        (
            (eq(C, 1), op("or", eq(A, 1), op("and", eq(C, 1), eq(B, 2)))),
            (eq(C, 1), op("or", eq(A, 1), eq(B, 2))),
        ),
        ((X, op("not", X)), (X, FALSE)),
        # What is NULL itself where a column is says that the column is not.
        ((eq(A, 1), op("or", eq(B, 2), NULL_A)), (eq(A, 1), eq(B, 2))),
        ((eq(A, 1), NULL_A), (eq(A, 1), FALSE)),
        ((op("not", NULL_A), op("or", eq(B, 2), NULL_A)), (op("not", NULL_A), eq(B, 2))),
        # What may be NULL is not TRUE wherever it stands: NOT of it is NULL, too.
        ((Z, op("is_null", op("not", Z))), (Z, FALSE)),
        # An AND that is left is taken apart.
        ((X, op("and", op("or", op("not", X), eq(A, 1)), Y)), (X, eq(A, 1), Y)),
    ],
)
def test_predicates_say_what_others_are(
    before: tuple[Scalar, ...], after: tuple[Scalar, ...], ctx: OptimizerContext
) -> None:
    given = [simplify(pred, COLUMNS, ctx) for pred in before]
    found = reduce_across(given, COLUMNS, ctx)
    assert set(found) == {simplify(pred, COLUMNS, ctx) for pred in after}
    assert reduce_across(found, COLUMNS, ctx) == found
    for seed in range(5):
        kept = run_mir(mir.Filter(T, before), rows(seed))
        assert run_mir(mir.Filter(T, tuple(found)), rows(seed)) == kept


def test_what_can_fail_is_rewritten_only_behind_what_drops_the_row(ctx: OptimizerContext) -> None:
    guarded = op("or", FAILING, op("not", X))
    assert reduce_across([guarded, X], COLUMNS, ctx) == [guarded, X]
    assert reduce_across([X, guarded], COLUMNS, ctx) == [X, FAILING]
    # A predicate that can fail says nothing: it may have failed.
    about_b = op("or", eq(A, 1), op("is_null", B))
    assert reduce_across([FAILING, about_b], COLUMNS, ctx) == [FAILING, about_b]


@pytest.mark.parametrize("then", [True, False, None])
@pytest.mark.parametrize("otherwise", [True, False, None])
@pytest.mark.parametrize("condition", [Z, eq(A, 1), X])
def test_a_case_between_truths_needs_no_case(
    then: bool | None, otherwise: bool | None, condition: Scalar, ctx: OptimizerContext
) -> None:
    case = If(condition, Literal(then, BOOLEAN), Literal(otherwise, BOOLEAN))
    simpler = simplify(case, COLUMNS, ctx)
    assert "If" not in repr(simpler)
    for seed in range(3):
        asked = run_mir(mir.Map(T, (case,)), rows(seed))
        assert run_mir(mir.Map(T, (simpler,)), rows(seed)) == asked


def test_a_case_between_calls_that_differ_in_one_argument_is_that_argument(
    ctx: OptimizerContext,
) -> None:
    case = If(X, plus(A, 1), plus(A, 2))
    assert simplify(case, COLUMNS, ctx) == Call("add_integer", (A, If(X, lit(1), lit(2))), INTEGER)
    case = If(X, op("not", Y), op("not", Z))
    assert simplify(case, COLUMNS, ctx) == op("not", If(X, Y, Z))
    # Both arguments differ, the functions do, or what is cast.
    for other in (plus(B, 2), Call("sub_integer", (A, lit(2)), INTEGER)):
        case = If(X, plus(A, 1), other)
        assert simplify(case, COLUMNS, ctx) == case
    wide = ColumnType(BIGINT, True)
    mixed = If(X, op("is_null", A), op("is_null", B))
    assert simplify(mixed, (ColumnType(INTEGER, True), wide, *COLUMNS[2:]), ctx) == mixed


def test_only_what_shares_a_part_is_factored(ctx: OptimizerContext) -> None:
    pairs = [(1, 2), (1, 3), (2, 2), (4, 5), (4, 6)]
    whole = op("or", *(op("and", eq(A, a), eq(B, b)) for a, b in pairs))
    found = simplify(whole, COLUMNS, ctx)
    assert set(found.args) == {
        op("and", eq(A, 1), op("or", eq(B, 2), eq(B, 3))),
        op("and", eq(A, 4), op("or", eq(B, 5), eq(B, 6))),
        op("and", eq(A, 2), eq(B, 2)),
    }
    assert simplify(found, COLUMNS, ctx) == found
    for seed in range(3):
        kept = run_mir(mir.Filter(T, (whole,)), rows(seed))
        assert run_mir(mir.Filter(T, (found,)), rows(seed)) == kept


def test_what_is_written_as_one_predicate_is_factored_as_one(ctx: OptimizerContext) -> None:
    whole = op("and", op("or", eq(A, 1), eq(B, 2)), op("or", eq(A, 1), eq(B, 1)))
    done = pipeline.optimize_logical(mir.Filter(T, (whole,)), ctx)
    factored = op("or", eq(A, 1), op("and", eq(B, 1), eq(B, 2)))
    assert done == mir.Filter(T, (factored,))


def test_a_column_that_is_an_error_stays_above_the_filter(ctx: OptimizerContext) -> None:
    error = LiteralError("too many", INTEGER)
    plan = mir.Map(mir.Project(mir.Filter(T, (eq(C, 1),)), (0,)), (error,))
    assert canonicalize_mfp(plan) == plan
    # Over several maps, too: what is below the error is one run, what is above it another one.
    high = mir.Filter(mir.Filter(mir.Map(plan, (plus(A, 1),)), (eq(A, 1),)), (eq(Column(2), 2),))
    done = canonicalize_mfp(high)
    assert canonicalize_mfp(done) == done
    assert fold_constants(done, ctx) == done


def test_what_can_fail_stays_behind_what_it_is_written_behind(ctx: OptimizerContext) -> None:
    guard = op("gt_integer", B, lit(0))
    later = op("lt_integer", A, lit(2))
    # By itself the division would be put first, whatever the order of the query.
    for written in (op("and", guard, FAILING), op("and", later, op("and", guard, FAILING))):
        done = pipeline.optimize(mir.Filter(T, (written,)), ctx)
        assert isinstance(done, mir.Filter)
        assert done.predicates[-1] == FAILING
    # What comes out of an OR drops the row first, too.
    hidden = op("or", op("not", X), op("and", FAILING, guard))
    found = reduce_across([X, simplify(hidden, COLUMNS, ctx)], COLUMNS, ctx)
    assert found == [X, guard, FAILING]
