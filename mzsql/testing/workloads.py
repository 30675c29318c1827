"""What the threads and processes of a concurrency run do: random operations on few keys, each recorded.

Values carry their own name and are checked byte for byte when they come back, so that a torn one is known. A workload takes everything
it chooses from ``rng``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

from mzsql.location import (
    Blob,
    Consensus,
    ConsensusWait,
    RangeReadable,
    TimestampOracle,
    Versioned,
)
from mzsql.testing.histories import NOTHING, Recorder

Kind = Literal["blob", "consensus", "oracle"]

KEYS: dict[Kind, tuple[str, ...]] = {
    "blob": ("k/a", "k/b", "k/c"),
    "consensus": ("k", "l"),
    "oracle": ("t",),
}
"""What each kind of workload works on."""

_SIZES = (40, 40, 3_000, 200_000)


def value_of(name: str) -> bytes:
    """The bytes of the value called ``name``, which ends in ``:`` and their number."""
    size = int(name.rpartition(":")[2])
    unit = f"{name}|".encode()
    return (unit * (size // len(unit) + 1))[:size]


def name_of(value: bytes | None) -> str | None:
    """The name of a value that came back; of one that is nobody's value whole, a text that says so."""
    if value is None:
        return None
    name = value.partition(b"|")[0].decode(errors="replace")
    try:
        whole = value_of(name) == value
    except (ValueError, MemoryError):
        whole = False
    return name if whole else f"no value whole, {len(value)} bytes that begin with {value[:40]!r}"


def drive_blob(blob: Blob, recorder: Recorder, rng: random.Random, operations: int) -> None:
    """Set, get, delete and list few keys."""
    keys = KEYS["blob"]
    for number in range(operations):
        key = rng.choice(keys)
        roll = rng.random()
        if roll < 0.4:
            name = f"{recorder.process}.{number}:{rng.choice(_SIZES)}"
            recorder.record("set", key, (name,), _setting(blob, key, name), lambda _: None)
        elif roll < 0.65:
            recorder.record("get", key, (), _getting(blob, key, rng), name_of)
        elif roll < 0.8:
            recorder.record("delete", key, (), _deleting(blob, key))
        else:
            recorder.record("list", "", (), lambda: dict(blob.list_keys_and_metadata("k/")))


def _setting(blob: Blob, key: str, name: str) -> Callable[[], None]:
    value = value_of(name)
    return lambda: blob.set(key, value)


def _getting(blob: Blob, key: str, rng: random.Random) -> Callable[[], bytes | None]:
    if isinstance(blob, RangeReadable) and rng.random() < 0.3:
        ranged = blob
        return lambda: ranged.get_range(key, 0, 2 * max(_SIZES))
    return lambda: blob.get(key)


def _deleting(blob: Blob, key: str) -> Callable[[], int | None]:
    return lambda: blob.delete(key)


def finish_blob(blob: Blob, recorder: Recorder) -> None:
    """What is there in the end."""
    for key in KEYS["blob"]:
        recorder.record("get", key, (), _getting(blob, key, random.Random(0)), name_of)  # noqa: S311 - chooses nothing
    recorder.record("list", "", (), lambda: dict(blob.list_keys_and_metadata("k/")))


class _Follower:
    """What one thread of a Consensus workload believes, and its operations."""

    def __init__(self, consensus: Consensus, recorder: Recorder) -> None:
        self.consensus = consensus
        self.recorder = recorder
        self.newest = dict.fromkeys(KEYS["consensus"], -1)
        self.written = 0

    def append(self, key: str, size: int) -> None:
        newest = self.newest[key]
        expected = None if newest < 0 else newest
        self.written += 1
        name = f"{self.recorder.process}.{self.written}:{size}"
        new = Versioned(newest + 1, value_of(name))
        won = self.recorder.record(
            "compare_and_set",
            key,
            (expected, name),
            lambda: self.consensus.compare_and_set(key, expected, new),
        )
        if won is True:
            self.newest[key] = newest + 1
        else:
            self.scan(key, newest + 1, 20)

    def scan(self, key: str, start: int, limit: int) -> None:
        found = self.recorder.record(
            "scan",
            key,
            (start, limit),
            lambda: self.consensus.scan(key, start, limit),
            lambda entries: [[entry.seqno, name_of(entry.data)] for entry in entries],
        )
        if found is not NOTHING and found:
            self.newest[key] = max(self.newest[key], found[-1][0])

    def head(self, key: str) -> None:
        found = self.recorder.record(
            "head",
            key,
            (),
            lambda: self.consensus.head(key),
            lambda head: None if head is None else [head.seqno, name_of(head.data)],
        )
        if found is not NOTHING and found is not None:
            self.newest[key] = max(self.newest[key], found[0])

    def truncate(self, key: str, seqno: int) -> None:
        self.recorder.record(
            "truncate",
            key,
            (seqno,),
            lambda: self.consensus.truncate(key, seqno),
            refusable=True,
        )

    def wait(self, waiting: ConsensusWait, key: str, after: int) -> None:
        self.recorder.record("wait", key, (after,), lambda: waiting.wait(key, after, 0.01))


