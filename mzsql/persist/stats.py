"""Least and greatest values of parts and row groups, and which of them a lookup must read.

Promise: pruning is conservative: what cannot be compared is read. Parts have no statistics of floating-point
columns, because Parquet's leave out NaN; those of row groups are used for all other numbers, and a NaN is always
assumed possible. The statistics of a shard without key are taken from the Parquet footer, which the object's writer
has computed anyway.
"""

from __future__ import annotations

import bisect
import datetime as dt
import decimal
import fractions
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mzsql.persist.batch import KeySpec, KeyStats, Stat
from mzsql.persist.errors import SchemaMismatch

KeyRange: TypeAlias = tuple[Any, Any]

_TEXT_LIMIT = 64
_EXACT = decimal.Context(prec=100)
_INT_BACKED = (pa.types.is_date, pa.types.is_time, pa.types.is_timestamp, pa.types.is_duration)


def key_stats(table: pa.Table, key: KeySpec | None) -> tuple[KeyStats, ...]:
    """Return the statistics of a part about to be written."""
    if key is None:
        return ()
    return tuple(_column_stats(name, table[name]) for name in key.columns)


def _column_stats(name: str, column: pa.ChunkedArray) -> KeyStats:
    if not _comparable(column.type):
        return KeyStats(name, None, None, column.null_count, known=False)
    # Arrow has no min_max of durations, so use that of the integers behind them.
    duration = pa.types.is_duration(column.type)
    bounds = pc.min_max(column.cast(pa.int64()) if duration else column)
    return KeyStats(
        name,
        _shortened(to_stat(bounds["min"]), upwards=False),
        _shortened(to_stat(bounds["max"]), upwards=True),
        column.null_count,
    )


def footer_stats(
    metadata: pq.FileMetaData, schema: pa.Schema, names: Sequence[str]
) -> tuple[KeyStats, ...]:
    """Return statistics of the columns ``names`` of a Parquet object from its footer, merged over its row groups.

    ``schema`` has the shard's types of the columns. ``lo`` and ``hi`` are bounds, as writers may shorten text.
    Unknown if some row group has none, if the column is nested or floating-point, and if the file stores it with
    another physical type than expected.
    """
    places: dict[str, list[int]] = {}
    for place in range(metadata.num_columns):
        places.setdefault(metadata.schema.column(place).path, []).append(place)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return tuple(
        _merged_stats(name, schema.field(name).type, places.get(name, []), metadata.schema, groups)
        for name in names
    )


def group_stats(
    metadata: pq.FileMetaData, schema: pa.Schema, names: Sequence[str]
) -> list[tuple[int, tuple[KeyStats, ...]]]:
    """Return, for each row group of a Parquet object in order, its number of rows and the statistics of the columns
    ``names``.
    """
    places: dict[str, list[int]] = {}
    for place in range(metadata.num_columns):
        places.setdefault(metadata.schema.column(place).path, []).append(place)
    made = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        stats = tuple(
            _merged_stats(
                name, schema.field(name).type, places.get(name, []), metadata.schema, [group]
            )
            for name in names
        )
        made.append((group.num_rows, stats))
    return made


def column_bytes(metadata: pq.FileMetaData) -> dict[str, int]:
    """Return the encoded bytes of each top-level column of a Parquet object."""
    names = [metadata.schema.column(i).path.split(".")[0] for i in range(metadata.num_columns)]
    found = dict.fromkeys(names, 0)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place, name in enumerate(names):
            found[name] += group.column(place).total_compressed_size
    return found


def _merged_stats(
    name: str,
    type_: pa.DataType,
    places: Sequence[int],
    schema: pq.ParquetSchema,
    groups: Sequence[pq.RowGroupMetaData],
) -> KeyStats:
    unknown = KeyStats(name, None, None, 0, known=False)
    # The path of a leaf inside a struct may equal the name of another column, which is then ambiguous.
    if not _comparable(type_) or len(places) != 1:
        return unknown
    [place] = places
    bounds: list[Any] = []
    nulls = 0
    for group in groups:
        if group.num_rows == 0:
            continue
        found = group.column(place).statistics
        if found is None or not found.has_null_count:
            return unknown
        nulls += found.null_count
        if found.null_count == group.num_rows:
            continue
        if not found.has_min_max:
            return unknown
        try:
            factor = _factor(type_, schema.column(place))
            bounds += (_raw(end, type_, factor, found) for end in ("min", "max"))
        except (TypeError, ValueError, UnicodeError, pa.ArrowException):
            return unknown  # a physical type with another Python form: claim nothing
    if not bounds:
        return KeyStats(name, None, None, nulls)
    lo, hi = min(bounds), max(bounds)
    if pa.types.is_decimal(type_):
        return KeyStats(name, str(lo), str(hi), nulls)
    return KeyStats(name, _shortened(lo, upwards=False), _shortened(hi, upwards=True), nulls)


