"""Arithmetic and comparison of two integers, casts of integers, characters and of texts to days, and equality and concatenation of texts,
computed in Python.

Promise: the value, or the error message, that the table's spelling gives in an engine. Trade-off: a second
implementation of what every engine computes, for the calls people write most; asking an engine for one sum takes a
millisecond, and thirty for the first one in a process.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeGuard

from mzsql.expr.functions.declare import BOUNDS, INTEGERS
from mzsql.expr.scalar import Call, Literal, LiteralError, Scalar
from mzsql.repr.types import SqlType, type_name


class _Operation(NamedTuple):
    symbol: str
    lead: str
    compute: Callable[[int, int], int]


def _quotient(left: int, right: int) -> int:
    """The quotient rounded toward zero."""
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


_OVERFLOW = "numeric field overflow: "
_ARITHMETIC = {
    "add": _Operation("+", _OVERFLOW, operator.add),
    "sub": _Operation("-", _OVERFLOW, operator.sub),
    "mul": _Operation("*", _OVERFLOW, operator.mul),
    "div": _Operation("/", "", _quotient),
}
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "not_eq": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


#: Integers between which, both included, a cast changes nothing, by what may be cast to.
_KEPT = {kind: BOUNDS[kind] for kind in (*INTEGERS, "oid")}
_EXACT = {"real": (-(1 << 24), 1 << 24), "double": (-(1 << 53), 1 << 53)}

#: A day as it is mostly written.
_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_EPOCH = dt.date(1970, 1, 1)
#: The most characters of two texts that are concatenated here: far from as many bytes as a text must not have.
_JOINED = 1 << 20


def value(call: Call) -> Literal | LiteralError | None:
    """The value of a call on two integers, of a cast that keeps an integer or a character, of `=`, `<>` and `||` of texts, and of a
    date written as YYYY-MM-DD; None for any other call.
    """
    if call.func == "text_to_date":
        return _day(call)
    if call.func == "text_to_char_code":
        return _byte(call)
    if call.func == "concat_text":
        return _joined(call)
    source, _, target = call.func.partition("_to_")
    if source in _KEPT and (target in _KEPT or target in _EXACT):
        return _converted(call, source, target)
    name, _, kind = call.func.rpartition("_")
    if kind == "text" and name in ("eq", "not_eq"):
        return _same_text(call, name == "eq")
    if kind not in INTEGERS or len(call.args) != 2:
        return None
    operation, comparison = _ARITHMETIC.get(name), _COMPARISONS.get(name)
    if operation is None and comparison is None:
        return None
    given = [arg.value if isinstance(arg, Literal) else call for arg in call.args]
    if any(one is None for one in given):
        return Literal(None, call.typ) if all(isinstance(a, Literal) for a in call.args) else None
    left, right = given
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    if comparison is not None:
        return Literal(comparison(left, right), call.typ)
    assert operation is not None
    return _computed(operation, left, right, kind, call.typ)


def _converted(call: Call, source: str, target: str) -> Literal | None:
    """A cast of an integer to a type that has the same number; None where there is none, or it is no integer."""
    (arg,) = call.args
    if (
        not isinstance(arg, Literal)
        or not isinstance(arg.value, int)
        or isinstance(arg.value, bool)
    ):
        return None
    low, high = _KEPT.get(target) or _EXACT[target]
    if not low <= arg.value <= high or not _KEPT[source][0] <= arg.value <= _KEPT[source][1]:
        return None
    return Literal(float(arg.value) if target in _EXACT else arg.value, call.typ)


def _day(call: Call) -> Literal | None:
    (text,) = call.args
    written = _DAY.fullmatch(str(text.value)) if _is_text(text) else None
    if written is None:
        return None
    try:
        day = dt.date(*map(int, written.groups()))
    except ValueError:
        return None
    return Literal((day - _EPOCH).days, call.typ)


def _byte(call: Call) -> Literal | None:
    """A text as a ``"char"``; None for one of several characters, or of another than ASCII."""
    (text,) = call.args
    if not _is_text(text) or len(str(text.value)) > 1 or not str(text.value).isascii():
        return None
    return Literal(text.value, call.typ)


def _same_text(call: Call, wanted: bool) -> Literal | None:
    left, right = call.args
    if not _is_text(left) or not _is_text(right):
        return None
    return Literal((left.value == right.value) is wanted, call.typ)


def _joined(call: Call) -> Literal | None:
    left, right = call.args
    if not _is_text(left) or not _is_text(right):
        return None
    made = str(left.value) + str(right.value)
    return None if len(made) > _JOINED else Literal(made, call.typ)


def _is_text(expr: Scalar) -> TypeGuard[Literal]:
    return isinstance(expr, Literal) and isinstance(expr.value, str)


def _computed(
    operation: _Operation, left: int, right: int, kind: str, typ: SqlType
) -> Literal | LiteralError:
    if operation.symbol == "/" and right == 0:
        return LiteralError("division by zero", typ)
    found = operation.compute(left, right)
    low, high = BOUNDS[kind]
    if low <= found <= high:
        return Literal(found, typ)
    shown = f'"{left} {operation.symbol} {right}" {type_name(SqlType(kind))} out of range'
    return LiteralError(operation.lead + shown, typ)
