"""Numerics of constants, computed in Python's decimal arithmetic.

Promise: what Materialize answers for constants: 39 digits, NaN, its errors in its words. `FUNCTIONS` says which functions are computed
here, by their keys; an expression of them and of the logic around them is reduced to a literal without an engine. The trade-off: a
constant may have digits that the same expression over columns (`decimal(38, s)`) has not.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    Context,
    Decimal,
)
from functools import lru_cache
from typing import Any

from mzsql.expr.functions.declare import BOUNDS, FLOATS, INTEGERS, STRINGS
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar, walk
from mzsql.repr.datum import Datum
from mzsql.repr.decimals import (
    EXACT,
    NotCarried,
    carried,
    fitted,
    is_carried,
    numeric_text,
    parsed,
    scaled,
    vanishes,
)
from mzsql.repr.types import SqlType, type_name
from mzsql.repr.values import float_text

#: (arguments, none of them NULL, numerics as decimals; the call's type) to the datum.
Compute = Callable[[Sequence[Any], SqlType], Datum]

OVERFLOW, UNDERFLOW = "value out of range: overflow", "value out of range: underflow"
FIELD_OVERFLOW = "numeric field overflow"
DIVISION_BY_ZERO = "division by zero"
#: More digits than an answer has, for what is no finite sum of powers of ten.
_WORK = Context(prec=70, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999, traps=[])


class _Failed(Exception):
    """A function that has no value for its arguments."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _answer(number: Decimal, *args: Decimal) -> str:
    """A result with the digits that a numeric keeps."""
    beyond = number.is_infinite() and all(arg.is_finite() for arg in args)
    if vanishes(number):
        raise _Failed(UNDERFLOW)
    try:
        done = fitted(number)
    except OverflowError:
        raise _Failed(OVERFLOW) from None
    if beyond:
        raise _Failed(OVERFLOW)
    return numeric_text(done)


# --- arithmetic ------------------------------------------------------------------------------------


def _binary(operation: Callable[[Decimal, Decimal], Decimal], *, divides: bool = False) -> Compute:
    def compute(args: Sequence[Any], _typ: SqlType) -> Datum:
        left, right = args
        if divides and right.is_finite() and not right:
            raise _Failed(DIVISION_BY_ZERO)
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
    """To so many digits behind the point, or in front of it where there are fewer than none."""

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
        raise _Failed("cannot take square root of a negative number")
    return _answer(_WORK.sqrt(number), number)


def _exp(args: Sequence[Any], _typ: SqlType) -> Datum:
    (number,) = args
    found = _WORK.exp(number)
    if number.is_finite() and not found:
        raise _Failed(UNDERFLOW)
    return _answer(found, number)


def _positive(number: Decimal, name: str) -> None:
    if not number.is_nan() and not number:
        raise _Failed(f"function {name} is not defined for zero")
    if _is_negative(number):
        raise _Failed(f"function {name} is not defined for negative numbers")


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
        raise _Failed(DIVISION_BY_ZERO)
    return _answer(_WORK.divide(_WORK.ln(number), below), base, number)


def _power(args: Sequence[Any], _typ: SqlType) -> Datum:
    base, exponent = args
    one = base.is_finite() and base == 1
    if one or (exponent.is_finite() and not exponent):
        return "1"
    if base.is_nan() or exponent.is_nan():
        return "NaN"
    if not base and exponent < 0:
        raise _Failed("zero raised to a negative power is undefined")
    if base < 0 and exponent.is_finite() and exponent != exponent.to_integral_value():
        raise _Failed("function pow cannot return complex numbers")
    found = _WORK.power(base, exponent)
    if base and not found and exponent.is_finite():
        raise _Failed(UNDERFLOW)
    return _answer(found, base, exponent)


# --- comparisons -----------------------------------------------------------------------------------


def order_key(number: Decimal) -> tuple[bool, Decimal]:
    """Where a numeric stands among others: NaN equals itself and is the greatest."""
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
    """As a numeric of a type: rounded to a declared scale."""
    if not number.is_finite():
        return numeric_text(number)
    try:
        kept = fitted(number)
        return numeric_text(kept if typ.scale is None else scaled(kept, typ.scale))
    except OverflowError:
        raise _Failed(FIELD_OVERFLOW) from None


def _from_number(args: Sequence[Any], typ: SqlType) -> Datum:
    return _at_scale(Decimal(args[0]), typ)