_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_LONG_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


def _factor(type_: pa.DataType, column: pq.ColumnSchema) -> fractions.Fraction:
    """Return the factor from the integers of a Parquet column to the integers of ``type_``.

    Raises:
        ValueError: the column does not hold such integers.
    """
    if not any(is_kind(type_) for is_kind in _INT_BACKED) or pa.types.is_date32(type_):
        return fractions.Fraction(1)
    if pa.types.is_date64(type_):
        return fractions.Fraction(24 * 60 * 60 * 1000)
    if pa.types.is_duration(type_):
        return fractions.Fraction(1)  # Parquet has no duration type: the integers are Arrow's
    unit = msgspec.json.decode(column.logical_type.to_json()).get("timeUnit")
    if unit not in _LONG_UNITS:
        raise ValueError(f"not a time: {column}")
    return fractions.Fraction(_UNITS[type_.unit], _UNITS[_LONG_UNITS[unit]])


def _raw(end: str, type_: pa.DataType, factor: fractions.Fraction, found: pq.Statistics) -> Any:
    """Return one end of Parquet statistics as a plain value with the column's order: decimals as integers, bytes as
    Latin-1.
    """
    if pa.types.is_decimal(type_) or any(is_kind(type_) for is_kind in _INT_BACKED):
        raw = getattr(found, f"{end}_raw")
        if isinstance(raw, bytes):
            raw = int.from_bytes(raw, "big", signed=True)
        scaled = raw * factor
        return math.floor(scaled) if end == "min" else math.ceil(scaled)
    plain = getattr(found, end)
    if isinstance(plain, bytes):
        return plain.decode("latin-1")
    if not isinstance(plain, (bool, int, str)):
        raise TypeError(f"not the statistics of a {type_}: {plain!r}")
    return plain


def _comparable(type_: pa.DataType) -> bool:
    return not pa.types.is_nested(type_) and not pa.types.is_floating(type_)


def to_stat(value: pa.Scalar) -> Stat:
    """Return a scalar as the plain, order-preserving value that durable metadata has."""
    if not value.is_valid:
        return None
    type_ = value.type
    if any(is_kind(type_) for is_kind in _INT_BACKED):
        integer: int = value.value
        return integer
    if pa.types.is_decimal(type_):
        return str(int(value.as_py().scaleb(type_.scale, context=_EXACT)))
    plain = value.as_py()
    if isinstance(plain, bytes):
        return plain.decode("latin-1")
    stat: Stat = plain
    return stat


def _shortened(stat: Stat, *, upwards: bool) -> Stat:
    """Shorten a bound on long text, downwards or upwards."""
    if not isinstance(stat, str) or len(stat) <= _TEXT_LIMIT:
        return stat
    # A prefix is at most the text, so it is a lower bound.
    if not upwards:
        return stat[:_TEXT_LIMIT]
    # A prefix with the greatest code point after it is above the text, unless the text goes on with that code point.
    return stat[:_TEXT_LIMIT] + "\U0010ffff" if stat[_TEXT_LIMIT] != "\U0010ffff" else stat


def ordinal(stat: Stat, type_: pa.DataType) -> Any:
    """Return the value that orders a statistic: decimals as numbers, everything else as it is."""
    return int(stat) if pa.types.is_decimal(type_) and stat is not None else stat


class _Spans(NamedTuple):
    """A set of ordinals: those up to ``below``, those from ``above`` on, and disjoint spans from each of ``starts`` to
    its end in ``ends``.
    """

    below: Any
    above: Any
    starts: list[Any]
    ends: list[Any]

    def meet(self, lo: Any, hi: Any) -> bool:
        """Whether an ordinal of the set is between ``lo`` and ``hi``."""
        if self.below is not None and lo <= self.below:
            return True
        if self.above is not None and hi >= self.above:
            return True
        last = bisect.bisect_right(self.starts, hi) - 1
        return last >= 0 and bool(self.ends[last] >= lo)


