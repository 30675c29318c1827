"""Parameters: Python values put into a statement's text as typed literals.

Promise: whatever a value holds, it can only ever be one literal: strings are quoted with their quotes doubled and no escapes, numbers and
times are spelled by us and carry their type. Placeholders are psycopg's: ``%s``, ``%(name)s``; ``%%`` is a per cent sign. Without
parameters the text is left as it is. Inside quotes and comments nothing is a placeholder.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from mzsql.repr.errors import InvalidParameter
from mzsql.repr.ranges import Range

_PIECES = re.compile(
    r"""
    (?P<string>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*')
    | (?P<dollar>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<identifier>"(?:[^"]|"")*")
    | (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<percent>%%)
    | %\((?P<name>[^)]*)\)s
    | (?P<next>%s)
    | (?P<stray>%)
    """,
    re.VERBOSE | re.DOTALL,
)


def bind_parameters(
    text: str, params: Sequence[object] | Mapping[str, object] | None = None
) -> str:
    """The text with its placeholders replaced by literals.

    Raises:
        InvalidParameter: too few or too many parameters, a name that is missing, a value of a type that has no SQL type.
    """
    if params is None:
        return text
    if isinstance(params, str | bytes):
        raise InvalidParameter("parameters must be a sequence or a mapping, not a string")
    named = params if isinstance(params, Mapping) else None
    values: list[object] = [] if isinstance(params, Mapping) else list(params)
    used = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal used
        position = match.start() + 1
        kind = match.lastgroup
        if kind == "percent":
            return "%"
        if kind in ("string", "identifier", "comment", "dollar", "tag"):
            return match[0].replace("%%", "%")
        if kind == "stray":
            raise InvalidParameter(
                "only '%s' and '%(name)s' are allowed as placeholders",
                position=position,
                hint="Write %% for a per cent sign in a statement with parameters.",
            )
        if kind == "name":
            if named is None:
                raise InvalidParameter(
                    "named placeholders need a mapping of parameters", position=position
                )
            if match["name"] not in named:
                raise InvalidParameter(
                    f"query parameter missing: {match['name']}", position=position
                )
            return literal(named[match["name"]])
        if named is not None:
            raise InvalidParameter(
                "positional placeholders need a sequence of parameters", position=position
            )
        used += 1
        return literal(values[used - 1]) if used <= len(values) else ""

    bound = _PIECES.sub(replace, text)
    if named is None and used != len(values):
        raise InvalidParameter(
            f"the query has {used} placeholder{'' if used == 1 else 's'} but {len(values)} "
            f"parameter{' was' if len(values) == 1 else 's were'} passed"
        )
    return bound


def literal(value: object) -> str:
    """A value as a SQL literal of its type.

    Raises:
        InvalidParameter: no SQL type for values of this type.
    """
    if value is None:
        return "NULL"
    for kind, spell in _SPELLINGS:
        if isinstance(value, kind):
            return spell(value)
    if all(hasattr(value, part) for part in ("months", "days", "microseconds")):
        return f"{_quoted(str(value))}::interval"
    if type(value).__name__ == "Jsonb":
        return f"{_quoted(str(value))}::jsonb"
    if isinstance(value, Range):
        # Which of the range types it is, the statement says.
        return _quoted(str(value))
    if hasattr(value, "item") and callable(value.item):
        return literal(value.item())  # a scalar of numpy
    raise InvalidParameter(f"cannot adapt type {type(value).__name__!r} to a SQL type")


def _quoted(text: str) -> str:
    if "\0" in text:
        raise InvalidParameter("a text parameter cannot contain the character U+0000")
    return "'" + text.replace("'", "''") + "'"


def _integer(value: object) -> str:
    number = int(str(int(value)))  # type: ignore[call-overload]
    return str(number) if number >= 0 else f"({number})"


def _float(value: object) -> str:
    assert isinstance(value, float)
    if math.isnan(value):
        shown = "NaN"
    elif math.isinf(value):
        shown = "Infinity" if value > 0 else "-Infinity"
    else:
        shown = repr(value)
    return f"'{shown}'::double precision"


def _decimal(value: object) -> str:
    assert isinstance(value, Decimal)
    if not value.is_finite():
        raise InvalidParameter(f"numeric parameters must be finite, not {value}")
    text = f"{value:f}"
    return f"({text})" if text.startswith("-") else text


def _timestamp(value: object) -> str:
    assert isinstance(value, dt.datetime)
    if value.tzinfo is None:
        return f"'{value.isoformat(sep=' ')}'::timestamp"
    utc = value.astimezone(dt.UTC)
    return f"'{utc.isoformat(sep=' ')}'::timestamptz"


def _time(value: object) -> str:
    assert isinstance(value, dt.time)
    if value.tzinfo is not None:
        raise InvalidParameter("a time parameter cannot have a time zone")
    return f"'{value.isoformat()}'::time"


def _timedelta(value: object) -> str:
    assert isinstance(value, dt.timedelta)
    seconds = value.seconds
    clock = (
        f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{value.microseconds:06}"
    )
    return f"'{value.days} days {clock}'::interval"


def _bytes(value: object) -> str:
    assert isinstance(value, bytes | bytearray | memoryview)
    return f"'\\x{bytes(value).hex()}'::bytea"


def _list(value: object) -> str:
    assert isinstance(value, list | tuple)
    return f"ARRAY[{', '.join(literal(v) for v in value)}]"


_SPELLINGS: tuple[tuple[type | tuple[type, ...], Callable[[object], str]], ...] = (
    (bool, lambda v: "TRUE" if v else "FALSE"),
    (int, _integer),
    (float, _float),
    (Decimal, _decimal),
    (str, lambda v: _quoted(str(v))),
    (dt.datetime, _timestamp),
    (dt.date, lambda v: f"'{v}'::date"),
    (dt.time, _time),
    (dt.timedelta, _timedelta),
    (uuid.UUID, lambda v: f"'{v}'::uuid"),
    ((bytes, bytearray, memoryview), _bytes),
    ((list, tuple), _list),
)
