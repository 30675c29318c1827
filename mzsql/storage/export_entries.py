"""The contents of the export log: pure functions over its rows.

Promise: a row is what one write has committed: batches of many shards, each of definite updates or an empty span. A
row is *live* until nobody needs it: until each of its batches is in its shard, or says of an unchanged shard no more
than a later one does. A batch whose lower equals its upper only says that the shard was written directly, for
followers that read the row when it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa

from mzsql.persist import Batch
from mzsql.persist.ahead import reach
from mzsql.persist.batch import InlinePart
from mzsql.persist.frames import decode_framed, encode_framed
from mzsql.repr.frontier import Frontier, Timestamp

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("stretches", pa.binary())])


class _Stretch(msgspec.Struct, frozen=True, array_like=True):
    """A batch as a row stores it."""

    shard: str
    lower: Timestamp
    upper: Timestamp
    parts: tuple[InlinePart, ...] = ()


class _Write(msgspec.Struct, frozen=True):
    stretches: tuple[_Stretch, ...]


_WRITES = msgspec.msgpack.Decoder(_Write)


class Row(msgspec.Struct, frozen=True):
    """What one write has committed: its position in the log, its batches, and both in encoded form."""

    id: int
    data: bytes
    stretches: tuple[Batch, ...]


class LogState(msgspec.Struct, frozen=True):
    """What the log says below ``upper``: its live rows, oldest first."""

    upper: int = 0
    live: tuple[Row, ...] = ()


def row_of(place: int, stretches: Sequence[Batch]) -> Row:
    """A row with these batches, each of which has an upper and is in memory."""
    stored: list[_Stretch] = []
    for one in stretches:
        assert one.upper is not None
        parts = tuple(part for part in one.parts if isinstance(part, InlinePart))
        stored.append(_Stretch(one.shard_id, one.lower, one.upper, parts))
    return Row(place, encode_framed(_Write(tuple(stored))), tuple(stretches))


def updates_of(changes: Sequence[tuple[Row, int]], time: int) -> pa.Table:
    """Rows with diffs as updates of the log's shard."""
    return pa.table(
        {
            "id": pa.array([row.id for row, _ in changes], pa.int64()),
            "stretches": pa.array([row.data for row, _ in changes], pa.binary()),
            "mz_time": pa.array([time] * len(changes), pa.int64()),
            "mz_diff": pa.array([diff for _, diff in changes], pa.int64()),
        }
    )


def changes_of(updates: pa.Table) -> list[tuple[Row, int]]:
    """The inverse of `updates_of`: a few rows, one for each write.

    Raises:
        CorruptPart: a row is damaged.
        NewerVersion: a newer version has written it.
    """
    columns = (updates.column(name).to_pylist() for name in ("id", "stretches", "mz_diff"))
    found: list[tuple[Row, int]] = []
    for place, data, diff in zip(*columns, strict=True):
        write = decode_framed(_WRITES, data, "a row of the log of exports")
        stretches = tuple(Batch(s.shard, s.lower, s.upper, s.parts) for s in write.stretches)
        found.append((Row(place, data, stretches), diff))
    return found


def advance(state: LogState, changes: Iterable[tuple[Row, int]], upper: int) -> LogState:
    """The state after ``changes`` were appended and ``upper`` reached."""
    live = {row.id: row for row in state.live}
    count = dict.fromkeys(live, 1)
    for row, diff in changes:
        live[row.id] = row
        count[row.id] = count.get(row.id, 0) + diff
    return LogState(upper, tuple(live[i] for i in sorted(live) if count[i] > 0))


def spent(live: Sequence[Row], uppers: Mapping[str, Frontier]) -> list[Row]:
    """The rows that nobody needs any more, if shards have come as far as ``uppers`` says; nothing is known of shards
    that it lacks.
    """
    #: what later rows say of shards without updates
    quiet: dict[str, Batch] = {}
    found: list[Row] = []
    for row in reversed(live):
        if all(_done(one, uppers, quiet) for one in row.stretches):
            found.append(row)
            continue
        for one in row.stretches:
            if not one.parts and one.shard_id not in quiet:
                quiet[one.shard_id] = one
    return found


def _done(one: Batch, uppers: Mapping[str, Frontier], quiet: Mapping[str, Batch]) -> bool:
    assert one.upper is not None
    if one.lower == one.upper:
        return True
    if one.shard_id in uppers:
        upper = uppers[one.shard_id]
        if upper is None or upper >= one.upper:
            return True
    later = quiet.get(one.shard_id)
    if one.parts or later is None or later.upper is None:
        return False
    return later.lower <= one.lower and one.upper <= later.upper


def of_shard(live: Sequence[Row], shard: str) -> list[Batch]:
    """What the live rows contain of a shard."""
    return [one for row in live for one in row.stretches if one.shard_id == shard]


def reach_of(stretches: Sequence[Batch], upper: Frontier) -> Frontier:
    """How far a shard goes together with what the log contains of it, given the shard's own upper."""
    for one in sorted(stretches, key=lambda one: one.lower):
        if upper is not None and one.upper is not None and one.lower <= upper < one.upper:
            upper = one.upper
    return upper


def lacking(live: Sequence[Row], stretches: Sequence[Batch]) -> list[Batch]:
    """The batches whose updates no live row of the log contains, whoever wrote it.

    Args:
        live: the log's rows that are not retracted.
        stretches: batches, in any order.
    """
    known: dict[str, list[Batch]] = {}
    for row in live:
        for one in row.stretches:
            known.setdefault(one.shard_id, []).append(one)
    return [one for one in stretches if not _covered(known.get(one.shard_id, ()), one)]


def _covered(known: Iterable[Batch], one: Batch) -> bool:
    if one.lower == one.upper:
        return False
    reached = reach(tuple(sorted(known, key=lambda each: each.lower)), one.lower)
    return reached is not None and one.upper is not None and reached >= one.upper


def joined(waiting: Sequence[Batch], one: Batch) -> list[Batch]:
    """What waits to be committed of a shard, and ``one`` after it; consecutive empty spans are merged."""
    last = waiting[-1] if waiting else None
    if last is None or last.parts or one.parts or not _follows(last, one):
        return [*waiting, one]
    assert last.upper is not None
    assert one.upper is not None
    lower, upper = min(last.lower, one.lower), max(last.upper, one.upper)
    return [*waiting[:-1], msgspec.structs.replace(one, lower=lower, upper=upper)]


def _follows(last: Batch, one: Batch) -> bool:
    has_length = last.lower != last.upper and one.lower != one.upper
    return has_length and last.upper is not None and one.lower <= last.upper
