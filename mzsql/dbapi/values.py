"""Python values for SQL's: the values in fetched rows, and PEP 249's type objects and constructors.

Promise: numeric becomes `decimal.Decimal`, dates and times `datetime`, arrays and lists `list`, bytea `bytes`;
`Interval`, `Jsonb` and `Range` are values that compare and hash, and whose `str` is PostgreSQL's text.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import json
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from mzsql.dbapi import arguments
from mzsql.dbapi.errors import DataError, ProgrammingError
from mzsql.repr import ranges
from mzsql.repr.decimals import numeric_text
from mzsql.repr.shown import shown as given
from mzsql.repr.types import INTERVAL, SqlType, arrow_type
from mzsql.repr.values import Map, arrow_text, datum_text, datums, float_text, python_value


class NoTimedelta(DataError, ValueError):
    """An interval that cannot be a timedelta."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sqlstate="22008")


@functools.total_ordering
class Interval:
    """An SQL interval: months, days and microseconds, none of which has a fixed length in the others."""

    __slots__ = ("days", "microseconds", "months")

    def __init__(self, months: int = 0, days: int = 0, microseconds: int = 0) -> None:
        self.months = arguments.whole(months, "months", -(2**31), 2**31 - 1)
        self.days = arguments.whole(days, "days", -(2**31), 2**31 - 1)
        self.microseconds = arguments.whole(microseconds, "microseconds", -(2**63), 2**63 - 1)

    def _key(self) -> int:
        # Intervals compare as in PostgreSQL: a month counts as 30 days, a day as 24 hours.
        return (self.months * 30 + self.days) * 86_400_000_000 + self.microseconds

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Interval) else NotImplemented

    def __lt__(self, other: Interval) -> bool:
        return self._key() < other._key() if isinstance(other, Interval) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Interval(months={self.months}, days={self.days}, microseconds={self.microseconds})"

    def __str__(self) -> str:
        return datum_text(f"{self.months} {self.days} {self.microseconds}", INTERVAL)

    def as_timedelta(self) -> dt.timedelta:
        """The interval as a timedelta.

        Raises:
            NoTimedelta: it has months, whose length varies, or exceeds a timedelta's range. Both a DataError and a
                ValueError.
        """
        if self.months:
            raise NoTimedelta(f"an interval with months has no fixed length: {self}")
        try:
            return dt.timedelta(days=self.days, microseconds=self.microseconds)
        except OverflowError:
            raise NoTimedelta(f"an interval too long for a timedelta: {self}") from None


class Jsonb:
    """A jsonb value: `text` is PostgreSQL's text of it, `value` the document as Python objects."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = arguments.text(text, "text")
        try:
            json.loads(text)
        except json.JSONDecodeError as failure:
            raise DataError(
                f"invalid input syntax for type jsonb: {failure}",
                hint="Give a document's text, as json.dumps() makes it.",
                sqlstate="22P02",
            ) from None
        except (ValueError, RecursionError):  # numbers of thousands of digits, brackets likewise
            raise DataError(
                "invalid input syntax for type jsonb: a number is too long, or it nests too deeply",
                sqlstate="22P02",
            ) from None

    @classmethod
    def _fetched(cls, text: str) -> Jsonb:
        """A value whose text is already in jsonb's form, as fetched."""
        made = cls.__new__(cls)
        made.text = text
        return made

    @property
    def value(self) -> Any:
        """The document as Python objects."""
        return json.loads(self.text)

    def __eq__(self, other: object) -> bool:
        return self.value == other.value if isinstance(other, Jsonb) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Jsonb({self.text!r})"

    def __str__(self) -> str:
        return self.text


