"""Window functions over constants.

Promise: the results of the engines' windows (`mzsql.render.nodes.windows`): peers are ordered by all their columns,
ascending, NULLs last, and remain peers. Numerics keep all digits. Aggregates are the evaluator's, one call per row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec

from mzsql.expr.functions.aggregate.windows import (
    WindowFunc,
    argument_type,
    original_type,
    payload_of,
)
from mzsql.expr.order import Key, in_order, sort_key
from mzsql.repr.datum import Datum
from mzsql.repr.types import SqlType

#: Computes the aggregate of a window aggregate over datums of the given type; the last is the result's type.
Aggregate = Callable[[WindowFunc, SqlType, Sequence[Datum], SqlType], Datum]


class _Entry(msgspec.Struct, frozen=True):
    """A row of a partition: its original row, the sort keys, the function's argument."""

    row: str
    fields: tuple[Datum, ...]
    keys: tuple[Datum, ...]
    argument: Datum


def evaluated(
    window: WindowFunc,
    argument: SqlType,
    values: Sequence[Datum],
    result: SqlType,
    aggregate: Aggregate,
) -> Datum:
    """The value of a window function over a partition: a list of records of the result and the original row.

    Args:
        window: the function.
        argument: the type of the aggregated record: the payload, then the sort keys.
        values: the records.
        result: the type of the function's value.
        aggregate: computes the aggregate that a window aggregate wraps.
    """
    payload = argument.fields[0][1].type
    types = [column.type for _, column in argument.fields[1:]]
    original = [column.type for _, column in original_type(window, payload).fields]
    entries = _in_order(window, [_entry(window, value) for value in values], types, original)
    peers = _peers(entries, types)
    if window.kind != "fused":
        results = _results(window, payload, result, entries, peers, aggregate)
    else:
        by_part = [
            _results(
                part,
                payload_of(payload, i),
                result.fields[i][1].type,
                [_of_part(entry, i) for entry in entries],
                peers,
                aggregate,
            )
            for i, part in enumerate(window.parts)
        ]
        results = [json.dumps(list(found)) for found in zip(*by_part, strict=True)]
    return json.dumps(
        [json.dumps([found, entry.row]) for found, entry in zip(results, entries, strict=True)]
    )


def _results(
    window: WindowFunc,
    payload: SqlType,
    result: SqlType,
    entries: Sequence[_Entry],
    peers: Sequence[tuple[int, int]],
    aggregate: Aggregate,
) -> list[Datum]:
    """A function's value for each row."""
    match window.kind:
        case "scalar":
            return [_position(window.func, i, peers) for i in range(len(entries))]
        case "value" if window.func in ("lag", "lead"):
            return _shifted(window, entries)
        case "value" if window.func == "ntile":
            return _parts(entries)
        case "value" if window.func == "nth_value":
            return [_nth(window, entries, peers, i) for i in range(len(entries))]
        case "value":
            return [_edge(window, entries, peers, i) for i in range(len(entries))]
        case _:
            typ = argument_type(window, payload)
            return _aggregated(
                window, entries, peers, lambda frame: aggregate(window, typ, frame, result)
            )


def _of_part(entry: _Entry, position: int) -> _Entry:
    """A row with the argument of one of several functions."""
    return msgspec.structs.replace(entry, argument=json.loads(str(entry.argument))[position])


def _entry(window: WindowFunc, value: Datum) -> _Entry:
    payload, *keys = json.loads(str(value))
    parts = json.loads(payload)
    given = None if window.kind == "scalar" else parts[1]
    return _Entry(parts[0], tuple(json.loads(parts[0])), tuple(keys), given)


def _in_order(
    window: WindowFunc,
    entries: Sequence[_Entry],
    types: Sequence[SqlType],
    original: Sequence[SqlType],
) -> list[_Entry]:
    keys: list[Key[_Entry]] = [
        (_key(i), typ, desc, last)
        for i, (typ, (desc, last)) in enumerate(zip(types, window.order, strict=True))
    ]
    keys += [(_field(i), typ, False, True) for i, typ in enumerate(original)]
    return in_order(entries, keys)


def _key(position: int) -> Callable[[_Entry], Datum]:
    return lambda entry: entry.keys[position]


def _field(position: int) -> Callable[[_Entry], Datum]:
    return lambda entry: entry.fields[position]


def _peers(entries: Sequence[_Entry], types: Sequence[SqlType]) -> list[tuple[int, int]]:
    """For each row, the positions of its first and last peer."""
    compared = [
        tuple(
            None if key is None else sort_key(typ)(key)
            for key, typ in zip(entry.keys, types, strict=True)
        )
        for entry in entries
    ]
    found: list[tuple[int, int]] = []
    start = 0
    for i in range(1, len(entries) + 1):
        if i == len(entries) or compared[i] != compared[start]:
            found += [(start, i - 1)] * (i - start)
            start = i
    return found


