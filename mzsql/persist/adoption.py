"""Parts from Parquet objects that another program (Spark) wrote into Blob under a prefix of the shard.

Promise: an adopted object is checked as thoroughly as one written here: its columns, its times, no NULL in columns
without NULLs; its checksum is computed from its bytes, and it is as durable as `Blob.set` makes one. Bounds, times
and NULL counts come from the Parquet footer if Spark wrote them there, else from the columns themselves. Memory: a
byte range of one object at a time, and such a column.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mzsql.location import Adoptable, RangeReadable
from mzsql.persist.batch import DIFF_COLUMN, TIME_COLUMN, BlobPart, KeySpec, KeyStats
from mzsql.persist.blocks import footer_of
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import check_columns, conform, fits_as_is, physical, time_bounds
from mzsql.persist.errors import CorruptPart, ForeignBlob, SchemaMismatch
from mzsql.persist.fetch import PartReader, missing
from mzsql.persist.parts import delete_objects, stats_names
from mzsql.persist.ranges import RangeFile
from mzsql.persist.stats import footer_stats, key_stats
from mzsql.repr.frontier import Timestamp

_STRETCH_BYTES = 8 * 1024 * 1024


def adopt(
    reader: PartReader,
    keys: Sequence[str],
    key_spec: KeySpec | None,
    workers: Sequence[int | None],
    deadline: Deadline,
) -> list[BlobPart]:
    """Return the parts of the objects, all durable; objects without rows give parts without rows, see `delete_empty`.

    Raises:
        ForeignBlob: an object is not under the shard's prefix.
        MissingPart: there is no such object.
        CorruptPart: it is not Parquet.
        SchemaMismatch: its columns do not fit, or hold a NULL where none is allowed, or a value that the shard's
            type does not have.
    """
    for key in keys:
        if not key.startswith(reader.shard_id + "/"):
            raise ForeignBlob(f"the object {key} does not belong to shard {reader.shard_id}")
    parts = [
        _Adopted(reader, key, deadline).part(key_spec, worker)
        for key, worker in zip(keys, workers, strict=True)
    ]
    blob = reader.context.blob
    kept = [part.key for part in parts if part.rows]
    if kept and isinstance(blob, Adoptable):
        reader.context.retrying(lambda: blob.make_durable(kept), deadline)
    return parts


def delete_empty(
    reader: PartReader, parts: Sequence[BlobPart], deadline: Deadline
) -> list[BlobPart]:
    """Return ``parts`` without those that have no rows, whose objects are deleted."""
    delete_objects(reader.context, [part.key for part in parts if not part.rows], deadline)
    return [part for part in parts if part.rows]


class _Bytes(NamedTuple):
    """The size and CRC-32 of an object; its bytes in ``whole`` if it is short."""

    size: int
    checksum: int
    whole: bytes | None


class _Object:
    """An object's bytes in the Blob store, for as long as a deadline allows."""

    def __init__(self, reader: PartReader, key: str, deadline: Deadline) -> None:
        self._shard_id = reader.shard_id
        self._context = reader.context
        self._deadline = deadline
        self.key = key

    def read(self, offset: int, length: int) -> bytes:
        blob = self._context.blob
        assert isinstance(blob, RangeReadable)
        data = self._context.retrying(
            lambda: blob.get_range(self.key, offset, length), self._deadline
        )
        if data is None:
            raise missing(self._shard_id, self.key)
        return data


