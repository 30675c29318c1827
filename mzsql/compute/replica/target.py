"""The targets of a dataflow: shards that it writes, whose updates are definite, so that several writers may bring the same ones.

Promise: `append` and `adopt` add exactly the updates of ``[lower, upper)`` that the shard lacks: a writer that loses a
compare_and_append drops what lies below the winner's upper. With an export log, `append` and `pass_over` do not write to the shard: this
process knows of the updates when they return, the log's next write makes them durable, and the next `flush` brings them into the shard.
What is too large to be kept in memory goes into the shard at once. Large results are written by Spark straight into the Blob and
adopted; they do not pass through the driver if Spark can open the Blob's paths, or the executors can open the Blob. A batch is adopted
only if it has as many rows as Spark says it wrote, so that a path that means another place to Spark loses no rows unnoticed.
"""

from __future__ import annotations

import functools
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mzsql.compute.dependencies import ExportLog
from mzsql.compute.engines.executors import executor_write, place_for_executors
from mzsql.compute.engines.paths import can_open, is_connect
from mzsql.compute.replica.written_files import Files, is_part, seen, worker_in
from mzsql.location import SparkReadable, UsageError
from mzsql.persist import (
    WORKER_COLUMN,
    Batch,
    ExpiredHandle,
    PersistClient,
    ShardFinalized,
    UpperMismatch,
    WriteHandle,
)
from mzsql.persist.consolidate import consolidate
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Frontier, Timestamp, less_than
from mzsql.repr.lazy import lazy_property

#: Rows that a worker's file is laid out for if their number is unknown.
_UNKNOWN_ROWS = 1_000_000

#: Names of codecs of `persist.Settings` that Spark calls otherwise, or the nearest that Spark has.
_CODECS = {"lz4": "lz4_raw", "brotli": "zstd"}

#: Runs a write (the first argument), and may meanwhile ask which workers' files are complete (the second).
Running = Callable[[Callable[[], None], Callable[[], Files]], None]


class Overtaken(Exception):
    """Another writer moved the shard into the middle of what was written as one batch; the step must be run again."""


def with_time(schema: pa.Schema) -> pa.Schema:
    """A collection's columns with mz_time and mz_diff (int64) appended."""
    return pa.schema([*schema, pa.field("mz_time", pa.int64()), pa.field("mz_diff", pa.int64())])


@functools.lru_cache(maxsize=4096)
def no_updates(schema: pa.Schema) -> pa.Table:
    """An empty table of a collection's updates. Cached: a step needs one for each input and arrangement, and making one is slow."""
    return with_time(schema).empty_table()


def at_or_after(updates: pa.Table, time: Timestamp) -> pa.Table:
    """The updates with ``mz_time >= time``."""
    return updates.filter(pc.greater_equal(updates.column("mz_time"), time))


