"""Relations that the statements of one DuckDB read: as Arrow has them while they are small, tables of the database beyond that.

Promise: what was kept under a name can be read by it until it is dropped, on the connection; all that is held as Arrow is bounded. What
does not fit goes to the database in pieces, which goes to disk beyond its memory. Trade-off: a table costs a copy, with statistics of each
column, and is then found as fast; so what is read once or twice is better left where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from mzsql.compute.replica.transient import PIECE_BYTES, given


class Held:
    """The relations of one connection. For one thread.

    Args:
        connection: reads them.
        most_bytes: of all that are held as Arrow.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, most_bytes: int) -> None:
        self._connection = connection
        self._left = most_bytes
        #: the bytes of each that is held
        self._bytes: dict[str, int] = {}

    @contextmanager
    def keeping(self, name: str, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Take the batches of a relation, which may be read after the block, also while a result of the connection is being read."""
        waiting: list[pa.RecordBatch] = []
        size, table = 0, False
        with self._connection.cursor() as beside:

            def write_out() -> None:
                nonlocal size, table
                begin = f'INSERT INTO "{name}"' if table else f'CREATE OR REPLACE TABLE "{name}" AS'
                with given(beside, "given", pa.Table.from_batches(waiting, schema)):
                    beside.execute(f"{begin} SELECT * FROM given")
                waiting.clear()
                size, table = 0, True

            def keep(batch: pa.RecordBatch) -> None:
                nonlocal size
                waiting.append(batch)
                size += batch.nbytes
                if size > (PIECE_BYTES if table else self._left):
                    write_out()

            yield keep
            if table:
                if waiting:
                    write_out()
                return
        self._connection.register(name, pa.Table.from_batches(waiting, schema))
        self._bytes[name] = size
        self._left -= size

    def drop(self, name: str) -> bool:
        """Let go of what is held under a name; False where nothing is, as it is a table."""
        if name not in self._bytes:
            return False
        self._connection.unregister(name)
        self._left += self._bytes.pop(name)
        return True
