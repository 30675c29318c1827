"""Values in their three forms: the plan's `Datum`, Python's objects, PostgreSQL's text.

Promise: ``datum_of(python_value(d, t), t) == d`` for every datum of a type, and `datum_text` is what PostgreSQL prints (numerics without
trailing zeros, as Materialize does). Python's `datetime` ends at the years 1 and 9999: dates beyond are given as their text.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from mzsql.repr.datum import Datum
from mzsql.repr.decimals import EXACT, carried, numeric_text, shown
from mzsql.repr.errors import DatatypeMismatch
from mzsql.repr.interval import Interval, clock_text
from mzsql.repr.jsonb import canonical
from mzsql.repr.ranges import Range, range_text
from mzsql.repr.ranges import canonical as canonical_range
from mzsql.repr.types import SqlType, range_fields, type_name

_EPOCH_DATE = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)
_DAY_MICROS = 86_400_000_000
_INTEGERS = frozenset(
    {
        *("smallint", "integer", "bigint", "uint2", "uint4", "uint8", "mz_timestamp"),
        *("oid", "regclass", "regproc", "regtype"),
    }
)


class Jsonb(msgspec.Struct, frozen=True):
    """A jsonb value; ``str()`` gives its text, `value` the Python objects it stands for."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def value(self) -> Any:
        """dict, list, str, int, Decimal, bool or None."""
        return json.loads(self.text, parse_float=Decimal)


class Map(Mapping[str, Any]):
    """A map's value: a mapping whose ``str()`` is the map's text."""

    def __init__(self, items: Mapping[str, Any], text: str = "") -> None:
        self._items = dict(items)
        self._text = text

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __str__(self) -> str:
        return self._text or str(self._items)

    def __repr__(self) -> str:
        return f"Map({self._items!r})"


def python_value(datum: Datum, typ: SqlType) -> Any:
    """The Python object of a datum: what PEP 249 hands out."""
    if datum is None:
        return None
    match typ.kind:
        case "numeric":
            return shown(str(datum), typ)
        case "bytea":
            return bytes.fromhex(str(datum))
        case "real" | "double":
            return float(datum) + 0.0
        case "date":
            return _or_text(_EPOCH_DATE, dt.timedelta(days=int(datum)), datum, typ)
        case "time":
            return _time(int(datum))
        case "timestamp":
            return _or_text(_EPOCH, dt.timedelta(microseconds=int(datum)), datum, typ)
        case "timestamptz":
            epoch = _EPOCH.replace(tzinfo=dt.UTC)
            return _or_text(epoch, dt.timedelta(microseconds=int(datum)), datum, typ)
        case "interval":
            return interval_of(str(datum))
        case "uuid":
            return uuid.UUID(str(datum))
        case "jsonb":
            return Jsonb(str(datum))
        case "list" | "array":
            assert typ.element is not None
            return [python_value(item, typ.element) for item in json.loads(str(datum))]
        case "record":
            items = json.loads(str(datum))
            return tuple(
                python_value(item, column.type)
                for item, (_, column) in zip(items, typ.fields, strict=True)
            )
        case "range":
            return _python_range(datum, typ)
        case "map":
            assert typ.element is not None
            entries = json.loads(str(datum)).items()
            items = {key: python_value(item, typ.element) for key, item in entries}
            return Map(items, datum_text(datum, typ))
        case _:
            return datum


def _or_text(epoch: Any, delta: dt.timedelta, datum: Datum, typ: SqlType) -> Any:
    try:
        return epoch + delta
    except OverflowError:
        return datum_text(datum, typ)


def _time(micros: int) -> Any:
    if micros >= _DAY_MICROS:
        return clock_text(micros)
    return (_EPOCH + dt.timedelta(microseconds=micros)).time()


def interval_of(datum: str) -> Interval:
    """The interval of its datum, three numbers with blanks between."""
    months, days, micros = datum.split(" ")
    return Interval(int(months), int(days), int(micros))


