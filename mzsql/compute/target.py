"""What a dataflow writes: a shard whose updates are definite, so that several writers may bring the same ones.

Promise: `append` and `adopt` add the updates of ``[lower, upper)`` that are not in the shard yet, and no others: whoever loses a
compare_and_append drops what lies below the winner's upper. Large results are written by Spark straight into the Blob and
adopted; nothing of them passes through the driver where the Blob has paths.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mzsql.location import SparkReadable, UsageError
from mzsql.persist import Batch, PersistClient, UpperMismatch, WriteHandle
from mzsql.persist.consolidate import consolidate
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Frontier, Timestamp, less_than

#: The column, and so the folder, that says whose rows a file of a keyed shard holds.
WORKER_COLUMN = "mz_worker"

#: A worker's file is laid out for so many rows where nobody knows better.
_UNKNOWN_ROWS = 1_000_000

#: Runs a write (the first argument); may meanwhile ask which workers' files are complete (the second).
Running = Callable[[Callable[[], None], Callable[[], frozenset[int]]], None]


class Overtaken(Exception):
    """Another writer moved the shard into the middle of what was written as one batch; the step must be run again."""


def with_time(schema: pa.Schema) -> pa.Schema:
    """A collection's columns, then mz_time and mz_diff."""
    return pa.schema([*schema, pa.field("mz_time", pa.int64()), pa.field("mz_diff", pa.int64())])


def at_or_after(updates: pa.Table, time: Timestamp) -> pa.Table:
    """The updates at or after a time."""
    return updates.filter(pc.greater_equal(updates.column("mz_time"), time))


