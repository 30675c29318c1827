"""Persist: durable, definite collections of ``(row, time, diff)`` (shards) that any number of processes write, read and
compact.

`PersistClient` opens a shard as a `WriteHandle` and a `ReadHandle`. The shard's state is a pure state machine,
stored as a log in Consensus; its batches of updates are Parquet objects in Blob, or travel inline in the state while
they are small.
Source: Materialize's persist design (doc/developer/design/20220330_persist.md). docs/architecture.md, "The way of a
write", shows it in use.
"""

from __future__ import annotations

from mzsql.persist.batch import (
    DIFF_COLUMN,
    TIME_COLUMN,
    WORKER_COLUMN,
    Batch,
    BlobPart,
    InlinePart,
    KeySpec,
    KeyStats,
    ReadStats,
)
from mzsql.persist.buffered import BufferedWriter
from mzsql.persist.cache import BlobCache, CachedBlob, CacheStats
from mzsql.persist.client import PersistClient
from mzsql.persist.clock import Clock, SystemClock
from mzsql.persist.columns import all_at
from mzsql.persist.consolidate import consolidate
from mzsql.persist.critical import CriticalReader
from mzsql.persist.errors import (
    CRITICAL,
    CorruptPart,
    DuplicatePart,
    ExpiredHandle,
    ForeignBlob,
    Holder,
    InvalidBounds,
    MissingPart,
    NewerVersion,
    ReadTimeout,
    SchemaMismatch,
    ShardFinalized,
    ShardHeld,
    SinceViolation,
    UpperMismatch,
)
from mzsql.persist.fetch import until
from mzsql.persist.leased_parts import ColumnSummary, PartRef, SnapshotSplit
from mzsql.persist.parts import Updates
from mzsql.persist.pushdown import Filters
from mzsql.persist.read import ReadHandle
from mzsql.persist.retry import troubles
from mzsql.persist.settings import Settings
from mzsql.persist.state import ShardState
from mzsql.persist.stats import KeyRange
from mzsql.persist.write import WriteHandle

__all__ = [
    "CRITICAL",
    "DIFF_COLUMN",
    "TIME_COLUMN",
    "WORKER_COLUMN",
    "Batch",
    "BlobCache",
    "BlobPart",
    "BufferedWriter",
    "CacheStats",
    "CachedBlob",
    "Clock",
    "ColumnSummary",
    "CorruptPart",
    "CriticalReader",
    "DuplicatePart",
    "ExpiredHandle",
    "Filters",
    "ForeignBlob",
    "Holder",
    "InlinePart",
    "InvalidBounds",
    "KeyRange",
    "KeySpec",
    "KeyStats",
    "MissingPart",
    "NewerVersion",
    "PartRef",
    "PersistClient",
    "ReadHandle",
    "ReadStats",
    "ReadTimeout",
    "SchemaMismatch",
    "Settings",
    "ShardFinalized",
    "ShardHeld",
    "ShardState",
    "SinceViolation",
    "SnapshotSplit",
    "SystemClock",
    "Updates",
    "UpperMismatch",
    "WriteHandle",
    "all_at",
    "consolidate",
    "troubles",
    "until",
]