def _position(func: str, i: int, peers: Sequence[tuple[int, int]]) -> Datum:
    if func == "row_number":
        return i + 1
    if func == "rank":
        return peers[i][0] + 1
    if func == "percent_rank":
        return peers[i][0] / (len(peers) - 1) if len(peers) > 1 else 0.0
    if func == "cume_dist":
        return (peers[i][1] + 1) / len(peers)
    return len({first for first, _ in peers[: i + 1]})


def _shifted(window: WindowFunc, entries: Sequence[_Entry]) -> list[Datum]:
    """LAG and LEAD: the value at the offset, the default outside the partition, NULL where the offset is NULL."""
    parts = [json.loads(str(entry.argument)) for entry in entries]
    values = [value for value, _, _ in parts]
    results: list[Datum] = []
    for i, (_, offset, default) in enumerate(parts):
        if offset is None:
            results.append(None)
            continue
        step = -int(offset) if window.func == "lag" else int(offset)
        at = _away(values, i, step) if window.ignore_nulls else i + step
        results.append(values[at] if at is not None and 0 <= at < len(values) else default)
    return results


def _away(values: Sequence[Datum], start: int, step: int) -> int | None:
    """The position ``step`` non-NULL values away from ``start``; None outside the partition."""
    if step == 0:
        return start if values[start] is not None else None
    direction = 1 if step > 0 else -1
    left, at = abs(step), start
    while left and 0 <= at + direction < len(values):
        at += direction
        if values[at] is not None:
            left -= 1
    return None if left else at


def can_fold(window: WindowFunc) -> bool:
    """Whether the window is evaluated here, which excludes frames bounded by a distance of values."""
    return window.frame is None or not any(window.frame.distances)


def _frame(window: WindowFunc, i: int, peers: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The positions of the rows in the frame of row ``i``."""
    frame, count = window.frame, len(peers)
    if frame is None:
        return tuple(range(peers[i][1] + 1))
    # ROWS counts rows, GROUPS counts groups of peers; RANGE without distances ends at peers, like GROUPS.
    groups = [(n, n) for n in range(count)] if frame.units == "rows" else sorted(set(peers))
    at = next(n for n, (first, last) in enumerate(groups) if first <= i <= last)
    start = 0 if frame.start is None else max(0, at + frame.start)
    end = len(groups) if frame.end is None else at + frame.end + 1
    inside = [n for first, last in groups[start : max(end, 0)] for n in range(first, last + 1)]
    match frame.exclude:
        case "current row":
            left_out = {i}
        case "group":
            left_out = set(range(peers[i][0], peers[i][1] + 1))
        case "ties":
            left_out = set(range(peers[i][0], peers[i][1] + 1)) - {i}
        case _:
            left_out = set()
    return tuple(n for n in inside if n not in left_out)


def _edge(
    window: WindowFunc, entries: Sequence[_Entry], peers: Sequence[tuple[int, int]], i: int
) -> Datum:
    inside = _frame(window, i, peers)
    if not inside:
        return None
    return entries[inside[0 if window.func == "first_value" else -1]].argument


def _nth(
    window: WindowFunc, entries: Sequence[_Entry], peers: Sequence[tuple[int, int]], i: int
) -> Datum:
    """The value of NTH_VALUE for row ``i``; NULL where the frame is too short."""
    count = json.loads(str(entries[i].argument))[1]
    inside = _frame(window, i, peers)
    if count is None or count > len(inside):
        return None
    found: Datum = json.loads(str(entries[inside[count - 1]].argument))[0]
    return found


def _parts(entries: Sequence[_Entry]) -> list[Datum]:
    """NTILE: the number of the part of each row. Parts are as equal as possible, larger ones first; the first row gives
    their number.
    """
    given = entries[0].argument
    if given is None:
        return [None] * len(entries)
    size, larger = divmod(len(entries), int(given))
    border = larger * (size + 1)
    return [
        i // (size + 1) + 1 if i < border else (i - border) // size + larger + 1
        for i in range(len(entries))
    ]


def _aggregated(
    window: WindowFunc,
    entries: Sequence[_Entry],
    peers: Sequence[tuple[int, int]],
    aggregate: Callable[[Sequence[Datum]], Datum],
) -> list[Datum]:
    known: dict[tuple[int, ...], Datum] = {}
    results = []
    for i in range(len(entries)):
        inside = _frame(window, i, peers)
        if inside not in known:
            known[inside] = aggregate([entries[n].argument for n in inside])
        results.append(known[inside])
    return results
