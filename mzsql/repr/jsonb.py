"""jsonb's canonical text, made of a literal.

Promise: no blanks, keys in the order of their bytes and each once (the last value given), numbers in plain notation without zeros at the
end; exactly what `mzsql.expr.functions.json.documents` makes in SQL. For what stands in a statement, not for rows of data.
"""

from __future__ import annotations

import json
import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, Context, Decimal, InvalidOperation
from typing import Any, NoReturn

from mzsql.repr.errors import DataError

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
#: How deeply a document may nest.
MAX_DEPTH = 128
#: A number has so many digits before its point at most, as a numeric.
DIGITS = 39
#: More digits behind the point are cut off.
WRITTEN_DIGITS = 1000
_LEAST = Decimal(1).scaleb(-WRITTEN_DIGITS)
_WIDE = Context(prec=WRITTEN_DIGITS + 2 * DIGITS, rounding=ROUND_DOWN, Emin=MIN_EMIN, Emax=MAX_EMAX)


def canonical(text: str) -> str:
    """The canonical text of a document.

    Raises:
        DataError: ``invalid input syntax for type jsonb: …: "…"`` (22P02).
    """
    _check_depth(text)
    try:
        value = json.loads(text, parse_float=_parsed, parse_int=_parsed, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        line = f"at line {error.lineno} column {max(error.colno - 1, 0)}"
        _fail(f"{_problem(text, error)} {line}", text)
    return _written(value, text)


def _parsed(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent is beyond what Python counts
        raise json.JSONDecodeError("number out of range", text, 0) from None


def _no_number(name: str) -> NoReturn:
    raise json.JSONDecodeError("expected value", name, 0)


def _fail(detail: str, text: str) -> NoReturn:
    raise DataError(f'invalid input syntax for type jsonb: {detail}: "{text}"', sqlstate="22P02")


def _open_brackets(text: str) -> list[str]:
    stack: list[str] = []
    for char in _STRING.sub("", text):
        if char in "[{":
            stack.append(char)
        elif char in "]}" and stack:
            stack.pop()
        if len(stack) > MAX_DEPTH:
            break
    return stack


def _check_depth(text: str) -> None:
    if len(_open_brackets(text)) > MAX_DEPTH:
        _fail("recursion limit exceeded at line 1 column 128", text)


def _problem(text: str, error: json.JSONDecodeError) -> str:
    if error.msg.startswith("Extra data"):
        return "trailing characters"
    if error.msg.startswith("Unterminated string"):
        return "EOF while parsing a string"
    if error.pos >= len(text.rstrip()):
        inside = _open_brackets(text)
        if not inside:
            return "EOF while parsing a value"
        return "EOF while parsing an object" if inside[-1] == "{" else "EOF while parsing a list"
    if error.msg == "number out of range":
        return error.msg
    if "double quotes" in error.msg:
        return "key must be a string"
    return "expected value"


def _written(value: Any, text: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return _number(value, text)
        case str():
            return _string(value, text)
        case list():
            return f"[{','.join(_written(item, text) for item in value)}]"
        case _:
            # First the texts, which say that a key is none; then their order.
            pairs = [(k, _string(k, text), v) for k, v in value.items()]
            pairs.sort(key=lambda pair: pair[0].encode())
            return f"{{{','.join(f'{key}:{_written(v, text)}' for _, key, v in pairs)}}}"


def _string(value: str, text: str) -> str:
    written = json.dumps(value, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:
        _fail("lone surrogate in hex escape", text)
    return written


def _number(value: Decimal, text: str) -> str:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if exponent < -WRITTEN_DIGITS:
        # Written out it might fill the memory; as a numeric, it has no more digits behind its point than there are.
        value = value.quantize(_LEAST, context=_WIDE) if value.adjusted() < DIGITS else value
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
    whole = max(len(digits) + exponent, 0) if any(digits) else 0
    if whole > DIGITS or (whole == DIGITS and len("".join(map(str, digits)).rstrip("0")) > DIGITS):
        detail = (
            f'"{text.strip()}" is out of range for type numeric: exceeds maximum precision {DIGITS}'
        )
        raise DataError(
            f'invalid input syntax for type jsonb: {detail} at line 1 column {len(text)}: "{text}"',
            sqlstate="22P02",
        )
    shown = f"{value:f}"
    if "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return "0" if shown in ("-0", "") else shown
