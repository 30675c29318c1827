"""Evaluating the times in AS OF and UP TO.

Promise: a constant is evaluated as a cast to mz_timestamp would, and a value that is no timestamp fails with
Materialize's messages.
"""

from __future__ import annotations

import decimal

from mzsql.adapter.planning.planner import Planner
from mzsql.expr.scalar import Call, Scalar, Unmaterializable, walk
from mzsql.repr.datum import Datum
from mzsql.repr.errors import InvalidParameter, Unsupported
from mzsql.repr.frontier import MAX_TIMESTAMP, Timestamp

_INTEGRAL = "out of range integral type conversion attempted"
#: The error message for a number that is no timestamp, by the function that casts it.
_TO_TIMESTAMP = {
    "numeric_to_mz_timestamp": "decimal cannot be expressed in target primitive type",
    **dict.fromkeys(
        (f"{kind}_to_mz_timestamp" for kind in ("smallint", "integer", "bigint")), _INTEGRAL
    ),
}


def named_time(planner: Planner, expr: Scalar) -> Datum:
    """The value of a column-free expression of type mz_timestamp; None for NULL.

    Raises:
        Unsupported: it calls a session- or time-dependent function.
        InvalidParameter: it is a number, but no timestamp.
    """
    for part in walk(expr):
        if isinstance(part, Unmaterializable):
            raise Unsupported(f"cannot call {part.func} in AS OF")
    if isinstance(expr, Call) and expr.func in _TO_TIMESTAMP:
        (given,) = expr.args
        value = planner.evaluate(given)
        if value is not None and not _fits_timestamp(value):
            raise InvalidParameter(_TO_TIMESTAMP[expr.func], sqlstate="22003")
    return planner.evaluate(expr)


def as_of_time(planner: Planner, expr: Scalar) -> Timestamp:
    """The time that AS OF names.

    Raises:
        Unsupported: as `named_time`.
        InvalidParameter: as `named_time`; or it is NULL.
    """
    value = named_time(planner, expr)
    if value is None:
        raise InvalidParameter("can't use null as a mz_timestamp for AS OF")
    return int(str(value))


def _fits_timestamp(value: Datum) -> bool:
    """Whether a number is an integer in the range of timestamps."""
    number = decimal.Decimal(str(value))
    return number == number.to_integral_value() and 0 <= number <= MAX_TIMESTAMP