def _from_float(kind: str) -> Compute:
    def compute(args: Sequence[Any], typ: SqlType) -> Datum:
        value = float(args[0])
        if math.isinf(value):
            name = type_name(SqlType(kind))
            raise _Failed(
                f"function casting {name} to numeric is only defined for finite arguments"
            )
        # The shortest digits that name the float, as a person wrote it.
        return _at_scale(Decimal(float_text(value, kind)), typ)

    return compute


def _from_text(args: Sequence[Any], typ: SqlType) -> Datum:
    text = str(args[0])
    try:
        number = parsed(text)
    except OverflowError:
        raise _Failed(out_of_range(text.strip())) from None
    if number is None:
        raise _Failed(f'invalid input syntax for type numeric: "{text}"')
    return _at_scale(number, typ)


def out_of_range(text: str) -> str:
    """What is said of a number with too many digits."""
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
        raise _Failed(f'"{numeric_text(number)}" {name} out of range')

    return compute


def _to_real(args: Sequence[Any], _typ: SqlType) -> Datum:
    (number,) = args
    try:
        (value,) = struct.unpack("f", struct.pack("f", float(number)))
    except OverflowError:
        raise _Failed(f'"{numeric_text(number)}" real out of range') from None
    if not value and number:
        raise _Failed(f'"{numeric_text(number)}" real out of range')
    return float(value)


def _to_text(args: Sequence[Any], typ: SqlType) -> Datum:
    text = numeric_text(args[0])
    if typ.length is None:
        return text
    return text[: typ.length].ljust(typ.length if typ.kind == "char" else 0)


# --- several values --------------------------------------------------------------------------------


def extreme(numbers: Sequence[Decimal], *, greatest: bool) -> Decimal:
    """The greatest or least of some numbers."""
    return (max if greatest else min)(numbers, key=order_key)


def total(terms: Sequence[tuple[Decimal, int]]) -> str:
    """The sum of numbers, each so many times; beyond 39 digits it is infinite."""
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

#: The functions of numerics that are computed here. All are strict.
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
    "numeric_to_double": lambda args, _typ: float(args[0]),
    "numeric_to_real": _to_real,
    **{f"numeric_to_{kind}": _to_text for kind in STRINGS},
}
#: Functions of any values that skip NULLs, or hold them, computed here where they are of numerics.
_EXTREMES = frozenset({"greatest", "least"})
_HOLDERS = frozenset({"array", "list", "row", "window_payload"})
#: What connects conditions and values.
_LOGIC = frozenset({"and", "or", "not", "is_null", "coalesce"})


@lru_cache(maxsize=4096)
def concerns(expr: Scalar) -> bool:
    """Whether anything in an expression is computed here."""
    return any(
        _is_here(node) if isinstance(node, Call) else isinstance(node, If) and _is_numeric(node)
        for node in walk(expr)
    )


def _is_numeric(expr: Scalar) -> bool:
    while isinstance(expr, If):
        expr = expr.then
    return not isinstance(expr, Column) and expr.typ.kind == "numeric"


def is_closed(expr: Scalar) -> bool:
    """Whether an expression of constants is reduced without asking an engine."""
    return all(
        not isinstance(node, Call) or node.func in _LOGIC or _is_here(node) for node in walk(expr)
    )


def _is_here(call: Call) -> bool:
    if call.func in FUNCTIONS:
        return True
    if call.func in _EXTREMES or call.func == "coalesce":
        return call.typ.kind == "numeric"
    if call.func.startswith("record_get_"):
        return True
    return call.func in _HOLDERS and holds_numerics(call.typ)


def holds_numerics(typ: SqlType) -> bool:
    """Whether a value of the type is made of numerics, among others."""
    inside = [column.type for _, column in typ.fields]
    if typ.element is not None:
        inside.append(typ.element)
    return any(part.kind == "numeric" or holds_numerics(part) for part in inside)


def _compute(call: Call, args: Sequence[Literal]) -> Datum:
    """The value of a function that is computed here; raises _Failed."""
    values = [arg.value for arg in args]
    if call.func in _HOLDERS:
        return json.dumps(values)
    if call.func in _EXTREMES:
        numbers = [Decimal(str(value)) for value in values if value is not None]
        if not numbers:
            return None
        return numeric_text(extreme(numbers, greatest=call.func == "greatest"))
    if any(value is None for value in values):
        return None
    if call.func.startswith("record_get_"):
        field: Datum = json.loads(str(values[0]))[int(call.func.rpartition("_")[2]) - 1]
        return field
    given = [
        Decimal(str(value)) if arg.typ.kind == "numeric" else value
        for value, arg in zip(values, args, strict=True)
    ]
    return FUNCTIONS[call.func](given, call.typ)


