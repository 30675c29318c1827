"""Aggregates against plain Python: partial sums are additive, exact, and say when the result does not fit."""

from __future__ import annotations

import math
from decimal import Context, Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.expr import functions
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.functions.container.records import record_type
from mzsql.expr.scalar import AggregateExpr, Call, Column, Literal
from mzsql.repr.datum import Datum
from mzsql.repr.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TEXT, ColumnType, SqlType

EVALUATOR = Evaluator(exact_numerics=False)
WIDE = Context(prec=100)
CENTS = SqlType("numeric", scale=2)


def aggregate(
    key: str, typ: SqlType, rows: list[tuple[Datum, int]], *, distinct: bool = False
) -> Datum | EvalError:
    result = functions.aggregate(key).result_type([typ])
    expr = AggregateExpr(key, Column(0), distinct, result)
    found = EVALUATOR.aggregate_rows(
        [], [expr], [((value,), diff) for value, diff in rows], [ColumnType(typ)]
    )
    return found if isinstance(found, EvalError) else found[0][0]


cents = st.one_of(
    st.none(),
    st.decimals(-(10**35), 10**35, places=2).map(lambda d: f"{d:.2f}"),
    st.sampled_from(["99999999999999999999999999.99", "100000000000000000000000000.00", "-100000000000000000000000000.01", "0.01"]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cents, st.integers(1, 5)), min_size=1, max_size=8))
def test_sums_of_numerics_are_exact_or_overflow(rows: list[tuple[str | None, int]]) -> None:
    values = [(Decimal(value), diff) for value, diff in rows if value is not None]
    total = Decimal(0)
    for value, diff in values:
        total = WIDE.add(total, WIDE.multiply(value, Decimal(diff)))
    found = aggregate("sum_numeric", CENTS, list(rows))
    if not values:
        assert found is None
    elif abs(total) >= Decimal(10) ** 36:
        assert found == EvalError("numeric field overflow")
    else:
        assert Decimal(str(found)) == total


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | st.integers(-(2**31), 2**31 - 1), st.integers(1, 3)),
        min_size=1,
        max_size=8,
    )
)
def test_sums_and_counts_of_integers(rows: list[tuple[int | None, int]]) -> None:
    values = [(value, diff) for value, diff in rows if value is not None]
    total = sum(value * diff for value, diff in values) if values else None
    assert aggregate("sum_integer", INTEGER, list(rows)) == total
    assert aggregate("count", INTEGER, list(rows)) == sum(diff for _, diff in values)
    assert aggregate("max_integer", INTEGER, list(rows)) == max(
        (v for v, _ in values), default=None
    )
    distinct = {value for value, _ in values}
    assert aggregate("sum_integer", INTEGER, list(rows), distinct=True) == (
        sum(distinct) if distinct else None
    )


def test_a_sum_beyond_bigint_says_so() -> None:
    rows: list[tuple[Datum, int]] = [(2**31 - 1, 2**33)]
    assert aggregate("sum_integer", INTEGER, rows) == EvalError(
        '"18446744065119617024" bigint out of range'
    )
    assert aggregate("sum_bigint", BIGINT, [(2**63 - 1, 2)]) == "18446744073709551614"


def test_sums_of_floats_do_not_depend_on_the_order_of_rows() -> None:
    rows: list[tuple[Datum, int]] = [(1e100, 1), (1.0, 3), (-1e100, 1), (0.1, 10), (None, 2)]
    found = {aggregate("sum_double", DOUBLE, rows), aggregate("sum_double", DOUBLE, rows[::-1])}
    assert len(found) == 1
    assert math.isnan(float(str(aggregate("sum_double", DOUBLE, [(math.inf, 1), (-math.inf, 1)]))))
    assert aggregate("sum_double", DOUBLE, [(None, 1)]) is None


def test_logic_of_three_values() -> None:
    def rows(*values: bool | None) -> list[tuple[Datum, int]]:
        return [(value, 1) for value in values]

    assert aggregate("any", BOOLEAN, rows(False, None)) is None
    assert aggregate("any", BOOLEAN, rows(True, None)) is True
    assert aggregate("all", BOOLEAN, rows(True, None)) is None
    assert aggregate("all", BOOLEAN, rows(False, None)) is False
    assert aggregate("bool_and", BOOLEAN, rows(True, None)) is True
    assert aggregate("bool_or", BOOLEAN, rows(None)) is None


def test_ordered_aggregates_follow_their_order() -> None:
    pair = record_type([TEXT, TEXT])
    whole = record_type([pair, INTEGER])
    inner = Call("row", (Column(0), Literal("-", TEXT)), pair)
    expr = Call("row", (inner, Column(1)), whole)
    rows = [(("b", 2), 1), (("a", 1), 2), ((None, 3), 1), (("c", None), 1)]
    columns = [ColumnType(TEXT), ColumnType(INTEGER)]
    for order, joined in ((((True, False),), "c-b-a-a"), (((False, True),), "a-a-b-c")):
        agg = AggregateExpr(functions.ordered_key("string_agg", order), expr, False, TEXT)
        assert EVALUATOR.aggregate_rows([], [agg], rows, columns) == [(joined,)]
    listed = Call(
        "row",
        (Call("row", (Column(0),), record_type([TEXT])), Column(1)),
        record_type([record_type([TEXT]), INTEGER]),
    )
    texts = SqlType("array", element=TEXT)
    agg = AggregateExpr(functions.ordered_key("array_agg", ((True, True),)), listed, False, texts)
    assert EVALUATOR.aggregate_rows([], [agg], rows, columns) == [('[null, "b", "a", "a", "c"]',)]
