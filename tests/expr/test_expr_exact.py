"""Numerics of constants: 39 digits, NaN, Materialize's errors; compared with fractions, which lose nothing."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.expr import functions
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.scalar import AggregateExpr, Call, Column, If, Literal, Scalar
from mzsql.repr import types as t
from mzsql.repr.datum import Datum
from mzsql.repr.types import ColumnType, SqlType

EVALUATOR = Evaluator()


def number(text: str) -> Literal:
    return Literal(text, t.NUMERIC)


def call(func: str, *args: Scalar, typ: SqlType | None = None) -> Call:
    if typ is None:
        typ = functions.scalar(func).result_type([getattr(a, "typ") for a in args])  # noqa: B009
    return Call(func, args, typ)


def value(expr: Scalar) -> Datum | EvalError:
    return EVALUATOR.evaluate([expr])[0]


def rounded(exact: Fraction) -> str | None:
    """39 digits, at most 39 behind the point, halves away from zero; None beyond them."""
    if exact == 0:
        return "0"
    size = abs(exact)
    power = 0
    while size >= Fraction(10) ** (power + 1):
        power += 1
    while size < Fraction(10) ** power:
        power -= 1

    def at(places: int, amount: Fraction) -> Fraction:
        unit = Fraction(10) ** -places
        return Fraction(int(amount / unit + Fraction(1, 2))) * unit

    kept = at(min(39, 38 - power), at(38 - power, size))
    if kept >= Fraction(10) ** 39 or power < -39:
        return None
    whole, rest = divmod(int(kept * 10**39), 10**39)
    text = f"{whole}.{rest:039d}".rstrip("0").rstrip(".")
    return text if exact > 0 else f"-{text}"


def decimals() -> st.SearchStrategy[str]:
    """Numbers of up to 39 digits, with the point anywhere in them."""
    digits = st.integers(-(10**39) + 1, 10**39 - 1)
    return st.builds(
        lambda n, places: f"{Decimal(n).scaleb(-places):f}", digits, st.integers(0, 39)
    )


@settings(max_examples=150, deadline=None)
@given(decimals(), decimals(), st.sampled_from(["add", "sub", "mul", "div"]))
def test_arithmetic_rounds_once_to_39_digits(a: str, b: str, op: str) -> None:
    x, y = Fraction(a), Fraction(b)
    found = value(call(f"{op}_numeric", number(a), number(b)))
    if op == "div" and y == 0:
        assert found == EvalError("division by zero")
        return
    exact = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y if y else x}[op]
    expected = rounded(exact)
    if expected is None:
        beyond = "overflow" if abs(exact) > 1 else "underflow"
        assert found == EvalError(f"value out of range: {beyond}")
    else:
        assert found == expected


@given(decimals(), st.integers(-45, 45))
@settings(max_examples=80, deadline=None)
def test_rounding_at_a_place(text: str, places: int) -> None:
    exact = Fraction(text)
    unit = Fraction(10) ** -places
    cut = Fraction(int(abs(exact) / unit)) * unit
    near = Fraction(int(abs(exact) / unit + Fraction(1, 2))) * unit
    sign = -1 if exact < 0 else 1
    place = Literal(places, t.INTEGER)
    assert value(call("trunc_numeric_to", number(text), place)) == rounded(sign * cut)
    expected = rounded(sign * near)
    found = value(call("round_numeric_to", number(text), place))
    assert found == (EvalError("value out of range: overflow") if expected is None else expected)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (call("sqrt_numeric", number("2")), "1.41421356237309504880168872420969807857"),
        (call("exp_numeric", number("1")), "2.71828182845904523536028747135266249776"),
        (call("ln_numeric", call("exp_numeric", number("2"))), "2"),
        (call("log10_numeric", number("1000")), "3"),
        (call("log_base_numeric", number("3"), number("243")), "5"),
        (call("power_numeric", number("2"), number("-3")), "0.125"),
        (call("power_numeric", number("0"), number("0")), "1"),
        (call("mod_numeric", number("-17.5"), number("4")), "-1.5"),
        (call("ceil_numeric", number("-0.5")), "0"),
        (call("round_numeric", number("-2.5")), "-3"),
        (call("sign_numeric", number("-7")), "-1"),
        (call("greatest", number("1"), number("NaN"), Literal(None, t.NUMERIC)), "NaN"),
        (call("least", number("1"), number("NaN")), "1"),
        (call("add_numeric", number("NaN"), number("1")), "NaN"),
        (call("eq_numeric", number("NaN"), number("NaN")), True),
        (call("gt_numeric", number("NaN"), number("9e38")), True),
        (call("eq_numeric", number("1.50"), number("1.5")), True),
        (call("text_to_numeric", Literal("  1.5e3 ", t.TEXT)), "1500"),
        (call("text_to_numeric", Literal("nan", t.TEXT)), "NaN"),
        (call("numeric_to_text", call("div_numeric", number("1"), number("8"))), "0.125"),
        (call("numeric_to_integer", number("2.5")), 3),
        (call("numeric_to_double", number("NaN")), pytest.approx(float("nan"), nan_ok=True)),
        (call("real_to_numeric", Literal(1.2300000190734863, t.REAL)), "1.23"),
        (call("integer_to_numeric", Literal(7, t.INTEGER), typ=SqlType("numeric", scale=3)), "7"),
        (call("add_numeric", Literal(None, t.NUMERIC), number("1")), None),
        (If(call("lt_numeric", number("1"), number("2")), number("3"), number("4")), "3"),
        (call("coalesce", Literal(None, t.NUMERIC), number("NaN")), "NaN"),
        (call("char_length", call("numeric_to_text", call("div_numeric", number("1"), number("3")))), 41),
    ],
)  # fmt: skip
def test_values(expr: Scalar, expected: object) -> None:
    assert value(expr) == expected


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (call("sqrt_numeric", number("-2")), "cannot take square root of a negative number"),
        (call("ln_numeric", number("0")), "function ln is not defined for zero"),
        (call("log_base_numeric", number("1"), number("2")), "division by zero"),
        (call("exp_numeric", number("50000")), "value out of range: overflow"),
        (call("exp_numeric", number("-50000")), "value out of range: underflow"),
        (call("power_numeric", number("0"), number("-1")), "zero raised to a negative power is undefined"),
        (call("power_numeric", number("-1"), number("0.5")), "function pow cannot return complex numbers"),
        (call("numeric_to_smallint", number("40000.4")), '"40000" smallint out of range'),
        (call("numeric_to_bigint", number("NaN")), '"NaN" bigint out of range'),
        (call("integer_to_numeric", Literal(12, t.INTEGER), typ=SqlType("numeric", scale=38)), "numeric field overflow"),
        (call("text_to_numeric", Literal("Infinity", t.TEXT)), 'invalid input syntax for type numeric: "Infinity"'),
        (call("text_to_numeric", Literal("1e39", t.TEXT)),
         '"1e39" is out of range for type numeric: exceeds maximum precision 39'),
        (call("double_to_numeric", Literal(float("inf"), t.DOUBLE)),
         "function casting double precision to numeric is only defined for finite arguments"),
        (call("and", call("eq_numeric", call("div_numeric", number("1"), number("0")), number("1")),
              Literal(True, t.BOOLEAN), typ=t.BOOLEAN), "division by zero"),
    ],
)  # fmt: skip
def test_errors(expr: Scalar, message: str) -> None:
    assert value(expr) == EvalError(message)


def test_a_deciding_argument_hides_errors() -> None:
    failing = call("eq_numeric", call("div_numeric", number("1"), number("0")), number("1"))
    both = Call("and", (failing, Literal(False, t.BOOLEAN)), t.BOOLEAN)
    assert value(both) is False


def aggregated(func: str, values: list[Datum]) -> object:
    expr = AggregateExpr(func, Column(0), False, t.NUMERIC)
    rows = [((v,), 1) for v in values]
    return EVALUATOR.aggregate_rows([], [expr], rows, [ColumnType(t.NUMERIC)])


@pytest.mark.parametrize(
    ("func", "values", "expected"),
    [
        ("sum_numeric", ["1", None, "0.000000000000000000000000000000000000001"], "1.00000000000000000000000000000000000000"),
        ("sum_numeric", ["-" + "9" * 39, "-" + "9" * 39], "-Infinity"),
        ("sum_numeric", ["1", "NaN"], "NaN"),
        ("max_numeric", ["1", "NaN", "2"], "NaN"),
        ("min_numeric", ["3", "NaN", "2"], "2"),
        ("max_numeric", [None], None),
        ("count", ["NaN", None], 1),
    ],
)  # fmt: skip
def test_aggregates(func: str, values: list[Datum], expected: Datum) -> None:
    if isinstance(expected, str) and "." in expected:
        expected = expected.rstrip("0").rstrip(".")
    assert aggregated(func, values) == [(expected,)]


def test_groups_do_not_depend_on_the_digits_written() -> None:
    counted = AggregateExpr("count", Column(0), False, t.BIGINT, False)
    rows = [(("0.1",), 1), (("0.10",), 2), (("NaN",), 1), (("NaN",), 1)]
    found = EVALUATOR.aggregate_rows([Column(0)], [counted], rows, [ColumnType(t.NUMERIC)])
    assert found == [("0.1", 3), ("NaN", 2)]


def test_what_no_engine_holds_is_an_error_where_one_is_asked() -> None:
    listed = call("list", number("NaN"), typ=SqlType("list", element=t.NUMERIC))
    assert value(listed) == '["NaN"]'
    asked = call("list_length", listed, typ=t.INTEGER)
    assert value(asked) == EvalError("NaN cannot be kept in a column of type numeric")


WINDOW = (
    "window_agg[sum_integer order_by=[#0 asc nulls_last] rows between 1 preceding and current row]"
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("row_number[order_by=[#0 asc nulls_last]]", [1, 2, 3, 4]),
        ("rank[order_by=[#0 asc nulls_last]]", [1, 2, 2, 4]),
        ("dense_rank[order_by=[#0 desc nulls_first]]", [1, 2, 2, 3]),
        ("lag[order_by=[#0 asc nulls_last]]", [-1, 10, 20, 21]),
        ("lead[ignore_nulls=true, order_by=[#0 asc nulls_last]]", [20, 21, -1, -1]),
        ("first_value[order_by=[#0 asc nulls_last] rows between 1 following and 2 following]", [20, 21, None, None]),
        ("last_value[order_by=[#0 asc nulls_last]]", [10, 21, 21, None]),
        (WINDOW, [10, 30, 41, 21]),
    ],
)  # fmt: skip
def test_windows_over_constants(key: str, expected: list[Datum]) -> None:
    """Rows (1, 10), (2, 20), (2, 21), (NaN, NULL), ordered by the first column."""
    order, number_ = (Column(0), t.NUMERIC), (Column(1), t.INTEGER)
    row = record(order, number_)
    kind = key.split("[", maxsplit=1)[0]
    if kind in ("row_number", "rank", "dense_rank"):
        listed = SqlType("list", element=row[1])
        payload: Part = (Call("window_payload", (row[0],), listed), listed)
    elif kind in ("lag", "lead"):
        one, default = Literal(1, t.INTEGER), Literal(-1, t.INTEGER)
        payload = record(row, record(number_, (one, t.INTEGER), (default, t.INTEGER)))
    else:
        payload = record(row, number_)
    argument, typ = record(payload, order)
    expr = AggregateExpr(key, argument, False, functions.aggregate(key).result_type([typ]), False)
    rows = [((n, v), 1) for n, v in [("2", 21), ("NaN", None), ("1", 10), ("2", 20)]]
    columns = [ColumnType(t.NUMERIC), ColumnType(t.INTEGER)]
    found = EVALUATOR.aggregate_rows([], [expr], rows, columns)
    assert isinstance(found, list)
    results = [json.loads(one)[0] for one in json.loads(str(found[0][0]))]
    assert results == expected


Part = tuple[Scalar, SqlType]


def record(*parts: Part) -> Part:
    typ = functions.scalar("row").result_type([typ for _, typ in parts])
    return Call("row", tuple(expr for expr, _ in parts), typ), typ