# --- expressions -----------------------------------------------------------------------------------

Constant = Literal | LiteralError
#: A constant expression's value by an engine.
Ask = Callable[[Scalar], Constant]


def reduced(expr: Scalar, ask: Ask) -> Constant:
    """The value of an expression of constants; what is not computed here is asked for."""
    match expr:
        case Literal(typ=SqlType(kind="numeric"), value=str(value)):
            return Literal(numeric_text(Decimal(value)), expr.typ)
        case Literal() | LiteralError():
            return expr
        case _ if not concerns(expr):
            return ask(expr)
        case If():
            condition = reduced(expr.condition, ask)
            if isinstance(condition, LiteralError):
                return LiteralError(condition.message, _type_of(expr))
            return reduced(expr.then if condition.value is True else expr.otherwise, ask)
        case Call(func="and" | "or"):
            return _connected(expr, ask)
        case Call(func="coalesce"):
            return _first_known(expr, ask)
        case Call():
            return _called(expr, ask)
        case _:
            return ask(expr)


def _type_of(expr: Scalar) -> SqlType:
    while isinstance(expr, If):
        expr = expr.then
    assert isinstance(expr, Literal | LiteralError | Call)
    return expr.typ


def _connected(expr: Call, ask: Ask) -> Constant:
    """None of the errors counts where an argument decides without failing."""
    decisive = expr.func == "or"
    parts = [reduced(arg, ask) for arg in expr.args]
    if any(isinstance(part, Literal) and part.value is decisive for part in parts):
        return Literal(decisive, expr.typ)
    failed = next((part for part in parts if isinstance(part, LiteralError)), None)
    if failed is not None:
        return failed
    unknown = any(isinstance(part, Literal) and part.value is None for part in parts)
    return Literal(None if unknown else not decisive, expr.typ)


def _first_known(expr: Call, ask: Ask) -> Constant:
    for arg in expr.args:
        part = reduced(arg, ask)
        if isinstance(part, LiteralError):
            return LiteralError(part.message, expr.typ)
        if part.value is not None:
            return Literal(part.value, expr.typ)
    return Literal(None, expr.typ)


def _called(expr: Call, ask: Ask) -> Constant:
    args: list[Literal] = []
    for arg in expr.args:
        part = reduced(arg, ask)
        if isinstance(part, LiteralError):
            return LiteralError(part.message, expr.typ)
        args.append(part)
    if not _is_here(expr):
        return _logic(expr, args) or ask(Call(expr.func, tuple(args), expr.typ))
    try:
        return Literal(_compute(expr, args), expr.typ)
    except _Failed as failed:
        return LiteralError(failed.message, expr.typ)


def _logic(expr: Call, args: Sequence[Literal]) -> Constant | None:
    """The value of what asks for NULL or negates; None of anything else."""
    if expr.func == "is_null":
        return Literal(args[0].value is None, expr.typ)
    if expr.func == "not":
        return Literal(None if args[0].value is None else not args[0].value, expr.typ)
    return None


def refusal(value: Datum, typ: SqlType) -> str | None:
    """Why no column of the type holds a value, digits beyond its scale rounded; None where one does."""
    for number, kind in _numerics(value, typ):
        try:
            carried(number, kind)
        except NotCarried as refused:
            return refused.message
    return None


def is_held(value: Datum, typ: SqlType) -> bool:
    """Whether a column of the type holds all digits of a value."""
    return all(is_carried(number, kind) for number, kind in _numerics(value, typ))


def _numerics(value: Datum, typ: SqlType) -> Iterator[tuple[str, SqlType]]:
    """The numerics in a value, with their types."""
    if value is None:
        return
    if typ.kind == "numeric":
        yield str(value), typ
        return
    if not holds_numerics(typ):
        return
    items = json.loads(str(value))
    if typ.kind == "range":
        items = items[::2]  # the bounds; whether each is included stands behind it
    if typ.kind == "record":
        types = [column.type for _, column in typ.fields]
    else:
        assert typ.element is not None
        items = list(items.values()) if isinstance(items, dict) else items
        types = [typ.element] * len(items)
    for item, part in zip(items, types, strict=True):
        yield from _numerics(item, part)