class Lookup:
    """Ranges of the values of one column, prepared for pruning and filtering.

    Args:
        column: the column.
        type_: its type.
        ranges: inclusive pairs; one `None` leaves that side open, two ask for NULL. They may overlap, and be many.

    Raises:
        SchemaMismatch: the type has no order, or a bound does not fit it.
    """

    def __init__(self, column: str, type_: pa.DataType, ranges: Sequence[KeyRange]) -> None:
        if pa.types.is_nested(type_):
            raise SchemaMismatch(
                f'column "{column}" of type {type_} has no order to look up keys by'
            )
        if isinstance(ranges, Iterator):
            raise SchemaMismatch(
                f'the ranges of column "{column}" can be gone through only once',
                hint="Give them as a list.",
            )
        self.column = column
        self.type = type_
        self.form = _form(type_)
        try:
            ends = [(self._end(lo), self._end(hi)) for lo, hi in ranges]
            self.nulls = any(lo is None and hi is None for lo, hi in ends)
            self.ranges = [(lo, hi) for lo, hi in ends if not (lo is None and hi is None)]
            self._merged = self._merge()
            self._points = self._point_values()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
            raise SchemaMismatch(
                f'a key range does not fit column "{column}" of type {type_}: {failure}',
                hint="A range is a pair (lo, hi) of values of the column's type, either of which may be None.",
            ) from failure

    def _end(self, value: Any) -> pa.Scalar | None:
        """Return a bound as a value of the column's type; a bound between two such values is refused, because rounding
        would change it.
        """
        if value is None:
            return None
        if _has_finer_type(value, self.form):
            value = _natural(
                value
            )  # whose cast, unlike Arrow's conversion of Python's values, checks
        if isinstance(value, pa.Scalar):
            return _cast(value, self.form) if value.is_valid else None
        end = pa.scalar(value, self.form)
        if pa.types.is_floating(self.form) and math.isinf(end.as_py()) and not math.isinf(value):
            raise ValueError(f"{value} is too large")
        return end

    def _ordinal(self, end: pa.Scalar | None) -> Any:
        if end is not None and pa.types.is_floating(self.form):
            return _float_ordinal(end.as_py())
        return None if end is None else ordinal(to_stat(end), self.form)

    def _point_values(self) -> pa.Array:
        """Return the ranges that are single values, which are looked up all at once; keep the others as spans."""
        points = pa.array([lo for lo, hi in self.ranges if _same(lo, hi)], self.form)
        if pa.types.is_floating(self.form):
            # `is_in` compares bits (except for NaN), so turn -0.0 into 0.0, which it equals.
            points = pc.add(points, pa.scalar(0.0, self.form))
        self._spans = [(lo, hi) for lo, hi in self.ranges if not _same(lo, hi)]
        return points

    def _merge(self) -> _Spans:
        """Return the ranges as sorted, disjoint ranges of ordinals."""
        below: Any = None
        above: Any = None
        bounded: list[tuple[Any, Any]] = []
        for one_lo, one_hi in self.ranges:
            lo, hi = self._ordinal(one_lo), self._ordinal(one_hi)
            if lo is None:
                below = hi if below is None else max(below, hi)
            elif hi is None:
                above = lo if above is None else min(above, lo)
            elif (
                lo <= hi
            ):  # one the wrong way round holds nothing, and would break the order of ends
                bounded.append((lo, hi))
        starts: list[Any] = []
        ends: list[Any] = []
        for lo, hi in sorted(bounded):
            if ends and lo <= ends[-1]:
                ends[-1] = max(ends[-1], hi)
            else:
                starts.append(lo)
                ends.append(hi)
        return _Spans(below, above, starts, ends)

    def may_hold(self, lo: Any, hi: Any, *, nulls: bool) -> bool:
        """Whether keys between the ordinals ``lo`` and ``hi`` (`None`: no keys), or NULLs, may match."""
        if nulls and self.nulls:
            return True
        if lo is None or hi is None:
            return False
        return self._merged.meet(lo, hi)

    def may_hold_part(self, stats: Sequence[KeyStats]) -> bool:
        """Whether a part with these statistics must be read."""
        for stat in stats:
            if stat.column == self.column:
                if not stat.known or not _comparable(self.type):
                    return True
                lo, hi = ordinal(stat.lo, self.type), ordinal(stat.hi, self.type)
                return self.may_hold(lo, hi, nulls=stat.nulls > 0)
        return True

    def may_hold_group(self, statistics: pq.Statistics | None, column: pq.ColumnSchema) -> bool:
        """Whether a row group must be read, given the Parquet statistics of the column."""
        if statistics is None:
            return True
        nulls = not statistics.has_null_count or statistics.null_count > 0
        if not statistics.has_min_max:
            return nulls if statistics.num_values == 0 else True
        try:
            if pa.types.is_floating(self.type):
                return self._may_hold_floats(statistics.min, statistics.max, nulls=nulls)
            factor = _factor(self.type, column)
            lo, hi = (_raw(end, self.type, factor, statistics) for end in ("min", "max"))
            return self.may_hold(lo, hi, nulls=nulls)
        except (TypeError, ValueError, pa.ArrowException):
            return True  # a physical type with another Python form: read it

    def _may_hold_floats(self, least: Any, greatest: Any, *, nulls: bool) -> bool:
        """As `may_hold`, for floats: Parquet's statistics leave out NaN, which may be there as well."""
        lo, hi = _float_ordinal(least), _float_ordinal(greatest)
        nan = _float_ordinal(math.nan)
        if nan in (lo, hi):
            return True
        return self.may_hold(lo, hi, nulls=nulls) or self.may_hold(nan, nan, nulls=False)

    def excludes(self, table: pa.Table) -> bool:
        """Whether it is plain without comparing that no row passes: all values are NULL, as those of errors mostly are."""
        return not self.nulls and table[self.column].null_count == table.num_rows

    def filter(self, table: pa.Table) -> pa.Table:
        """Return the rows of ``table`` whose value is in a range."""
        column = table[self.column]
        if not column.type.equals(self.form):
            column = column.cast(self.form)
        mask = pc.is_null(column) if self.nulls else None
        if len(self._points):
            normal = column
            if pa.types.is_floating(self.form):
                normal = pc.add(column, pa.scalar(0.0, self.form))
            mask = _either(mask, pc.is_in(normal, value_set=self._points))
        for lo, hi in self._spans:
            inside = pc.is_valid(column)
            if lo is not None:
                inside = pc.and_(inside, self._compared(column, lo, upwards=True))
            if hi is not None:
                inside = pc.and_(inside, self._compared(column, hi, upwards=False))
            mask = _either(mask, inside)
        if mask is None:
            return table.slice(0, 0)
        return table.filter(mask)

    def _compared(self, column: pa.ChunkedArray, bound: pa.Scalar, *, upwards: bool) -> Any:
        """Compare each value with ``bound``: at or above it, or at or below it; NaN is above all other numbers, as in
        PostgreSQL.
        """
        compare = pc.greater_equal if upwards else pc.less_equal
        if not pa.types.is_floating(self.form):
            return compare(column, bound)
        if math.isnan(bound.as_py()):
            return pc.is_nan(column) if upwards else pc.is_valid(column)
        inside = compare(column, bound)
        return pc.or_(inside, pc.is_nan(column)) if upwards else inside


