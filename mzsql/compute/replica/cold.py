"""The first rows of groups out of an arrangement's shard, without its trace.

Promise: as `Trace.first`, read from the shard: after a restart, or where the trace was dropped, a step that needs the first rows of few
large groups reads row groups of these alone. The shard's parts are sorted by key and by what comes first; how far a read has to reach is
guessed from the least and greatest value there are, and grows until the rows are enough. So a group costs a few reads, each of a row
group or two a part, whatever its size.

Trade-off: the shard must be written up to the step for that. Groups that are read whole, being small, are counted: once they come to what
the arrangement has, its trace is loaded, which then serves all.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.replica.arrangements import Arrangement, rangeable
from mzsql.persist import DIFF_COLUMN, KeyRange, ReadStats
from mzsql.render.rendered import Front
from mzsql.repr.frontier import Timestamp

#: Arrangements of fewer rows are loaded at once.
COLD_ROWS = 200_000
#: So many keys a step are read from the shard at most.
COLD_KEYS = 16
#: A read that has too few rows is repeated so many times as far.
_GROWTH = 16


class FirstFromShard:
    """The first rows of one key.

    Attributes:
        rows: they, as the shard has them at the time.
        counts: for each front how many rows there are, multiplicities counted.
        whole: whether these are all that the key has.
    """

    def __init__(self, rows: pa.Table, counts: Sequence[int], whole: bool) -> None:
        self.rows = rows
        self.counts = counts
        self.whole = whole


def reads_cold(arrangement: Arrangement, as_of: Timestamp) -> bool:
    """Whether the first rows of keys are better read from the shard than the trace loaded for them."""
    desc = arrangement.desc
    if not desc.order or arrangement.hot.loaded:
        return False
    kinds = [arrangement.schema.field(i).type for i in range(desc.key_arity)]
    lead = arrangement.schema.field(desc.order[0].column).type
    if not _interpolates(lead) or not all(map(rangeable, kinds)):
        return False
    rows = sum(part.rows for part in arrangement.parts(as_of))
    return rows > max(COLD_ROWS, arrangement.hot.read_cold)


def first_from_shard(
    arrangement: Arrangement,
    key: Sequence[Any],
    as_of: Timestamp,
    fronts: Sequence[Front],
    more: int,
    stats: ReadStats,
) -> FirstFromShard | None:
    """The first rows of a key, with `more` to spare for each front; None where the shard does not tell how far its values reach."""
    name = f"c{arrangement.desc.order[0].column}"
    bounds = _bounds(arrangement, name, as_of)
    if bounds is None:
        return None
    low, high, rows = bounds
    equal = {f"c{i}": [(value, value)] for i, value in enumerate(key)}
    pieces, counts = list[pa.Table](), list[int]()
    taken: list[KeyRange] = []
    for front in fronts:
        need = front.count + more
        reach = max(1, (high - low) * 4 * (need + 1) // max(rows, 1))
        while reach < high - low:
            ranges = _ranges(arrangement, front, low, high, reach)
            found = arrangement.read(as_of, filters={**equal, name: ranges}, stats=stats)
            count = pc.sum(found.column(DIFF_COLUMN)).as_py() or 0
            if count >= need:
                break
            reach *= _GROWTH
        else:
            found = arrangement.read(as_of, filters=equal or None, stats=stats)
            arrangement.hot.read_cold += found.num_rows
            return FirstFromShard(found, [0] * len(fronts), whole=True)
        counts.append(count)
        pieces.append(_without(found, name, taken))
        taken += ranges
    return FirstFromShard(pa.concat_tables(pieces), counts, whole=False)


def _interpolates(typ: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(typ)
        or pa.types.is_date32(typ)
        or pa.types.is_timestamp(typ)
        or pa.types.is_decimal(typ)
    )


def _bounds(arrangement: Arrangement, name: str, as_of: Timestamp) -> tuple[int, int, int] | None:
    """Least and greatest value of a column, as integers, and the number of updates; None where that is not known."""
    parts = arrangement.parts(as_of)
    found = []
    for part in parts:
        one = next((stats for stats in part.stats if stats.column == name), None)
        if one is None or not one.known:
            return None
        if one.lo is not None and one.hi is not None:
            found += [int(one.lo), int(one.hi)]
    if not found:
        return None
    return min(found), max(found), sum(part.rows for part in parts)


def _ranges(
    arrangement: Arrangement, front: Front, low: int, high: int, reach: int
) -> list[KeyRange]:
    """The values from one end as far as `reach`; with the NULLs, where they come first."""
    order = arrangement.desc.order[0]
    typ = arrangement.schema.field(order.column).type
    up = order.desc == front.back
    nulls_first = order.nulls_last == front.back
    made: list[KeyRange] = [(None, None)] if nulls_first else []
    end = low + reach if up else high - reach
    made.append((None, _value(end, typ)) if up else (_value(end, typ), None))
    return made


def _value(number: int, typ: pa.DataType) -> Any:
    if pa.types.is_integer(typ):
        return number
    if pa.types.is_decimal(typ):
        return Decimal(number).scaleb(-typ.scale)
    narrow = pa.int32() if pa.types.is_date32(typ) else pa.int64()
    return pa.scalar(number, narrow).cast(typ).as_py()


def _without(rows: pa.Table, name: str, taken: Sequence[KeyRange]) -> pa.Table:
    """The rows that are in none of the ranges, whose rows are there already."""
    column = rows.column(name)
    for low, high in taken:
        if low is None and high is None:
            keep = pc.is_valid(column)
        else:
            outside = pc.greater(column, high) if low is None else pc.less(column, low)
            keep = pc.fill_null(outside, True)
        rows, column = rows.filter(keep), column.filter(keep)
    return rows
