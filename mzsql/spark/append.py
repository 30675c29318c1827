"""``df.write.format("mzsql").mode("append").save("public.orders")``: a DataFrame's rows appended to a table in one
commit.

Promise: all rows become visible at one timestamp, or none, each as often as the DataFrame has it, however often Spark
runs a task: a task only makes an invisible batch, and the driver commits what one attempt of each task returned.
Columns are matched by name; missing ones get their defaults; a value that does not fit fails the write with its column
and its row within the task. A small task sends its rows to the driver; a large one (`SENT_BYTES`) writes them as parts
of the table and sends their names, so rows are written once and memory is bounded by a part. The trade-off: batches of
attempts that Spark discards stay until they are found as leaked (`mzsql maintain`).
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

#: A task sends its rows to the driver up to so many bytes.
SENT_BYTES = 256 * 1024


@dataclass
class Appended(WriterCommitMessage):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """The result of one attempt of a task: updates as an Arrow stream, or an encoded batch; neither where it had no
    rows.
    """

    updates: bytes | None = None
    batch: bytes | None = None


class TableWriter(DataSourceArrowWriter):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Appends to one table. Created on the driver, where names and types are checked; `write` runs in tasks, `commit`
    on the driver.

    Raises:
        UndefinedTable, UndefinedColumn, DatatypeMismatch: there is no such table, or it does not accept such columns.
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
        """Run one attempt of a task: make its rows into an invisible batch."""
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
        """Commit the tasks' batches at one timestamp.

        Raises:
            UndefinedTable: the table was dropped while it was written; nothing was written.
        """
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
        """Delete the tasks' batches where the job failed before the commit.

        Spark also calls this after a failed commit, whose outcome may be unknown: every task has a message then, and
        its batch may be in the table, so nothing is deleted.
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
