"""Values and errors of expressions: what fails, with which words, and what does not although a part of it would."""

from __future__ import annotations

import pytest

from mzsql.expr import functions
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar, scalar_type
from mzsql.repr import types as t
from mzsql.repr.datum import Datum
from mzsql.repr.types import ColumnType, SqlType

EVALUATOR = Evaluator(exact_numerics=False)


def call(key: str, *args: Scalar, typ: SqlType | None = None) -> Call:
    func = functions.scalar(key)
    return Call(key, args, typ or func.result_type([scalar_type(arg, ()) for arg in args]))


def number(value: int | None) -> Literal:
    return Literal(value, t.INTEGER)


def text(value: str) -> Literal:
    return Literal(value, t.TEXT)


def numeric(value: str) -> Literal:
    return Literal(value, SqlType("numeric", scale=len(value.partition(".")[2])))


def evaluate(expr: Scalar) -> Datum | EvalError:
    return EVALUATOR.evaluate([expr])[0]


FAILS = call("eq_integer", call("div_integer", number(1), number(0)), number(1))
TRUE, FALSE, NULL = (Literal(v, t.BOOLEAN) for v in (True, False, None))
BY_ZERO = EvalError("division by zero")


@pytest.mark.parametrize(
    ("expr", "answer"),
    [
        (call("and", FAILS, FALSE), False),
        (call("and", FALSE, FAILS), False),
        (call("and", TRUE, FAILS), BY_ZERO),
        (call("and", NULL, FAILS), BY_ZERO),
        (call("or", FAILS, TRUE), True),
        (call("or", FALSE, FAILS), BY_ZERO),
        (call("or", NULL, FAILS), BY_ZERO),
        (call("and", call("or", TRUE, FAILS), call("or", FAILS, FALSE)), BY_ZERO),
        (call("or", call("and", FALSE, FAILS), FALSE), False),
        (call("not", FAILS), BY_ZERO),
        (call("coalesce", number(1), call("div_integer", number(1), number(0))), 1),
        (call("coalesce", number(None), call("div_integer", number(1), number(0))), BY_ZERO),
        (If(TRUE, TRUE, FAILS), True),
        (If(FALSE, FAILS, NULL), None),
        (If(NULL, FAILS, TRUE), True),
        (If(FAILS, TRUE, TRUE), BY_ZERO),
        (If(FALSE, LiteralError("never", t.BOOLEAN), TRUE), True),
        (call("is_null", FAILS), BY_ZERO),
        (call("add_integer", number(None), call("div_integer", number(1), number(0))), BY_ZERO),
        (call("div_integer", number(None), number(0)), None),
        (LiteralError("on purpose", t.INTEGER), EvalError("on purpose")),
    ],
)  # fmt: skip
def test_only_what_is_evaluated_fails(expr: Scalar, answer: Datum | EvalError) -> None:
    assert evaluate(expr) == answer


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (call("add_integer", number(2147483647), number(1)), 'numeric field overflow: "2147483647 + 1" integer out of range'),
        (call("mul_bigint", Literal(2**62, t.BIGINT), Literal(2, t.BIGINT)),
         'numeric field overflow: "4611686018427387904 * 2" bigint out of range'),
        (call("neg_smallint", Literal(-32768, t.SMALLINT)), '"-32768" smallint out of range'),
        (call("bigint_to_integer", Literal(2**31, t.BIGINT)), '"2147483648" integer out of range'),
        (call("integer_to_uint2", number(65536)), '"65536" uint2 out of range'),
        (call("mod_numeric", numeric("4"), numeric("0.0")), "division by zero"),
        (call("div_double", Literal(1.0, t.DOUBLE), Literal(0.0, t.DOUBLE)), "division by zero"),
        (call("mul_double", Literal(1e200, t.DOUBLE), Literal(1e200, t.DOUBLE)), "value out of range: overflow"),
        (call("mul_double", Literal(1e-200, t.DOUBLE), Literal(1e-200, t.DOUBLE)), "value out of range: underflow"),
        (call("integer_to_numeric", number(12), typ=SqlType("numeric", scale=38)), "numeric field overflow"),
        (call("text_to_integer", text("abc")), 'invalid input syntax for type integer: invalid digit found in string: "abc"'),
        (call("text_to_integer", text("2147483648")),
         'invalid input syntax for type integer: number too large to fit in target type: "2147483648"'),
        (call("text_to_uint2", text("-44")), 'invalid input syntax for type uint2: invalid digit found in string: "-44"'),
        (call("text_to_numeric", text("1..1")), 'invalid input syntax for type numeric: "1..1"'),
        (call("text_to_boolean", text("blah")), 'invalid input syntax for type boolean: "blah"'),
        (call("text_to_date", text("2020-02-30")), 'invalid input syntax for type date: invalid or out-of-range date: "2020-02-30"'),
        (call("sqrt_double", Literal(-1.0, t.DOUBLE)), "cannot take square root of a negative number"),
        (call("ln_double", Literal(0.0, t.DOUBLE)), "function ln is not defined for zero"),
        (call("power_double", Literal(0.0, t.DOUBLE), Literal(-1.0, t.DOUBLE)), "zero raised to a negative power is undefined"),
        (call("substr_from_for", text("abc"), number(1), number(-1)), "negative substring length not allowed"),
        (call("split_part", text("abc"), text("b"), number(0)), "field position must be greater than zero"),
        (call("double_to_numeric", Literal(float("inf"), t.DOUBLE)),
         "function casting double precision to numeric is only defined for finite arguments"),
        (call("text_to_varchar_checked", text("abcd"), typ=SqlType("varchar", length=3)), "value too long for type character varying(3)"),
    ],
)  # fmt: skip
def test_errors_are_worded_as_materialize_and_postgresql_word_them(
    expr: Scalar, message: str
) -> None:
    assert evaluate(expr) == EvalError(message)


