"""The writer of a shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from mzsql.persist.batch import Batch, KeySpec
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import Frontier, Timestamp

Updates: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"


class WriteHandle:
    """Writes updates to one shard; made by `PersistClient.open_writer` or `open_shard`. One call at a time.

    Updates are Arrow tables (or readers) of the shard's columns, ``mz_time`` int64 and ``mz_diff`` int64.
    """

    shard_id: str
    schema: pa.Schema
    key: KeySpec | None

    @property
    def upper(self) -> Frontier:
        """The shard's upper as last seen by this process; asks nobody."""
        raise Unsupported("")

    def fetch_upper(self, *, timeout: float | None = None) -> Frontier:
        """The shard's current upper, from Consensus."""
        raise Unsupported("")

    def batch(self, updates: Updates, *, lower: Timestamp, upper: Frontier) -> Batch:
        """Write updates with times in ``[lower, upper)`` as a batch that is not yet part of the shard (for a shard without key, or
        of one worker). It may be appended by any process. Small ones are carried inline."""
        raise Unsupported("")

    def batch_by_worker(
        self, tables: Mapping[int, Updates], *, lower: Timestamp, upper: Frontier
    ) -> Batch:
        """As `batch`, for a keyed shard: each worker's updates; sorted by key here."""
        raise Unsupported("")

    def part_prefix(self) -> str:
        """A fresh key prefix of this shard under which someone else (Spark) may write Parquet objects to be adopted."""
        raise Unsupported("")

    def adopt_parts(
        self,
        keys: Sequence[str],
        *,
        lower: Timestamp,
        upper: Frontier,
        workers: Sequence[int | None] | None = None,
    ) -> Batch:
        """A batch of Parquet objects that are already in Blob under a `part_prefix` of this shard; ``workers`` names the worker of
        each (they must be sorted by key). Footers are read for rows, statistics and time bounds; objects without rows are deleted."""
        raise Unsupported("")

    def delete_batch(self, batch: Batch) -> None:
        """Delete the objects of a batch that was never appended and never will be."""
        raise Unsupported("")

    def compare_and_append(
        self,
        updates: Updates | Mapping[int, Updates] | None,
        *,
        expected_upper: Frontier,
        new_upper: Frontier,
        timeout: float | None = None,
    ) -> None:
        """Append updates with times in ``[expected_upper, new_upper)`` iff the shard's upper is ``expected_upper``. `None` or empty
        updates advance the upper only. For a keyed shard a mapping from worker to updates. Raises UpperMismatch(current=…)."""
        raise Unsupported("")

    def compare_and_append_batch(
        self,
        batch: Batch | Sequence[Batch],
        *,
        expected_upper: Frontier,
        new_upper: Frontier,
        timeout: float | None = None,
    ) -> None:
        """As `compare_and_append`, for batches written before (here or elsewhere). On UpperMismatch the batch's objects stay, to be
        appended or deleted by the caller."""
        raise Unsupported("")

    def append(
        self,
        updates: Updates,
        *,
        lower: Timestamp,
        upper: Frontier,
        timeout: float | None = None,
    ) -> None:
        """Append definite updates of ``[lower, upper)`` that other writers may write too; drops what lies below the upper another
        has reached. Raises InvalidBounds when ``lower`` is beyond the shard's upper."""
        raise Unsupported("")

    def expire(self) -> None:
        """Give the handle up. Idempotent."""
        raise Unsupported("")
