"""Parts that are sent to another process to be read: which, what of them, and where their Blob store is.

Promise: `ExchangedParts` are sent as bytes, with a checksum, and are read in pieces of about one row group by a
process that has only those bytes and access to the Blob store; it reads the columns, times and ranges selected, and
no row group without any of them. The sender keeps its `PartRef`s until the receiver is done, which keeps the objects
from deletion. Unlike a `SnapshotSplit` they leave times as they are, so they also serve reads between two times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from mzsql.location import Blob
from mzsql.persist.batch import Part
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import decode_schema, encode_schema
from mzsql.persist.fetch import PartReader
from mzsql.persist.frames import decode_framed, encode_framed
from mzsql.persist.leased_parts import PartRef, reading_context
from mzsql.persist.pushdown import (
    Filters,
    checked_columns,
    decode_filters,
    encode_filters,
    pushdown_of,
)
from mzsql.repr.frontier import Frontier, Timestamp

#: The most encoded bytes of parts in one partition, unless a single part is larger.
PARTITION_BYTES = 16 * 1024 * 1024
#: The most updates of parts in one partition, unless a single part has more.
PARTITION_ROWS = 1_000_000


class ExchangedData(msgspec.Struct, frozen=True):
    """A partition as it is sent; `columns` is `None` for all of `schema`'s."""

    shard_id: str
    schema: bytes
    parts: tuple[Part, ...]
    blob_url: str
    columns: tuple[str, ...] | None
    filters: tuple[tuple[str, bytes], ...]
    lower: Timestamp
    upper: Frontier


_DATA = msgspec.msgpack.Decoder(ExchangedData)


class ExchangedParts:
    """Some parts of one shard, and what to read of them."""

    def __init__(self, data: ExchangedData) -> None:
        self._data = data

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._data.shard_id

    @property
    def blob_url(self) -> str:
        """The URL of its Blob store."""
        return self._data.blob_url

    def to_bytes(self) -> bytes:
        """Encode the partition for another process."""
        return encode_framed(self._data)

    @staticmethod
    def from_bytes(data: bytes) -> ExchangedParts:
        """Decode a partition from another process.

        Raises:
            CorruptPart: the bytes are not a partition, or damaged.
            NewerVersion: a newer program made it.
        """
        return ExchangedParts(decode_framed(_DATA, data, "a partition of parts"))

    def pieces(self, blob: Blob, *, timeout: float | None = None) -> Iterator[pa.Table]:
        """Yield its updates at their own times, about a row group at a time: columns, ``mz_time``, ``mz_diff``.

        Args:
            blob: the store at the URL of the partition.
            timeout: seconds that reading one piece may take.

        Raises:
            MissingPart, CorruptPart, LocationError: from the iterator.
        """
        data = self._data
        context = reading_context(blob, data.blob_url)
        reader = PartReader(context, data.shard_id, decode_schema(data.schema))
        pushdown = pushdown_of(
            reader.schema, None, decode_filters(data.filters), f"shard {data.shard_id}"
        ).within(data.lower, data.upper)

        def deadline() -> Deadline:
            return context.deadline(timeout)

        for part in data.parts:
            yield from reader.pieces(part, deadline, columns=data.columns, pushdown=pushdown)


def exchanged_parts(
    refs: Sequence[PartRef],
    blob_url: str,
    *,
    columns: Sequence[str] | None = None,
    filters: Filters | None = None,
    lower: Timestamp = 0,
    upper: Frontier = None,
) -> list[ExchangedParts]:
    """Divide parts of one shard into partitions, each about as much as one task should read.

    Args:
        refs: the parts; the caller keeps them until the partitions have been read.
        blob_url: the URL at which the reader opens the Blob store.
        columns: the columns to read, in this order; all by default.
        filters: ranges of the values to read.
        lower: updates before this time are left out.
        upper: updates at or after this time are left out.

    Raises:
        SchemaMismatch: a column the shard lacks, or a filter that does not fit.
    """
    partitions: list[ExchangedParts] = []
    group: list[PartRef] = []
    size = rows = 0

    def close() -> None:
        if group:
            partitions.append(_partition(group, blob_url, columns, filters, lower, upper))
            group.clear()

    for ref in refs:
        if size + ref.bytes > PARTITION_BYTES or rows + ref.rows > PARTITION_ROWS:
            close()
            size = rows = 0
        group.append(ref)
        size, rows = size + ref.bytes, rows + ref.rows
    close()
    return partitions


def _partition(
    refs: Sequence[PartRef],
    blob_url: str,
    columns: Sequence[str] | None,
    filters: Filters | None,
    lower: Timestamp,
    upper: Frontier,
) -> ExchangedParts:
    schema = refs[0].schema
    names = checked_columns(schema, columns, f"shard {refs[0].shard_id}")
    return ExchangedParts(
        ExchangedData(
            refs[0].shard_id,
            encode_schema(schema),
            tuple(ref.part for ref in refs),
            blob_url,
            None if names is None else tuple(names),
            encode_filters(schema, filters),
            lower,
            upper,
        )
    )
