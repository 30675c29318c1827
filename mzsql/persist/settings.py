"""The settings of persist, with the bound each puts on bytes, rows, milliseconds or seconds."""

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
"""The settings that are whole numbers, and the least that each may be."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may choose; the same shard may be used with different settings at once.

    The levers between latency and cost on an object store: ``inline_bytes`` and ``inline_total_bytes``, as what travels inline costs one
    Consensus write and no object, until compaction moves it out; and ``flush_interval_ms`` and ``flush_bytes`` of buffered writers, which
    make one batch of what was pushed in between.
    """

    inline_bytes: int = 64 * 1024
    """A batch of at most so many encoded bytes travels inline in the shard's state."""
    inline_total_bytes: int = 1024 * 1024
    """At most so many bytes are inline in one shard's state; past it a batch is written as an object."""
    part_bytes: int = 48 * 1024 * 1024
    """A part is closed once it holds about so many bytes of Arrow memory: the bound on memory in append and compaction."""
    flush_interval_ms: int = 1000
    """A buffered writer appends what was pushed after so long …"""
    flush_bytes: int = 16 * 1024 * 1024
    """… or once it holds so many bytes of Arrow memory."""
    part_uploads: int = 2
    """So many parts of a call are encoded and written at once, beside the one being filled; the next waits."""
    row_group_rows: int = 128 * 1024
    """Rows in a Parquet row group of a shard without key."""
    keyed_row_group_rows: int = 16 * 1024
    """At most so many rows are in a Parquet row group of a keyed shard …"""
    keyed_row_group_rows_least: int = 1000
    """… and at least so many, where a part has them: see `keyed_group_rows`."""
    stats_columns: int = 32
    """So many columns, the first ones, of a shard without key have their least and greatest value in the metadata of each part."""
    page_rows: int = 1000
    """Rows in a Parquet page of a keyed shard."""
    compression: str = "zstd"
    keyed_compression: str = "snappy"
    """Of the parts of keyed shards, which merges write anew and lookups read: a third of zstd's time for less than twice the bytes."""
    rollup_interval: int = 128
    """The whole state is written to Blob after so many changes."""
    compaction_fanout: int = 4
    """So many adjacent batches of a size tier become one of the next."""
    max_batches: int = 48
    """Beyond so many live batches, the cheapest neighbours are merged whatever their tiers."""
    compaction_memory_bytes: int = 256 * 1024 * 1024
    """DuckDB's memory in a merge that is larger than a fraction of `part_bytes`; what exceeds it spills to a temporary directory."""
    compaction_threads: int = 2
    """DuckDB's threads in such a merge."""
    maintenance: Maintenance = "in process"
    """Whether shards that this client changes are compacted and collected by it, or by another process, such as ``mzsql maintain``."""
    open_shards: int = 256
    """So many shards that were used lately keep their state in memory; those with a handle always do."""
    reader_lease_ms: int = 15 * 60 * 1000
    writer_lease_ms: int = 15 * 60 * 1000
    timeout: float = 60.0
    """Seconds a call may take when it is not told."""
    poll_seconds: float = 0.01
    """The first pause between looks at a Consensus that cannot notify; it doubles up to `poll_max_seconds`."""
    poll_max_seconds: float = 0.25

    def __post_init__(self) -> None:
        # Leases become part of shards' states, which nobody could read any more were they no whole numbers.
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
        """How many rows a row group has in a keyed part of ``rows`` rows: about four times the square root, between the bounds.

        A lookup of one key reads one group, and once, when it first meets the part, the footer, which grows with the number of groups.
        With groups of the square root both do; the factor favours the groups, as footers are kept.
        """
        return min(
            max(4 * math.isqrt(rows), self.keyed_row_group_rows_least), self.keyed_row_group_rows
        )
