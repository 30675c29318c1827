"""Filters that Spark pushes down, as key ranges for reading stored files.

Promise: a filter that is taken over is applied to every row exactly as Spark would; all others are left to Spark. Row
groups and files without matching rows are not read. Taken over are ``=``, ``IN``, ``>=``, ``<=`` and ``IS NULL`` on
integers, exact decimals, texts, dates and booleans, ``>`` and ``<`` on integers and dates, and ``IS NOT NULL`` on a
column with another such filter. Floating-point columns are left to Spark: NaN and signed zeros have rules of their own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from mzsql.persist import KeyRange
from mzsql.repr.types import RelationDesc, SqlType

#: An IN with more values is left to Spark.
MOST_VALUES = 64

_WHOLE = {
    "smallint": (-(2**15), 2**15 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}
_DAY = dt.timedelta(days=1)


def pushed_ranges(
    desc: RelationDesc, filters: Iterable[Filter]
) -> tuple[dict[str, list[KeyRange]], list[Filter]]:
    """The ranges of the stored columns (c0, c1, … by position) that filters ask for, and the filters left to Spark.

    Of several filters on a column the first is taken over; another one only where both are half-open ranges that
    intersect (`_cut`).
    """
    ranges: dict[str, list[KeyRange]] = {}
    left, not_null = [], []
    for one in filters:
        if isinstance(one, IsNotNull):
            not_null.append(one)
            continue
        found = _ranges(desc, one)
        if found is None:
            left.append(one)
            continue
        column, wanted = found
        known = ranges.get(column)
        if known is None:
            ranges[column] = wanted
            continue
        both = _cut(known, wanted)
        if both is None:
            left.append(one)
        else:
            ranges[column] = both
    for one in not_null:
        asked = ranges.get(_column(desc, one) or "")
        if asked is None or (None, None) in asked:
            left.append(one)
    return ranges, left


def _column(desc: RelationDesc, one: Filter) -> str | None:
    path = one.attribute
    if len(path) != 1 or path[0] not in desc.names:
        return None
    return f"c{desc.names.index(path[0])}"


def _ranges(desc: RelationDesc, one: Filter) -> tuple[str, list[KeyRange]] | None:
    if not isinstance(
        one,
        EqualTo | In | IsNull | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
    ):
        return None
    column = _column(desc, one)
    if column is None:
        return None
    typ = desc.typ.columns[int(column[1:])].type
    if isinstance(one, IsNull):
        return column, [(None, None)]
    if isinstance(one, In):
        values = one.value
        if not 0 < len(values) <= MOST_VALUES or not all(_fits(typ, v) for v in values):
            return None
        return column, [(value, value) for value in values]
    value = one.value
    if not _fits(typ, value):
        return None
    match one:
        case EqualTo():
            return column, [(value, value)]
        case GreaterThanOrEqual():
            return column, [(value, None)]
        case LessThanOrEqual():
            return column, [(None, value)]
    step: Any = 1 if typ.kind in _WHOLE else _DAY if typ.kind == "date" else None
    if step is None:
        return None
    try:
        after = value + step if isinstance(one, GreaterThan) else value - step
    except OverflowError:
        return None
    if not _fits(typ, after):
        return None
    return column, [(after, None) if isinstance(one, GreaterThan) else (None, after)]


def _fits(typ: SqlType, value: object) -> bool:
    """Whether a value has the column's stored type."""
    if typ.kind in _WHOLE:
        low, high = _WHOLE[typ.kind]
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    if typ.kind == "numeric":
        return isinstance(value, Decimal) and value.is_finite()
    if typ.kind in ("text", "varchar"):
        return isinstance(value, str)
    if typ.kind == "boolean":
        return isinstance(value, bool)
    return typ.kind == "date" and isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _cut(one: list[KeyRange], other: list[KeyRange]) -> list[KeyRange] | None:
    """The intersection of two half-open ranges that are open at different ends; None for anything else."""
    if len(one) == 1 and len(other) == 1:
        (low, high), (low2, high2) = one[0], other[0]
        if high is None and low2 is None and low is not None and high2 is not None:
            return [(low, high2)] if low <= high2 else None
        if low is None and high2 is None and high is not None and low2 is not None:
            return [(low2, high)] if low2 <= high else None
    return None
