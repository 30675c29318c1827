"""``df.write.format("mzsql").mode("append").save("public.orders")``: a DataFrame's rows appended to a table, in one commit.

Promise: all rows become visible at one time, or none, each as often as the DataFrame has it, however often Spark ran a task: a task only
makes a batch that nobody sees, and the driver commits what one attempt of each task has told it. Columns go by name; those that the
DataFrame lacks get their defaults; a value that does not fit fails the write with its column and its row within the task. A small task
sends its rows to the driver, a large one (`SENT_BYTES`) writes them where the table is and sends their names, so rows are written once
and memory is bounded by a part. Trade-off: what attempts that lost have written stays until it is found as leaked (`mzsql maintain`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mzsql.adapter.appender import as_table_rows, check_columns
from mzsql.adapter.session.commit_batches import Write
from mzsql.frontend.catalog import CatalogItem
from mzsql.persist import Batch
from mzsql.repr.errors import UndefinedTable, Unsupported
from mzsql.spark.opened import appending, in_one_sentence
from mzsql.spark.options import Target

#: A task sends its rows to the driver while they take no more than so many bytes.
SENT_BYTES = 256 * 1024


@dataclass
class Appended(WriterCommitMessage):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """What one attempt of one task has made: updates as an Arrow stream, or a batch as bytes; neither where it had no rows."""

    updates: bytes | None = None
    batch: bytes | None = None


class TableWriter(DataSourceArrowWriter):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Appends to one table. Made by the driver, which checks names and types; `write` runs in tasks, `commit` on the driver again.

    Raises:
        UndefinedTable, UndefinedColumn, DatatypeMismatch: there is no such table, or it does not take such columns.
        Unsupported: the mode is not ``append``.
    """

    def __init__(self, wanted: Target, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise Unsupported(
                "the data source mzsql appends only",
                hint='Write with mode("append"); DELETE FROM the table what is to go.',
            )
        wanted.refuse("a write", "as_of", "changes", "from", "to", "columns")
        self._target = wanted
        with appending(wanted.locations) as environment:
            self._item: CatalogItem = environment.table(wanted.relation)
        check_columns(self._item, to_arrow_schema(schema, timezone="UTC"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Appended:
        """One attempt of a task: its rows made ready, in nobody's sight."""
        with in_one_sentence():
            rows = as_table_rows(self._item, iterator)
            first: list[pa.Table] = []
            size = 0
            for updates in rows:
                if updates.num_rows:
                    first.append(updates)
                    size += updates.nbytes
                if size > SENT_BYTES:
                    return Appended(batch=self._ahead(first, rows))
            return Appended(updates=_sent(first)) if first else Appended()

    def _ahead(self, first: list[pa.Table], rest: Iterator[pa.Table]) -> bytes:
        def batches() -> Iterator[pa.RecordBatch]:
            for table in first:
                yield from table.to_batches()
            first.clear()
            for table in rest:
                yield from table.to_batches()

        reader = pa.RecordBatchReader.from_batches(first[0].schema, batches())
        with appending(self._target.locations) as environment:
            return environment.write_ahead(self._item.id, reader).to_bytes()

    def commit(self, messages: list[Appended | None]) -> None:
        """Commit what the tasks have made, at one time."""
        with in_one_sentence():
            writes: list[Write] = []
            for message in messages:
                if message is None:
                    continue
                if message.batch is not None:
                    writes.append(Batch.from_bytes(message.batch))
                if message.updates is not None:
                    with pa.ipc.open_stream(message.updates) as stream:
                        writes.append(stream.read_all())
            if not writes:
                return
            with appending(self._target.locations) as environment:
                try:
                    environment.commit(self._item.id, writes)
                except UndefinedTable:
                    raise UndefinedTable(
                        f'table "{self._item.name.item}" was dropped while it was written; nothing was written'
                    ) from None

    def abort(self, messages: list[Appended | None]) -> None:
        """Delete what tasks have made, where the job failed before anything was committed.

        Spark asks for this after a commit that failed, too, and the outcome of that may be open: then every task has a message, and what
        they made may be in the table. Nothing is deleted then.
        """
        if all(message is not None for message in messages):
            return
        with in_one_sentence(), appending(self._target.locations) as environment:
            for message in messages:
                if message is not None and message.batch is not None:
                    environment.discard(self._item.id, Batch.from_bytes(message.batch))


def _sent(tables: list[pa.Table]) -> bytes:
    whole = pa.concat_tables(tables)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as stream:
        stream.write_table(whole.combine_chunks())
    return bytes(sink.getvalue())
