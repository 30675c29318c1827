"""Executors read and write parts through mzsql's Blob client, where Spark itself cannot open the store's paths.

Promise: `executor_frame` has the rows that Spark's own reader would have, and none of them passes through the
driver. `executor_write` puts a frame's rows into the Blob store as Parquet objects and returns the objects with
their numbers of rows, so that nothing counts as written that is not there. Each executor opens the Blob store by
URL, with its own credentials, found there in the standard way. A URL that holds a secret never gets into a plan; a
profile is named instead. Trade-off: rows pass through Python workers as Arrow, about four times slower.
"""

from __future__ import annotations

import base64
import contextlib
import io
import uuid
import weakref
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mzsql.location import Blob, UsageError, open_blob, shown_url
from mzsql.location.profiles import nameable, resolved
from mzsql.persist import WORKER_COLUMN, PartRef
from mzsql.persist.exchanged_parts import ExchangedParts, exchanged_parts
from mzsql.persist.pushdown import Filters
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Frontier, Timestamp

#: Names of the data source formats, used only by mzsql itself.
READ_FORMAT = "mzsql_parts"
WRITE_FORMAT = "mzsql_objects"

#: Rows of an Arrow batch that is handed to Spark.
BATCH_ROWS = 65_536
#: An executor starts another object once one has about this many bytes, which are held in memory until then.
OBJECT_BYTES = 64 * 1024 * 1024

_WRITTEN = "_written.json"
_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


class Written(msgspec.Struct, frozen=True):
    """An object that an executor wrote."""

    key: str
    rows: int


def place_for_executors(blob_url: str | None, what: str) -> str:
    """Where executors open the Blob store: a URL without secrets, or the name of a profile.

    Args:
        blob_url: the URL with which it was opened here.
        what: what is to be read or written, for the message.

    Raises:
        UsageError: another process cannot open it, or only with a secret that must not be in a plan.
    """
    if blob_url is None:
        raise UsageError(
            f"{what} must go through Spark's executors, which cannot open a Blob store that was not opened by URL",
            hint="Open the client with PersistClient.open(blob=URL, …), or read in splits (ReadHandle.snapshot).",
        )
    if blob_url.partition(":")[0] == "mem":
        raise UsageError(
            f"{what} must go through Spark's executors, and {blob_url} is in the memory of this process alone",
            hint="Keep what is large in a Blob store that other processes open, such as file:, or read in splits (ReadHandle.snapshot).",
        )
    place = nameable(blob_url)
    if place is None:
        raise UsageError(
            f"{what} must go through Spark's executors, and the URL of the Blob store holds a secret, which Spark would show: "
            f"{shown_url(blob_url)}",
            hint="Name a profile that has this URL (mzsql.toml or MZSQL_PROFILE_NAME_BLOB, here and on the executors), "
            "or leave credentials to the environment.",
        )
    return place


# --- reading ------------------------------------------------------------------------------------


def executor_frame(
    spark: SparkSession,
    refs: Sequence[PartRef],
    schema: pa.Schema,
    spark_schema: StructType,
    *,
    filters: Filters | None = None,
    lower: Timestamp = 0,
    upper: Frontier = None,
) -> DataFrame:
    """Return a frame of updates from parts, which Spark's tasks read themselves, one task for each partition of the parts.

    Args:
        spark: the frame's session.
        refs: parts of one Blob store; the caller keeps them until the frame has been used.
        schema: the columns to read and their types, with mz_time and mz_diff as the last two.
        spark_schema: the same in Spark's types.
        filters: ranges of values to read; rows outside of them may be returned too.
        lower: updates before this time may be left out.
        upper: updates at or after this time may be left out.

    Raises:
        UsageError: see `place_for_executors`.
    """
    by_shard: dict[str, list[PartRef]] = {}
    for ref in refs:
        by_shard.setdefault(ref.shard_id, []).append(ref)
    partitions = [
        partition.to_bytes()
        for shard, some in by_shard.items()
        for partition in exchanged_parts(
            some,
            place_for_executors(some[0].blob_url, _described(shard, some)),
            columns=schema.names[:-2],
            filters=filters,
            lower=lower,
            upper=upper,
        )
    ]
    _register(spark)
    read = spark.read.format(READ_FORMAT).schema(spark_schema)
    return read.option("partitions", _text(msgspec.msgpack.encode(partitions))).load()


