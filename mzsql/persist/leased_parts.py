"""Parts and snapshot splits as readers get them.

Promise: while a `PartRef` or `SnapshotSplit` is referenced in the process that took it, the objects it names stay in
Blob.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mzsql.location import Blob, UsageError, open_blob
from mzsql.location.mem import MemConsensus
from mzsql.persist.batch import (
    TIME_COLUMN,
    BlobPart,
    InlinePart,
    KeySpec,
    KeyStats,
    Part,
    ReadStats,
    first_time,
    last_time,
)
from mzsql.persist.clock import Deadline, SystemClock
from mzsql.persist.columns import all_at, decode_schema, joined, physical
from mzsql.persist.consolidate import consolidate
from mzsql.persist.context import Context
from mzsql.persist.errors import CorruptPart, SchemaMismatch
from mzsql.persist.fetch import PartReader, spark_path
from mzsql.persist.frames import decode_framed, encode_framed, is_framed
from mzsql.persist.metrics import Meter, metered, metrics_of, scheme_of
from mzsql.persist.pushdown import Filters, checked_columns, decode_filters, pushdown_of
from mzsql.persist.settings import Settings
from mzsql.persist.state import TraceBatch
from mzsql.persist.stats import column_bytes, footer_stats
from mzsql.persist.streams import consolidated_pieces, reader_of
from mzsql.repr.frontier import Frontier, Timestamp


class Lease:
    """Keeps the objects of the states from ``seqno`` on while it is referenced; then puts its number in ``released``.

    It references ``reader`` too, because the lease of a reader that nobody references is no longer renewed.
    """

    def __init__(self, reader: object, released: deque[int], number: int, seqno: int) -> None:
        self._reader = reader
        self._released = released
        self._number = number
        self.seqno = seqno

    def __del__(self) -> None:
        # A finalizer may run at any moment in any thread, even one that holds the lock, so it takes none:
        # `deque.append` is atomic.
        self._released.append(self._number)


class PartRef:
    """A part as a reader gets it. Keep the object while anything (Spark) may read the part: it keeps the part's object
    from deletion.

    Every reader takes a row's time as ``greatest(mz_time, time_floor)``, and for a snapshot keeps the rows with
    times ``<= as_of``. It is one of the parts of the batch ``batch_id``; if that is ``consolidated``, no two updates
    of the batch have the same row and time.
    """

    __slots__ = ("_reader", "batch_id", "consolidated", "lease", "lower", "part", "upper")

    def __init__(self, part: Part, batch: TraceBatch, reader: PartReader, lease: Lease) -> None:
        self.part = part
        self.lower: Timestamp = batch.lower
        self.upper: Frontier = batch.upper
        self.batch_id = batch.id
        self.consolidated = batch.consolidated
        self._reader = reader
        self.lease = lease

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._reader.shard_id

    @property
    def schema(self) -> pa.Schema:
        """The columns of the shard's rows."""
        return self._reader.schema

    @property
    def blob_url(self) -> str | None:
        """The URL at which other processes open its Blob store; `None` if the client was not opened by URL."""
        return self._reader.context.blob_url

    @property
    def inline(self) -> bool:
        """Whether its bytes are in the shard's state rather than in Blob."""
        return isinstance(self.part, InlinePart)

    @property
    def blob_key(self) -> str | None:
        """The key of its object; `None` if it is inline."""
        return self.part.key if isinstance(self.part, BlobPart) else None

    @property
    def spark_path(self) -> str | None:
        """The path under which Spark opens it; `None` if it is inline, or its Blob has no such paths."""
        key = self.blob_key
        return None if key is None else spark_path(self._reader.context, key)

    @property
    def rows(self) -> int:
        """The number of updates."""
        return self.part.rows

    @property
    def bytes(self) -> int:
        """The number of encoded bytes."""
        return self.part.size

    @property
    def stats(self) -> tuple[KeyStats, ...]:
        """The least and the greatest value of each key column."""
        return self.part.stats

    def group_stats(
        self, names: Sequence[str], *, timeout: float | None = None
    ) -> list[tuple[int, tuple[KeyStats, ...]]] | None:
        """Return, for each row group in order, its number of rows and the statistics of the columns ``names``; () where
        they are not known.

        `None` if only reading the whole object would tell.

        Raises:
            MissingPart, CorruptPart: the object is missing, or its contents are not what was written.
            LocationError: the Blob store did not answer within ``timeout``.
        """
        reader = self._reader
        deadline = reader.context.deadline(timeout)
        return reader.group_stats(self.part, names, lambda: deadline)

    @property
    def worker(self) -> int | None:
        """The worker it belongs to, in a keyed shard."""
        return self.part.worker

    @property
    def time_min(self) -> Timestamp:
        """The least time of its updates."""
        return first_time(self.part)

    @property
    def time_max(self) -> Timestamp:
        """The greatest time of its updates."""
        return last_time(self.part)

    @property
    def time_floor(self) -> Timestamp:
        """Times below it, as ``mz_time`` in the object may have them, count as this time."""
        return self.part.time_floor

    @property
    def _context(self) -> Context:
        return self._reader.context

    @metered("part_to_arrow")
    def to_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        filters: Filters | None = None,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Read its updates, verify the checksum and apply the floor: ``columns`` (all by default), ``mz_time``,
        ``mz_diff``.

        Args:
            columns: the columns, in this order.
            filters: only rows in these ranges are returned, and row groups outside of them are not read; see
                `Filters`.
            stats: the statistics of the read are added to it.
            timeout: seconds the call may take.

        Raises:
            MissingPart, CorruptPart: the object is missing, or its contents are not what was written.
            SchemaMismatch: a column the shard lacks, or a filter that does not fit.
            LocationError: the Blob store did not answer within ``timeout``.
        """
        reader = self._reader
        return reader.read(
            self.part,
            reader.context.deadline(timeout),
            columns=checked_columns(reader.schema, columns, f"shard {reader.shard_id}"),
            pushdown=pushdown_of(reader.schema, None, filters, f"shard {reader.shard_id}"),
            stats=stats,
        )

    @metered("part_columns")
    def columns(self, *, timeout: float | None = None) -> tuple[ColumnSummary, ...]:
        """Return what the object's footer says about the rows' columns and ``mz_diff``, for those that the object has.

        Empty if the part is inline, or its Blob store does not support reads of byte ranges.

        Raises:
            MissingPart, CorruptPart, LocationError: as `to_arrow`.
        """
        reader, part = self._reader, self.part
        if isinstance(part, InlinePart):
            return ()
        footer = reader.footer(part, partial(reader.context.deadline, timeout))
        if footer is None:
            return ()
        schema = physical(reader.schema)
        present = {footer.schema.column(i).path.split(".")[0] for i in range(footer.num_columns)}
        names = [name for name in schema.names if name in present and name != TIME_COLUMN]
        sizes = column_bytes(footer)
        return tuple(
            ColumnSummary(stat, sizes[stat.column]) for stat in footer_stats(footer, schema, names)
        )

    @metered("part_verify")
    def verify(self, columns: Sequence[str], *, timeout: float | None = None) -> None:
        """Compare the stored bytes of some columns with their checksums: for callers that read the object by
        `spark_path`.

        Args:
            columns: names, including ``mz_time`` and ``mz_diff`` if they are read.
            timeout: seconds that reading one byte range may take.

        Raises:
            MissingPart, CorruptPart, LocationError: as `to_arrow`.
        """
        reader = self._reader
        if isinstance(self.part, BlobPart):
            reader.verify(self.part, partial(reader.context.deadline, timeout), columns)


class ColumnSummary(NamedTuple):
    """One column of a part: its statistics, and the number of encoded bytes it takes."""

    stats: KeyStats
    bytes: int


def sums_up(refs: Sequence[PartRef], as_of: Timestamp) -> bool:
    """Whether, by the metadata, each row of the parts is there once at ``as_of``, so that nothing needs to be
    consolidated.

    That is so for parts of one consolidated batch whose updates up to ``as_of`` are all at one time.
    """
    if not refs:
        return True
    one_batch = len({ref.batch_id for ref in refs}) == 1 and refs[0].consolidated
    times = {ref.time_min for ref in refs} | {min(ref.time_max, as_of) for ref in refs}
    return one_batch and len(times) == 1


class SplitData(msgspec.Struct, frozen=True):
    """A split as it is sent: ``columns`` (`None`: all) and ``filters`` (see `encode_filters`) are what its reads
    return.

    ``consolidated`` says that no two of its updates will have the same row, so that nothing needs to be summed up.
    """

    shard_id: str
    as_of: Timestamp
    schema: bytes
    key: KeySpec | None
    parts: tuple[Part, ...]
    blob_url: str | None
    columns: tuple[str, ...] | None = None
    filters: tuple[tuple[str, bytes], ...] = ()
    consolidated: bool = False


_SPLITS = msgspec.msgpack.Decoder(SplitData)


class SnapshotSplit:
    """One share of a snapshot, which can be sent to another process as bytes.

    The sender keeps its own value (and its reader) until the receiver is done: that keeps the objects from deletion.
    All reads return `columns`, ``mz_time`` and ``mz_diff`` of the rows that pass `filters`.
    """

    def __init__(self, data: SplitData, context: Context, lease: Lease | None) -> None:
        self._data = data
        self._context = context
        self._lease = lease
        self._owns_blob = False
        self._reader = PartReader(context, data.shard_id, decode_schema(data.schema))
        pushdown = pushdown_of(self._reader.schema, data.key, self.filters, self._what)
        self._pushdown = pushdown.within(0, data.as_of + 1)

    @property
    def _what(self) -> str:
        return f"shard {self._data.shard_id}"

    @property
    def as_of(self) -> Timestamp:
        """The time of the snapshot."""
        return self._data.as_of

    @property
    def columns(self) -> list[str]:
        """The columns it returns, in their order."""
        names = self._data.columns
        return list(self._reader.schema.names if names is None else names)

    @property
    def filters(self) -> Filters | None:
        """The filters that a reader of its `spark_paths` must apply; its own reads apply them."""
        return decode_filters(self._data.filters)

    @property
    def schema(self) -> pa.Schema:
        """The schema of what it returns."""
        return self._reader.read_schema(self._data.columns)

    @property
    def rows(self) -> int:
        """The number of updates in its parts, before filters and consolidation."""
        return sum(part.rows for part in self._data.parts)

    @metered("split_to_arrow")
    def to_arrow(self, *, stats: ReadStats | None = None, timeout: float | None = None) -> pa.Table:
        """Read its updates into memory, times advanced to ``as_of``, consolidated within the split.

        Raises:
            MissingPart, CorruptPart: an object is missing, or its contents are not what was written.
            LocationError: the Blob store did not answer within ``timeout`` seconds.
        """
        deadline = self._reader.context.deadline(timeout)
        found = self._pieces(self._data.parts, lambda: deadline, stats, at_once=True)
        table = joined(self.schema, (all_at(piece, self.as_of) for piece in found))
        return table if self._data.consolidated else consolidate(table, self._data.key)

    def to_reader(
        self,
        *,
        consolidate: bool = False,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.RecordBatchReader:
        """Read its updates as a stream, times advanced to ``as_of``: about one row group of one part is in memory at a
        time.

        Not consolidated across parts by default: sum the diffs of equal rows, or pass ``consolidate``.

        Args:
            consolidate: whether to sum the diffs of equal rows, with a copy on disk (`mzsql.persist.streams`).
            stats: the statistics of the read are added to it.
            timeout: seconds that reading one batch may take.

        Raises:
            MissingPart, CorruptPart, LocationError: from the reader it returns, as `to_arrow`.
        """
        deadline = partial(self._reader.context.deadline, timeout)
        pieces: Iterator[pa.Table] = (
            all_at(piece, self.as_of) for piece in self._pieces(self._data.parts, deadline, stats)
        )
        settled = self._data.consolidated and self._data.key is None
        if consolidate and not settled:
            pieces = consolidated_pieces(self.schema, pieces, self._data.key)
        return reader_of(self.schema, pieces)

    def _pieces(
        self,
        parts: Sequence[Part],
        deadline: Callable[[], Deadline],
        stats: ReadStats | None,
        *,
        at_once: bool = False,
    ) -> Iterator[pa.Table]:
        for part in parts:
            yield from self._reader.pieces(
                part,
                deadline,
                columns=self._data.columns,
                pushdown=self._pushdown,
                stats=stats,
                at_once=at_once,
            )

    def spark_paths(self) -> list[str]:
        """Return the paths of its parts in Blob, which hold all columns, ``mz_time`` and ``mz_diff``; the rest is
        `inline_table`.

        The caller selects `columns` and applies `filters`. For parts with a time floor and rows beyond ``as_of`` see
        `parts`.
        """
        keys = [part.key for part in self._data.parts if isinstance(part, BlobPart)]
        return [p for p in (spark_path(self._reader.context, key) for key in keys) if p is not None]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Its parts, as in the shard's metadata."""
        return self._data.parts

    def inline_table(
        self, *, stats: ReadStats | None = None, timeout: float | None = None
    ) -> pa.Table:
        """Return the updates that are not under `spark_paths`, because they are inline or Blob has no paths.

        Raises:
            MissingPart, CorruptPart, LocationError: as `to_arrow`.
        """
        deadline = self._reader.context.deadline(timeout)
        has_paths = spark_path(self._reader.context, "probe") is not None
        parts = [p for p in self._data.parts if isinstance(p, InlinePart) or not has_paths]
        found = self._pieces(parts, lambda: deadline, stats, at_once=True)
        return joined(self.schema, found)

    def to_bytes(self) -> bytes:
        """Encode the split for another process, with a checksum."""
        return encode_framed(self._data)

    @staticmethod
    def from_bytes(
        data: bytes, *, blob: Blob | None = None, context: Context | None = None
    ) -> SnapshotSplit:
        """Decode a split from another process; without ``blob``, open the store at the URL of the sender's client.

        Raises:
            CorruptPart: the bytes are not a split, or damaged.
            NewerVersion: a newer program made it.
            SchemaMismatch: neither ``blob`` nor a URL is given.
        """
        decoded = _decoded(data)
        owns_blob = context is None and blob is None
        if context is None:
            context = _reading_context(decoded, blob)
        split = SnapshotSplit(decoded, context, None)
        split._owns_blob = owns_blob
        return split

    def close(self) -> None:
        """Close the Blob store that `from_bytes` opened, if it did. Idempotent."""
        if self._owns_blob:
            self._owns_blob = False
            self._reader.context.blob.close()