class Range(ranges.Range):
    """A range value; see `mzsql.repr.ranges`."""

    __slots__ = ()

    def __init__(
        self,
        lower: Any = None,
        upper: Any = None,
        bounds: str = "[)",
        *,
        empty: bool = False,
        text: str = "",
    ) -> None:
        if not isinstance(bounds, str) or bounds not in ranges.BOUNDS:
            arguments.refuse("bounds", f"one of {', '.join(ranges.BOUNDS)}", bounds)
        arguments.flag(empty, "empty")
        super().__init__(lower, upper, bounds, empty=empty, text=arguments.text(text, "text"))


def _numeric(value: decimal.Decimal) -> decimal.Decimal:
    """A numeric of undeclared scale without the trailing zeros of its storage type."""
    return decimal.Decimal(numeric_text(value))


def _time(micros: int) -> dt.time:
    return (dt.datetime.min + dt.timedelta(microseconds=micros)).time()


def _interval(value: dict[str, int]) -> Interval:
    return Interval(value["months"], value["days"], value["micros"])


def _zoned(value: dt.datetime) -> dt.datetime:
    return value.astimezone(dt.UTC)


def converter(typ: SqlType) -> Callable[[Any], Any] | None:
    """The function from Arrow's Python value (not None) to ours; None where they are the same."""
    match typ.kind:
        case "numeric":
            return _numeric if typ.scale is None else None
        case "uint8":
            return int
        case "time":
            return _time
        case "interval":
            return _interval
        case "jsonb":
            return Jsonb._fetched
        case "uuid":
            return uuid.UUID
        case "timestamptz":
            return _zoned
        case "list" | "array":
            return _elements(typ)
        case "map":
            return _pairs(typ)
        case "record":
            return _fields(typ)
        case "range":
            return _range(typ)
        case _:
            return None


def _optional(typ: SqlType) -> Callable[[Any], Any]:
    convert = converter(typ)
    if convert is None:
        return lambda v: v
    return lambda v: None if v is None else convert(v)


def _elements(typ: SqlType) -> Callable[[Any], Any]:
    assert typ.element is not None
    one = _optional(typ.element)
    return lambda v: [one(x) for x in v]


def _pairs(typ: SqlType) -> Callable[[Any], Any]:
    assert typ.element is not None
    one = _optional(typ.element)
    return lambda v: Map({k: one(x) for k, x in v}, arrow_text(v, typ))


def _fields(typ: SqlType) -> Callable[[Any], Any]:
    fields = [_optional(column.type) for _, column in typ.fields]
    return lambda v: tuple(f(x) for f, x in zip(fields, v.values(), strict=True))


def _range(typ: SqlType) -> Callable[[Any], Any]:
    assert typ.element is not None
    one = _optional(typ.element)

    def convert(value: Any) -> Range:
        lower = "(" if value["lower_exclusive"] else "["
        bounds = lower + ("]" if value["upper_inclusive"] else ")")
        ends = one(value["lower"]), one(value["upper"])
        return Range(*ends, bounds, empty=value["lower_rank"] == 0, text=arrow_text(value, typ))

    return convert


def python_column(column: pa.ChunkedArray, typ: SqlType) -> list[Any]:
    """A result's column as Python values."""
    if pa.types.is_string(column.type) and not pa.types.is_string(arrow_type(typ)):
        # Constants that no Arrow column can hold are transported as texts.
        return [None if v is None else python_value(v, typ) for v in column.to_pylist()]
    if typ.kind == "real":
        # The shortest decimal that identifies the 4-byte float, as in PostgreSQL's text.
        return [None if v is None else float(float_text(v, "real")) for v in column.to_pylist()]
    try:
        values: list[Any] = column.to_pylist()
    except OverflowError:
        # Python has no dates before year 1 or after 9999: those are returned as texts.
        return [None if d is None else python_value(d, typ) for d in datums(column, typ)]
    convert = converter(typ)
    if convert is None:
        return values
    return [None if v is None else convert(v) for v in values]


# --- PEP 249's type objects and constructors ------------------------------------------------------