def drive_consensus(
    consensus: Consensus, recorder: Recorder, rng: random.Random, operations: int
) -> None:
    """Append to, scan, truncate and wait for few logs."""
    follower = _Follower(consensus, recorder)
    for _ in range(operations):
        key = rng.choice(KEYS["consensus"])
        newest = follower.newest[key]
        roll = rng.random()
        if roll < 0.5:
            follower.append(key, rng.choice((40, 2_000)))
        elif roll < 0.65:
            follower.head(key)
        elif roll < 0.82:
            follower.scan(key, max(0, newest - rng.randrange(5)), rng.randrange(1, 7))
        elif roll < 0.92 or not isinstance(consensus, ConsensusWait):
            follower.truncate(key, max(0, newest + rng.choice((-3, -2, -1, 0, 0, 5))))
        else:
            follower.wait(consensus, key, newest + rng.randrange(-1, 2))


def finish_consensus(consensus: Consensus, recorder: Recorder) -> None:
    """What is there in the end."""
    follower = _Follower(consensus, recorder)
    for key in KEYS["consensus"]:
        follower.scan(key, 0, 1_000_000)
        follower.head(key)


class OracleClock:
    """The clock of one handle, set by its only thread before each operation, so that the model knows what was read."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        """The milliseconds."""
        return self.ms


def drive_oracle(
    oracle: TimestampOracle,
    clock: OracleClock,
    recorder: Recorder,
    rng: random.Random,
    operations: int,
) -> None:
    """Allocate, apply what was allocated, read and peek, by a clock that jumps."""
    allocated: list[int] = []
    for number in range(operations):
        clock.ms = 1_000 + 2 * number + rng.randrange(-20, 20)
        roll = rng.random()
        if roll < 0.35:
            found = recorder.record("write_ts", "t", (clock.ms,), oracle.write_ts)
            if found is not NOTHING:
                allocated.append(found)
        elif roll < 0.6:
            last = allocated.pop() if allocated else 0
            ts = max(0, last + rng.choice((0, 0, 0, 0, -7, 3)))
            recorder.record("apply_write", "t", (ts,), _applying(oracle, ts))
        elif roll < 0.85:
            recorder.record("read_ts", "t", (), oracle.read_ts)
        else:
            recorder.record("peek_write_ts", "t", (), oracle.peek_write_ts)


def _applying(oracle: TimestampOracle, ts: int) -> Callable[[], None]:
    return lambda: oracle.apply_write(ts)


def finish_oracle(oracle: TimestampOracle, recorder: Recorder) -> None:
    """What is there in the end."""
    recorder.record("peek_write_ts", "t", (), oracle.peek_write_ts)
    recorder.record("read_ts", "t", (), oracle.read_ts)


def drive(
    kind: Kind,
    opener: Callable[[OracleClock], Any],
    recorder: Recorder,
    rng: random.Random,
    operations: int,
) -> None:
    """The workload of ``kind`` on the handle ``opener`` gives; to an oracle it gives the clock."""
    clock = OracleClock()
    handle = opener(clock)
    if kind == "blob":
        drive_blob(handle, recorder, rng, operations)
    elif kind == "consensus":
        drive_consensus(handle, recorder, rng, operations)
    else:
        drive_oracle(handle, clock, recorder, rng, operations)
