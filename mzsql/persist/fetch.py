"""Reads parts back: whole or by byte ranges, verified, and only as much of them as is asked for.

Promise: every byte that a result rests on was compared with a checksum first. A part read whole is compared with its
CRC-32. For a part read by ranges, the footer is compared with the CRC-32 in the part's metadata, and everything else
with the CRCs of blocks that the footer lists (`mzsql.persist.blocks`); in objects of other writers, whose footers
list none, each page is compared with its own CRC. Footers of recently read objects are kept, as objects never
change. Reading a part in pieces holds one row group of it at a time, and the whole object if that is short.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mzsql.location import RangeReadable, SparkReadable
from mzsql.persist.batch import (
    DIFF_COLUMN,
    TIME_COLUMN,
    BlobPart,
    InlinePart,
    KeyStats,
    Part,
    ReadStats,
)
from mzsql.persist.blocks import blocks_of
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import advance_times, conform, joined, physical
from mzsql.persist.context import Context, Forgetful
from mzsql.persist.errors import CorruptPart, MissingPart
from mzsql.persist.frames import checksum
from mzsql.persist.pushdown import Pushdown
from mzsql.persist.ranges import RangeFile, extents
from mzsql.persist.stats import Lookup, group_stats
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Timestamp

#: The most encoded bytes of footers kept for a shard.
_FOOTER_BYTES = 32 * 1024 * 1024
#: In a shorter object, row groups are not skipped for their times alone: reading the footer would cost another request.
_SHORT_BYTES = 64 * 1024
#: A longer object is read by ranges if it is read in pieces.
_WHOLE_BYTES = 8 * 1024 * 1024
#: How many requests for the existence of objects run at the same time.
_ASKED_AT_ONCE = 16
_DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    RuntimeError,
    MemoryError,
)


class _File(NamedTuple):
    """A part's object, opened: the file, the row groups to read, and where its byte ranges come from (`None`: it was
    read whole).
    """

    file: pq.ParquetFile
    groups: list[int]
    source: RangeFile | None


class _Ranges:
    """Byte ranges of an object, each read within the deadline of its time."""

    def __init__(
        self, context: Context, shard_id: str, key: str, deadline: Callable[[], Deadline]
    ) -> None:
        self._context = context
        self._shard_id = shard_id
        self._key = key
        self._deadline = deadline

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the object, which must be there.

        Raises:
            MissingPart: there is no object.
            CorruptPart: the object is shorter.
        """
        context, blob, key = self._context, self._context.blob, self._key
        assert isinstance(blob, RangeReadable)
        data = context.retrying(lambda: blob.get_range(key, offset, length), self._deadline())
        if data is None:
            raise missing(self._shard_id, key)
        if len(data) != length:
            raise corrupt(self._shard_id, key, f"ends before byte {offset + length}")
        return data