def datum_of(value: Any, typ: SqlType) -> Datum:
    """The datum of a Python object.

    Raises:
        DatatypeMismatch: an object that is no value of the type.
        DataError: a value outside the type's range.
    """
    if value is None:
        return None
    kind = typ.kind
    if kind in _INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        return value
    match kind, value:
        case "boolean", bool():
            return value
        case (("real" | "double"), (float() | int())) if not isinstance(value, bool):
            return float(value) + 0.0  # never -0.0
        case (("uint8" | "mz_timestamp"), Decimal()):
            return int(value)
        case "numeric", (Decimal() | int()) if not isinstance(value, bool):
            return numeric_text(Decimal(value))
        case (("text" | "varchar" | "char" | "unknown"), str()):
            return value
        case "uuid", (uuid.UUID() | str()):
            return str(value)
        case "jsonb", (Jsonb() | str()):
            return canonical(str(value))
        case "bytea", (bytes() | bytearray() | memoryview()):
            return bytes(value).hex()
        case "interval", _:
            return _interval_datum(value, typ)
        case (("date" | "time" | "timestamp" | "timestamptz"), _):
            return _moment_datum(value, typ)
        case (("list" | "array"), (list() | tuple())):
            assert typ.element is not None
            return json.dumps([datum_of(item, typ.element) for item in value])
        case "record", (tuple() | list() | dict()):
            items = value.values() if isinstance(value, dict) else value
            pairs = zip(items, typ.fields, strict=True)
            return json.dumps([datum_of(item, column.type) for item, (_, column) in pairs])
        case "map", Mapping():
            return _map_datum(value.items(), typ, datum_of)
        case "range", (Range() | dict()):
            return _range_datum(value, typ, datum_of)
        case _:
            raise _mismatch(value, typ)


def _map_datum(
    items: Iterable[tuple[str, Any]], typ: SqlType, inner: Callable[[Any, SqlType], Datum]
) -> Datum:
    """Entries in the order of their keys, so that equal maps have equal datums."""
    assert typ.element is not None
    return json.dumps({key: inner(item, typ.element) for key, item in sorted(items)})


def _python_range(datum: Datum, typ: SqlType) -> Range:
    assert typ.element is not None
    parts = json.loads(str(datum))
    text = datum_text(datum, typ)
    if not parts:
        return Range(empty=True, text=text)
    lower, lower_in, upper, upper_in = parts
    bounds = f"{'[' if lower_in else '('}{']' if upper_in else ')'}"
    low, high = (python_value(end, typ.element) for end in (lower, upper))
    return Range(low, high, bounds, text=text)


def _range_datum(
    value: Range | dict[str, Any], typ: SqlType, inner: Callable[[Any, SqlType], Datum]
) -> Datum:
    """Of a range, or of the struct that carries one: nothing of the empty range, else each bound and whether it is included."""
    element = typ.element
    assert element is not None
    if isinstance(value, Range):
        bounds, empty = value.bounds, value.isempty
        low, high = (_comparable(inner(e, element), element) for e in (value.lower, value.upper))
    else:
        bounds = (
            f"{'(' if value['lower_exclusive'] else '['}{']' if value['upper_inclusive'] else ')'}"
        )
        empty = value["lower_rank"] == 0
        low, high = (_comparable(inner(value[e], element), element) for e in ("lower", "upper"))
    parts = None if empty else canonical_range(low, high, bounds, element.kind)
    if parts is None:
        return "[]"
    return json.dumps([numeric_text(p) if isinstance(p, Decimal) else p for p in parts])


def _comparable(datum: Datum, typ: SqlType) -> Any:
    """A bound as what compares as SQL's values do."""
    return Decimal(str(datum)) if typ.kind == "numeric" and datum is not None else datum


def _mismatch(value: object, typ: SqlType) -> DatatypeMismatch:
    return DatatypeMismatch(f"{type(value).__name__} is no value of type {type_name(typ)}")


def _interval_datum(value: Any, typ: SqlType) -> Datum:
    match value:
        case Interval():
            return f"{value.months} {value.days} {value.microseconds}"
        case dt.timedelta():
            return f"0 {value.days} {value.seconds * 1_000_000 + value.microseconds}"
        case {"months": months, "days": days, "micros": micros}:
            return f"{months} {days} {micros}"
        case _:
            raise _mismatch(value, typ)


