"""The order of datums, for the few rows of constants that are put in order in process.

Promise: the engines' order: numerics and floats with NaN as the greatest, texts by their bytes, intervals by months, then days, then
microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from mzsql.expr.decimal_functions import order_key
from mzsql.repr.datum import Datum
from mzsql.repr.types import SqlType
from mzsql.repr.values import interval_of

_Item = TypeVar("_Item")
#: What an item is ordered by: its datum, that one's type, whether it descends, whether NULLs come last.
Key = tuple[Callable[[_Item], Datum], SqlType, bool, bool]


def sort_key(typ: SqlType) -> Callable[[Any], Any]:
    """What datums of a type, none of them NULL, are compared by."""
    match typ.kind:
        case "numeric":
            return lambda datum: order_key(Decimal(datum))
        case "real" | "double":
            return lambda datum: (math.isnan(datum), datum)
        case "text" | "varchar" | "char" | "uuid":
            return lambda datum: datum.encode()
        case "interval":
            return _interval
        case _:
            return lambda datum: datum


def _interval(datum: str) -> tuple[int, int, int]:
    span = interval_of(datum)
    return span.months, span.days, span.microseconds


def in_order(items: Sequence[_Item], keys: Sequence[Key[_Item]]) -> list[_Item]:
    """The items by their first key, those with an equal one by the next, and so on."""
    placed = list(items)
    for take, typ, desc, nulls_last in reversed(keys):
        compared = sort_key(typ)
        known = [(compared(d), item) for item in placed if (d := take(item)) is not None]
        unknown = [item for item in placed if take(item) is None]
        known.sort(key=lambda pair: pair[0], reverse=desc)
        kept = [item for _, item in known]
        placed = [*kept, *unknown] if nulls_last else [*unknown, *kept]
    return placed
