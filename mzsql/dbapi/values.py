"""Python values of SQL's: what a fetched row holds, and PEP 249's types and constructors.

Promise: the mapping of the architecture's section 4. `Interval` and `Jsonb` are values that compare and hash, and whose `str` is
PostgreSQL's text.
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

from mzsql.expr.evaluate import datum_text
from mzsql.repr.decimals import numeric_text
from mzsql.repr.ranges import Range
from mzsql.repr.types import INTERVAL, SqlType, arrow_type
from mzsql.repr.values import Map, arrow_text, datums, float_text, python_value


@functools.total_ordering
class Interval:
    """SQL's interval: months, days and microseconds, which do not convert into each other exactly."""

    __slots__ = ("days", "microseconds", "months")

    def __init__(self, months: int = 0, days: int = 0, microseconds: int = 0) -> None:
        self.months = months
        self.days = days
        self.microseconds = microseconds

    def _key(self) -> int:
        # PostgreSQL compares intervals as if a month had 30 days and a day 24 hours.
        return (self.months * 30 + self.days) * 86_400_000_000 + self.microseconds

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Interval) else NotImplemented

    def __lt__(self, other: Interval) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Interval(months={self.months}, days={self.days}, microseconds={self.microseconds})"

    def __str__(self) -> str:
        return datum_text(f"{self.months} {self.days} {self.microseconds}", INTERVAL)

    def as_timedelta(self) -> dt.timedelta:
        """The same as a timedelta; ValueError where it has months, whose length varies."""
        if self.months:
            msg = f"an interval with months has no fixed length: {self}"
            raise ValueError(msg)
        return dt.timedelta(days=self.days, microseconds=self.microseconds)


class Jsonb:
    """SQL's jsonb: `text` is PostgreSQL's text of it, `value` what it holds."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

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


def _numeric(value: decimal.Decimal) -> decimal.Decimal:
    """A numeric of undeclared scale without the zeros that its carrier adds."""
    return decimal.Decimal(numeric_text(value))


def _time(micros: int) -> dt.time:
    return (dt.datetime.min + dt.timedelta(microseconds=micros)).time()


def _interval(value: dict[str, int]) -> Interval:
    return Interval(value["months"], value["days"], value["micros"])


def _zoned(value: dt.datetime) -> dt.datetime:
    return value.astimezone(dt.UTC)


def converter(typ: SqlType) -> Callable[[Any], Any] | None:
    """From Arrow's Python value (not None) to ours; None where they are the same."""
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
            return Jsonb
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
        # Constants that no column holds come as their texts.
        return [None if v is None else python_value(v, typ) for v in column.to_pylist()]
    if typ.kind == "real":
        # The fewest digits that name the float of four bytes, as PostgreSQL's text has them.
        return [None if v is None else float(float_text(v, "real")) for v in column.to_pylist()]
    try:
        values: list[Any] = column.to_pylist()
    except OverflowError:
        # Dates before the year 1 and after 9999 have no object in Python: they are given as their text.
        return [None if d is None else python_value(d, typ) for d in datums(column, typ)]
    convert = converter(typ)
    if convert is None:
        return values
    return [None if v is None else convert(v) for v in values]


# --- PEP 249's type objects and constructors ------------------------------------------------------


class TypeObject:
    """Equal to the type codes of `Cursor.description` that it stands for."""

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

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802  PEP 249's name
    """A date from seconds since the epoch, local time."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802  PEP 249's name
    """A time of day from seconds since the epoch, local time."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802  PEP 249's name
    """A timestamp from seconds since the epoch, local time."""
    return dt.datetime(*time.localtime(ticks)[:6])
