"""The readers of a shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from mzsql.persist.batch import KeySpec, KeyStats, ReadStats
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import Frontier, Timestamp

KeyRange: TypeAlias = tuple[Any, Any]


class PartRef:
    """A part as a reader gets it. Keep the object alive while anything (Spark) may read the part: it holds its blob back.

    Every reader must take a row's time as ``greatest(mz_time, time_floor)``, and for a snapshot keep rows whose time is <= as_of.
    """

    shard_id: str
    blob_key: str | None  # None: inline
    spark_path: str | None  # None: inline, or the Blob has no path Spark can open
    rows: int
    bytes: int
    stats: tuple[KeyStats, ...]
    worker: int | None
    lower: Timestamp
    upper: Frontier
    time_min: Timestamp
    time_max: Timestamp
    time_floor: Timestamp

    @property
    def inline(self) -> bool:
        """Whether its bytes are here already."""
        raise Unsupported("")

    def to_arrow(self, *, stats: ReadStats | None = None) -> pa.Table:
        """All its updates (columns, mz_time with the floor applied, mz_diff), checksum verified."""
        raise Unsupported("")


class SnapshotSplit:
    """One share of a snapshot; travels between processes as bytes."""

    as_of: Timestamp

    def to_arrow(self) -> pa.Table:
        """Its updates, times advanced to ``as_of``; consolidated within the split only."""
        raise Unsupported("")

    def spark_paths(self) -> list[str]:
        """Paths of its parts in Blob (exclusive of `inline_table`)."""
        raise Unsupported("")


class ReadHandle:
    """Reads one shard and holds its since back; made by `PersistClient.open_reader` or `open_shard`."""

    shard_id: str
    reader_id: str
    schema: pa.Schema
    key: KeySpec | None

    @property
    def since(self) -> Frontier:
        """This reader's since: it may read at times at or beyond it."""
        raise Unsupported("")

    @property
    def upper(self) -> Frontier:
        """The shard's upper as last seen by this process; asks nobody."""
        raise Unsupported("")

    def fetch_upper(self, *, timeout: float | None = None) -> Frontier:
        """The shard's current upper, from Consensus."""
        raise Unsupported("")

    def wait_for_upper(self, past: Timestamp, *, timeout: float | None = None) -> Frontier:
        """Wait until ``past`` is complete (upper > past); the upper then. Raises ReadTimeout."""
        raise Unsupported("")

    def parts(self, as_of: Timestamp, *, timeout: float | None = None) -> list[PartRef]:
        """The parts a snapshot at ``as_of`` consists of; waits until upper passes."""
        raise Unsupported("")

    def parts_between(
        self, lower: Timestamp, upper: Timestamp, *, timeout: float | None = None
    ) -> list[PartRef]:
        """The parts that may hold updates with ``lower <= time < upper``."""
        raise Unsupported("")

    def snapshot(
        self, as_of: Timestamp, num_splits: int = 1, *, timeout: float | None = None
    ) -> list[SnapshotSplit]:
        """The contents at ``as_of`` in ``num_splits`` splits; waits until upper passes."""
        raise Unsupported("")

    def snapshot_arrow(
        self,
        as_of: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        key_ranges: Sequence[KeyRange] | None = None,
        workers: Sequence[int] | None = None,
        consolidate: bool = True,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The contents at ``as_of`` with times advanced to it: ``columns`` (all by default), mz_time, mz_diff.

        ``key_ranges``: inclusive (lo, hi) of the first key column; one None leaves that side open, (None, None) asks for NULL keys.
        Row groups outside the ranges are not read; rows outside are not returned."""
        raise Unsupported("")

    def updates(
        self,
        lower: Timestamp,
        upper: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """All updates with ``lower <= mz_time < upper``, at their exact times, unconsolidated; waits until they are complete."""
        raise Unsupported("")

    def listen(
        self, as_of: Timestamp, *, timeout: float | None = None
    ) -> Iterator[tuple[pa.Table, Frontier]]:
        """All updates after ``as_of`` as they become complete: (updates, frontier now complete below). Ends at the empty frontier.
        ``timeout``: seconds to wait for the next; raises ReadTimeout."""
        raise Unsupported("")

    def downgrade_since(self, new_since: Frontier, *, timeout: float | None = None) -> None:
        """Give up reading below ``new_since``; with the present since, a heartbeat."""
        raise Unsupported("")

    def expire(self) -> None:
        """Give the handle up. Idempotent."""
        raise Unsupported("")


class CriticalReader:
    """A since hold without lease: stays until released, survives processes, fenced by an opaque token."""

    reader_id: str
    shard_id: str

    @property
    def since(self) -> Frontier:
        """The hold."""
        raise Unsupported("")

    @property
    def token(self) -> str:
        """The token of whoever owns the hold."""
        raise Unsupported("")

    def downgrade_since(self, new_since: Frontier, *, timeout: float | None = None) -> None:
        """Move the hold forward; raises Fenced when another took the hold over."""
        raise Unsupported("")

    def release(self, *, timeout: float | None = None) -> None:
        """Remove the hold for good. Idempotent."""
        raise Unsupported("")
