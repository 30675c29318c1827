"""Constants as EXPLAIN prints them, which differs from how results are shown.

Promise: texts are in double quotes at any depth, lists and records in brackets, arrays in braces, bytes are ``0x…``,
floats have all their digits, timestamps with time zone end in ``UTC``; so constants of different types can be told
apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from mzsql.repr.datum import Datum
from mzsql.repr.types import SqlType
from mzsql.repr.values import datum_text, float_text

_TEXTS = frozenset({"text", "varchar", "char", "unknown"})


def quoted(text: str) -> str:
    """A text in double quotes, with escapes."""
    body = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{body}"'


class _Number(str):
    """A number in a jsonb value, as written."""

    __slots__ = ()


def constant_text(value: Datum, typ: SqlType) -> str:
    """A constant of a type."""
    if value is None:
        return "null"
    match typ.kind:
        case kind if kind in _TEXTS:
            return quoted(str(value))
        case "bytea":
            return f"0x{value}"
        case "real" | "double":
            return _float(float(value), typ.kind)
        case "timestamptz":
            return datum_text(value, typ).replace("+00", " UTC")
        case "jsonb":
            return _document(json.loads(str(value), parse_int=_Number, parse_float=_Number))
        case "list" | "array" | "record" | "map" | "range":
            return _container(json.loads(str(value)), typ)
        case _:
            return datum_text(value, typ)


def _float(value: float, kind: str) -> str:
    """The shortest decimal that reads back as the same float, without an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{Decimal(float_text(value, kind)):f}"


def _container(value: Any, typ: SqlType) -> str:
    match typ.kind:
        case "record":
            types = [column.type for _, column in typ.fields]
            return f"[{', '.join(map(constant_text, value, types))}]"
        case "list":
            return f"[{_elements(value, typ)}]"
        case "array":
            return f"{{{_elements(value, typ)}}}"
        case "map":
            assert typ.element is not None
            element = typ.element
            entries = (f"{quoted(k)}: {constant_text(v, element)}" for k, v in value.items())
            return f"{{{', '.join(entries)}}}"
        case _:
            return _range(value, typ)


def _elements(values: Iterable[Any], typ: SqlType) -> str:
    assert typ.element is not None
    element = typ.element
    return ", ".join(constant_text(value, element) for value in values)


def _range(parts: list[Any], typ: SqlType) -> str:
    if not parts:
        return "empty"
    assert typ.element is not None
    lower, lower_in, upper, upper_in = parts
    low, high = ("" if end is None else constant_text(end, typ.element) for end in (lower, upper))
    return f"{'[' if lower_in else '('}{low},{high}{']' if upper_in else ')'}"


def _document(value: object) -> str:
    """A jsonb value, with texts quoted and its null distinct from SQL's."""
    match value:
        case None:
            return "json_null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "{" + ", ".join(f"{quoted(k)}: {_document(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_document, value)) + "]"
        case _Number():
            return str(value)
        case _:
            return quoted(str(value))