# Types that Arrow's kernels cannot compare, with the types they are cast to for that.
_FORMS = {
    pa.float16(): pa.float32(),
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}


def _form(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return _FORMS.get(type_, type_)


def _has_finer_type(value: Any, form: pa.DataType) -> bool:
    """Whether a Python value has an Arrow type of its own that may be finer than ``form``."""
    if isinstance(value, (float, decimal.Decimal)):
        return bool(pa.types.is_integer(form))
    moments = (dt.datetime, dt.time, dt.timedelta)
    return isinstance(value, moments) and any(is_kind(form) for is_kind in _INT_BACKED)


def _natural(value: Any) -> pa.Scalar:
    """Return a Python value with its own Arrow type; some of pandas' moments, which are subclasses of Python's, have
    nanoseconds.
    """
    scalar = pa.scalar(value)
    if getattr(value, "nanosecond", 0):
        return pa.scalar(value, pa.timestamp("ns", scalar.type.tz))
    return pa.scalar(value, pa.duration("ns")) if getattr(value, "nanoseconds", 0) else scalar


def _cast(value: pa.Scalar, form: pa.DataType) -> pa.Scalar:
    end = value.cast(form)
    if pa.types.is_date(form) and pa.types.is_timestamp(
        value.type
    ):  # the cast would drop the time of day without an error
        moment = pa.scalar(value.value, pa.timestamp(value.type.unit))
        if not moment.cast(form).cast(moment.type).equals(moment):
            raise ValueError(f"{value} is not a date")
    return end


def _float_ordinal(value: float) -> tuple[bool, float]:
    """Return the value that orders a float: NaN is above all other numbers."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def _either(mask: Any, more: Any) -> Any:
    more = pc.fill_null(more, fill_value=False)
    return more if mask is None else pc.or_(mask, more)


def _same(lo: pa.Scalar | None, hi: pa.Scalar | None) -> bool:
    if lo is None or hi is None:
        return False
    if pa.types.is_floating(lo.type) and math.isnan(lo.as_py()):
        return math.isnan(hi.as_py())  # a range from NaN to NaN is a single value, too
    return bool(lo.equals(hi))
