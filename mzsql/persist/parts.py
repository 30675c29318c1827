"""Parts as bytes: written as Parquet or inline Arrow, or adopted from whoever wrote them.

Promise: each part's object is written once under a fresh name and never changed. Memory is bounded by the size of a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mzsql.location import Adoptable
from mzsql.persist.batch import (
    DIFF_COLUMN,
    TIME_COLUMN,
    BlobPart,
    InlinePart,
    KeySpec,
    Part,
)
from mzsql.persist.clock import Deadline
from mzsql.persist.codec import checksum
from mzsql.persist.columns import check_columns, conform, physical, time_bounds
from mzsql.persist.consolidate import sort_by_key
from mzsql.persist.errors import CorruptPart, ForeignBlob, SchemaMismatch
from mzsql.persist.fetch import PartReader, missing
from mzsql.persist.machine import Context
from mzsql.persist.settings import Settings
from mzsql.persist.stats import key_stats
from mzsql.repr.frontier import Timestamp

Updates: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"


def tables(updates: Updates) -> Iterator[pa.Table]:
    """The updates piece by piece, in the sizes they come."""
    if isinstance(updates, pa.Table):
        yield updates
    elif isinstance(updates, pa.RecordBatch):
        yield pa.Table.from_batches([updates])
    elif isinstance(updates, pa.RecordBatchReader):
        for batch in updates:
            yield pa.Table.from_batches([batch])
    else:
        raise SchemaMismatch(
            f"updates must be a pyarrow Table, RecordBatch or RecordBatchReader, not {type(updates).__name__}"
        )


class PartWriter:
    """Collects checked updates of one shard (and worker) and writes them as parts of bounded size.

    Args:
        reader: the shard's reader, which gets to know the footers that lookups need.
        key: the key, by which each part is sorted.
        worker: the worker all rows belong to.
        deadline: the end of all writes.
    """

    def __init__(
        self,
        reader: PartReader,
        key: KeySpec | None,
        *,
        worker: int | None,
        deadline: Deadline,
    ) -> None:
        self._reader = reader
        self._context = reader.context
        self._shard_id = reader.shard_id
        self._schema = physical(reader.schema)
        self._key = key
        self._worker = worker
        self._deadline = deadline
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self.parts: list[Part] = []

    def add(self, table: pa.Table) -> None:
        """Take updates that have the physical schema; may write a part."""
        limit = self._context.settings.part_bytes
        if table.num_rows == 0:
            return
        rows = max(1, table.num_rows * limit // max(1, table.nbytes))
        for start in range(0, table.num_rows, rows):
            piece = table.slice(start, rows)
            if self._pending and self._pending_bytes + piece.nbytes > limit:
                self._flush()
            self._pending.append(piece)
            self._pending_bytes += piece.nbytes

    def finish(self, *, inline_bytes: int) -> tuple[Part, ...]:
        """Write the rest, inline when all is at most ``inline_bytes``; all parts."""
        if self._pending:
            table = self._take()
            limit = 0 if self.parts else inline_bytes
            part = inline_part(table, self._key, self._worker, limit) if limit else None
            self.parts.append(part if part is not None else self._write(table))
        return tuple(self.parts)

    def abandon(self) -> None:
        """Delete what was written."""
        delete_objects(self._context, [p.key for p in self.parts if isinstance(p, BlobPart)])
        self.parts = []

    def _take(self) -> pa.Table:
        table = pa.concat_tables(self._pending).combine_chunks()
        self._pending, self._pending_bytes = [], 0
        return sort_by_key(table, self._key)

    def _flush(self) -> None:
        self.parts.append(self._write(self._take()))

    def _write(self, table: pa.Table) -> BlobPart:
        context = self._context
        data = encode_parquet(conform(table, self._schema), context.settings, self._key)
        key = f"{self._shard_id}/{context.new_object_id()}.parquet"
        context.retrying(lambda: context.blob.set(key, data), self._deadline)
        if self._key is not None:
            self._reader.remember_footer(key, pq.read_metadata(pa.BufferReader(data)))
        least, greatest = time_bounds(table)
        return BlobPart(
            key=key,
            size=len(data),
            rows=table.num_rows,
            time_min=least,
            time_max=greatest,
            checksum=checksum(data),
            worker=self._worker,
            stats=key_stats(table, self._key),
        )


def encode_parquet(table: pa.Table, settings: Settings, key: KeySpec | None) -> bytes:
    """The table as a Parquet object in the shard's layout."""
    sink = pa.BufferOutputStream()
    common = {"compression": settings.compression, "write_page_checksum": True}
    if key is None:
        pq.write_table(table, sink, row_group_size=settings.row_group_rows, **common)
    else:
        ordered = [
            name for name in key.columns if not pa.types.is_nested(table.schema.field(name).type)
        ]
        pq.write_table(
            table,
            sink,
            row_group_size=settings.keyed_group_rows(table.num_rows),
            max_rows_per_page=settings.page_rows,
            write_page_index=True,
            # Footers are read besides the rows: they hold statistics only of what is looked up by.
            write_statistics=[*ordered, TIME_COLUMN],
            # A dictionary for so few rows is more than it saves once all is compressed.
            use_dictionary=False,
            **common,
        )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def inline_part(
    table: pa.Table, key: KeySpec | None, worker: int | None, limit: int
) -> InlinePart | None:
    """The table as an inline part, or `None` when it is more than ``limit`` bytes."""
    if table.nbytes > limit:
        return None
    [batch] = table.combine_chunks().to_batches()
    data = batch.serialize().to_pybytes()
    if len(data) > limit:
        return None
    least, greatest = time_bounds(table)
    return InlinePart(
        data=data,
        rows=table.num_rows,
        time_min=least,
        time_max=greatest,
        checksum=checksum(data),
        worker=worker,
        stats=key_stats(table, key),
    )