class Target:
    """A shard to write to. Not for two threads at once."""

    #: how many workers write it; None: rows belong to no worker
    workers: int | None = None

    def __init__(
        self,
        persist: PersistClient,
        shard_id: str,
        schema: pa.Schema,
        writer: WriteHandle,
        timeout: float,
    ) -> None:
        self.persist = persist
        self.shard_id = shard_id
        self.schema = schema
        self.writer = writer
        self.timeout = timeout

    def upper(self) -> Frontier:
        """The shard's upper, from Consensus."""
        return self.writer.fetch_upper(timeout=self.timeout)

    def split(self, updates: pa.Table) -> pa.Table | Mapping[int, pa.Table] | None:
        """The updates as the writer takes them, consolidated; None for none."""
        updates = consolidate(updates)
        return updates if updates.num_rows else None

    def append(
        self, updates: pa.Table, lower: Timestamp, upper: Frontier, *, exact: bool = False
    ) -> Frontier:
        """Append updates of ``[lower, upper)`` that nobody has appended yet; the shard's upper then.

        Args:
            updates: columns, mz_time, mz_diff.
            lower: at or before the shard's upper.
            upper: where the shard will be at least.
            exact: raise Overtaken where the shard's upper is not `lower` (the updates mean something only from there on).
        """
        at: Frontier = self.writer.upper
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
        """Have Spark write a frame (columns, mz_time, mz_diff) and append it; the shard's upper then, and the rows.

        Args:
            frame: updates with times in ``[lower, upper)``.
            lower: the shard's upper when the frame was made.
            upper: where the shard will be.
            exact: raise Overtaken unless the shard's upper is `lower` when the batch is appended.
            running: runs the write.
            rows: about how many rows the frame has, where that is known: the files are laid out for it.

        Raises:
            Overtaken: another writer is somewhere between; nothing was appended.
        """
        batch = self._written(frame, lower, upper, running, rows)
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
                    batch = batch.with_bounds(lost.current, upper)
                else:
                    return upper, batch.rows
        except (Overtaken, UsageError) as error:
            self.writer.delete_batch(batch)
            raise Overtaken from error

    def arrange(self, frame: DataFrame) -> DataFrame:
        """The frame laid out as the shard wants its files; with a column `WORKER_COLUMN` where there are workers."""
        return frame

    def _written(
        self,
        frame: DataFrame,
        lower: Timestamp,
        upper: Timestamp,
        running: Running | None,
        rows: int | None,
    ) -> Batch:
        blob = self.persist.blob
        laid_out = self.arrange(frame)
        keyed = self.workers is not None

        def write(path: str) -> None:
            writer = laid_out.write.mode("append")
            if keyed:
                writer = writer.partitionBy(WORKER_COLUMN).options(**self._layout(rows))
            writer.parquet(path)

        def run(path: str, names: Callable[[], list[str]]) -> None:
            def complete() -> frozenset[int]:
                found = (_worker_in(name) for name in names() if _is_part(name))
                return frozenset(w for w in found if w is not None)

            if running is None:
                write(path)
            else:
                running(lambda: write(path), complete)

        if isinstance(blob, SparkReadable):
            prefix = self.writer.part_prefix()

            def keys() -> list[str]:
                return [key for key, _ in blob.list_keys_and_metadata(prefix)]

            try:
                run(blob.spark_path(prefix), keys)
                parts = sorted(key for key in keys() if _is_part(key))
                return self.writer.adopt_parts(
                    parts,
                    lower=lower,
                    upper=upper,
                    workers=[_worker_in(key) for key in parts] if keyed else None,
                )
            except BaseException:
                for key in keys():
                    blob.delete(key)
                raise
            finally:
                for key in keys():
                    if not _is_part(key):
                        blob.delete(key)
        with tempfile.TemporaryDirectory(prefix="mzsql-write-") as scratch:
            folder = Path(scratch)
            run(
                str(folder / "out"),
                lambda: [str(path.relative_to(folder)) for path in folder.rglob("*")],
            )
            return self._streamed(folder / "out", lower, upper)

    def _layout(self, rows: int | None) -> dict[str, str]:
        """Options of Spark's Parquet writer for files of which lookups read little: pages that Spark's scans skip by, row groups
        that the driver's reads skip by, as in the parts that persist writes.
        """
        settings = self.persist.settings
        a_worker = _UNKNOWN_ROWS if rows is None else rows // (self.workers or 1)
        return {
            "parquet.page.row.count.limit": str(settings.page_rows),
            "parquet.block.row.count.limit": str(settings.keyed_group_rows(a_worker)),
        }

    def _streamed(self, folder: Path, lower: Timestamp, upper: Timestamp) -> Batch:
        """A batch of files that Spark wrote on this machine, for a Blob that it cannot write to."""
        by_worker: dict[int, list[Path]] = {}
        for path in sorted(folder.rglob("*.parquet")):
            if _is_part(path.name):
                worker = _worker_in(str(path))
                by_worker.setdefault(worker if worker is not None else 0, []).append(path)
        readers = {worker: _read(paths, self.schema) for worker, paths in by_worker.items()}
        if self.workers is not None:
            return self.writer.batch_by_worker(readers, lower=lower, upper=upper)
        (reader,) = readers.values() or (_read([], self.schema),)
        return self.writer.batch(reader, lower=lower, upper=upper)


def _read(paths: list[Path], schema: pa.Schema) -> pa.RecordBatchReader:
    full = with_time(schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            # a file by itself, or Arrow would read the folder's name as a column
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=full.names):
                    yield batch.cast(full)

    return pa.RecordBatchReader.from_batches(full, batches())


def _is_part(name: str) -> bool:
    last = name.rsplit("/", 1)[-1]
    return (
        last.endswith(".parquet") and not last.startswith((".", "_")) and "_temporary" not in name
    )


def _worker_in(name: str) -> int | None:
    for part in name.split("/"):
        if part.startswith(f"{WORKER_COLUMN}="):
            number = part.removeprefix(f"{WORKER_COLUMN}=")
            if not number.isdigit():
                raise InternalError(f"a row of no worker was written to {name}")
            return int(number)
    return None


def by_worker_and_key(frame: DataFrame, worker: str, workers: int, keys: list[str]) -> DataFrame:
    """One partition a worker (`worker` is the SQL text of its number), each sorted by key."""
    return (
        frame.withColumn(WORKER_COLUMN, F.expr(worker).cast("int"))
        .repartitionById(workers, F.col(WORKER_COLUMN))
        .sortWithinPartitions(WORKER_COLUMN, *(F.col(key).asc_nulls_last() for key in keys))
    )