class PartReader:
    """Reads parts of one shard; keeps the footers of recently read objects, which never change. Thread-safe."""

    def __init__(self, context: Context, shard_id: str, schema: pa.Schema) -> None:
        self.context = context
        self.shard_id = shard_id
        self.schema = schema
        self.full = physical(schema)
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._footer_bytes = 0
        self._lock = threading.Lock()

    def read(
        self,
        part: Part,
        deadline: Deadline,
        *,
        columns: Sequence[str] | None = None,
        pushdown: Pushdown | None = None,
        stats: ReadStats | None = None,
    ) -> pa.Table:
        """Return the part's updates, times at or above its floor: ``columns`` (all by default), ``mz_time``,
        ``mz_diff``.

        With a ``pushdown`` only the rows it selects; row groups without any are not read.

        Raises:
            MissingPart: the object is missing.
            CorruptPart: its bytes are not what was written.
            LocationError: Blob did not answer by the deadline.
        """
        found = self.pieces(
            part, lambda: deadline, columns=columns, pushdown=pushdown, stats=stats, at_once=True
        )
        return joined(self.read_schema(columns), found)

    def read_schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """Return the schema of what is read: ``columns`` (all by default), ``mz_time``, ``mz_diff``."""
        if columns is None:
            return self.full
        return pa.schema([self.full.field(name) for name in [*columns, TIME_COLUMN, DIFF_COLUMN]])

    def pieces(
        self,
        part: Part,
        deadline: Callable[[], Deadline],
        *,
        columns: Sequence[str] | None = None,
        pushdown: Pushdown | None = None,
        stats: ReadStats | None = None,
        at_once: bool = False,
    ) -> Iterator[pa.Table]:
        """As `read`, one row group at a time, each with a ``deadline`` of its own; as a single table with ``at_once``."""
        stats = ReadStats() if stats is None else stats
        pushdown = Pushdown() if pushdown is None else pushdown
        if not pushdown.may_hold_part(part):
            stats.parts_skipped += 1
            return
        stats.parts += 1
        wanted = self.read_schema(columns)
        needed = dict.fromkeys([*wanted.names, *pushdown.columns])
        schema = pa.schema([self.full.field(name) for name in needed])
        found = (
            iter([self._read_inline(part, stats)])
            if isinstance(part, InlinePart)
            else self._read_blob(part, schema, pushdown, deadline, stats, at_once=at_once)
        )
        # If all times of the part are selected, none needs to be compared.
        rows = pushdown if pushdown.cuts_times(part) else pushdown.within(0, None)
        for table in found:
            stats.rows += table.num_rows
            if any(lookup.excludes(table) for lookup in pushdown.lookups):
                continue
            at_least = advance_times(conform(table, schema), part.time_floor)
            yield rows.filter(at_least).select(wanted.names)

    def sum_of(self, part: Part, lookups: tuple[Lookup, ...], deadline: Deadline) -> int:
        """Return the sum of the diffs of the part's updates that pass the lookups.

        Raises:
            MissingPart, CorruptPart, LocationError: as `read`.
        """
        if isinstance(part, InlinePart):
            found = self._read_inline(part, ReadStats())
            if any(lookup.excludes(found) for lookup in lookups):
                return 0
            found = Pushdown(lookups).filter(found)
        else:
            found = self.read(part, deadline, columns=[], pushdown=Pushdown(lookups))
        return int(pc.sum(found.column(DIFF_COLUMN)).as_py() or 0)

    def _read_inline(self, part: InlinePart, stats: ReadStats) -> pa.Table:
        what = f"shard {self.shard_id}: an inline part"
        if checksum(part.data) != part.checksum:
            raise CorruptPart(f"{what} does not match its checksum")
        stats.bytes += len(part.data)
        stats.row_groups += 1
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(part.data), self.full)
        except _DAMAGE as failure:
            raise CorruptPart(f"{what} cannot be read: {failure}") from failure
        return pa.Table.from_batches([batch])

    def _read_blob(
        self,
        part: BlobPart,
        schema: pa.Schema,
        pushdown: Pushdown,
        deadline: Callable[[], Deadline],
        stats: ReadStats,
        *,
        at_once: bool,
    ) -> Iterator[pa.Table]:
        """Yield the selected row groups; if an object turns out corrupt and a cache may have damaged it, fetch it again
        once and go on.
        """
        again = True
        done = 0
        while True:
            found = self._groups(
                part, schema, pushdown, deadline, stats, at_once=at_once, skip=done
            )
            try:
                for table in found:
                    yield table
                    done += 1
            # What was yielded has been verified, and the caller has it: a second attempt goes on behind it.
            except CorruptPart:
                blob = self.context.blob
                if not isinstance(blob, Forgetful):
                    raise
                # Even if this read does not try again: the damaged copy must not fail every later one.
                blob.forget(part.key)
                self._forget_footer(part.key)
                if not again:
                    raise
                again = False
            else:
                return

    def _groups(
        self,
        part: BlobPart,
        schema: pa.Schema,
        pushdown: Pushdown,
        deadline: Callable[[], Deadline],
        stats: ReadStats,
        *,
        at_once: bool,
        skip: int,
    ) -> Iterator[pa.Table]:
        """Yield the selected row groups except the first ``skip``, from the object as it is."""
        source: RangeFile | None = None
        counted = 0
        try:
            opened = self._open(part, schema, pushdown, deadline, stats, at_once=at_once)
            file, groups, source = opened
            stats.row_groups_skipped += file.metadata.num_row_groups - len(groups)
            for some in [groups] if at_once else [[group] for group in groups[skip:]]:
                stats.row_groups += len(some)
                if source is not None:
                    source.prefetch(extents(file.metadata, some, schema.names))
                    stats.bytes += source.bytes_read - counted
                    counted = source.bytes_read
                yield conform(file.read_row_groups(some, columns=schema.names), schema)
        except SqlError:
            raise
        except _DAMAGE as failure:
            raise corrupt(self.shard_id, part.key, f"cannot be read: {failure}") from failure
        finally:
            if source is not None:
                stats.bytes += source.bytes_read - counted

    def _open(
        self,
        part: BlobPart,
        schema: pa.Schema,
        pushdown: Pushdown,
        deadline: Callable[[], Deadline],
        stats: ReadStats,
        *,
        at_once: bool,
    ) -> _File:
        everything = len(schema) == len(self.schema) + 2 and not pushdown.lookups
        cut = pushdown.cuts_times(part) and part.size > _SHORT_BYTES
        long = not at_once and part.size > _WHOLE_BYTES
        # Byte ranges pay only if something can be left out, or if the object is long and read in pieces. Otherwise one
        # request reads it whole.
        source = None
        if not everything or cut or long:
            source = self._ranged(part, deadline)
        if source is not None:
            metadata = self._footer(part, source)
            groups = pushdown.groups(metadata, part.time_floor)
            if not everything or long or len(groups) < metadata.num_row_groups:
                source.blocks = blocks_of(metadata.metadata)
                file = pq.ParquetFile(
                    pa.PythonFile(source, mode="r"),
                    metadata=metadata,
                    pre_buffer=False,  # it would also read the gaps between the ranges
                    page_checksum_verification=source.blocks is None,
                )
                return _File(file, groups, source)
            stats.bytes += source.bytes_read
        data = self._whole(part, deadline())
        stats.bytes += len(data)
        file = pq.ParquetFile(pa.BufferReader(data))
        return _File(file, pushdown.groups(file.metadata, part.time_floor), None)

    def _whole(self, part: BlobPart, deadline: Deadline) -> bytes:
        context = self.context
        data = context.retrying(lambda: context.blob.get(part.key), deadline)
        if data is None:
            raise missing(self.shard_id, part.key)
        if len(data) != part.size:
            why = f"has {len(data)} bytes instead of {part.size}, so it does not match its checksum"
            raise corrupt(self.shard_id, part.key, why)
        if part.checksum not in (None, checksum(data)):
            raise corrupt(self.shard_id, part.key, "does not match its checksum")
        return data

    def group_stats(
        self, part: Part, names: Sequence[str], deadline: Callable[[], Deadline]
    ) -> list[tuple[int, tuple[KeyStats, ...]]] | None:
        """Return, for each row group of a part, its rows and the statistics of columns; `None` if only reading the
        whole object would tell.

        Raises:
            CorruptPart: the object's footer cannot be read.
        """
        if isinstance(part, InlinePart):
            return [(part.rows, part.stats if self._names(part) == tuple(names) else ())]
        source = self._ranged(part, deadline)
        if source is None:
            return None
        try:
            return group_stats(self._footer(part, source), self.full, names)
        except SqlError:
            raise
        except _DAMAGE as failure:
            raise corrupt(self.shard_id, part.key, f"cannot be read: {failure}") from failure

    @staticmethod
    def _names(part: InlinePart) -> tuple[str, ...]:
        return tuple(one.column for one in part.stats)

    def _ranged(self, part: BlobPart, deadline: Callable[[], Deadline]) -> RangeFile | None:
        if not isinstance(self.context.blob, RangeReadable):
            return None
        return RangeFile(part.size, _Ranges(self.context, self.shard_id, part.key, deadline).read)

    def _footer(self, part: BlobPart, source: RangeFile) -> pq.FileMetaData:
        with self._lock:
            known = self._footers.get(part.key)
            if known is not None:
                self._footers.move_to_end(part.key)
                return known
        data = source.footer(part.footer_size)
        if part.footer_checksum not in (None, checksum(data)):
            raise corrupt(self.shard_id, part.key, "has a footer that does not match its checksum")
        footer = pq.read_metadata(pa.BufferReader(data))
        if footer.num_rows != part.rows:
            why = f"has {footer.num_rows} rows instead of {part.rows}"
            raise corrupt(self.shard_id, part.key, why)
        self.remember_footer(part.key, footer)
        return footer

    def verify(
        self, part: BlobPart, deadline: Callable[[], Deadline], names: Sequence[str]
    ) -> None:
        """Compare an object's footer and all bytes of its columns ``names`` with their checksums, without a cached
        footer; nothing is decoded.

        Raises:
            MissingPart: the object is missing.
            CorruptPart: its bytes are not what was written.
            LocationError: Blob did not answer by the deadline.
        """
        self._forget_footer(part.key)
        source = self._ranged(part, deadline)
        blocks = None
        if source is not None:
            footer = self._footer(part, source)
            blocks = blocks_of(footer.metadata)
        if source is not None and blocks is not None:
            source.blocks = blocks
            try:
                for group in range(footer.num_row_groups):
                    source.prefetch(extents(footer, [group], names))
            except OSError as failure:
                raise corrupt(self.shard_id, part.key, f"cannot be read: {failure}") from failure
        elif part.checksum is not None or source is None:
            self._whole(part, deadline())
        else:
            # Another program wrote it: the only checksums are those of the pages, which reading them compares.
            known = [name for name in names if name in self.schema.names]
            for _ in self.pieces(part, deadline, columns=known):
                pass

    def footer(self, part: BlobPart, deadline: Callable[[], Deadline]) -> pq.FileMetaData | None:
        """Return the footer of a part's object; `None` if the store does not support reads of byte ranges."""
        source = self._ranged(part, deadline)
        return None if source is None else self._footer(part, source)

    def remember_footer(self, key: str, footer: pq.FileMetaData) -> None:
        """Keep the footer of an object, so that it need not be read."""
        self._forget_footer(key)
        with self._lock:
            self._footers[key] = footer
            self._footer_bytes += footer.serialized_size
            while self._footer_bytes > _FOOTER_BYTES and len(self._footers) > 1:
                _, oldest = self._footers.popitem(last=False)
                self._footer_bytes -= oldest.serialized_size

    def _forget_footer(self, key: str) -> None:
        with self._lock:
            footer = self._footers.pop(key, None)
            if footer is not None:
                self._footer_bytes -= footer.serialized_size