class Target:
    """A shard to write to. `flush` may run beside other calls; otherwise for one thread at a time."""

    #: number of workers by which its rows are divided; None: rows belong to no worker
    workers: int | None = None

    def __init__(
        self,
        persist: PersistClient,
        shard_id: str,
        schema: pa.Schema,
        writer: WriteHandle,
        timeout: float,
        log: ExportLog | None = None,
    ) -> None:
        self.persist = persist
        self.shard_id = shard_id
        self.schema = schema
        self.writer = writer
        self.timeout = timeout
        self.log = log
        self._behind_since: float | None = None
        self._turn = threading.Lock()
        if log is not None:
            log.attach(writer)

    @lazy_property
    def updates_schema(self) -> pa.Schema:
        """The columns of its updates, with their times and diffs."""
        return with_time(self.schema)

    def upper(self) -> Frontier:
        """The shard's upper, fetched from Consensus after everything that the log has of the shard was applied to it."""
        upper = self.writer.fetch_upper(timeout=self.timeout)
        if self.log is None:
            return upper
        self.flush()
        return self.writer.upper

    @property
    def known_upper(self) -> Frontier:
        """How far the updates are known in this process: the shard's upper as last seen, or further where updates were added or passed over
        since.
        """
        return self.writer.known_upper

    def begin_to_tell(self) -> None:
        """Become this process's writer of the shard: from now on those who wait for the shard in this process are woken by the appends of
        this handle.
        """
        upper = self.writer.known_upper
        if upper is not None:
            self.writer.pass_quietly(upper, upper)

    @property
    def durable_upper(self) -> Frontier:
        """The shard's upper, as last seen."""
        return self.writer.upper

    def pass_over(self, lower: Timestamp, upper: Timestamp) -> None:
        """Record that there are no updates in ``[lower, upper)``. Readers in this process see it at once, the shard with its next append or
        `flush`.
        """
        if not less_than(self.writer.known_upper, upper):
            return
        self.writer.pass_quietly(lower, upper)
        self._added(Batch(self.shard_id, lower, upper))

    def _added(self, batch: Batch) -> None:
        if self._behind_since is None:
            self._behind_since = self._now()
        if self.log is not None:
            self.log.add(batch)

    def follow_others(self) -> None:
        """Have the shard follow, by this process too, what others have made known of it: they may be gone before they do it."""
        if self._behind_since is None and self._behind():
            self._behind_since = self._now()

    def _now(self) -> float:
        return self.writer.context.clock.monotonic()

    def late(self) -> float | None:
        """For how many seconds the shard has been behind what is known here; None if it is not."""
        if self._behind_since is None or not self._behind():
            return None
        return self._now() - self._behind_since

    def _behind(self) -> bool:
        return less_than(self.writer.upper, self.writer.known_upper)

    def overfull(self, batches: int, size: int) -> bool:
        """Whether the shard lacks at least `batches` batches, or `size` bytes."""
        if self._behind_since is None:
            return False
        lacking = self.writer.behind
        return lacking[0] >= batches or lacking[1] >= size

    def flush(self) -> None:
        """Write to the shard what it lacks. May run beside an append."""
        with self._turn:
            if not self._behind():
                return
            # Taken before the write: what is added meanwhile has waited since then at most.
            began = self._now()
            try:
                self.writer.catch_up(timeout=self.timeout)
            except ExpiredHandle:
                self._reopen()
                self.writer.catch_up(timeout=self.timeout)
            self._behind_since = began if self._behind() else None

    def _reopen(self) -> None:
        # The handle's lease lapsed, on a machine that slept for example. Nothing that it had appended is lost by
        # that.
        expired, self.writer = self.writer, self.writer.reopened()
        if self.log is not None:
            self.log.detach(expired)
            self.log.attach(self.writer)

    def close(self) -> None:
        """Close the handle; the shard stays."""
        if self.log is not None:
            self.log.detach(self.writer)
        self.writer.expire()

    def split(self, updates: pa.Table) -> pa.Table | Mapping[int, pa.Table] | None:
        """The updates consolidated and in the form that the writer takes; None if nothing is left."""
        updates = consolidate(updates)
        return updates if updates.num_rows else None

    def append(
        self, updates: pa.Table, lower: Timestamp, upper: Frontier, *, exact: bool = False
    ) -> Frontier:
        """Append those updates of ``[lower, upper)`` that nobody has appended yet.

        Args:
            updates: columns, mz_time, mz_diff.
            lower: at or before the shard's upper.
            upper: where the shard's upper will be at least.
            exact: refuse unless the shard's upper is `lower`, for updates that are only valid as a continuation of it.

        Returns:
            The upper then, of the shard or as it is known here.

        Raises:
            Overtaken: ``exact``, and the shard's upper is another.
        """
        # An exact append must meet the shard's own upper, and the end of a shard is no batch: neither can go by way of the log.
        if self.log is not None and not exact and upper is not None:
            return self._append_quietly(updates, lower, upper)
        if self.log is not None:
            self.flush()
        # After the flush the shard has what the log had of it, so a direct append goes on at the shard's own upper.
        reached = self.append_from(updates, lower, upper, at=self.writer.upper, exact=exact)
        self._has_moved()
        return reached

    def _append_quietly(self, updates: pa.Table, lower: Timestamp, upper: Timestamp) -> Frontier:
        at = self.writer.known_upper
        if at is None or at >= upper:
            return at
        rows = self.split(updates if at <= lower else at_or_after(updates, at))
        if rows is None:
            self.pass_over(at, upper)
            return upper
        write = self.writer
        batch = (
            write.batch_by_worker(rows, lower=at, upper=upper, timeout=self.timeout)
            if isinstance(rows, Mapping)
            else write.batch(rows, lower=at, upper=upper, timeout=self.timeout)
        )
        # Only inline batches can be known ahead of the shard: nothing would protect objects that no state names from deletion.
        if batch.blob_keys():
            self.flush()
            reached, _ = self.adopt_batch(batch, upper)
            return reached
        write.append_quietly(batch)
        self._added(batch)
        return upper

    def _has_moved(self) -> None:
        """Tell the export log's followers that the shard was written directly, so that they look at it."""
        upper = self.writer.upper
        if self.log is not None:
            at = 0 if upper is None else upper
            # A batch without rows and without a span: all that it says is how far the shard goes.
            self.log.add(Batch(self.shard_id, at, at))

    def append_from(
        self,
        updates: pa.Table,
        lower: Timestamp,
        upper: Frontier,
        *,
        at: Frontier,
        exact: bool = False,
    ) -> Frontier:
        """As `append`, given that the shard's upper is believed to be `at`."""
        with self._turn:
            return self._append_from(updates, lower, upper, at, exact)

    def _append_from(
        self, updates: pa.Table, lower: Timestamp, upper: Frontier, at: Frontier, exact: bool
    ) -> Frontier:
        while less_than(at, upper):
            assert at is not None
            if exact and at != lower:
                raise Overtaken
            try:
                self.writer.compare_and_append(
                    self.split(updates if at <= lower else at_or_after(updates, at)),
                    expected_upper=at,
                    new_upper=upper,
                    timeout=self.timeout,
                )
            except UpperMismatch as lost:
                at = lost.current
            # A kind of expired handle that reopening cannot help.
            except ShardFinalized:
                raise
            except ExpiredHandle:
                self._reopen()
            else:
                return upper
        return at

    def adopt(
        self,
        frame: DataFrame,
        lower: Timestamp,
        upper: Timestamp,
        *,
        exact: bool = False,
        running: Running | None = None,
        rows: int | None = None,
    ) -> tuple[Frontier, int]:
        """Have Spark write a frame (columns, mz_time, mz_diff) and append it.

        Args:
            frame: updates with times in ``[lower, upper)``.
            lower: the shard's upper when the frame was made.
            upper: where the shard's upper will be.
            exact: raise Overtaken unless the shard's upper is `lower` when the batch is appended.
            running: runs the write.
            rows: about how many rows the frame has, if that is known; the files are laid out for it.

        Returns:
            The shard's upper, and the number of rows.

        Raises:
            Overtaken: another writer has moved the upper in between; nothing was appended.
        """
        return self.adopt_batch(
            self._written(frame, (lower, upper), running, rows), upper, exact=exact
        )

    def adopt_batch(
        self, batch: Batch, upper: Timestamp, *, exact: bool = False
    ) -> tuple[Frontier, int]:
        """As `adopt`, for a batch that is written already.

        Raises:
            Overtaken: with ``exact``, or where an update lies below it: another writer has moved the upper.
                The batch was deleted.
        """
        try:
            while True:
                try:
                    self.writer.compare_and_append_batch(
                        batch, expected_upper=batch.lower, new_upper=upper, timeout=self.timeout
                    )
                except UpperMismatch as lost:
                    if exact:
                        raise Overtaken from lost
                    if lost.current is None or lost.current >= upper:
                        self.writer.delete_batch(batch)
                        return lost.current, batch.rows
                    # Another writer has moved the upper. If an update lies below it, this raises UsageError.
                    batch = batch.with_bounds(lost.current, upper)
                except ShardFinalized:
                    raise
                except ExpiredHandle:
                    self._reopen()
                else:
                    self._has_moved()
                    return upper, batch.rows
        except (Overtaken, UsageError) as error:
            self.writer.delete_batch(batch)
            raise Overtaken from error

    def arrange(self, frame: DataFrame) -> DataFrame:
        """Partition and sort a frame as the shard's files should be; adds the column `WORKER_COLUMN` if the shard is divided by worker."""
        return frame

    def _written(
        self,
        frame: DataFrame,
        bounds: tuple[Timestamp, Timestamp],
        running: Running | None,
        rows: int | None,
    ) -> Batch:
        blob = self.persist.blob
        session = frame.sparkSession
        laid_out = self.arrange(frame)
        prefix = self.writer.part_prefix()
        if isinstance(blob, SparkReadable) and can_open(session, blob.spark_path(prefix)):
            return self._by_path(laid_out, blob.spark_path(prefix), prefix, bounds, running, rows)
        if not is_local(session):
            return self._by_executors(laid_out, prefix, bounds, running, rows)
        with tempfile.TemporaryDirectory(prefix="mzsql-write-") as scratch:
            folder = Path(scratch)

            def files() -> list[tuple[str, int]]:
                found = folder.rglob("*")
                return [(str(one.relative_to(folder)), one.stat().st_size) for one in found]

            written = self._spark_writes(laid_out, (folder / "out").as_uri(), files, running, rows)
            batch = self._streamed(folder / "out", *bounds)
        self._check_rows(batch, written)
        return batch

    def _spark_writes(
        self,
        frame: DataFrame,
        path: str,
        files: Callable[[], list[tuple[str, int]]],
        running: Running | None,
        rows: int | None,
    ) -> int:
        """Have Spark write a frame to a path; return the number of rows that it says it wrote."""
        counted = Observation()
        writer = frame.observe(counted, F.count(F.lit(1)).alias("rows")).write.mode("append")
        if self.workers is not None:
            writer = writer.partitionBy(WORKER_COLUMN).options(**self._layout(rows))
        self._run(lambda: writer.parquet(path), files, running)
        return int(counted.get["rows"])

    def _run(
        self,
        write: Callable[[], None],
        files: Callable[[], list[tuple[str, int]]],
        running: Running | None,
    ) -> None:
        if running is None:
            write()
        else:
            running(write, lambda: seen(files()))

    def _by_path(
        self,
        frame: DataFrame,
        path: str,
        prefix: str,
        bounds: tuple[Timestamp, Timestamp],
        running: Running | None,
        rows: int | None,
    ) -> Batch:
        """Have Spark write files into the Blob by path; return them as a batch."""
        files = functools.partial(self._files, prefix)
        try:
            written = self._spark_writes(frame, path, files, running, rows)
            batch = self._adopted([key for key, _ in files() if is_part(key)], bounds)
            self._check_rows(batch, written)
        except BaseException:
            self._delete([key for key, _ in files()])
            raise
        # Spark also writes marker files, such as _SUCCESS.
        self._delete([key for key, _ in files() if not is_part(key)])
        return batch

    def _by_executors(
        self,
        frame: DataFrame,
        prefix: str,
        bounds: tuple[Timestamp, Timestamp],
        running: Running | None,
        rows: int | None,
    ) -> Batch:
        """Have executors put objects into the Blob through mzsql's Blob client; return them as a batch."""
        persist = self.persist
        blob = persist.blob
        settings = persist.settings
        a_worker = _UNKNOWN_ROWS if rows is None else rows // (self.workers or 1)
        keyed = self.workers is not None

        files, written = functools.partial(self._files, prefix), []

        def write() -> None:
            written.extend(
                executor_write(
                    frame,
                    blob,
                    persist.blob_url,
                    prefix,
                    group_rows=settings.keyed_group_rows(a_worker)
                    if keyed
                    else settings.row_group_rows,
                    page_rows=settings.page_rows,
                )
            )

        place_for_executors(persist.blob_url, f"what is written to shard {self.shard_id}")
        try:
            self._run(write, files, running)
            parts = {one.key for one in written}
            batch = self._adopted(parts, bounds)
            self._check_rows(batch, sum(one.rows for one in written))
        except BaseException:
            self._delete([key for key, _ in files()])
            raise
        self._delete([key for key, _ in files() if key not in parts])
        return batch

    def _files(self, prefix: str) -> list[tuple[str, int]]:
        """The keys below a prefix that the Blob has now, each with its bytes."""
        return list(self.persist.blob.list_keys_and_metadata(prefix))

    def _adopted(self, keys: Iterable[str], bounds: tuple[Timestamp, Timestamp]) -> Batch:
        parts = sorted(keys)
        lower, upper = bounds
        workers = None if self.workers is None else [worker_in(key) for key in parts]
        return self.writer.adopt_parts(parts, lower=lower, upper=upper, workers=workers)

    def _check_rows(self, batch: Batch, written: int) -> None:
        """Check that the batch has as many rows as Spark wrote.

        Raises:
            InternalError: it has not.
        """
        if batch.rows != written:
            raise InternalError(
                f"shard {self.shard_id}: Spark wrote {written} rows, and {batch.rows} are in the Blob store; nothing was appended",
                hint="Check that Spark's file system (its endpoint, credentials, mounts) and the Blob store's URL mean the same place.",
            )

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.persist.blob.delete(key)

    def _layout(self, rows: int | None) -> dict[str, str]:
        """Options of Spark's Parquet writer for files from which lookups read little: page sizes for Spark's scans to skip pages, row group
        sizes for reads on the driver to skip row groups, as in the parts that persist writes.
        """
        settings = self.persist.settings
        a_worker = _UNKNOWN_ROWS if rows is None else rows // (self.workers or 1)
        return {
            "compression": _CODECS.get(settings.keyed_compression, settings.keyed_compression),
            "parquet.page.row.count.limit": str(settings.page_rows),
            "parquet.block.row.count.limit": str(settings.keyed_group_rows(a_worker)),
        }

    def _streamed(self, folder: Path, lower: Timestamp, upper: Timestamp) -> Batch:
        """A batch of files that Spark wrote on this machine, copied into a Blob that Spark cannot write to."""
        by_worker: dict[int, list[Path]] = {}
        for path in sorted(folder.rglob("*.parquet")):
            if is_part(path.name):
                worker = worker_in(str(path))
                by_worker.setdefault(worker if worker is not None else 0, []).append(path)
        readers = {worker: _read(paths, self.schema) for worker, paths in by_worker.items()}
        if self.workers is not None:
            return self.writer.batch_by_worker(readers, lower=lower, upper=upper)
        (reader,) = readers.values() or (_read([], self.schema),)
        return self.writer.batch(reader, lower=lower, upper=upper)


def is_local(spark: SparkSession) -> bool:
    """Whether the session's tasks run in this process, so that they share this machine's files."""
    return (
        not is_connect(spark)
        and re.fullmatch(r"local(\[[\d*, ]+\])?", str(spark.conf.get("spark.master", "")))
        is not None
    )


def _read(paths: list[Path], schema: pa.Schema) -> pa.RecordBatchReader:
    full = with_time(schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            # a file by itself, or Arrow would read the folder's name as a column
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=full.names):
                    yield batch.cast(full)

    return pa.RecordBatchReader.from_batches(full, batches())


def by_worker_and_key(frame: DataFrame, worker: str, workers: int, keys: list[str]) -> DataFrame:
    """Partition a frame by worker (`worker` is the SQL text of its number), one partition each, sorted by key."""
    return (
        frame.withColumn(WORKER_COLUMN, F.expr(worker).cast("int"))
        .repartitionById(workers, F.col(WORKER_COLUMN))
        .sortWithinPartitions(WORKER_COLUMN, *(F.col(key).asc_nulls_last() for key in keys))
    )
