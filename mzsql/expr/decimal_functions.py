"""Numeric functions in Python's decimal arithmetic.

Promise: Materialize's results for constants: 39 digits, NaN, its error messages. `FUNCTIONS` lists the functions
computed here, by key.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    Context,
    Decimal,
)
from typing import Any

from mzsql.expr.functions.declare import BOUNDS, FLOATS, INTEGERS, STRINGS
from mzsql.repr.datum import Datum
from mzsql.repr.decimals import EXACT, fitted, numeric_text, parsed, scaled, vanishes
from mzsql.repr.types import SqlType, type_name
from mzsql.repr.values import float_text

#: A function of (arguments, none of them NULL, numerics as decimals; the type of the result) that returns the datum.
Compute = Callable[[Sequence[Any], SqlType], Datum]

OVERFLOW, UNDERFLOW = "value out of range: overflow", "value out of range: underflow"
FIELD_OVERFLOW = "numeric field overflow"
DIVISION_BY_ZERO = "division by zero"
#: Guard digits for transcendental functions, whose results are rounded to 39 digits afterwards.
_WORK = Context(prec=70, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999, traps=[])


class Failed(Exception):
    """The function has no value for its arguments; the text is the message for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _answer(number: Decimal, *args: Decimal) -> str:
    """The result rounded to the digits that a numeric keeps.

    Args:
        number: the result.
        args: the arguments, to tell an overflow from an infinity that was passed in.
    """
    beyond = number.is_infinite() and all(arg.is_finite() for arg in args)
    if vanishes(number):
        raise Failed(UNDERFLOW)
    try:
        done = fitted(number)
    except OverflowError:
        raise Failed(OVERFLOW) from None
    if beyond:
        raise Failed(OVERFLOW)
    return numeric_text(done)


# --- arithmetic ------------------------------------------------------------------------------------


def _binary(operation: Callable[[Decimal, Decimal], Decimal], *, divides: bool = False) -> Compute:
    def compute(args: Sequence[Any], _typ: SqlType) -> Datum:
        left, right = args
        if divides and right.is_finite() and not right:
            raise Failed(DIVISION_BY_ZERO)
        return _answer(operation(left, right), left, right)

    return compute


def _unary(operation: Callable[[Decimal], Decimal]) -> Compute:
    def compute(args: Sequence[Any], _typ: SqlType) -> Datum:
        (number,) = args
        return numeric_text(number) if number.is_nan() else _answer(operation(number), number)

    return compute


def _whole(rounding: str) -> Compute:
    def compute(args: Sequence[Any], _typ: SqlType) -> Datum:
        (number,) = args
        if not number.is_finite():
            return numeric_text(number)
        return _answer(number.to_integral_value(rounding=rounding))

    return compute


def _at_place(rounding: str) -> Compute:
    """Rounding to a number of digits after the decimal point, or before it where the number is negative."""

    def compute(args: Sequence[Any], _typ: SqlType) -> Datum:
        number, places = args
        if not number.is_finite() or places >= -number.as_tuple().exponent:
            return numeric_text(number)
        if -places > number.adjusted() + 1:
            return "0"
        unit = Decimal(1).scaleb(-places, context=EXACT)
        return _answer(number.quantize(unit, rounding=rounding, context=EXACT))

    return compute


def _sign(args: Sequence[Any], _typ: SqlType) -> Datum:
    (number,) = args
    if number.is_nan():
        return "NaN"
    return "0" if not number else ("-1" if number.is_signed() else "1")


# --- roots, powers, logarithms ---------------------------------------------------------------------


def _is_negative(number: Decimal) -> bool:
    return bool(not number.is_nan() and number.is_signed() and number)


def _sqrt(args: Sequence[Any], _typ: SqlType) -> Datum:
    (number,) = args
    if _is_negative(number):
        raise Failed("cannot take square root of a negative number")
    return _answer(_WORK.sqrt(number), number)


def _exp(args: Sequence[Any], _typ: SqlType) -> Datum:
    (number,) = args
    found = _WORK.exp(number)
    if number.is_finite() and not found:
        raise Failed(UNDERFLOW)
    return _answer(found, number)


