"""Reading constant texts as values while a statement is planned, where they are certain.

Promise: a text read here gives what the cast from text would give; any other, above all an invalid one, is left to the
cast and its error messages. Evaluating a cast costs far more than matching a pattern, and a statement may hold
thousands of constants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from mzsql.expr.functions.declare import BOUNDS
from mzsql.expr.functions.epoch import DAY_MICROS, MAX_MICROS, MIN_MICROS
from mzsql.repr.datetime_text import read_datetime
from mzsql.repr.datum import Datum
from mzsql.repr.decimals import is_carried, numeric_text, parsed
from mzsql.repr.errors import DataError
from mzsql.repr.ranges import canonical
from mzsql.repr.types import SqlType

#: No integer type has more digits.
_MOST_DIGITS = 20
_INTEGER = re.compile(r"[ \t\n\r\f\v]*([+-]?[0-9]+)[ \t\n\r\f\v]*", re.ASCII)
_DATE = re.compile(r" *\d{4,6}-\d{1,2}-\d{1,2}( +[bB][cC])? *", re.ASCII)
_SPACES = r"[ \t\n\r\f\v]*"
_BOUND = r'((?:"(?:[^"\\]|\\.|"")*"|\\.|[^"\\,)\]])*)'
_RANGE = re.compile(rf"{_SPACES}([\[(]){_BOUND},{_BOUND}([\])]){_SPACES}", re.DOTALL)
_EMPTY = re.compile(rf"{_SPACES}empty{_SPACES}", re.IGNORECASE)
_PIECE = re.compile(r'"((?:[^"\\]|\\.|"")*)"|\\(.)|([^"\\]+)', re.DOTALL)
_ESCAPED = re.compile(r'\\(.)|"(")', re.DOTALL)


def datum_of_text(text: str, typ: SqlType) -> Datum:
    """The value of a text; None where the cast must decide."""
    if typ.length is not None:
        return None
    match typ.kind:
        case "smallint" | "integer" | "bigint":
            return _integer(text, typ)
        case "numeric":
            return _numeric(text, typ)
        case "date":
            return _date(text)
        case "timestamp" | "timestamptz":
            return _timestamp(text, typ)
        case "range":
            return _range(text, typ)
        case _:
            return None


def nested_datum(value: Any, typ: SqlType) -> Datum:
    """The value for the result of `container_literals.parse`; None where the cast must decide."""
    found = _nested(value, typ)
    return None if found is None else json.dumps(found)


def _nested(value: Any, typ: SqlType) -> Any:
    """Nested lists and dicts of values; None where one of them is uncertain."""
    inner = typ.element
    assert inner is not None
    read: Callable[[Any, SqlType], Any] = datum_of_text
    if inner.kind in ("array", "list", "map"):
        # Nested in a list, an inner container is a value itself: a text.
        read = nested_datum
    values = value.values() if isinstance(value, dict) else value
    made = [None if item is None else read(item, inner) for item in values]
    if any(a is None and b is not None for a, b in zip(made, values, strict=True)):
        return None
    return dict(zip(value, made, strict=True)) if isinstance(value, dict) else made


def _integer(text: str, typ: SqlType) -> int | None:
    match = _INTEGER.fullmatch(text)
    low, high = BOUNDS[typ.kind]
    # Python's int() limits the number of digits; leading zeros do not matter.
    digits = "" if match is None else match[1].lstrip("+-").lstrip("0")
    if match is None or len(digits) > _MOST_DIGITS:
        return None
    value = int(digits or "0") * (-1 if match[1].startswith("-") else 1)
    return value if low <= value <= high else None


def _numeric(text: str, typ: SqlType) -> str | None:
    try:
        number = parsed(text)
    except OverflowError:
        return None
    if number is None or not number.is_finite():
        return None
    datum = numeric_text(number)
    return datum if is_carried(datum, typ) else None


def _date(text: str) -> int | None:
    micros = read_datetime(text, zoned=False) if _DATE.fullmatch(text) else None
    return None if micros is None or not _inside(micros) else micros // DAY_MICROS


def _timestamp(text: str, typ: SqlType) -> int | None:
    micros = read_datetime(text, zoned=typ.kind == "timestamptz")
    return None if micros is None or not _inside(micros) else micros


def _inside(micros: int) -> bool:
    return MIN_MICROS <= micros <= MAX_MICROS


def _range(text: str, typ: SqlType) -> str | None:
    if _EMPTY.fullmatch(text):
        return "[]"
    match = _RANGE.fullmatch(text)
    element = typ.element
    if match is None or element is None:
        return None
    ends: list[Any] = []
    for raw in (match[2], match[3]):
        end = None if not raw else datum_of_text(_unquoted(raw), element)
        if raw and end is None:
            return None
        ends.append(parsed(str(end)) if element.kind == "numeric" and end is not None else end)
    try:
        parts = canonical(ends[0], ends[1], f"{match[1]}{match[4]}", element.kind)
    except DataError:
        return None
    return _range_datum(parts, element)


def _range_datum(parts: tuple[Any, bool, Any, bool] | None, element: SqlType) -> str | None:
    if parts is None:
        return "[]"
    lower, lower_in, upper, upper_in = parts
    ends = [lower, upper]
    if element.kind in BOUNDS and any(
        end is not None and not BOUNDS[element.kind][0] <= end <= BOUNDS[element.kind][1]
        for end in ends
    ):
        return None
    if element.kind == "date" and any(
        end is not None and not _inside(end * DAY_MICROS) for end in ends
    ):
        return None
    if element.kind == "numeric":
        ends = [None if end is None else numeric_text(end) for end in ends]
    return json.dumps([ends[0], lower_in, ends[1], upper_in])


def _unquoted(raw: str) -> str:
    """A range's bound without quotes and escapes."""

    def piece(match: re.Match[str]) -> str:
        if match[1] is not None:
            return _ESCAPED.sub(lambda m: m[1] or m[2], match[1])
        return match[2] or match[3]

    return _PIECE.sub(piece, raw)
