"""Ranges of keys that a lookup pushes down to a shard's row groups.

Promise: the ranges cover every key, NULL included, and perhaps other values. Their number is bounded, since each
costs a filter.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.engines.relations import PUSHED_RANGES, KeyRange


def merge_ranges(keys: pa.ChunkedArray | pa.Array, limit: int = PUSHED_RANGES) -> list[KeyRange]:
    """Cover keys by at most `limit` + 1 inclusive ranges (the additional one is that of NULL).

    Numbers and dates are merged across the smallest gaps, other keys by count. The keys' type must be ordered alike
    everywhere (no floats, no nested types). Dates and times beyond what Python can represent are covered by an open
    range, which holds other keys too.
    """
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    ranges: list[KeyRange] = [(None, None)] if keys.null_count else []
    values = pc.unique(pc.drop_null(keys))
    values = values.take(pc.sort_indices(values))
    count = len(values)
    if count <= limit:
        try:
            return [*ranges, *((value, value) for value in values.to_pylist())]
        except (OverflowError, ValueError):
            points = (one for value in values for one in _between(value, value))
            return [*ranges, *dict.fromkeys(points)]
    if pa.types.is_integer(values.type) or pa.types.is_date32(values.type):
        numbers = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
        # In float, because the difference of two int64 may not fit one.
        gaps = pc.subtract(
            numbers[1:].cast(pa.float64(), safe=False), numbers[:-1].cast(pa.float64(), safe=False)
        )
        widest = pc.sort_indices(gaps, sort_keys=[("", "descending")])[: limit - 1]
        ends = sorted(pc.add(widest, 1).to_pylist())
    else:
        ends = [count * i // limit for i in range(1, limit)]
    starts = [0, *ends]
    for start, end in zip(starts, [*ends, count], strict=True):
        ranges += _between(values[start], values[end - 1])
    return ranges


def _between(low: pa.Scalar, high: pa.Scalar) -> list[KeyRange]:
    """Ranges that cover the values from `low` to `high`."""
    lo, hi = _value(low), _value(high)
    if not isinstance(lo, _Beyond) and not isinstance(hi, _Beyond):
        return [(lo, hi)]
    if pa.types.is_date32(low.type):
        first, last = dt.date.min, dt.date.max
    else:
        zone = None if low.type.tz is None else dt.UTC
        first, last = dt.datetime.min.replace(tzinfo=zone), dt.datetime.max.replace(tzinfo=zone)
    if lo is _Beyond.AFTER:
        return [(last, None)]
    if hi is _Beyond.BEFORE:
        return [(None, first)]
    if lo is _Beyond.BEFORE:
        return [(None, first), (first, None)] if hi is _Beyond.AFTER else [(None, hi)]
    return [(lo, None)]


class _Beyond(enum.Enum):
    """On which side a date or time lies beyond what Python can represent."""

    BEFORE = enum.auto()
    AFTER = enum.auto()


def _value(scalar: pa.Scalar) -> Any:
    """A key's value in Python, or on which side it is out of Python's range."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if not (pa.types.is_date32(scalar.type) or pa.types.is_timestamp(scalar.type)):
            raise
        return _Beyond.BEFORE if scalar.value < 0 else _Beyond.AFTER


def rangeable(typ: pa.DataType) -> bool:
    """Whether a key of this type can be looked up by range."""
    ordered = (
        pa.types.is_integer,
        pa.types.is_string,
        pa.types.is_date32,
        pa.types.is_timestamp,
        pa.types.is_decimal,
    )
    return any(is_type(typ) for is_type in ordered)
