"""Reads the first rows of groups from an arrangement's shard, without its trace.

Promise: the result is that of `Trace.first`. After a restart, or when the trace was dropped, a step that needs the
first rows of few large groups reads only row groups of these. The shard's parts are sorted by key and then by the
leading column of the order; the statistics of the row groups tell how far to read, and the reading is extended until
there are enough rows, whatever was retracted. So a group costs a few reads, each of one or two row groups of a part,
whatever its size.

Trade-off: the shard must be flushed up to the step first, and a read takes longer than a look into a trace. So reads
are counted, except those from the largest groups: when they have cost as much as loading the trace would, it is
loaded, and serves all.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.arrangements.ranges import rangeable
from mzsql.persist import DIFF_COLUMN, KeyRange, ReadStats
from mzsql.render.rendered import Front
from mzsql.repr.frontier import Timestamp

#: Traces of arrangements with fewer rows are loaded at once.
COLD_ROWS = 200_000
#: Reads from groups of at most this many rows are counted. For first rows of larger groups the trace is never loaded.
LOADED_ROWS = 2_000_000
#: The cost of a read, in rows of a trace that is loaded.
_READ = 10_000
#: Most keys of a step that are read from the shard.
COLD_KEYS = 16
#: By which factor more rows are requested when a read found too few.
_GROWTH = 16
#: How many rows more than needed are kept.
_SPARE = 8


class FirstFromShard:
    """The first rows of one key.

    Attributes:
        rows: the rows at the time, in the shard's form.
        counts: for each front the number of rows, multiplicities counted.
        whole: whether these are all rows of the key.
    """

    def __init__(self, rows: pa.Table, counts: Sequence[int], whole: bool) -> None:
        self.rows = rows
        self.counts = counts
        self.whole = whole


def reads_cold(arrangement: Arrangement, as_of: Timestamp) -> bool:
    """Whether reading first rows of keys from the shard is better than loading the trace."""
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
    """The first rows of a key, with `more` to spare for each front; None if the statistics do not tell how far to read."""
    lead = arrangement.desc.order[0].column
    name = f"c{lead}"
    groups = _row_groups(arrangement, (*range(len(key)), lead), key, as_of)
    if groups is None:
        return None
    equal = {f"c{i}": [(value, value)] for i, value in enumerate(key)}
    pieces, counts = list[pa.Table](), list[int]()
    taken: list[KeyRange] = []
    for front in fronts:
        need, wanted = front.count + more, front.count + more
        while True:
            end = _end(groups, arrangement, front, wanted)
            if end is None:
                found = arrangement.read(as_of, filters=equal or None, stats=stats)
                # Counted up, so that many such reads make loading the trace the cheaper way in the end
                # (`reads_cold`).
                arrangement.hot.read_cold += max(found.num_rows, _READ)
                return FirstFromShard(found, [0] * len(fronts), whole=True)
            ranges = _ranges(arrangement, front, end)
            found = arrangement.read(as_of, filters={**equal, name: ranges}, stats=stats)
            if sum(rows for rows, *_ in groups) <= LOADED_ROWS:
                arrangement.hot.read_cold += _READ
            if (pc.sum(found.column(DIFF_COLUMN)).as_py() or 0) >= need:
                break
            wanted *= _GROWTH
        found = _trimmed(found, arrangement, front, need)
        counts.append(pc.sum(found.column(DIFF_COLUMN)).as_py() or 0)
        pieces.append(_without(found, name, taken))
        taken += _ranges(arrangement, front, _last(found, name, front, arrangement))
    return FirstFromShard(pa.concat_tables(pieces), counts, whole=False)


def _interpolates(typ: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(typ)
        or pa.types.is_date32(typ)
        or pa.types.is_timestamp(typ)
        or pa.types.is_decimal(typ)
    )


def _row_groups(
    arrangement: Arrangement, columns: Sequence[int], key: Sequence[Any], as_of: Timestamp
) -> list[tuple[int, int, int]] | None:
    """The row groups that hold rows of this key only: for each the number of rows, and the least and greatest leading
    value.

    None if a part has no statistics.
    """
    names = [f"c{i}" for i in columns]
    raw = [_raw(value, arrangement.schema.field(i).type) for i, value in enumerate(key)]
    known, made = arrangement.hot.groups, {}
    found: list[tuple[int, int, int]] = []
    for part in arrangement.parts(as_of):
        if part.blob_key is None:
            continue  # inline in the shard's state: few rows, which every read includes
        if part.blob_key not in known:
            known[part.blob_key] = part.group_stats(names, timeout=arrangement.timeout)
        groups = made[part.blob_key] = known[part.blob_key]
        if groups is None:
            return None
        for rows, stats in groups:
            *keys, lead = stats
            pure = all(
                one.known and one.lo == value and one.hi == value
                for one, value in zip(keys, raw, strict=True)
            )
            if pure and lead.known and isinstance(lead.lo, int | str):
                assert lead.hi is not None
                found.append((rows, int(lead.lo), int(lead.hi)))
    arrangement.hot.groups = made
    return found


def _ascends(arrangement: Arrangement, front: Front) -> bool:
    return arrangement.desc.order[0].desc == front.back


def _end(
    groups: Sequence[tuple[int, int, int]], arrangement: Arrangement, front: Front, wanted: int
) -> Any:
    """The leading value up to which to read for so many rows; None to read everything."""
    up = _ascends(arrangement, front)
    # By the far end of each row group: what is read up to there has the whole group, so at least its rows.
    ends = sorted(((hi if up else -lo), rows) for rows, lo, hi in groups)
    total = 0
    # Where the last group is needed too, everything is read, and no range has to be given.
    for end, rows in ends[:-1]:
        total += rows
        if total >= wanted:
            typ = arrangement.schema.field(arrangement.desc.order[0].column).type
            return _value(end if up else -end, typ)
    return None


def _ranges(arrangement: Arrangement, front: Front, end: Any) -> list[KeyRange]:
    """Ranges of the leading column from the front's end up to `end` (None: no values), and the range of NULL if NULLs
    come first.
    """
    nulls_first = arrangement.desc.order[0].nulls_last == front.back
    made: list[KeyRange] = [(None, None)] if nulls_first else []
    if end is not None:
        made.append((None, end) if _ascends(arrangement, front) else (end, None))
    return made


def _trimmed(rows: pa.Table, arrangement: Arrangement, front: Front, need: int) -> pa.Table:
    """The first `need` rows (and some to spare), with all that tie with the last of them in the leading column."""
    lead = arrangement.desc.order[0]
    column = rows.column(lead.column)
    up = _ascends(arrangement, front)
    nulls_first = lead.nulls_last == front.back
    nulls = rows.filter(pc.is_null(column))
    rest = rows.filter(pc.is_valid(column))
    need = max(1, need) + _SPARE
    if nulls_first:
        need -= pc.sum(nulls.column(DIFF_COLUMN)).as_py() or 0
    order = pc.sort_indices(
        rest, sort_keys=[(rest.column_names[lead.column], "ascending" if up else "descending")]
    )
    rest = rest.take(order)
    reached = pc.cumulative_sum(rest.column(DIFF_COLUMN)).to_numpy()
    place = int(np.searchsorted(reached, need))
    if need > 0 and place < len(reached):
        last = rest.column(lead.column)[place]
        compare = pc.less_equal if up else pc.greater_equal
        rest = rest.filter(compare(rest.column(lead.column), last))
    return pa.concat_tables([nulls, rest]) if nulls_first else rest


def _last(rows: pa.Table, name: str, front: Front, arrangement: Arrangement) -> Any:
    """The farthest leading value that was read; None if there is none but NULL."""
    bounds = pc.min_max(rows.column(name))
    end = bounds["max" if _ascends(arrangement, front) else "min"]
    return end.as_py()


def _raw(value: Any, typ: pa.DataType) -> Any:
    """A key's value in the form that statistics have."""
    if value is None or isinstance(value, str | bool):
        return value
    if pa.types.is_decimal(typ):
        return str(int(value.scaleb(typ.scale)))
    scalar = pa.scalar(value, typ)
    if pa.types.is_date32(typ):
        scalar = scalar.cast(pa.int32())
    return scalar.cast(pa.int64()).as_py()


def _value(number: int, typ: pa.DataType) -> Any:
    if pa.types.is_integer(typ):
        return number
    if pa.types.is_decimal(typ):
        return Decimal(number).scaleb(-typ.scale)
    narrow = pa.int32() if pa.types.is_date32(typ) else pa.int64()
    return pa.scalar(number, narrow).cast(typ).as_py()


def _without(rows: pa.Table, name: str, taken: Sequence[KeyRange]) -> pa.Table:
    """The rows that are in none of the ranges `taken`, whose rows are there already."""
    column = rows.column(name)
    for low, high in taken:
        if low is None and high is None:
            keep = pc.is_valid(column)
        else:
            outside = pc.greater(column, high) if low is None else pc.less(column, low)
            # NULL is compared with no bound; it is in the range of NULLs alone, which is told by having no bounds.
            keep = pc.fill_null(outside, True)
        rows, column = rows.filter(keep), column.filter(keep)
    return rows