def _moment_datum(value: Any, typ: SqlType) -> Datum:
    match typ.kind, value:
        case "time", dt.time():
            seconds = value.hour * 3600 + value.minute * 60 + value.second
            return seconds * 1_000_000 + value.microsecond
        case (("date" | "time" | "timestamp" | "timestamptz"), int()) if not isinstance(
            value, bool
        ):
            return value
        case "date", dt.date() if not isinstance(value, dt.datetime):
            return (value - _EPOCH_DATE).days
        case "timestamp", dt.datetime() if value.tzinfo is None:
            return (value - _EPOCH) // dt.timedelta(microseconds=1)
        case "timestamptz", dt.datetime():
            zoned = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
            return (zoned - _EPOCH.replace(tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        case _:
            raise _mismatch(value, typ)


def datum_text(datum: Datum, typ: SqlType) -> str:
    """PostgreSQL's text of a value; NULL has none, so it must not be asked for."""
    assert datum is not None
    match typ.kind:
        case "boolean":
            return "true" if datum else "false"
        case "real" | "double":
            return float_text(float(datum) + 0.0, typ.kind)
        case "numeric":
            return numeric_text(Decimal(str(datum)))
        case "bytea":
            return f"\\x{datum}"
        case "date":
            return date_text(int(datum))
        case "time":
            return clock_text(int(datum))
        case "timestamp" | "timestamptz":
            return _timestamp_text(int(datum), typ.kind)
        case "interval":
            return str(interval_of(str(datum)))
        case "list" | "array":
            assert typ.element is not None
            return _braced(json.loads(str(datum)), typ.element)
        case "record":
            return _record_text(json.loads(str(datum)), typ)
        case "map":
            assert typ.element is not None
            return _map_text(json.loads(str(datum)), typ.element)
        case "range":
            return _range_text(json.loads(str(datum)), typ)
        case _:
            return str(datum)


def float_text(value: float, kind: str) -> str:
    """The fewest digits that read back as the same float, in PostgreSQL's notation."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    shortest = _shortest_real(value) if kind == "real" else repr(value)
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    body = "".join(map(str, digits))
    power = len(body) - 1 + exponent
    lead = "-" if sign else ""
    if power < -4 or power >= (6 if kind == "real" else 15):
        mantissa = body[0] + (f".{body[1:]}" if len(body) > 1 else "")
        return f"{lead}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if exponent >= 0:
        return f"{lead}{body}{'0' * exponent}"
    return f"{lead}{abs(Decimal(shortest)):f}"


def _shortest_real(value: float) -> str:
    import numpy as np  # noqa: PLC0415  only floats of four bytes need it

    return str(np.format_float_scientific(np.float32(value), unique=True))


def date_text(days: int) -> str:
    """``YYYY-MM-DD``, with BC where it lies before the year 1."""
    year, month, day = civil(days)
    era = " BC" if year < 1 else ""
    return f"{1 - year if year < 1 else year:04d}-{month:02d}-{day:02d}{era}"


def civil(days: int) -> tuple[int, int, int]:
    """Year (astronomical), month and day of a number of days since 1970-01-01, in the proleptic Gregorian calendar.

    Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    """
    shifted = days + 719_468
    era, day_of_era = divmod(shifted, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (1 if month <= 2 else 0), month, day


def _timestamp_text(micros: int, kind: str) -> str:
    days, clock = divmod(micros, _DAY_MICROS)
    date, _, era = date_text(days).partition(" ")
    zone = "+00" if kind == "timestamptz" else ""
    return f"{date} {clock_text(clock)}{zone}{' ' + era if era else ''}"


def _braced(items: list[Any], element: SqlType) -> str:
    parts = []
    for item in items:
        if item is None:
            parts.append("NULL")
            continue
        text = element_text(item, element)
        plain = element.kind in ("list", "array", "map") or not _needs_quotes(text)
        parts.append(text if plain else _quoted(text))
    return f"{{{','.join(parts)}}}"


def element_text(datum: Datum, typ: SqlType) -> str:
    """The text of a value inside another one: there a boolean is one letter."""
    if typ.kind == "boolean":
        return "t" if datum else "f"
    return datum_text(datum, typ)


def _map_text(entries: dict[str, Any], element: SqlType) -> str:
    parts = []
    for key, item in sorted(entries.items()):
        shown = "NULL"
        if item is not None:
            shown = element_text(item, element)
            if element.kind not in ("map", "list", "array") and _map_quotes(shown):
                shown = _quoted(shown)
        parts.append(f"{_quoted(key) if _map_quotes(key) else key}=>{shown}")
    return f"{{{','.join(parts)}}}"


def _range_text(parts: list[Any], typ: SqlType) -> str:
    assert typ.element is not None
    if not parts:
        return range_text(None, None, None)
    lower, lower_in, upper, upper_in = parts
    bounds = f"{'[' if lower_in else '('}{']' if upper_in else ')'}"
    ends = [None if end is None else datum_text(end, typ.element) for end in (lower, upper)]
    return range_text(bounds, *ends)


def _map_quotes(text: str) -> bool:
    return _needs_quotes(text) or "=>" in text


def _needs_quotes(text: str) -> bool:
    special = any(char in '{},"\\' or char.isspace() for char in text)
    return special or not text or text.upper() == "NULL"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _record_text(items: list[Any], typ: SqlType) -> str:
    parts = []
    for item, (_, column) in zip(items, typ.fields, strict=True):
        if item is None:
            parts.append("")
            continue
        text = element_text(item, column.type)
        special = any(char in '(),"\\' or char.isspace() for char in text)
        doubled = text.replace("\\", "\\\\").replace('"', '""')
        parts.append(f'"{doubled}"' if special or not text else text)
    return f"({','.join(parts)})"


def arrow_value(datum: Datum, typ: SqlType) -> Any:
    """What `pyarrow.array` takes for a datum, given the type's Arrow type."""
    if datum is None:
        return None
    match typ.kind:
        case "numeric":
            return carried(str(datum), typ)
        case "uint8":
            return Decimal(int(datum))
        case "bytea":
            return bytes.fromhex(str(datum))
        case "interval":
            span = interval_of(str(datum))
            return {"months": span.months, "days": span.days, "micros": span.microseconds}
        case "list" | "array":
            assert typ.element is not None
            return [arrow_value(item, typ.element) for item in json.loads(str(datum))]
        case "record":
            pairs = zip(json.loads(str(datum)), typ.fields, strict=True)
            return {
                f"f{i}": arrow_value(item, column.type)
                for i, (item, (_, column)) in enumerate(pairs, start=1)
            }
        case "map":
            assert typ.element is not None
            entries = json.loads(str(datum)).items()
            return [(key, arrow_value(item, typ.element)) for key, item in entries]
        case "range":
            values = range_parts(str(datum))
            return {name: arrow_value(values[name], part) for name, part in range_fields(typ)}
        case _:
            return datum


def range_parts(datum: str) -> dict[str, Datum]:
    """The datums of the fields that carry a range (`mzsql.repr.types.range_fields`)."""
    parts = json.loads(datum)
    lower, lower_in, upper, upper_in = parts or (None, False, None, False)
    unbounded = (1, 2) if parts else (0, 0)
    return {
        "lower_rank": unbounded[0] if lower is None else 2,
        "lower": lower,
        "lower_exclusive": lower is not None and not lower_in,
        "upper_rank": unbounded[1] if upper is None else 1,
        "upper": upper,
        "upper_inclusive": upper is not None and upper_in,
    }


def datums(array: pa.Array | pa.ChunkedArray, typ: SqlType) -> list[Datum]:
    """The datums of an Arrow array of the type's Arrow type."""
    kind = typ.kind
    if kind in ("timestamp", "timestamptz"):
        array = array.cast(pa.int64())
    elif kind == "date":
        array = array.cast(pa.int32())
    return [_datum(value, typ) for value in array.to_pylist()]


def arrow_text(value: Any, typ: SqlType) -> str:
    """The text of a value as Arrow hands it out in Python; not of NULL."""
    return datum_text(_nested(value, typ), typ)


def _datum(value: Any, typ: SqlType) -> Datum:
    if value is None:
        return None
    match typ.kind:
        case "numeric":
            # A text is a constant that no column could carry.
            return numeric_text(EXACT.create_decimal(value))
        case "uint8":
            return int(value)
        case "list" | "array":
            assert typ.element is not None
            return json.dumps([_nested(item, typ.element) for item in value])
        case "record":
            pairs = zip(value.values(), typ.fields, strict=True)
            return json.dumps([_nested(item, column.type) for item, (_, column) in pairs])
        case "map":
            return _map_datum(value.items() if isinstance(value, Mapping) else value, typ, _nested)
        case "range":
            return _range_datum(value, typ, _nested)
        case "real" | "double":
            return float(value) + 0.0
        case "interval" | "bytea":
            return datum_of(value, typ)
        case _:
            assert isinstance(value, bool | int | str)
            return value


def _nested(value: Any, typ: SqlType) -> Datum:
    """Inside a list Arrow hands out Python's dates, where a column was cast to numbers."""
    if typ.kind in ("date", "timestamp", "timestamptz"):
        return datum_of(value, typ)
    return _datum(value, typ)