class _Adopted:
    """One object being adopted."""

    def __init__(self, reader: PartReader, key: str, deadline: Deadline) -> None:
        self._reader = reader
        self._context = reader.context
        self._schema = physical(reader.schema)
        self._deadline = deadline
        self._what = f"the object {key}"
        self._object = _Object(reader, key, deadline)
        self.key = key

    def part(self, key_spec: KeySpec | None, worker: int | None) -> BlobPart:
        """Return the object's part; the object need not be durable yet."""
        found = self._survey()
        try:
            file = pq.ParquetFile(
                pa.BufferReader(found.whole)
                if found.whole is not None
                else pa.PythonFile(RangeFile(found.size, self._object.read), mode="r")
            )
            self._check_encoding(file.metadata)
            check_columns(file.schema_arrow, self._reader.schema, self._what)
            self._check_values(file)
            least, greatest = 0, 0
            stats: tuple[KeyStats, ...] = ()
            if file.metadata.num_rows:
                self._check_nulls(file)
                least, greatest = self._times(file)
                stats = self._stats(file, key_spec)
        except (pa.ArrowException, OSError) as failure:
            raise CorruptPart(f"{self._what} is not Parquet: {failure}") from failure
        if key_spec is not None:
            self._reader.remember_footer(self.key, file.metadata)
        footer_size, footer_checksum = footer_of(
            found.whole
            if found.whole is not None
            else RangeFile(found.size, self._object.read).footer(file.metadata.serialized_size + 8)
        )
        return BlobPart(
            key=self.key,
            size=found.size,
            rows=file.metadata.num_rows,
            time_min=least,
            time_max=greatest,
            checksum=found.checksum,
            worker=worker,
            stats=stats,
            footer_size=footer_size,
            footer_checksum=footer_checksum,
        )

    def _survey(self) -> _Bytes:
        """Read the object once, in byte ranges if the Blob supports that."""
        blob = self._context.blob
        if not isinstance(blob, RangeReadable):
            data = self._context.retrying(lambda: blob.get(self.key), self._deadline)
            if data is None:
                raise missing(self._reader.shard_id, self.key)
            return _Bytes(len(data), zlib.crc32(data), data)
        # Read ranges until one is short: the store's size of the object is not asked for.
        size, crc = 0, 0
        while True:
            data = self._object.read(size, _STRETCH_BYTES)
            size, crc = size + len(data), zlib.crc32(data, crc)
            if len(data) < _STRETCH_BYTES:
                return _Bytes(size, crc, data if size == len(data) else None)

    def _rows(self, file: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
        table = file.read(columns=list(names))
        return conform(table, pa.schema([self._schema.field(name) for name in names]))

    def _check_encoding(self, metadata: pq.FileMetaData) -> None:
        """Refuse INT96 timestamps: Arrow's int64 nanoseconds overflow beyond the year 2262, so not all readers would
        get the same time.
        """
        for place in range(metadata.num_columns):
            column = metadata.schema.column(place)
            if column.physical_type == "INT96":
                raise SchemaMismatch(
                    f'{self._what} has column "{column.path}" as INT96, which is no timestamp of a shard',
                    hint="Have Spark write with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS.",
                )

    def _check_values(self, file: pq.ParquetFile) -> None:
        """Check columns written with another type than the shard's for values that the shard's type does not have."""
        found = file.schema_arrow
        for field in self._schema:
            if fits_as_is(found.field(field.name).type, field.type):
                continue
            for group in range(file.metadata.num_row_groups):
                column = file.read_row_group(group, columns=[field.name])[field.name]
                try:
                    column.cast(field.type)
                except pa.ArrowInvalid as failure:
                    raise SchemaMismatch(
                        f'{self._what} has values in column "{field.name}" that do not fit the shard: {failure}'
                    ) from failure

    def _check_nulls(self, file: pq.ParquetFile) -> None:
        for field in self._schema:
            if field.nullable:
                continue
            nulls = _footer_nulls(file.metadata, field)
            if nulls is None:
                nulls = file.read(columns=[field.name])[field.name].null_count
            if nulls:
                raise SchemaMismatch(
                    f'{self._what} has a NULL in column "{field.name}", which takes none'
                )

    def _times(self, file: pq.ParquetFile) -> tuple[Timestamp, Timestamp]:
        [found] = footer_stats(file.metadata, self._schema, [TIME_COLUMN])
        if isinstance(found.lo, int) and isinstance(found.hi, int):
            return found.lo, found.hi
        return time_bounds(self._rows(file, [TIME_COLUMN, DIFF_COLUMN]))

    def _stats(self, file: pq.ParquetFile, key_spec: KeySpec | None) -> tuple[KeyStats, ...]:
        names = stats_names(self._reader) if key_spec is None else key_spec.columns
        found = footer_stats(file.metadata, self._schema, names)
        lacking = [stats.column for stats in found if not stats.known]
        if key_spec is None or not lacking:
            return found
        # Lookups by key depend on these statistics, so it is worth reading the columns for them.
        read = key_stats(self._rows(file, lacking), KeySpec(tuple(lacking)))
        by_name = {stats.column: stats for stats in read}
        return tuple(by_name.get(stats.column, stats) for stats in found)


def _footer_nulls(metadata: pq.FileMetaData, field: pa.Field) -> int | None:
    """Return the number of NULLs of a column by the footer; `None` if the footer does not say."""
    if pa.types.is_nested(field.type):
        return None
    places = [
        place
        for place in range(metadata.num_columns)
        if metadata.schema.column(place).path == field.name
    ]
    if len(places) != 1:
        return None
    [place] = places
    if metadata.schema.column(place).max_definition_level == 0:
        return 0
    nulls = 0
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(place).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
    return nulls