def delete_objects(context: Context, keys: Sequence[str]) -> None:
    """Delete objects nobody refers to, each tried until the default deadline."""
    deadline = context.deadline(None)
    for key in keys:
        context.retrying(lambda key=key: context.blob.delete(key), deadline)  # type: ignore[misc]


def adopt(
    reader: PartReader, key: str, key_spec: KeySpec | None, worker: int | None, deadline: Deadline
) -> BlobPart | None:
    """The part made of an object someone else wrote; `None`, and the object deleted, when it has no rows.

    Raises:
        ForeignBlob: the object is not under the shard's prefix.
        SchemaMismatch: its columns do not fit.
    """
    context, shard_id, schema = reader.context, reader.shard_id, reader.schema
    if not key.startswith(shard_id + "/"):
        raise ForeignBlob(f"the object {key} does not belong to shard {shard_id}")
    data = context.retrying(lambda: context.blob.get(key), deadline)
    if data is None:
        raise missing(shard_id, key)
    if isinstance(context.blob, Adoptable):
        context.blob.make_durable([key])
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
    except pa.ArrowException as failure:
        raise CorruptPart(f"the object {key} is not Parquet: {failure}") from failure
    check_columns(file.schema_arrow, schema, f"the object {key}")
    if file.metadata.num_rows == 0:
        delete_objects(context, [key])
        return None
    names = [*(key_spec.columns if key_spec else ()), TIME_COLUMN, DIFF_COLUMN]
    required = [f.name for f in schema if not f.nullable and f.name not in names]
    table = file.read(columns=[*names, *required])
    for name in (*required, TIME_COLUMN, DIFF_COLUMN):
        if table[name].null_count:
            raise SchemaMismatch(
                f'the object {key} has a NULL in column "{name}", which takes none'
            )
    if key_spec is not None:
        reader.remember_footer(key, file.metadata)
    least, greatest = time_bounds(table)
    return BlobPart(
        key=key,
        size=len(data),
        rows=table.num_rows,
        time_min=least,
        time_max=greatest,
        checksum=checksum(data),
        worker=worker,
        stats=key_stats(conform(table, _subset(schema, table)), key_spec),
    )


def _subset(schema: pa.Schema, table: pa.Table) -> pa.Schema:
    full = physical(schema)
    return pa.schema([full.field(name) for name in table.column_names])


def with_floor(part: Part, floor: Timestamp) -> Part:
    """The part with all times at or above ``floor``."""
    return msgspec.structs.replace(part, time_floor=max(part.time_floor, floor))
