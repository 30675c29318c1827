"""Parameters: Python values inserted into a statement's text as typed literals.

Promise: whatever a value contains, it can only become one literal: strings are quoted with quotes doubled and no
escapes, numbers and times are formatted here and carry their type, so there is no SQL injection. Placeholders are
psycopg's: ``%s`` and ``%(name)s``; ``%%`` is a per cent sign. Without parameters the text is left as it is.
Placeholders inside quotes and comments are not replaced.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from mzsql.frontend.grammar.tokens import check_text
from mzsql.repr.decimals import MAX_DIGITS
from mzsql.repr.errors import DataError, InvalidParameter, SqlError
from mzsql.repr.ranges import Range

_WHOLE_LIMIT = 10**MAX_DIGITS
#: A Decimal with more digits than this is not written out: it cannot fit any type.
_WRITTEN_DIGITS = 2 * MAX_DIGITS

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

    Args:
        text: the statements.
        params: values for ``%s`` in order, or for ``%(name)s`` by name; None: the text is returned unchanged.

    Raises:
        InvalidParameter: too few or too many parameters, a missing name, or a value whose type has no SQL type.
        DataError: a value that no SQL value represents, or a text with characters that SQL text cannot have.
    """
    check_text(text, "the statement", positions=True)
    if params is None:
        return text
    if isinstance(params, str | bytes):
        raise InvalidParameter("parameters must be a sequence or a mapping, not a string")
    if isinstance(params, Mapping):
        return _PIECES.sub(_Binding(named=params).replace, text)
    binding = _Binding(values=_listed(params))
    bound = _PIECES.sub(binding.replace, text)
    used, given = binding.used, len(binding.values)
    if used != given:
        raise InvalidParameter(
            f"the query has {used} placeholder{'' if used == 1 else 's'} but {given} "
            f"parameter{' was' if given == 1 else 's were'} passed"
        )
    return bound


def _listed(params: Sequence[object]) -> list[object]:
    with _callers("the parameters"):
        return list(params)


class _Binding:
    """One pass over a text that replaces placeholders."""

    def __init__(
        self, values: Sequence[object] = (), named: Mapping[str, object] | None = None
    ) -> None:
        self.values = values
        self.named = named
        self.used = 0

    def replace(self, match: re.Match[str]) -> str:
        """The replacement for a matched piece of the text."""
        match match.lastgroup:
            case "percent":
                return "%"
            case "string" | "identifier" | "comment" | "dollar" | "tag":
                return match[0].replace("%%", "%")
            case "name":
                return self._by_name(match["name"], match.start() + 1)
            case "next":
                return self._next(match.start() + 1)
            case _:
                raise InvalidParameter(
                    "only '%s' and '%(name)s' are allowed as placeholders",
                    position=match.start() + 1,
                    hint="Write %% for a per cent sign in a statement with parameters.",
                )

    def _by_name(self, name: str, position: int) -> str:
        if self.named is None:
            raise InvalidParameter(
                "named placeholders need a mapping of parameters", position=position
            )
        with _callers(f"parameter {name!a}"):
            # `in` first, as psycopg does: a defaultdict would otherwise create the name.
            value, there = (self.named[name], True) if name in self.named else (None, False)
        if not there:
            raise InvalidParameter(f"query parameter missing: {name}", position=position)
        return literal(value)

    def _next(self, position: int) -> str:
        if self.named is not None:
            raise InvalidParameter(
                "positional placeholders need a sequence of parameters", position=position
            )
        self.used += 1
        # Keep counting, so that the error at the end can say how many were needed.
        return literal(self.values[self.used - 1]) if self.used <= len(self.values) else ""


@contextmanager
def _callers(what: str) -> Iterator[None]:
    """Run methods of the caller's own objects in the block; an exception from them is reported as theirs, with the
    object it came from.
    """
    try:
        yield
    except (SqlError, RecursionError, MemoryError):
        raise
    except Exception as failure:
        raise InvalidParameter(f"{what} cannot be read: {_told(failure)}") from failure


def _told(failure: Exception) -> str:
    """An exception from the caller's code by its class, with its message if that can be had."""
    kind = type(failure).__name__
    try:
        return f"{kind}: {failure}"
    except Exception:  # its `__str__` is the caller's code, too
        return kind


def literal(value: object) -> str:
    """A value as an SQL literal of its type.

    Raises:
        InvalidParameter: values of this type have no SQL type.
        DataError: this value has no SQL value.
    """
    if value is None or _is_missing(value):
        return "NULL"
    kind = type(value).__name__
    with _callers(f"a parameter of type {kind!r}"):
        for of, spell in _SPELLINGS:
            if isinstance(value, of):
                return spell(value)
        if isinstance(value, Range):
            # The statement decides which range type it is.
            return _quoted(str(value))
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
            return _of_numpy(numpy, value)
        if all(hasattr(value, part) for part in ("months", "days", "microseconds")):
            return f"{_quoted(str(value))}::interval"
        if kind == "Jsonb":
            return f"{_quoted(str(value))}::jsonb"
    raise InvalidParameter(
        f"cannot adapt type {kind!r} to a SQL type",
        hint="Pass a document as mzsql.Jsonb(json.dumps(value))." if kind == "dict" else None,
    )


