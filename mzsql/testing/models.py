"""The models histories are judged by: a Blob's key, a Consensus key's log, a timeline's two timestamps.

What the protocols leave open is left open here:

- `Blob.delete` reports a size. Few stores remove and report in one act, so the removal and the look at the size are two operations that
  each take effect once during the call. A listing is, for each key, one look during the listing; keys are not listed at one moment.
- `Consensus.head` is "a recent newest entry": persist reads a log on from a head by `scan`, which must not lag. So scans,
  compare-and-sets and truncations are linearizable, and a head is held to what `head_faults` says: an entry that was really appended,
  not older than what the same handle has seen or appended before.
- `ConsensusWait.wait` may say `False` at any time; `True` only when there is such an entry.
- `TimestampOracle.write_ts` may skip timestamps: it answers any one that is above all before it and not below the clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from mzsql.testing.linearizability import Operation

REFUSED = "refused"
"""The result recorded of a truncation that raised `UsageError`."""

_Log = tuple[int, tuple[str, ...]]


class RegisterModel:
    """One key of a Blob. The state is the value's name, ``""`` when there is none; a name ends in ``:`` and the size.

    Operations: ``set(value)``, ``get() -> value``, ``remove()`` and ``size() -> size or None``.
    """

    def initial(self) -> Hashable:
        """No value."""
        return ""

    def step(self, state: str, operation: Operation) -> Hashable | None:
        """See `Model.step`.

        Raises:
            AssertionError: the model knows no such operation, so the test that recorded it is wrong.
        """
        match operation.name:
            case "set":
                value: str = operation.args[0]
                return value
            case "remove":
                return "" if operation.known or state else None
            case "get":
                return state if operation.known and (operation.result or "") == state else None
            case "size":
                size = int(state.rpartition(":")[2]) if state else None
                return state if operation.known and operation.result == size else None
        raise AssertionError(f"a Blob's key knows no operation {operation.name}")

    def pending(self, _state: str, operation: Operation) -> Hashable | None:
        """See `Pending.pending`."""
        return (operation.name, operation.args) if operation.name in ("set", "remove") else None


class LogModel:
    """One key of a Consensus. The state is the oldest entry's sequence number and all entries.

    Operations: ``compare_and_set(expected, value) -> bool``, ``scan(from, limit) -> [[seqno, value], ...]``, ``truncate(seqno) -> count``
    or `REFUSED`, and ``wait(after) -> bool``.
    """

    def initial(self) -> Hashable:
        """No entry."""
        return (0, ())

    def step(self, state: _Log, operation: Operation) -> Hashable | None:
        """See `Model.step`.

        Raises:
            AssertionError: the model knows no such operation, so the test that recorded it is wrong.
        """
        oldest, entries = state
        newest = oldest + len(entries) - 1 if entries else None
        args, result, known = operation.args, operation.result, operation.known
        match operation.name:
            case "compare_and_set":
                won = newest == args[0]
                if known and result != won:
                    return None
                if won:
                    return (oldest, (*entries, args[1]))
                return state if known else None
            case "scan":
                start = max(0, args[0] - oldest)
                there = entries[start : start + args[1]]
                found = [[oldest + start + i, value] for i, value in enumerate(there)]
                return state if known and result == found else None
            case "truncate":
                return _truncated(oldest, entries, newest, operation)
            case "wait":
                arrived = newest is not None and newest > args[0]
                return state if known and (arrived or not result) else None
        raise AssertionError(f"a Consensus key knows no operation {operation.name}")

    def pending(self, state: _Log, operation: Operation) -> Hashable | None:
        """See `Pending.pending`: a compare-and-set whose moment has passed, or a truncation of what is gone, does nothing any more."""
        oldest, entries = state
        newest = oldest + len(entries) - 1 if entries else -1
        match operation.name:
            case "compare_and_set":
                expected = -1 if operation.args[0] is None else operation.args[0]
                return (operation.name, operation.args) if expected >= newest else None
            case "truncate":
                return (operation.name, operation.args) if operation.args[0] > oldest else None
        return None


def _truncated(
    oldest: int, entries: tuple[str, ...], newest: int | None, operation: Operation
) -> _Log | None:
    seqno = operation.args[0]
    if newest is None or seqno > newest:
        refused = operation.known and operation.result == REFUSED
        return (oldest, entries) if refused else None
    removed = max(0, seqno - oldest)
    if operation.known and operation.result != removed:
        return None
    if not operation.known and not removed:
        return None
    return (oldest + removed, entries[removed:])


def head_faults(history: Iterable[Operation]) -> list[str]:
    """What is wrong with the heads of a Consensus's history, and with entries that differ between readers, each in a sentence.

    A head must be an entry whose compare-and-set began before the head was returned and was not refused, and not below the newest entry
    the same process had seen or appended before it asked.
    """
    operations = list(history)
    appends: dict[tuple[str, int, str], Operation] = {}
    for one in operations:
        if one.name == "compare_and_set" and not (one.known and one.result is False):
            seqno = 0 if one.args[0] is None else one.args[0] + 1
            appends[one.key, seqno, one.args[1]] = one
    faults = []
    floors: dict[tuple[int, str], int] = {}
    for one in sorted(operations, key=lambda o: o.call):
        if not one.known or one.end is None:
            continue
        who = (one.process, one.key)
        if one.name == "head":
            floor = floors.get(who, -1)
            seqno, value = (-1, "") if one.result is None else one.result
            append = appends.get((one.key, seqno, value))
            if seqno < floor:
                faults.append(f"a head went back: {one}, after the same handle had seen {floor}")
            elif seqno >= 0 and (append is None or append.call > one.end):
                faults.append(f"a head that nobody had appended: {one}")
        floors[who] = max(floors.get(who, -1), _seen(one))
    return faults


def _seen(one: Operation) -> int:
    """The newest sequence number that the operation's outcome shows."""
    match one.name:
        case "head":
            return -1 if one.result is None else int(one.result[0])
        case "scan":
            return int(one.result[-1][0]) if one.result else -1
        case "compare_and_set" if one.result:
            return 0 if one.args[0] is None else int(one.args[0]) + 1
    return -1


