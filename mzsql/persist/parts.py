"""Writes parts: as Parquet objects, or inline as Arrow.

Promise: each part's object is written once under a new name and never changed. Memory is bounded by the size of a
part.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mzsql.location import LocationError, ManyDeletable
from mzsql.persist.batch import TIME_COLUMN, BlobPart, InlinePart, KeySpec, Part
from mzsql.persist.blocks import Sink, footer_of
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import conform, physical, time_bounds
from mzsql.persist.consolidate import sort_by_key
from mzsql.persist.context import Context
from mzsql.persist.errors import SchemaMismatch
from mzsql.persist.fetch import PartReader
from mzsql.persist.frames import checksum
from mzsql.persist.settings import Settings
from mzsql.persist.stats import footer_stats, key_stats
from mzsql.persist.uploads import Uploads

_log = logging.getLogger(__name__)

Updates: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"

_CHUNK_ROWS = 4096
#: Steps of a look at a column: rows to sample, the share of distinct values up to which it repeats, and that beyond
#: which it does not. Between the two, the next step decides.
_SAMPLES = ((8 * 1024, 0.05, 0.5), (64 * 1024, 0.2, 0.2))
#: After how many parts of one input to look again which columns repeat.
_LOOK_PARTS = 8
_KEYS_AT_ONCE = 1000
_DELETES_AT_ONCE = 16
_DISCARD_SECONDS = 5.0


def tables(updates: Updates, piece_bytes: int) -> Iterator[pa.Table]:
    """Yield the updates in pieces of at most about ``piece_bytes``, or smaller as they come.

    Raises:
        SchemaMismatch: they are not an Arrow table, batch or reader.
    """
    if isinstance(updates, pa.Table):
        yield from _pieces(updates, piece_bytes)
    elif isinstance(updates, pa.RecordBatch):
        yield from _pieces(pa.Table.from_batches([updates]), piece_bytes)
    elif isinstance(updates, pa.RecordBatchReader):
        for batch in updates:
            yield from _pieces(pa.Table.from_batches([batch]), piece_bytes)
    else:
        raise SchemaMismatch(
            f"updates must be a pyarrow Table, RecordBatch or RecordBatchReader, not {type(updates).__name__}"
        )


def _pieces(table: pa.Table, piece_bytes: int) -> Iterator[pa.Table]:
    return (piece for piece, _ in _sized(table, piece_bytes))


def _sized(table: pa.Table, piece_bytes: int) -> Iterator[tuple[pa.Table, int]]:
    """Yield pieces with their bytes, which Arrow takes long to compute, so they are computed once."""
    size = table.nbytes
    if size <= piece_bytes:
        yield table, size
        return
    rows = max(1, table.num_rows * piece_bytes // size)
    for start in range(0, table.num_rows, rows):
        piece = table.slice(start, rows)
        yield piece, piece.nbytes


class PartWriter:
    """Collects checked updates of one shard (and worker) and writes them as parts of bounded size. For one thread at a
    time.

    Args:
        reader: the shard's part reader, which is given the footers of keyed parts, as lookups need them.
        key: the key, by which each part is sorted.
        worker: the worker all rows belong to.
        deadline: the end of all writes.
        uploads: the threads and bounds the parts are written with; own ones by default.
    """

    def __init__(
        self,
        reader: PartReader,
        key: KeySpec | None,
        *,
        worker: int | None,
        deadline: Deadline,
        uploads: Uploads | None = None,
    ) -> None:
        self._reader = reader
        self._context = reader.context
        self._shard_id = reader.shard_id
        self._schema = physical(reader.schema)
        self._key = key
        self._worker = worker
        self._deadline = deadline
        self._uploads = Uploads(reader.context) if uploads is None else uploads
        self._owns_uploads = uploads is None
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._keys: list[str] = []
        self._parts: list[Callable[[], Part]] = []
        self._repetitive: Sequence[str] = ()

    def add(self, table: pa.Table) -> None:
        """Take updates of the physical schema; may start to write a part, and wait for earlier ones."""
        limit = self._context.settings.part_bytes
        for piece, size in _sized(table, limit):
            if self._pending and self._pending_bytes + size > limit:
                self._begin()
            if piece.num_rows:
                self._pending.append(conform(piece, self._schema))
                self._pending_bytes += size

    def end(self, *, inline_bytes: int) -> None:
        """Take no more updates: start to write the rest, or make it an inline part if everything is at most
        ``inline_bytes``.
        """
        if not self._pending:
            return
        if not self._parts and self._pending_bytes <= inline_bytes:
            table = pa.concat_tables(self._pending)
            part = inline_part(table, self._key, self._worker, inline_bytes)
            if part is not None:
                self._parts.append(lambda: part)
                self._pending, self._pending_bytes = [], 0
                return
        self._begin()

    def finish(self, *, inline_bytes: int = 0) -> tuple[Part, ...]:
        """Call `end` and wait for all parts.

        Raises:
            LocationError: one could not be written; call `abandon` to delete the rest.
        """
        self.end(inline_bytes=inline_bytes)
        parts = tuple(part() for part in self._parts)
        if self._owns_uploads:
            self._uploads.close()
        return parts

    def abandon(self) -> None:
        """Delete what was or may have been written, once no write is under way; what cannot be deleted is logged."""
        self._uploads.close()
        discard_objects(self._context, self._shard_id, self._keys, self._deadline)
        self._pending, self._keys, self._parts = [], [], []

    def _begin(self) -> None:
        """Start to write the pending updates as a part."""
        pieces, self._pending, self._pending_bytes = self._pending, [], 0
        key = f"{self._shard_id}/{self._context.new_object_id()}.parquet"
        self._keys.append(key)
        if self._key is None and (len(self._keys) - 1) % _LOOK_PARTS == 0:
            self._repetitive = _repetitive(pieces)
        repetitive = self._repetitive
        self._parts.append(self._uploads.submit(lambda: self._write(key, pieces, repetitive)))

    def _write(self, key: str, pieces: list[pa.Table], repetitive: Sequence[str]) -> BlobPart:
        context, settings = self._context, self._context.settings
        if self._key is None:
            data = encode_parquet(pieces, settings, repetitive)
            footer = pq.read_metadata(pa.BufferReader(data))
            stats = footer_stats(footer, self._schema, stats_names(self._reader))
        else:
            table = sort_by_key(pa.concat_tables(pieces).combine_chunks(), self._key)
            pieces.clear()
            stats = key_stats(table, self._key)
            data = encode_keyed(table, settings, self._key)
            del table
            footer = pq.read_metadata(pa.BufferReader(data))
        context.retrying(lambda: context.blob.set(key, data), self._deadline)
        if self._key is not None:
            self._reader.remember_footer(key, footer)
        [times] = footer_stats(footer, self._schema, [TIME_COLUMN])
        assert isinstance(times.lo, int)
        assert isinstance(times.hi, int)
        footer_size, footer_checksum = footer_of(data)
        return BlobPart(
            key=key,
            size=len(data),
            rows=footer.num_rows,
            time_min=times.lo,
            time_max=times.hi,
            checksum=checksum(data),
            worker=self._worker,
            stats=stats,
            footer_size=footer_size,
            footer_checksum=footer_checksum,
        )


def stats_names(reader: PartReader) -> list[str]:
    """Return the columns of a shard without key whose bounds are kept in the metadata of its parts."""
    names: list[str] = reader.schema.names
    return names[: reader.context.settings.stats_columns]


def _few_chunks(table: pa.Table) -> pa.Table:
    """Join the table's chunks if they are so small that they cost more than the copy."""
    chunks = max((column.num_chunks for column in table.columns), default=0)
    return table.combine_chunks() if chunks * _CHUNK_ROWS > table.num_rows else table


