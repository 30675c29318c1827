"""Batches and their parts: metadata that is durable, immutable, and the same in the state, in a log, and between
processes.

Promise: a `Batch` holds the updates with times in ``[lower, upper)``; it is a msgspec struct, so it is compared,
hashed and sent (`Batch.to_bytes`) by its content. A part is either bytes carried inline (`InlinePart`) or the key of
an object in Blob (`BlobPart`). Readers of a part see its times through ``time_floor``: an update's time is
``max(mz_time, time_floor)``; so a batch written before its timestamp was known is moved to it without being
rewritten (`Batch.rewrite_ts`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from mzsql.location.errors import UsageError
from mzsql.persist.errors import CorruptPart
from mzsql.persist.frames import decode_framed, encode_framed, is_framed
from mzsql.repr.frontier import Frontier, Timestamp, less_equal

TIME_COLUMN = "mz_time"
WORKER_COLUMN = "mz_worker"
DIFF_COLUMN = "mz_diff"

Stat: TypeAlias = int | float | str | bool | None


class KeySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a keyed shard (an arrangement) is laid out.

    Args:
        columns: the key, a prefix of the sort order of every part.
        workers: into how many slices the key space is divided; every part belongs to one worker in ``[0, workers)``.
        additive: value columns (integers or decimals) that add up: rows with equal other columns and time become one
            with their sums, and disappear once every additive column and ``mz_diff`` is zero. Without any, only
            diffs are summed.
    """

    columns: tuple[str, ...]
    workers: int = 1
    additive: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for names in ("columns", "additive"):
            given = getattr(self, names)
            if isinstance(given, str) or not all(isinstance(name, str) for name in given):
                raise UsageError(
                    f"the {names} of a key must be names of columns, not {given!r}",
                    hint='One column is written as ("name",).',
                )
            # Always a tuple: a list would not equal what is decoded later.
            msgspec.structs.force_setattr(self, names, tuple(given))
        if not isinstance(self.workers, int) or isinstance(self.workers, bool):
            raise UsageError(f"the workers of a key must be a whole number, not {self.workers!r}")
        if self.workers < 1:
            raise UsageError(f"a keyed shard needs at least one worker, not {self.workers}")
        if set(self.columns) & set(self.additive):
            raise UsageError("a column cannot be both key and additive")


class KeyStats(msgspec.Struct, frozen=True, array_like=True):
    """Least and greatest value of one key column in a part, and how many of its rows are NULL there.

    ``lo`` and ``hi`` are `None` if all are NULL; ``known`` is false if the writer left no statistics. Dates, times,
    timestamps and decimals are represented by their integers (decimals' as text); bytes by Latin-1 text.
    """

    column: str
    lo: Stat
    hi: Stat
    nulls: int
    known: bool = True


class InlinePart(msgspec.Struct, frozen=True, tag="i", array_like=True):
    """A part inside the state: an Arrow IPC record batch message, without its schema."""

    data: bytes
    rows: int
    time_min: Timestamp
    time_max: Timestamp
    checksum: int
    worker: int | None = None
    stats: tuple[KeyStats, ...] = ()
    time_floor: Timestamp = 0

    @property
    def size(self) -> int:
        """The number of bytes it takes in the state."""
        return len(self.data)


class BlobPart(msgspec.Struct, frozen=True, tag="b", array_like=True):
    """A part in Blob: a Parquet object of the row's columns, ``mz_time`` and ``mz_diff``.

    ``checksum`` is the CRC-32 of the whole object, ``footer_checksum`` that of its last ``footer_size`` bytes
    (`None`: not known).
    """

    key: str
    size: int
    rows: int
    time_min: Timestamp
    time_max: Timestamp
    checksum: int | None
    worker: int | None = None
    stats: tuple[KeyStats, ...] = ()
    time_floor: Timestamp = 0
    footer_size: int = 0
    footer_checksum: int | None = None


Part: TypeAlias = InlinePart | BlobPart


def first_time(part: Part) -> Timestamp:
    """Return the least time of the part's updates, as readers see them."""
    return max(part.time_min, part.time_floor)


def last_time(part: Part) -> Timestamp:
    """Return the greatest time of the part's updates, as readers see them."""
    return max(part.time_max, part.time_floor)


class Batch(msgspec.Struct, frozen=True):
    """Updates of one shard with times in ``[lower, upper)``, as of ``since`` (times below it were advanced to it)."""

    shard_id: str
    lower: Timestamp
    upper: Frontier
    parts: tuple[Part, ...] = ()
    since: Timestamp = 0

    @property
    def rows(self) -> int:
        """The number of updates."""
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """The number of encoded bytes, inline and in Blob."""
        return sum(part.size for part in self.parts)

    @property
    def inline_size(self) -> int:
        """The number of bytes it adds to the state."""
        return sum(part.size for part in self.parts if isinstance(part, InlinePart))

    def blob_keys(self) -> tuple[str, ...]:
        """Return the keys of the objects in Blob that hold its parts."""
        return tuple(part.key for part in self.parts if isinstance(part, BlobPart))

    def rewrite_ts(self, ts: Timestamp) -> Batch:
        """Return the same updates, all of them at ``ts``: for parts written before their timestamp was known.

        Raises:
            UsageError: the batch holds updates beyond ``ts``.
        """
        if any(part.time_max > ts for part in self.parts):
            raise UsageError(f"cannot move a batch back to {ts}, it holds later updates")
        parts = tuple(msgspec.structs.replace(part, time_floor=ts) for part in self.parts)
        return msgspec.structs.replace(self, lower=ts, upper=ts + 1, parts=parts)

    def with_bounds(self, lower: Timestamp, upper: Frontier) -> Batch:
        """Return the same updates with wider bounds.

        Raises:
            UsageError: an update lies outside of them.
        """
        for part in self.parts:
            if first_time(part) < lower or less_equal(upper, last_time(part)):
                raise UsageError(
                    f"the batch holds updates from {first_time(part)} to {last_time(part)}, "
                    f"outside of [{lower}, {upper})"
                )
        return msgspec.structs.replace(self, lower=lower, upper=upper)

    def to_bytes(self) -> bytes:
        """Encode the batch for a log or another process, with a checksum."""
        return encode_framed(self)

    @staticmethod
    def from_bytes(data: bytes) -> Batch:
        """Decode what `to_bytes` encoded.

        Raises:
            CorruptPart: the bytes are not a batch, or damaged.
            NewerVersion: a newer program made them.
        """
        if is_framed(data):
            return decode_framed(_DECODER, data, "a batch")
        try:  # batches of older programs have no checksum
            return _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, UsageError) as failure:
            raise CorruptPart(f"not a batch: {failure}") from failure


_DECODER = msgspec.msgpack.Decoder(Batch)


class ReadStats(msgspec.Struct):
    """What reads cost: mutable; pass the same object to several calls to sum them up.

    Attributes:
        bytes: bytes read from Blob or from inline parts.
        row_groups: row groups read.
        rows: rows of those row groups, before filters.
        parts: parts read.
        parts_skipped: parts that their statistics ruled out.
        row_groups_skipped: row groups of the parts read that their statistics ruled out.
    """

    bytes: int = 0
    row_groups: int = 0
    rows: int = 0
    parts: int = 0
    parts_skipped: int = 0
    row_groups_skipped: int = 0

    def add(self, other: ReadStats) -> None:
        """Add another's counts to these."""
        self.bytes += other.bytes
        self.row_groups += other.row_groups
        self.rows += other.rows
        self.parts += other.parts
        self.parts_skipped += other.parts_skipped
        self.row_groups_skipped += other.row_groups_skipped