def spark_path(context: Context, key: str) -> str | None:
    """Return the path under which Spark opens the object; `None` if the store has no such paths."""
    return context.blob.spark_path(key) if isinstance(context.blob, SparkReadable) else None


def exists(context: Context, key: str, deadline: Deadline) -> bool:
    """Whether the object exists, by reading a byte of it if the Blob can; a copy in a cache does not count."""
    blob = context.blob
    if isinstance(blob, Forgetful):
        blob.forget(key)
    if isinstance(blob, RangeReadable):
        return context.retrying(lambda: blob.get_range(key, 0, 1), deadline) is not None
    return context.retrying(lambda: blob.get(key), deadline) is not None


def all_exist(context: Context, keys: Sequence[str], deadline: Deadline) -> list[bool]:
    """As `exists`, for each key; several requests at the same time if the client may use threads."""
    if not context.threads or len(keys) < 2:
        return [exists(context, key, deadline) for key in keys]
    most = min(len(keys), _ASKED_AT_ONCE)
    with ThreadPoolExecutor(most, thread_name_prefix="mzsql-persist-exists") as pool:
        asked = [pool.submit(copy_context().run, exists, context, key, deadline) for key in keys]
        try:
            return [one.result() for one in asked]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def missing(shard_id: str, key: str) -> MissingPart:
    """Return the error for an object that is gone."""
    return MissingPart(
        f"shard {shard_id}: the part {key} is missing from Blob",
        hint=(
            "If its reader has expired or was closed, read again with a new one. Otherwise the object was deleted behind the shard's "
            "back, or this is another Blob store than the one it was written to."
        ),
    )


def corrupt(shard_id: str, key: str, why: str) -> CorruptPart:
    """Return the error for an object that is not what was written."""
    return CorruptPart(
        f"shard {shard_id}: the part {key} {why}",
        hint="The object was damaged or replaced in the Blob store: put it back from a copy. Nothing was changed.",
    )


def until(table: pa.Table, as_of: Timestamp) -> pa.Table:
    """Return the updates of ``table`` at or before ``as_of``."""
    return table.filter(pc.less_equal(table[TIME_COLUMN], pa.scalar(as_of, pa.int64())))


def between(table: pa.Table, lower: Timestamp, upper: Timestamp | None) -> pa.Table:
    """Return the updates of ``table`` with ``lower <= time < upper``."""
    times = table[TIME_COLUMN]
    mask = pc.greater_equal(times, pa.scalar(lower, pa.int64()))
    if upper is not None:
        mask = pc.and_(mask, pc.less(times, pa.scalar(upper, pa.int64())))
    return table.filter(mask)
