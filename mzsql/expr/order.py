"""The order of datums, for sorting a few constant rows in process.

Promise: the engines' order: in numerics and floats NaN is greatest; texts by bytes; intervals by months, days,
microseconds; lists, arrays and records part by part with NULL greatest; ranges by lower, then upper bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from mzsql.expr.decimal_functions import order_key
from mzsql.repr.datum import Datum
from mzsql.repr.types import SqlType
from mzsql.repr.values import interval_of

_Item = TypeVar("_Item")
#: A sort key: the datum of an item, its type, whether descending, whether NULLs come last.
Key = tuple[Callable[[_Item], Datum], SqlType, bool, bool]


def sort_key(typ: SqlType) -> Callable[[Any], Any]:
    """The Python sort key for non-NULL datums of the type."""
    match typ.kind:
        case "numeric":
            return lambda datum: order_key(Decimal(datum))
        case "real" | "double":
            return lambda datum: (math.isnan(datum), datum)
        case "text" | "varchar" | "char" | "uuid":
            return lambda datum: datum.encode()
        case "interval":
            return _interval
        case "list" | "array":
            assert typ.element is not None
            item = _with_nulls(typ.element)
            return lambda datum: tuple(item(part) for part in json.loads(datum))
        case "record":
            fields = [_with_nulls(column.type) for _, column in typ.fields]
            return lambda datum: tuple(
                key(part) for key, part in zip(fields, json.loads(datum), strict=True)
            )
        case "range":
            assert typ.element is not None
            return _range(sort_key(typ.element))
        case _:
            return lambda datum: datum


def _with_nulls(typ: SqlType) -> Callable[[Any], Any]:
    """The sort key for a part of a value, in which NULL is greatest."""
    inner = sort_key(typ)
    return lambda datum: (True,) if datum is None else (False, inner(datum))


def _range(bound: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The sort key for ranges: the empty one first, then by lower and upper bound; a missing bound is infinite."""

    def key(datum: str) -> tuple[Any, ...]:
        parts = json.loads(datum)
        if not parts:
            return ()
        lower, lower_in, upper, upper_in = parts
        first = (0,) if lower is None else (1, bound(lower), not lower_in)
        return (*first, (1,) if upper is None else (0, bound(upper), upper_in))

    return key


def _interval(datum: str) -> tuple[int, int, int]:
    span = interval_of(datum)
    return span.months, span.days, span.microseconds


def in_order(items: Sequence[_Item], keys: Sequence[Key[_Item]]) -> list[_Item]:
    """The items sorted by the first key, ties by the next, and so on."""
    placed = list(items)
    for take, typ, desc, nulls_last in reversed(keys):
        compared = sort_key(typ)
        known = [(compared(d), item) for item in placed if (d := take(item)) is not None]
        unknown = [item for item in placed if take(item) is None]
        known.sort(key=lambda pair: pair[0], reverse=desc)
        kept = [item for _, item in known]
        placed = [*kept, *unknown] if nulls_last else [*unknown, *kept]
    return placed
