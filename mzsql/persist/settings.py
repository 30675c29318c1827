"""The settings of persist, each with its unit: bytes, rows, milliseconds, seconds or a count."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import msgspec

from mzsql.location.errors import UsageError
from mzsql.persist.arguments import check_number

Maintenance: TypeAlias = Literal["in process", "elsewhere"]

_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_WHOLE = {
    "inline_bytes": 0,
    "inline_total_bytes": 0,
    "part_bytes": 1,
    "flush_interval_ms": 0,
    "flush_bytes": 1,
    "part_uploads": 1,
    "row_group_rows": 1,
    "keyed_row_group_rows": 1,
    "keyed_row_group_rows_least": 1,
    "stats_columns": 0,
    "page_rows": 1,
    "rollup_interval": 1,
    "compaction_fanout": 2,
    "max_batches": 1,
    "compaction_memory_bytes": 1,
    "compaction_threads": 1,
    "open_shards": 0,
    "reader_lease_ms": 1,
    "writer_lease_ms": 1,
}
"""The settings that are whole numbers, and the least value of each."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may choose; clients with different settings may use the same shard at the same time.

    These trade latency for cost on an object store: ``inline_bytes`` and ``inline_total_bytes``, because an inline
    batch costs one Consensus write and no object until compaction moves it to Blob; and ``flush_interval_ms`` and
    ``flush_bytes`` of buffered writers, which make one batch of all that was pushed in between.
    """

    inline_bytes: int = 64 * 1024
    """The most encoded bytes of a batch that is carried inline in the shard's state."""
    inline_total_bytes: int = 1024 * 1024
    """The most inline bytes in one shard's state; beyond that, a batch is written as an object."""
    part_bytes: int = 48 * 1024 * 1024
    """A part is closed once it holds about this many bytes of Arrow memory: the bound on memory in append and
    compaction.
    """
    flush_interval_ms: int = 1000
    """A buffered writer appends what was pushed after this time, or earlier by `flush_bytes`."""
    flush_bytes: int = 16 * 1024 * 1024
    """A buffered writer appends what was pushed once it holds this many bytes of Arrow memory."""
    part_uploads: int = 2
    """How many parts of a call are encoded and written at the same time, besides the one being filled; a further one
    waits.
    """
    row_group_rows: int = 128 * 1024
    """Rows in a Parquet row group of a shard without key."""
    keyed_row_group_rows: int = 16 * 1024
    """The most rows in a Parquet row group of a keyed shard."""
    keyed_row_group_rows_least: int = 1000
    """The fewest rows in a row group of a keyed shard, if the part has them: see `keyed_group_rows`."""
    stats_columns: int = 32
    """For how many columns of a shard without key, from the first on, each part's metadata has the minimum and maximum."""
    page_rows: int = 1000
    """Rows in a Parquet page of a keyed shard."""
    compression: str = "zstd"
    keyed_compression: str = "snappy"
    """For parts of keyed shards, which merges rewrite and lookups read: a third of zstd's time for less than twice the
    bytes.
    """
    rollup_interval: int = 128
    """After how many changes the whole state is written to Blob."""
    compaction_fanout: int = 4
    """How many adjacent batches of a size tier are merged into one of the next."""
    max_batches: int = 48
    """With more live batches than this, the cheapest adjacent ones are merged whatever their tiers."""
    compaction_memory_bytes: int = 256 * 1024 * 1024
    """DuckDB's memory limit in a merge larger than a fraction of `part_bytes`; it spills the rest to a temporary
    directory.
    """
    compaction_threads: int = 2
    """DuckDB's threads in such a merge."""
    maintenance: Maintenance = "in process"
    """Whether this client compacts and collects the shards it changes, or another process does, such as ``mzsql
    maintain``.
    """
    open_shards: int = 256
    """How many recently used shards keep their state in memory; shards with an open handle always do."""
    reader_lease_ms: int = 15 * 60 * 1000
    writer_lease_ms: int = 15 * 60 * 1000
    timeout: float = 60.0
    """Seconds a call may take if it is not given a timeout."""
    poll_seconds: float = 0.01
    """The first pause between looks at a Consensus that cannot notify; it doubles up to `poll_max_seconds`."""
    poll_max_seconds: float = 0.25

    def __post_init__(self) -> None:
        # Leases are stored in shards' states: a value that is not a whole number would make the state undecodable for
        # everybody.
        for name, least in _WHOLE.items():
            check_number(getattr(self, name), f"the setting {name}", least, whole=True)
        for name in ("timeout", "poll_seconds", "poll_max_seconds"):
            check_number(getattr(self, name), f"the setting {name}", 0, whole=False)
        for name in ("compression", "keyed_compression"):
            if getattr(self, name) not in _COMPRESSIONS:
                raise UsageError(
                    f"no such {name}: {getattr(self, name)!r}",
                    hint=f"It is one of {', '.join(_COMPRESSIONS)}.",
                )
        if self.maintenance not in get_args(Maintenance):
            raise UsageError(
                f"no such way of maintenance: {self.maintenance!r}",
                hint="It is 'in process' or 'elsewhere'.",
            )

    def keyed_group_rows(self, rows: int) -> int:
        """Return the rows per row group for a keyed part of ``rows`` rows: about four times the square root, within the
        bounds.

        A lookup of one key reads one row group and, the first time it meets the part, the footer, whose size grows
        with the number of groups. With groups proportional to the square root, both grow alike; the factor gives the
        reads of groups more weight, as footers are kept in memory once read.
        """
        return min(
            max(4 * math.isqrt(rows), self.keyed_row_group_rows_least), self.keyed_row_group_rows
        )
