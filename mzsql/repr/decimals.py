"""Numerics outside of columns: up to 39 digits, NaN and the infinities, as Python's decimals.

Promise: a constant has at most 39 digits, at most 39 of them behind the point, halves rounded away from zero, as in Materialize. A column
carries 38 digits, as many behind the point as its type says; `carried` is the only way into one and refuses what would change in front
of the point. A numeric has one text: without trailing zeros behind the point, without an exponent.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from mzsql.repr.errors import DataError
from mzsql.repr.types import NUMERIC_PRECISION, SqlType, type_name

#: Digits of a constant, and digits of it behind the point.
MAX_DIGITS = 39
#: Room for every sum and product of two numerics; nothing traps, so NaN goes through.
EXACT = Context(prec=130, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999, traps=[])
_FITTED = Context(prec=MAX_DIGITS, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999, traps=[])
_FINEST = Decimal(1).scaleb(-MAX_DIGITS, context=EXACT)
_WRITTEN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPACE = " \t\n\r\f\v"


class NotCarried(DataError):
    """A numeric that no column holds: NaN, an infinity, or too many digits in front of the point."""

    sqlstate = "22003"


def fitted(number: Decimal) -> Decimal:
    """A number with the digits that a numeric keeps.

    Raises:
        OverflowError: it has more than 39 digits in front of the point.
    """
    if not number.is_finite():
        return number
    rounded = _FITTED.plus(number)
    if not rounded.is_finite():
        raise OverflowError  # beyond even the exponents that the context has
    if _exponent(rounded) < -MAX_DIGITS:
        rounded = rounded.quantize(_FINEST, context=EXACT)
    if rounded and rounded.adjusted() >= MAX_DIGITS:
        raise OverflowError
    return rounded


def vanishes(number: Decimal) -> bool:
    """Whether a number other than zero has no digit that a numeric keeps."""
    return bool(number.is_finite() and number and number.adjusted() < -MAX_DIGITS)


def scaled(number: Decimal, scale: int) -> Decimal:
    """A finite number with so many digits behind the point.

    Raises:
        OverflowError: it then has more than 39 digits.
    """
    rounded = number.quantize(Decimal(1).scaleb(-scale, context=EXACT), context=EXACT)
    if rounded and rounded.adjusted() + scale >= MAX_DIGITS:
        raise OverflowError
    return rounded


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent


def parsed(text: str) -> Decimal | None:
    """The number that a text spells; None where it spells none.

    Raises:
        OverflowError: a numeric has not so many digits in front of the point, or none of those behind it.
    """
    plain = text.strip(_SPACE)
    if plain.lower() == "nan":
        return Decimal("NaN")
    if _WRITTEN.fullmatch(plain) is None:
        return None
    try:
        number = Decimal(plain)
    except InvalidOperation:
        raise OverflowError from None
    if vanishes(number):
        raise OverflowError
    return fitted(number)


def numeric_text(number: Decimal) -> str:
    """The text of a number, which is its datum."""
    if number.is_nan():
        return "NaN"
    if number.is_infinite():
        return "-Infinity" if number < 0 else "Infinity"
    if not number:
        return "0"
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown(datum: str, typ: SqlType) -> Decimal:
    """A numeric as Python has it: with all the digits of a declared scale, else without zeros at the end."""
    number = Decimal(datum)
    if not number.is_finite():
        return number
    plain = Decimal(numeric_text(number))
    if typ.scale is None or _exponent(plain) <= -typ.effective_scale:
        return plain
    return plain.quantize(Decimal(1).scaleb(-typ.effective_scale), context=EXACT)


def is_carried(datum: str, typ: SqlType) -> bool:
    """Whether a column of the type holds a number with all of its digits."""
    number = Decimal(datum)
    if not number.is_finite() or -_exponent(Decimal(numeric_text(number))) > typ.effective_scale:
        return False
    return not number or number.adjusted() < NUMERIC_PRECISION - typ.effective_scale


def carried(datum: str, typ: SqlType) -> Decimal:
    """A number as a column of the type holds it, digits beyond its scale rounded.

    Raises:
        NotCarried: no column can hold it.
    """
    number, scale = Decimal(datum), typ.effective_scale
    if not number.is_finite():
        raise NotCarried(
            f"{datum} cannot be kept in a column of type {type_name(typ)}",
            hint="Columns of type numeric hold numbers only; double precision has NaN and infinities.",
            sqlstate="0A000",
        )
    rounded = number.quantize(Decimal(1).scaleb(-scale, context=EXACT), context=EXACT)
    if rounded and rounded.adjusted() >= NUMERIC_PRECISION - scale:
        raise NotCarried("numeric field overflow")
    return rounded