class TypeObject:
    """A PEP 249 type object: equal to the type codes in `Cursor.description` that belong to it."""

    def __init__(self, name: str, kinds: Iterable[str]) -> None:
        self.name = name
        self.kinds = frozenset(kinds)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self.kinds == other.kinds
        return isinstance(other, str) and other.partition("(")[0] in self.kinds

    def __hash__(self) -> int:
        return hash(self.kinds)

    def __repr__(self) -> str:
        return f"mzsql.{self.name}"


STRING = TypeObject("STRING", ("text", "character varying", "character", "uuid", "jsonb"))
BINARY = TypeObject("BINARY", ("bytea",))
NUMBER = TypeObject(
    "NUMBER",
    (
        "smallint",
        "integer",
        "bigint",
        "uint2",
        "uint4",
        "uint8",
        "oid",
        "real",
        "double precision",
        "numeric",
        "mz_timestamp",
    ),
)
DATETIME = TypeObject(
    "DATETIME",
    ("date", "time", "timestamp without time zone", "timestamp with time zone", "interval"),
)
ROWID = TypeObject("ROWID", ())


_PARTS = (int, float, bytes, bytearray, memoryview, dt.tzinfo, type(None))


def _made(make: Callable[..., Any], what: str, *parts: Any) -> Any:
    """A value made by ``make``; ProgrammingError where it refuses the parts."""
    shown = ", ".join(given(part) for part in parts)
    if not all(isinstance(part, _PARTS) for part in parts):
        # Only show values of known types: any other object's methods could do anything.
        raise ProgrammingError(f"not {what}: {shown}", sqlstate="22023")
    try:
        return make(*parts)
    except TypeError as failure:
        raise ProgrammingError(f"not {what}: {shown}: {failure}", sqlstate="22023") from None
    except (ValueError, OverflowError, OSError) as failure:
        raise DataError(f"not {what}: {shown}: {failure}", sqlstate="22008") from None


def Date(year: int, month: int, day: int) -> dt.date:  # noqa: N802  PEP 249's name
    """A date."""
    return _made(dt.date, "a date", year, month, day)  # type: ignore[no-any-return]


def Time(  # noqa: N802  PEP 249's name
    hour: int = 0,
    minute: int = 0,
    second: int = 0,
    microsecond: int = 0,
    tzinfo: dt.tzinfo | None = None,
) -> dt.time:
    """A time of day."""
    return _made(dt.time, "a time", hour, minute, second, microsecond, tzinfo)  # type: ignore[no-any-return]


def Timestamp(  # noqa: N802  PEP 249's name
    year: int,
    month: int,
    day: int,
    hour: int = 0,
    minute: int = 0,
    second: int = 0,
    microsecond: int = 0,
    tzinfo: dt.tzinfo | None = None,
) -> dt.datetime:
    """A timestamp, with a time zone where there is a ``tzinfo``."""
    parts = (year, month, day, hour, minute, second, microsecond, tzinfo)
    return _made(dt.datetime, "a timestamp", *parts)  # type: ignore[no-any-return]


def Binary(data: bytes | bytearray | memoryview) -> bytes:  # noqa: N802  PEP 249's name
    """Bytes."""
    if not isinstance(data, bytes | bytearray | memoryview):
        arguments.refuse("data", "bytes", data)
    return _made(bytes, "bytes", data)  # type: ignore[no-any-return]


def _local(ticks: float) -> time.struct_time:
    if not isinstance(ticks, int | float) or isinstance(ticks, bool):
        arguments.refuse("ticks", "a number of seconds since the epoch", ticks)
    return _made(time.localtime, "a time since the epoch", ticks)  # type: ignore[no-any-return]


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802  PEP 249's name
    """A date from seconds since the epoch, local time."""
    return Date(*_local(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802  PEP 249's name
    """A time of day from seconds since the epoch, local time."""
    return Time(*_local(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802  PEP 249's name
    """A timestamp from seconds since the epoch, local time."""
    return Timestamp(*_local(ticks)[:6])