def encode_parquet(
    pieces: list[pa.Table], settings: Settings, repetitive: Sequence[str] | None = None
) -> bytes:
    """Encode updates as a Parquet object of a shard without key; empties the list ``pieces`` as it goes, to free their
    memory.

    ``repetitive`` are the paths of columns worth a dictionary, found by sampling by default.
    """
    sink = Sink()
    repetitive = _repetitive(pieces) if repetitive is None else repetitive
    comparable = _comparable(pieces)
    with pq.ParquetWriter(
        sink,
        pieces[0].schema,
        compression=settings.compression,
        write_page_checksum=True,
        use_dictionary=list(repetitive),
        write_statistics=comparable,
    ) as writer:
        for group in _row_groups(pieces, settings.row_group_rows):
            writer.write_table(group, row_group_size=group.num_rows)
            del group  # before the next one is made
        sink.seal(writer)
    return sink.data()


def encode_keyed(table: pa.Table, settings: Settings, key: KeySpec) -> bytes:
    """Encode the table, which is sorted, as a Parquet object in the layout of a keyed shard."""
    sink = Sink()
    keys = _comparable([table.select(key.columns)])
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=settings.keyed_compression,
        write_page_checksum=True,
        max_rows_per_page=settings.page_rows,
        write_page_index=True,
        # Lookups read the footer in addition to the rows, so it has only the statistics that lookups use.
        write_statistics=[*keys, TIME_COLUMN],
        # For the few rows of a row group, a dictionary takes more than it saves after compression.
        use_dictionary=False,
    ) as writer:
        writer.write_table(table, row_group_size=settings.keyed_group_rows(table.num_rows))
        sink.seal(writer)
    return sink.data()