def _positive(number: Decimal, name: str) -> None:
    if not number.is_nan() and not number:
        raise Failed(f"function {name} is not defined for zero")
    if _is_negative(number):
        raise Failed(f"function {name} is not defined for negative numbers")


def _logarithm(name: str, operation: Callable[[Decimal], Decimal]) -> Compute:
    def compute(args: Sequence[Any], _typ: SqlType) -> Datum:
        (number,) = args
        _positive(number, name)
        return _answer(operation(number), number)

    return compute


def _log_of_base(args: Sequence[Any], _typ: SqlType) -> Datum:
    base, number = args
    for arg in args:
        _positive(arg, "log")
    below = _WORK.ln(base)
    if below.is_finite() and not below:
        raise Failed(DIVISION_BY_ZERO)
    return _answer(_WORK.divide(_WORK.ln(number), below), base, number)


def _power(args: Sequence[Any], _typ: SqlType) -> Datum:
    base, exponent = args
    one = base.is_finite() and base == 1
    if one or (exponent.is_finite() and not exponent):
        return "1"
    if base.is_nan() or exponent.is_nan():
        return "NaN"
    if not base and exponent < 0:
        raise Failed("zero raised to a negative power is undefined")
    if base < 0 and exponent.is_finite() and exponent != exponent.to_integral_value():
        raise Failed("function pow cannot return complex numbers")
    found = _WORK.power(base, exponent)
    if base and not found and exponent.is_finite():
        raise Failed(UNDERFLOW)
    return _answer(found, base, exponent)


# --- comparisons -----------------------------------------------------------------------------------


def order_key(number: Decimal) -> tuple[bool, Decimal]:
    """The sort key of a numeric: NaN equals itself and is the greatest."""
    return (True, Decimal(0)) if number.is_nan() else (False, number)


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "not_eq": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
}


def _comparison(test: Callable[[Any, Any], bool]) -> Compute:
    return lambda args, _typ: test(order_key(args[0]), order_key(args[1]))


# --- casts -----------------------------------------------------------------------------------------


def _at_scale(number: Decimal, typ: SqlType) -> str:
    """The number rounded to the declared scale of ``typ``, if it has one."""
    if not number.is_finite():
        return numeric_text(number)
    try:
        kept = fitted(number)
        return numeric_text(kept if typ.scale is None else scaled(kept, typ.scale))
    except OverflowError:
        raise Failed(FIELD_OVERFLOW) from None


def _from_number(args: Sequence[Any], typ: SqlType) -> Datum:
    return _at_scale(Decimal(args[0]), typ)


def _from_float(kind: str) -> Compute:
    def compute(args: Sequence[Any], typ: SqlType) -> Datum:
        value = float(args[0])
        if math.isinf(value):
            name = type_name(SqlType(kind))
            raise Failed(f"function casting {name} to numeric is only defined for finite arguments")
        # From the shortest digits that identify the float: 0.1::real is 0.1, not 0.100000001.
        return _at_scale(Decimal(float_text(value, kind)), typ)

    return compute


def _from_text(args: Sequence[Any], typ: SqlType) -> Datum:
    text = str(args[0])
    try:
        number = parsed(text)
    except OverflowError:
        raise Failed(out_of_range(text.strip())) from None
    if number is None:
        raise Failed(f'invalid input syntax for type numeric: "{text}"')
    return _at_scale(number, typ)


#: JSON's kinds other than number, by their first character.
_DOCUMENTS = {
    "{": "object",
    "[": "array",
    '"': "string",
    "t": "boolean",
    "f": "boolean",
    "n": "null",
}


def _from_document(args: Sequence[Any], typ: SqlType) -> Datum:
    kind = _DOCUMENTS.get(str(args[0])[0])
    if kind is not None:
        raise Failed(f"cannot cast jsonb {kind} to type numeric")
    return _from_text(args, typ)


def out_of_range(text: str) -> str:
    """The error message for a number with too many digits."""
    return f'"{text}" is out of range for type numeric: exceeds maximum precision 39'