def _described(shard_id: str, refs: Sequence[PartRef]) -> str:
    rows, size = sum(ref.rows for ref in refs), sum(ref.bytes for ref in refs)
    return f"shard {shard_id}: {rows} updates ({size} bytes)"


def _text(data: bytes) -> str:
    # Options of a data source are text.
    return base64.b85encode(zlib.compress(data, 1)).decode()


def _data(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


def _register(spark: SparkSession) -> None:
    if spark not in _registered:
        spark.dataSource.register(PartsSource)
        spark.dataSource.register(ObjectsSink)
        _registered.add(spark)


class PartsSource(DataSource):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """The data source of partitions of parts; its option ``partitions`` holds them."""

    _planned = False

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return READ_FORMAT

    def reader(self, schema: StructType) -> PartsReader:
        """The reader of the partitions."""
        partitions = msgspec.msgpack.decode(_data(self.options["partitions"]), type=list[bytes])
        self._planned = True
        return PartsReader(partitions, schema)

    def __getstate__(self) -> dict[str, object]:
        """Once there is a reader, this object is sent to each task, which has its own partition and does not need the
        option.
        """
        return {**self.__dict__, "options": {}} if self._planned else dict(self.__dict__)


@dataclass
class PartsPartition(InputPartition):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """A partition, as bytes."""

    data: bytes


class PartsReader(DataSourceReader):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Reads each partition in a task of its own."""

    def __init__(self, partitions: list[bytes], schema: StructType) -> None:
        self._partitions = partitions
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One of Spark's input partitions for each."""
        return [PartsPartition(partition) for partition in self._partitions]

    def __getstate__(self) -> dict[str, object]:
        """Sent to each task without the partitions of the others."""
        return {"_partitions": [], "_schema": self._schema}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The updates of a partition, a stretch of a part at a time."""
        assert isinstance(partition, PartsPartition)
        parts = ExchangedParts.from_bytes(partition.data)
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        with contextlib.closing(open_blob(resolved(parts.blob_url, "blob"))) as blob:
            for piece in parts.pieces(blob):
                yield from piece.cast(wanted).to_batches(max_chunksize=BATCH_ROWS)


# --- writing ------------------------------------------------------------------------------------


def executor_write(
    frame: DataFrame,
    blob: Blob,
    blob_url: str | None,
    prefix: str,
    *,
    group_rows: int,
    page_rows: int,
) -> list[Written]:
    """Have the executors write a frame's rows into the Blob store, as Parquet objects under a prefix.

    Rows keep their order within a partition. If the frame has a column `WORKER_COLUMN`, it is not written; each
    object then has the rows of one worker, whose number is in its key as in ``mz_worker=3``. After an error, or if
    the driver dies, objects may be left under the prefix; nothing refers to them.

    Args:
        frame: what to write.
        blob: the store, as this process has it open.
        blob_url: the URL with which it was opened.
        prefix: a fresh key prefix.
        group_rows: most rows of a row group.
        page_rows: most rows of a page.

    Raises:
        UsageError: see `place_for_executors`.
        InternalError: the executors' objects are not in this process's store.
    """
    place = place_for_executors(blob_url, f"what is written to {prefix}")
    _register(frame.sparkSession)
    writer = frame.write.format(WRITE_FORMAT).mode("append")
    options = {"place": place, "prefix": prefix, "group_rows": group_rows, "page_rows": page_rows}
    writer.options(**options).save()
    told = blob.get(f"{prefix}/{_WRITTEN}")
    if told is None:
        raise InternalError(
            f"Spark's executors wrote below {prefix} to another Blob store than this process has open at {shown_url(place)}"
        )
    blob.delete(f"{prefix}/{_WRITTEN}")
    return msgspec.json.decode(told, type=list[Written])


class ObjectsSink(DataSource):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """The data sink of Parquet objects in a Blob store; see `executor_write`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return WRITE_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> ObjectsWriter:  # noqa: ARG002  Spark's signature
        """The writer of such rows."""
        rows = int(self.options["group_rows"]), int(self.options["page_rows"])
        return ObjectsWriter(self.options["place"], self.options["prefix"], rows, schema)


@dataclass
class WrittenBy(WriterCommitMessage):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """What a task wrote, as JSON."""

    objects: bytes


class ObjectsWriter(DataSourceArrowWriter):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Each task attempt writes objects with unique names and returns which; objects of other attempts are deleted with
    everything unreferenced.
    """

    def __init__(self, place: str, prefix: str, rows: tuple[int, int], schema: StructType) -> None:
        self._place = place
        self._prefix = prefix
        self._rows = rows
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with contextlib.closing(open_blob(resolved(self._place, "blob"))) as blob:
            objects = _Objects(blob, self._prefix, self._rows, schema)
            for batch in iterator:
                objects.add(pa.Table.from_batches([batch]).cast(schema))
            return WrittenBy(msgspec.json.encode(objects.end()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called when all tasks are done: put the list of what they wrote into the store, where the driver's process
        looks for it.
        """
        found = [
            one
            for message in messages
            if isinstance(message, WrittenBy)
            for one in msgspec.json.decode(message.objects, type=list[Written])
        ]
        with contextlib.closing(open_blob(resolved(self._place, "blob"))) as blob:
            blob.set(f"{self._prefix}/{_WRITTEN}", msgspec.json.encode(found))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the caller of the write deletes what is under its prefix."""


class _Objects:
    """The objects of one task, worker after worker."""

    def __init__(self, blob: Blob, prefix: str, rows: tuple[int, int], schema: pa.Schema) -> None:
        self._blob = blob
        self._prefix = prefix
        self._group_rows, self._page_rows = rows
        self._task = uuid.uuid4()
        self._keyed = WORKER_COLUMN in schema.names
        self._schema = pa.schema([field for field in schema if field.name != WORKER_COLUMN])
        self._worker: int | None = None
        self._waiting: list[pa.Table] = []
        self._sink = io.BytesIO()
        self._file: pq.ParquetWriter | None = None
        self._rows = 0
        self._done: list[Written] = []

    def add(self, rows: pa.Table) -> None:
        """Write rows, after those before."""
        if not self._keyed:
            self._take(rows)
            return
        while rows.num_rows:
            # The rows are sorted by worker, so each run of equal workers goes into that worker's objects.
            worker = rows[WORKER_COLUMN][0].as_py()
            if worker is None:
                raise InternalError(f"a row of no worker was to be written to {self._prefix}")
            run = pc.index(pc.not_equal(rows[WORKER_COLUMN], worker), True).as_py()
            mine = rows if run < 0 else rows.slice(0, run)
            if worker != self._worker:
                self._close()
                self._worker = worker
            self._take(mine.drop_columns([WORKER_COLUMN]))
            rows = rows.slice(mine.num_rows)

    def _take(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        if sum(table.num_rows for table in self._waiting) >= self._group_rows:
            self._write()

    def _write(self) -> None:
        """Write the waiting rows as row groups."""
        rows = pa.concat_tables([self._schema.empty_table(), *self._waiting])
        self._waiting.clear()
        if not rows.num_rows:
            return
        if self._file is None:
            self._sink = io.BytesIO()
            self._file = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd",
                write_page_index=True,
                write_page_checksum=True,
                max_rows_per_page=self._page_rows,
            )
        self._file.write_table(rows, row_group_size=self._group_rows)
        self._rows += rows.num_rows
        if self._sink.tell() >= OBJECT_BYTES:
            self._end_object()

    def _close(self) -> None:
        self._write()
        self._end_object()

    def _end_object(self) -> None:
        if self._file is None:
            return
        self._file.close()
        folder = "" if self._worker is None else f"{WORKER_COLUMN}={self._worker}/"
        key = f"{self._prefix}/{folder}part-{self._task}-{len(self._done)}.parquet"
        self._blob.set(key, self._sink.getvalue())
        self._done.append(Written(key, self._rows))
        self._file, self._rows = None, 0

    def end(self) -> list[Written]:
        """Finish, and return all objects written."""
        self._close()
        return self._done
