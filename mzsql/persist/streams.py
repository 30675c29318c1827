"""Streams of updates, for what exceeds memory.

Promise: a stream holds about one of its pieces in memory; a consolidated one also about `MEMORY_BYTES`, with the
rest on disk until the stream ends or is dropped. Errors of the pieces come out of the reader unchanged.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from mzsql.persist import duck
from mzsql.persist.batch import KeySpec
from mzsql.persist.columns import conform
from mzsql.persist.consolidate import cast_sums, consolidation_sql, positional, renamed
from mzsql.repr.errors import DataError

MEMORY_BYTES = 256 * 1024 * 1024
_BATCH_ROWS = 1 << 16


def reader_of(schema: pa.Schema, pieces: Iterator[pa.Table]) -> pa.RecordBatchReader:
    """Return a reader of the pieces, each with ``schema``; a piece is made when it is asked for."""
    batches = (batch for piece in pieces for batch in piece.to_batches() if batch.num_rows)
    return pa.RecordBatchReader.from_batches(schema, batches)


def consolidated_pieces(
    schema: pa.Schema, pieces: Iterator[pa.Table], key: KeySpec | None
) -> Iterator[pa.Table]:
    """Yield all pieces consolidated, sorted by the key if there is one.

    DuckDB does it from a copy on disk: so no work of the pieces runs inside a query, and their errors stay as they
    are.

    Raises:
        DataError: the sums of diffs or of an additive column do not fit their type, or disk or memory do not
            suffice.
    """
    columns = positional(schema)
    name_of = dict(zip(schema.names, columns.names, strict=True))
    with _directory() as directory:
        path = Path(directory) / "updates.parquet"
        _copy(pieces, columns, path)
        additive = [] if key is None else [name_of[c] for c in key.additive if c in name_of]
        keyed = key is not None and set(key.columns) <= set(schema.names)
        order = [name_of[c] for c in key.columns] if key is not None and keyed else []
        file = "'" + str(path).replace("'", "''") + "'"
        sql = consolidation_sql(f"read_parquet({file})", columns.names, additive, order)
        settings: dict[str, duck.Setting] = {
            "temp_directory": directory,
            "memory_limit": f"{MEMORY_BYTES >> 20}MiB",
            "preserve_insertion_order": False,
        }
        with duck.opened(settings=settings) as connection, _failing_as_data_errors():
            for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
                summed = cast_sums(pa.Table.from_batches([batch]), columns)
                yield conform(summed.rename_columns(schema.names), schema)


@contextlib.contextmanager
def _failing_as_data_errors() -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as failure:
        raise DataError(f"the updates cannot be consolidated: {failure}") from failure


@contextlib.contextmanager
def _directory() -> Iterator[str]:
    with _failing_as_data_errors():
        directory = tempfile.TemporaryDirectory(
            prefix="mzsql-snapshot-", ignore_cleanup_errors=True
        )
    with directory as name:
        yield name


def _copy(pieces: Iterator[pa.Table], columns: pa.Schema, path: Path) -> None:
    """Write the pieces to a file; the pieces' own errors pass unchanged."""
    with _failing_as_data_errors():
        writer = pq.ParquetWriter(path, columns, compression="lz4")
    try:
        for piece in pieces:
            with _failing_as_data_errors():
                writer.write_table(renamed(piece, columns))
        with _failing_as_data_errors():
            writer.close()
    except BaseException:
        with contextlib.suppress(pa.ArrowException, OSError):  # another error is being raised
            writer.close()
        raise
