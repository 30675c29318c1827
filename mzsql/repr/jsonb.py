"""jsonb's canonical text, made of a literal.

Promise: no blanks, keys in the order of their bytes and each once (the last value given), numbers in plain notation without zeros at the
end; exactly what `mzsql.expr.functions.jsonb_text` makes in SQL, but with all 39 digits of a number. For what stands in a statement, not
for rows of data.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NoReturn

from mzsql.repr.errors import DataError

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
#: How deeply a document may nest.
MAX_DEPTH = 128
_DIGITS = 39


def canonical(text: str) -> str:
    """The canonical text of a document.

    Raises:
        DataError: ``invalid input syntax for type jsonb: …: "…"`` (22P02).
    """
    _check_depth(text)
    try:
        value = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        line = f"at line {error.lineno} column {max(error.colno - 1, 0)}"
        _fail(f"{_problem(text, error)} {line}", text)
    return _written(value, text)


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
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{','.join(_written(item, text) for item in value)}]"
        case _:
            items = sorted(value.items(), key=lambda item: item[0].encode())
            pairs = (f"{json.dumps(k, ensure_ascii=False)}:{_written(v, text)}" for k, v in items)
            return f"{{{','.join(pairs)}}}"


def _number(value: Decimal, text: str) -> str:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = max(len(digits) + exponent, 0) if any(digits) else 0
    if whole > _DIGITS or (
        whole == _DIGITS and len("".join(map(str, digits)).rstrip("0")) > _DIGITS
    ):
        detail = f'"{text.strip()}" is out of range for type numeric: exceeds maximum precision {_DIGITS}'
        raise DataError(
            f'invalid input syntax for type jsonb: {detail} at line 1 column {len(text)}: "{text}"',
            sqlstate="22P02",
        )
    shown = f"{value:f}"
    if "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return "0" if shown in ("-0", "") else shown