def _row_groups(pieces: list[pa.Table], most_rows: int) -> Iterator[pa.Table]:
    """Yield all rows in groups of nearly equal size, of at most ``most_rows``; empties the list."""
    rows = sum(piece.num_rows for piece in pieces)
    wanted = math.ceil(rows / math.ceil(rows / most_rows))
    pieces.reverse()
    group: list[pa.Table] = []
    lacking = wanted
    while pieces:
        piece = pieces.pop()
        group.append(piece.slice(0, lacking))
        if piece.num_rows > lacking:
            pieces.append(piece.slice(lacking))
        lacking -= group[-1].num_rows
        del piece
        if lacking == 0 or not pieces:
            table, group, lacking = _few_chunks(pa.concat_tables(group)), [], wanted
            yield table
            del table


def _comparable(pieces: Sequence[pa.Table]) -> list[str]:
    """Return the paths of the leaf columns whose minimum and maximum bound all their values: floats only without any
    NaN.

    Parquet's statistics ignore NaN, so readers that take NaN for the greatest number, as Spark does, would skip it.
    Floats within nested columns, which nobody looks up by, are left out unchecked.
    """

    def whole(name: str) -> bool:
        return not any(pc.any(pc.is_nan(piece[name])).as_py() for piece in pieces)

    return [
        path
        for field in pieces[0].schema
        for path, type_ in _leaves(field.name, field.type)
        if not pa.types.is_floating(type_)
        or (pa.types.is_floating(field.type) and whole(field.name))
    ]


def _repetitive(pieces: Sequence[pa.Table]) -> list[str]:
    """Return the paths of the columns worth a dictionary, by sampling some rows.

    Parquet writers try a dictionary for every column and fall back to plain pages once it exceeds a limit: for
    columns that hardly repeat that costs time, and bytes for the part that was written with it.
    """
    table = pa.concat_tables(pieces)  # copies nothing
    paths: list[str] = []
    for field in table.schema:
        column = table[field.name]
        if pa.types.is_nested(field.type) or _repeats(column):
            paths += [path for path, _ in _leaves(field.name, field.type)]
    return paths


def _repeats(column: pa.ChunkedArray) -> bool:
    for rows, surely, hardly in _SAMPLES:
        if len(column) < rows:
            return True
        if _is_view(column.type):
            return True  # Arrow cannot count distinct views, so take the writer's default
        distinct: int = pc.count_distinct(column.slice(0, rows)).as_py()
        if distinct <= rows * surely:
            return True
        if distinct > rows * hardly:
            return False
    return False


def _is_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_))


def _leaves(path: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the Parquet paths of a column's leaves, and their types."""
    if pa.types.is_map(type_):
        yield from _leaves(f"{path}.key_value.key", type_.key_type)
        yield from _leaves(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_struct(type_):
        for place in range(type_.num_fields):
            field = type_.field(place)
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_nested(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    else:
        yield path, type_


def inline_part(
    table: pa.Table, key: KeySpec | None, worker: int | None, limit: int
) -> InlinePart | None:
    """Encode the table as an inline part; `None` if that takes more than ``limit`` bytes."""
    if table.nbytes > limit:
        return None
    table = sort_by_key(table.combine_chunks(), key)
    [batch] = table.to_batches()
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


def delete_objects(context: Context, keys: Sequence[str], deadline: Deadline | None = None) -> None:
    """Delete objects nobody refers to, with retries until the deadline (the context's default if not given).

    Many per request if the store can, else several at the same time if the client may use threads.

    Raises:
        LocationError: not all were deleted by the deadline.
    """
    deadline = context.deadline(None) if deadline is None else deadline
    blob = context.blob
    if isinstance(blob, ManyDeletable) and len(keys) > 1:
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[start : start + _KEYS_AT_ONCE]
            context.retrying(lambda some=some: blob.delete_many(some), deadline)  # type: ignore[misc]
        return

    def delete(key: str) -> None:
        context.retrying(lambda: blob.delete(key), deadline)

    if not context.threads or len(keys) < 2:
        for key in keys:
            delete(key)
        return
    with ThreadPoolExecutor(_DELETES_AT_ONCE, thread_name_prefix="mzsql-persist-delete") as pool:
        for done in [pool.submit(delete, key) for key in keys]:
            done.result()


def discard_objects(
    context: Context, shard_id: str, keys: Sequence[str], deadline: Deadline
) -> None:
    """Delete the objects of a failed write; an error of the deletion is only logged, because the write's error matters
    more.

    Takes until the deadline, and at least `_DISCARD_SECONDS`. Nothing refers to what stays behind.
    """
    patience = Deadline(context.clock, max(deadline.remaining(), _DISCARD_SECONDS))
    try:
        delete_objects(context, keys, patience)
    except LocationError as failure:
        _log.warning("shard %s: objects left behind: %s", shard_id, failure)