def _is_missing(value: object) -> bool:
    """Whether a value is one of pandas' missing values."""
    kind = type(value)
    return kind.__name__ in ("NaTType", "NAType") and kind.__module__.startswith("pandas.")


def _of_numpy(numpy: Any, value: Any) -> str:
    """A numpy scalar or array."""
    if isinstance(value, numpy.ndarray):
        return literal(list(value)) if value.ndim else literal(value[()])
    if isinstance(value, numpy.datetime64 | numpy.timedelta64) and numpy.isnat(value):
        return "NULL"
    if isinstance(value, numpy.datetime64):
        if numpy.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D"):
            return f"'{_era(numpy.datetime_as_string(value, unit='D'))}'::date"
        return f"'{_era(numpy.datetime_as_string(value, unit='us', casting='unsafe'))}'::timestamp"
    if isinstance(value, numpy.timedelta64):
        if numpy.datetime_data(value.dtype)[0] in ("Y", "M"):
            return f"'{value.astype('timedelta64[M]').astype(int)} months'::interval"
        length = value.astype("timedelta64[us]")
        exact = length.item()  # a timedelta where it has one
        return (
            _timedelta(exact)
            if isinstance(exact, dt.timedelta)
            else f"'{length.astype(int)} microseconds'::interval"
        )
    if isinstance(value, numpy.floating):
        return _float(float(value))
    plain = value.item()
    if isinstance(plain, numpy.generic):
        raise InvalidParameter(f"cannot adapt type {type(value).__name__!r} to a SQL type")
    return literal(plain)


def _era(text: str) -> str:
    """A numpy date, whose years continue below 1, as an SQL date with BC."""
    sign, year, rest = re.fullmatch(r"(-?)(\d+)(.*)", text).groups()  # type: ignore[union-attr]
    before = bool(sign) or not int(year)
    return f"{1 + int(year):04}{rest} BC" if before else f"{int(year):04}{rest}"


def _text(value: object) -> str:
    assert isinstance(value, str)
    return _quoted(str.__str__(value))


def _quoted(text: str) -> str:
    check_text(text, "a text parameter")
    return "'" + text.replace("'", "''") + "'"


def _integer(value: object) -> str:
    assert isinstance(value, int)
    if abs(value) >= _WHOLE_LIMIT:  # its text may take long to make
        raise DataError(
            f"an int parameter is out of range for type numeric: exceeds maximum precision {MAX_DIGITS}",
            sqlstate="22003",
        )
    number = int.__repr__(value)
    return f"({number})" if value < 0 else number


def _float(value: object) -> str:
    assert isinstance(value, float)
    if math.isnan(value):
        shown = "NaN"
    elif math.isinf(value):
        shown = "Infinity" if value > 0 else "-Infinity"
    else:
        shown = float.__repr__(value)
    return f"'{shown}'::double precision"


def _decimal(value: object) -> str:
    assert isinstance(value, Decimal)
    if value.is_nan():
        return "'NaN'::numeric"
    if value.is_infinite():
        raise DataError(
            f"numeric parameters cannot be infinite: {value}",
            hint="Pass a float: double precision has infinities.",
            sqlstate="22003",
        )
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if value and not -_WRITTEN_DIGITS < value.adjusted() < _WRITTEN_DIGITS:
        shown = f"{value:E}" if len(digits) <= MAX_DIGITS else "a Decimal parameter"
        raise DataError(
            f'"{shown}" is out of range for type numeric: exceeds maximum precision {MAX_DIGITS}',
            sqlstate="22003",
        )
    text = f"{value:f}" if value or -exponent in range(MAX_DIGITS) else "0"
    return f"({text})" if text.startswith("-") else text


def _timestamp(value: object) -> str:
    assert isinstance(value, dt.datetime)
    if value.tzinfo is None:
        return f"'{value.isoformat(sep=' ')}'::timestamp"
    try:
        utc = value.astimezone(dt.UTC)
    except OverflowError:
        # In UTC it is before year 1 or after 9999, which SQL can represent and Python cannot.
        return f"'{value.isoformat(sep=' ')}'::timestamptz"
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
    if not value:
        return "'{}'"  # of which type, its place says
    return f"ARRAY[{', '.join(literal(v) for v in value)}]"


def _enum(value: object) -> str:
    """An enum member's name, as psycopg writes it; members that are also strings or numbers were handled as such."""
    assert isinstance(value, enum.Enum)
    return _quoted(value.name)


_SPELLINGS: tuple[tuple[type | tuple[type, ...], Callable[[object], str]], ...] = (
    (bool, lambda v: "TRUE" if v else "FALSE"),
    (int, _integer),
    (float, _float),
    (Decimal, _decimal),
    (str, _text),
    (dt.datetime, _timestamp),
    (dt.date, lambda v: f"'{dt.date.isoformat(v)}'::date"),  # type: ignore[arg-type]
    (dt.time, _time),
    (dt.timedelta, _timedelta),
    (uuid.UUID, lambda v: f"'{v}'::uuid"),
    ((bytes, bytearray, memoryview), _bytes),
    ((list, tuple), _list),
    (enum.Enum, _enum),
)
