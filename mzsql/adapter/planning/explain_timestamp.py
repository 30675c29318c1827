"""EXPLAIN TIMESTAMP: the timestamp that a query would read at now, and what it was chosen from, in Materialize's
format.

Promise: it is the determination that the query would get at this moment, with frontiers asked for now; nothing is
waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from mzsql.adapter.planning.timestamps import Determination
from mzsql.oracle import EPOCH_MS
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId

#: Labels are right-aligned to this width.
_LABEL = 31
_TIMELINES = {EPOCH_MS: "EpochMilliseconds"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def shown_time(ts: Timestamp) -> str:
    """A time with its date, ``1673618185152 (2023-01-13 13:56:25.152)``; without one where it is beyond the calendar."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ts)
    except OverflowError:
        return str(ts)
    return f"{ts:>13} ({moment:%Y-%m-%d %H:%M:%S}.{ts % 1000:03})"


def shown_frontier(frontier: Frontier) -> str:
    """A frontier as ``[…]``; ``[]`` for the empty frontier."""
    return "[]" if frontier is None else f"[{shown_time(frontier)}]"


def explained(
    done: Determination,
    wall_ms: Timestamp,
    name: Callable[[GlobalId], str],
    fmt: str,
) -> str:
    """A determination as text or JSON.

    Args:
        done: the determination.
        wall_ms: the wall clock, in milliseconds since the epoch.
        name: gives an input's full name.
        fmt: ``text`` or ``json``.

    Raises:
        Unsupported: another format.
    """
    if fmt == "json":
        return _json(done, wall_ms, name)
    if fmt != "text":
        raise Unsupported(f"EXPLAIN TIMESTAMP AS {fmt.upper()} is not supported")
    latest = done.largest_not_in_advance_of_upper
    chosen = 0 if done.timestamp is None else done.timestamp
    lines = [("query timestamp", f" {shown_time(chosen)}")]
    if done.oracle_read_ts is not None:
        lines.append(("oracle read timestamp", f" {shown_time(done.oracle_read_ts)}"))
    if latest is not None:
        lines.append(("largest not in advance of upper", f" {shown_time(latest)}"))
    timeline = "None" if done.timeline is None else f"Some({_TIMELINES[done.timeline]})"
    lines += [
        ("upper", shown_frontier(done.upper)),
        ("since", shown_frontier(done.since)),
        ("can respond immediately", f" {str(done.can_respond_immediately).lower()}"),
        ("timeline", f" {timeline}"),
        ("session wall time", f" {shown_time(wall_ms)}"),
    ]
    text = "".join(f"{label:>{_LABEL}}:{value}\n" for label, value in lines)
    for source in done.sources:
        text += f"\nsource {name(source.id)} ({source.id}, storage):\n"
        text += f"{'read frontier':>{_LABEL}}:{shown_frontier(source.since)}\n"
        text += f"{'write frontier':>{_LABEL}}:{shown_frontier(source.upper)}\n"
    return text


def _json(done: Determination, wall_ms: Timestamp, name: Callable[[GlobalId], str]) -> str:
    def elements(frontier: Frontier) -> dict[str, list[Timestamp]]:
        return {"elements": [] if frontier is None else [frontier]}

    context: object = "NoTimestamp"
    if done.timestamp is not None and done.timeline is not None:
        context = {
            "TimelineTimestamp": {
                "timeline": _TIMELINES[done.timeline],
                "chosen_ts": done.timestamp,
                "oracle_ts": done.oracle_read_ts,
            }
        }
    explanation = {
        "determination": {
            "timestamp_context": context,
            "since": elements(done.since),
            "upper": elements(done.upper),
            "largest_not_in_advance_of_upper": done.largest_not_in_advance_of_upper,
            "oracle_read_ts": done.oracle_read_ts,
        },
        "sources": [
            {
                "name": f"{name(source.id)} ({source.id}, storage)",
                "read_frontier": elements(source.since)["elements"],
                "write_frontier": elements(source.upper)["elements"],
            }
            for source in done.sources
        ],
        "session_wall_time": f"{_EPOCH + timedelta(milliseconds=wall_ms):%Y-%m-%dT%H:%M:%S}.{wall_ms % 1000:03}Z",
        "respond_immediately": done.can_respond_immediately,
    }
    return msgspec.json.format(msgspec.json.encode(explanation), indent=2).decode()
