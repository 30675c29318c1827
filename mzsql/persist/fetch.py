"""Parts read back: whole or by ranges, verified, and only as much of them as is asked for.

Promise: a part read whole is compared with its CRC-32; a part read by ranges with the CRC of each Parquet page. Footers of recently
read objects are kept, as objects never change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mzsql.location import RangeReadable, SparkReadable
from mzsql.persist.batch import (
    DIFF_COLUMN,
    TIME_COLUMN,
    BlobPart,
    InlinePart,
    Part,
    ReadStats,
)
from mzsql.persist.clock import Deadline
from mzsql.persist.codec import checksum
from mzsql.persist.columns import advance_times, conform, physical
from mzsql.persist.errors import CorruptPart, MissingPart
from mzsql.persist.machine import Context
from mzsql.persist.ranges import RangeFile, extents, groups_of
from mzsql.persist.stats import Lookup
from mzsql.repr.frontier import Timestamp

_FOOTERS = 4096


def spark_path(context: Context, key: str) -> str | None:
    """The path under which Spark opens the object, if it can."""
    return context.blob.spark_path(key) if isinstance(context.blob, SparkReadable) else None


class PartReader:
    """Reads parts of one shard; keeps the footers of recently read objects, which never change."""

    def __init__(self, context: Context, shard_id: str, schema: pa.Schema) -> None:
        self.context = context
        self.shard_id = shard_id
        self.schema = schema
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self,
        part: Part,
        deadline: Deadline,
        *,
        columns: Sequence[str] | None = None,
        lookup: Lookup | None = None,
        stats: ReadStats | None = None,
    ) -> pa.Table:
        """The part's updates, times at or above its floor: ``columns`` (all by default), ``mz_time``, ``mz_diff``.

        With a ``lookup`` row groups it does not need are left out; rows it does not need may still be there.

        Raises:
            MissingPart: the object is gone.
            CorruptPart: its bytes are not what was written.
        """
        stats = ReadStats() if stats is None else stats
        wanted = physical(self.schema)
        if columns is not None:
            needed = dict.fromkeys(
                [*columns, *([lookup.column] if lookup else []), TIME_COLUMN, DIFF_COLUMN]
            )
            wanted = pa.schema([wanted.field(name) for name in needed])
        if lookup is not None and not lookup.may_hold_part(part.stats):
            stats.parts_skipped += 1
            return wanted.empty_table()
        stats.parts += 1
        if isinstance(part, InlinePart):
            table = self._read_inline(part, stats)
        else:
            table = self._read_blob(part, wanted.names, lookup, deadline, stats)
        stats.rows += table.num_rows
        return advance_times(conform(table, wanted), part.time_floor)

    def _read_inline(self, part: InlinePart, stats: ReadStats) -> pa.Table:
        if checksum(part.data) != part.checksum:
            raise CorruptPart(f"shard {self.shard_id}: an inline part does not match its checksum")
        stats.bytes += len(part.data)
        stats.row_groups += 1
        batch = pa.ipc.read_record_batch(pa.py_buffer(part.data), physical(self.schema))
        return pa.Table.from_batches([batch])

    def _read_blob(
        self,
        part: BlobPart,
        names: Sequence[str],
        lookup: Lookup | None,
        deadline: Deadline,
        stats: ReadStats,
    ) -> pa.Table:
        partial = lookup is not None or len(names) < len(self.schema) + 2
        source = self._ranged(part, deadline) if partial else None
        try:
            if source is None:
                data = self._whole(part, deadline)
                stats.bytes += len(data)
                file = pq.ParquetFile(pa.BufferReader(data))
            else:
                file = pq.ParquetFile(
                    pa.PythonFile(source, mode="r"),
                    metadata=self._footer(part, source),
                    page_checksum_verification=True,
                )
            groups = groups_of(file.metadata, lookup)
            if source is not None:
                source.prefetch(extents(file.metadata, groups, names))
            stats.row_groups += len(groups)
            stats.row_groups_skipped += file.metadata.num_row_groups - len(groups)
            return file.read_row_groups(groups, columns=list(names))
        except (pa.ArrowException, OSError) as failure:
            raise CorruptPart(
                f"shard {self.shard_id}: the part {part.key} cannot be read: {failure}"
            ) from failure
        finally:
            if source is not None:
                stats.bytes += source.bytes_read

    def _whole(self, part: BlobPart, deadline: Deadline) -> bytes:
        context = self.context
        data = context.retrying(lambda: context.blob.get(part.key), deadline)
        if data is None:
            raise missing(self.shard_id, part.key)
        if len(data) != part.size or part.checksum not in (None, checksum(data)):
            raise CorruptPart(
                f"shard {self.shard_id}: the part {part.key} does not match its checksum"
            )
        return data

    def _ranged(self, part: BlobPart, deadline: Deadline) -> RangeFile | None:
        if not isinstance(self.context.blob, RangeReadable):
            return None
        return RangeFile(
            part.size, lambda offset, length: self._read_range(part, offset, length, deadline)
        )

    def _footer(self, part: BlobPart, source: RangeFile) -> pq.FileMetaData:
        with self._lock:
            known = self._footers.get(part.key)
            if known is not None:
                self._footers.move_to_end(part.key)
                return known
        footer = pq.read_metadata(pa.BufferReader(source.footer()))
        self.remember_footer(part.key, footer)
        return footer

    def remember_footer(self, key: str, footer: pq.FileMetaData) -> None:
        """Keep the footer of an object, which spares reading it."""
        with self._lock:
            self._footers[key] = footer
            if len(self._footers) > _FOOTERS:
                self._footers.popitem(last=False)

    def _read_range(self, part: BlobPart, offset: int, length: int, deadline: Deadline) -> bytes:
        """Bytes of an object that must be there."""
        context, blob = self.context, self.context.blob
        assert isinstance(blob, RangeReadable)
        data = context.retrying(lambda: blob.get_range(part.key, offset, length), deadline)
        if data is None:
            raise missing(self.shard_id, part.key)
        return data


def missing(shard_id: str, key: str) -> MissingPart:
    """The error for an object that is gone."""
    return MissingPart(f"shard {shard_id}: the part {key} is missing from Blob")


def until(table: pa.Table, as_of: Timestamp) -> pa.Table:
    """The updates of ``table`` at or before ``as_of``."""
    return table.filter(pc.less_equal(table[TIME_COLUMN], pa.scalar(as_of, pa.int64())))


def between(table: pa.Table, lower: Timestamp, upper: Timestamp | None) -> pa.Table:
    """The updates of ``table`` with ``lower <= time < upper``."""
    times = table[TIME_COLUMN]
    mask = pc.greater_equal(times, pa.scalar(lower, pa.int64()))
    if upper is not None:
        mask = pc.and_(mask, pc.less(times, pa.scalar(upper, pa.int64())))
    return table.filter(mask)
