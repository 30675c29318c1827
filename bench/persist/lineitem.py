"""TPC-H lineitem as rows of a shard, read whole or lazily."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mzsql.persist import DIFF_COLUMN, TIME_COLUMN


def schema(file: Path) -> pa.Schema:
    """The columns, text as `string`, no metadata."""
    found = pq.read_schema(file)
    return pa.schema(
        [
            pa.field(f.name, pa.string() if f.type == pa.string_view() else f.type, f.nullable)
            for f in found
        ]
    )


def load(file: Path) -> pa.Table:
    """All rows in memory, a chunk a column."""
    return pq.read_table(file).cast(schema(file)).combine_chunks()


def updates(rows: pa.Table, time: int) -> pa.Table:
    """Rows as insertions at one time."""
    for name, value in ((TIME_COLUMN, time), (DIFF_COLUMN, 1)):
        column = pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows)
        rows = rows.append_column(pa.field(name, pa.int64(), nullable=False), column)
    return rows


def reader(table: pa.Table) -> pa.RecordBatchReader:
    """A table as a stream of batches, without copying it."""
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1 << 16))


def lazily(file: Path, rows: int, time: int) -> pa.RecordBatchReader:
    """So many updates, from the file over and over, of which only a batch at a time is in memory."""
    wanted = schema(file)

    def batches() -> Iterator[pa.RecordBatch]:
        left = rows
        for _ in itertools.count():
            for batch in pq.ParquetFile(file).iter_batches(batch_size=1 << 16):
                piece = pa.Table.from_batches([batch.slice(0, left)]).cast(wanted)
                left -= piece.num_rows
                yield from updates(piece, time).to_batches()
                if left == 0:
                    return

    return pa.RecordBatchReader.from_batches(updates(wanted.empty_table(), time).schema, batches())
