"""A statement's rows from DuckDB, piece by piece.

Promise: only what is asked for is computed, except what DuckDB computes ahead by itself. A statement that is
canceled or past its deadline ends its work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from mzsql.compute.engines import recursion
from mzsql.repr.interrupt import Interrupt

#: Rows of a piece: few enough for its texts to fit an Arrow array, which holds 2 GiB of a column.
PIECE_ROWS = 2048


def pieces(
    connection: duckdb.DuckDBPyConnection,
    statement: str,
    loops: Sequence[recursion.LoopText],
    interrupt: Interrupt,
) -> Iterator[pa.Table]:
    """The statement's result, over the contents of the recursions ``loops``: at least one piece.

    Raises:
        DataError: a recursion reached a limit that is an error.
        QueryCanceled: the statement was canceled, or its deadline passed.
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
        # An interrupted statement fails with an error of DuckDB's; raise the reason of the interrupt instead.
        interrupt.check()
        raise


def _next(reader: pa.RecordBatchReader) -> list[pa.RecordBatch]:
    """The next batch of a reader, in a list; empty at its end."""
    try:
        return [reader.read_next_batch()]
    except StopIteration:
        return []