def splits_of(
    refs: Sequence[PartRef], num_splits: int, data: SplitData, context: Context
) -> list[SnapshotSplit]:
    """Divide ``refs`` into ``num_splits`` splits of about equal size: the largest first, each to the smallest split so
    far.
    """
    shares: list[list[PartRef]] = [[] for _ in range(num_splits)]
    sizes = [0] * num_splits
    for ref in sorted(refs, key=lambda r: -r.bytes):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(ref)
        sizes[smallest] += ref.bytes
    lease = refs[0].lease if refs else None
    return [
        SnapshotSplit(
            msgspec.structs.replace(
                data,
                parts=tuple(ref.part for ref in share),
                consolidated=data.columns is None and sums_up(share, data.as_of),
            ),
            context,
            lease,
        )
        for share in shares
    ]


def _decoded(data: bytes) -> SplitData:
    if is_framed(data):
        return decode_framed(_SPLITS, data, "a split of a snapshot")
    try:  # splits of older programs have no checksum
        return _SPLITS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError) as failure:
        raise CorruptPart(f"not a split of a snapshot: {failure}") from failure


def _reading_context(data: SplitData, blob: Blob | None) -> Context:
    if blob is None:
        if data.blob_url is None:
            raise SchemaMismatch(
                "the split comes from a client that was not opened by URL",
                hint="Pass the Blob store it was taken from.",
            )
        blob = open_blob(data.blob_url)
    return reading_context(blob, data.blob_url)


def reading_context(blob: Blob, blob_url: str | None) -> Context:
    """Return a context with what reading parts needs, for a process that has only a Blob store."""
    clock = SystemClock()
    meter = Meter(metrics_of(), clock)
    measured = meter.blob(blob, scheme_of(blob_url, blob))
    # Parts are immutable, so reading them never asks Consensus: an empty one will do.
    return Context(measured, MemConsensus(), clock, random.SystemRandom(), Settings(), meter=meter)