_Timestamps = tuple[int, int, bool]


class OracleModel:
    """A timeline. The state is the read timestamp, the write timestamp, and whether that one is exact or only a bound from below.

    It is a bound after an allocation whose outcome is unknown: that may have answered any timestamp above.

    Operations: ``write_ts(clock) -> ts``, ``peek_write_ts() -> ts``, ``read_ts() -> ts``, ``apply_write(ts)``.
    """

    def initial(self) -> Hashable:
        """A new timeline."""
        return (0, 0, True)

    def step(self, state: _Timestamps, operation: Operation) -> Hashable | None:
        """See `Model.step`.

        Raises:
            AssertionError: the model knows no such operation, so the test that recorded it is wrong.
        """
        read, write, exact = state
        args: tuple[Any, ...] = operation.args
        result, known = operation.result, operation.known
        match operation.name:
            case "write_ts":
                if not known:
                    # Above a bound it only narrows what may be: whatever fits after it fits without it.
                    return (read, max(write + 1, args[0]), False) if exact else None
                return (read, result, True) if result > write and result >= args[0] else None
            case "peek_write_ts":
                fits = known and (result == write or (not exact and result > write))
                return (read, result, True) if fits else None
            case "read_ts":
                return state if known and result == read else None
            case "apply_write":
                after = (max(read, args[0]), max(write, args[0]), exact)
                return after if known or after != state else None
        raise AssertionError(f"an oracle knows no operation {operation.name}")

    def pending(self, state: _Timestamps, operation: Operation) -> Hashable | None:
        """See `Pending.pending`: allocations by clocks that the write timestamp has passed are alike, and what was applied stays so."""
        read, write, _ = state
        match operation.name:
            case "write_ts":
                return (operation.name, max(write, operation.args[0]))
            case "apply_write":
                ts = operation.args[0]
                return (operation.name, ts) if ts > read or ts > write else None
        return None