def _to_integer(kind: str) -> Compute:
    low, high = BOUNDS[kind]
    name = type_name(SqlType(kind))

    def compute(args: Sequence[Any], _typ: SqlType) -> Datum:
        (number,) = args
        if number.is_finite():
            number = number.to_integral_value(rounding=ROUND_HALF_UP)
            if low <= number <= high:
                return int(number)
        raise Failed(f'"{numeric_text(number)}" {name} out of range')

    return compute


def _to_real(args: Sequence[Any], _typ: SqlType) -> Datum:
    (number,) = args
    try:
        (value,) = struct.unpack("<f", struct.pack("<f", float(number)))
    except OverflowError:
        raise Failed(f'"{numeric_text(number)}" real out of range') from None
    if not value and number:
        raise Failed(f'"{numeric_text(number)}" real out of range')
    return float(value)


def _to_text(args: Sequence[Any], typ: SqlType) -> Datum:
    text = numeric_text(args[0])
    if typ.length is None:
        return text
    return text[: typ.length].ljust(typ.length if typ.kind == "char" else 0)


# --- several values --------------------------------------------------------------------------------


def extreme(numbers: Sequence[Decimal], *, greatest: bool) -> Decimal:
    """The greatest or the least of the numbers."""
    return (max if greatest else min)(numbers, key=order_key)


def total(terms: Sequence[tuple[Decimal, int]]) -> str:
    """The sum of numbers with multiplicities; infinite beyond 39 digits."""
    found = Decimal(0)
    for number, count in terms:
        found = EXACT.add(found, EXACT.multiply(number, Decimal(count)))
    try:
        return numeric_text(fitted(found))
    except OverflowError:
        return numeric_text(Decimal("-Infinity" if found < 0 else "Infinity"))


# --- the table -------------------------------------------------------------------------------------

_ROUNDINGS = {
    "ceil": ROUND_CEILING,
    "ceiling": ROUND_CEILING,
    "floor": ROUND_FLOOR,
    "round": ROUND_HALF_UP,
    "trunc": ROUND_DOWN,
}
_LOG10 = _logarithm("log10", _WORK.log10)
_REMAINDER = _binary(EXACT.remainder, divides=True)

#: The numeric functions computed here, by key. All are strict.
FUNCTIONS: Mapping[str, Compute] = {
    "add_numeric": _binary(EXACT.add),
    "sub_numeric": _binary(EXACT.subtract),
    "mul_numeric": _binary(EXACT.multiply),
    "div_numeric": _binary(EXACT.divide, divides=True),
    "mod_numeric": _REMAINDER,
    "mod_function_numeric": _REMAINDER,
    "neg_numeric": _unary(EXACT.minus),
    "abs_numeric": _unary(EXACT.abs),
    **{f"{name}_numeric": _whole(rounding) for name, rounding in _ROUNDINGS.items()},
    "round_numeric_to": _at_place(ROUND_HALF_UP),
    "trunc_numeric_to": _at_place(ROUND_DOWN),
    "sign_numeric": _sign,
    "sqrt_numeric": _sqrt,
    "exp_numeric": _exp,
    "ln_numeric": _logarithm("ln", _WORK.ln),
    "log10_numeric": _LOG10,
    "log_numeric": _LOG10,
    "log_base_numeric": _log_of_base,
    "power_numeric": _power,
    "pow_numeric": _power,
    **{f"{name}_numeric": _comparison(test) for name, test in _COMPARISONS.items()},
    **{f"{kind}_to_numeric": _from_number for kind in (*INTEGERS, "mz_timestamp", "numeric")},
    **{f"{kind}_to_numeric": _from_float(kind) for kind in FLOATS},
    **{f"{kind}_to_numeric": _from_text for kind in STRINGS},
    **{f"numeric_to_{kind}": _to_integer(kind) for kind in (*INTEGERS, "mz_timestamp")},
    "jsonb_to_numeric": _from_document,
    "numeric_to_double": lambda args, _typ: float(args[0]),
    "numeric_to_real": _to_real,
    **{f"numeric_to_{kind}": _to_text for kind in STRINGS},
}
