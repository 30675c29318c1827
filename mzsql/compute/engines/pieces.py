"""A statement's rows out of DuckDB, a piece at a time.

Promise: what is asked for is made, and no more than DuckDB makes ahead by itself. A statement that is cancelled or late ends its work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from mzsql.compute.engines import recursion
from mzsql.repr.interrupt import Interrupt

#: Rows of a piece: its texts have to fit Arrow's arrays, 2 GiB for each column.
PIECE_ROWS = 2048


def pieces(
    connection: duckdb.DuckDBPyConnection,
    statement: str,
    loops: Sequence[recursion.LoopText],
    interrupt: Interrupt,
) -> Iterator[pa.Table]:
    """The statement's result over what the recursions ``loops`` come to: at least one piece.

    Raises:
        DataError: a recursion reached a limit that is an error.
        QueryCanceled: the statement was cancelled, or its time was over.
    """
    try:
        with interrupt.on_interrupt(connection.interrupt):
            recursion.run(connection, loops, interrupt.check)
            reader = connection.sql(statement).to_arrow_reader(PIECE_ROWS)
            first = pa.Table.from_batches(_next(reader), reader.schema)
        yield first
        while True:
            with interrupt.on_interrupt(connection.interrupt):
                batches = _next(reader)
            if not batches:
                return
            yield pa.Table.from_batches(batches, reader.schema)
    except GeneratorExit:
        raise
    except BaseException:
        # Interrupted work fails in DuckDB's words.
        interrupt.check()
        raise


def _next(reader: pa.RecordBatchReader) -> list[pa.RecordBatch]:
    """The next batch of a reader; nothing at its end."""
    try:
        return [reader.read_next_batch()]
    except StopIteration:
        return []