@pytest.mark.parametrize(
    ("expr", "answer"),
    [
        (call("like", text("PROMO BRASS"), text("PROMO%")), True),
        (call("like", text("100%"), text("100\\%")), True),
        (call("like", text("h\\i"), text("h\\\\i")), True),
        (call("ilike", text("ÄPFEL"), text("ä%")), True),
        (call("substr_from_for", text("13-245"), number(1), number(2)), "13"),
        (call("substr_from_for", text("hello"), number(0), number(3)), "he"),
        (call("left", text("héllo"), number(2)), "hé"),
        (call("round_numeric_to", numeric("123.4545"), number(2)), "123.45"),
        (call("round_numeric_to", numeric("515"), number(-1)), "520"),
        (call("trunc_numeric_to", numeric("-1.999"), number(1)), "-1.9"),
        (call("mul_numeric", numeric("1.123456789012345678"), numeric("2.123456789012345678")), "2.385611945790275871"),
        (call("div_numeric", numeric("-2"), numeric("3")), "-0.666666666666666667"),
        (call("add_date_interval", Literal(30, t.DATE), Literal("1 0 0", t.INTERVAL)), 58 * 86_400_000_000),
        (call("sub_date_interval", Literal(0, t.DATE), Literal("0 1 0", t.INTERVAL)), -86_400_000_000),
        (call("greatest", number(1), number(None), number(3)), 3),
        (call("text_to_interval", text("3 months ago")), "-3 0 0"),
        (call("text_to_interval", text("P1Y2M3DT4H5M6.5S")), "14 3 14706500000"),
    ],
)  # fmt: skip
def test_constants_take_their_own_way(expr: Scalar, answer: Datum) -> None:
    """Literal arguments are spelled shorter than columns: PROMO%, a place to round to, an interval."""
    assert evaluate(expr) == answer
    # The same over columns, where nothing is known beforehand.
    literals = [arg for arg in expr.args if isinstance(arg, Literal)]
    over_columns = Call(expr.func, tuple(Column(i) for i in range(len(literals))), expr.typ)
    row = tuple(arg.value for arg in literals)
    if expr.func != "text_to_interval":
        (found,) = EVALUATOR.evaluate_rows(
            [over_columns], [row], [ColumnType(a.typ) for a in literals]
        )
        assert found == (answer,)


@pytest.mark.parametrize(
    ("func", "args", "rows"),
    [
        ("generate_series_integer", [number(1), number(3)], [1, 2, 3]),
        ("generate_series_integer", [number(3), number(1)], []),
        ("generate_series_integer", [number(None), number(1)], []),
        ("generate_series_integer_step", [number(5), number(-5), number(-4)], [5, 1, -3]),
        ("generate_series_integer_step", [number(2147483646), number(2147483647), number(2)], [2147483646]),
        ("generate_series_bigint", [Literal(2**63 - 2, t.BIGINT), Literal(2**63 - 1, t.BIGINT)], [2**63 - 2, 2**63 - 1]),
        ("generate_series_timestamp", [Literal(0, t.TIMESTAMP), Literal(2 * 3_600_000_000, t.TIMESTAMP),
          Literal("0 0 3600000000", t.INTERVAL)],
         [0, 3_600_000_000, 7_200_000_000]),
    ],
)  # fmt: skip
def test_series(func: str, args: list[Scalar], rows: list[Datum]) -> None:
    assert EVALUATOR.table_rows(func, args, (), ()) == [(value,) for value in rows]


def test_a_series_without_a_step_fails() -> None:
    args = [number(1), number(2), number(0)]
    assert EVALUATOR.table_rows("generate_series_integer_step", args, (), ()) == EvalError(
        "step size cannot equal zero"
    )


def test_every_cast_is_found_by_its_types_in_the_context_it_is_for() -> None:
    assert functions.find_cast(t.INTEGER, t.BIGINT, "implicit") == ("integer_to_bigint",)
    assert functions.find_cast(t.BIGINT, t.INTEGER, "implicit") is None
    assert functions.find_cast(t.BIGINT, t.INTEGER, "assignment") == ("bigint_to_integer",)
    assert functions.find_cast(t.TEXT, t.INTEGER, "assignment") is None
    assert functions.find_cast(t.TEXT, t.INTEGER, "explicit") == ("text_to_integer",)
    assert functions.find_cast(SqlType("varchar", length=3), t.TEXT, "implicit") == (
        "varchar_to_text",
    )
    assert functions.find_cast(t.TEXT, SqlType("varchar", length=3), "assignment") == (
        "text_to_varchar_checked",
    )
    assert functions.find_cast(t.TEXT, SqlType("varchar", length=3), "explicit") == (
        "text_to_varchar",
    )
    assert functions.find_cast(SqlType("numeric", scale=2), t.NUMERIC, "implicit") == ()
    assert functions.find_cast(
        SqlType("numeric", scale=2), SqlType("numeric", scale=4), "implicit"
    ) == ("numeric_to_numeric",)
    assert functions.find_cast(t.DATE, t.INTEGER, "explicit") is None
