"""Relations for the statements of one DuckDB connection: Arrow tables while they are small, tables of the database
beyond that.

Promise: a relation can be read under its name, on the connection, until it is dropped. The bytes held as Arrow are
bounded; what does not fit goes piece by piece into the database, which spills to disk. Trade-off: a table costs a
copy with statistics of each column, and is scanned no faster afterwards; so what is read once or twice is better
left as Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from mzsql.compute.replica.dataflows.transient import PIECE_BYTES, given


class DuckDbRelations:
    """The relations of one connection. For one thread.

    Args:
        connection: reads them.
        most_bytes: bound on all that are held as Arrow.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, most_bytes: int) -> None:
        self._connection = connection
        self._left = most_bytes
        #: bytes of each relation held as Arrow
        self._bytes: dict[str, int] = {}
        #: how many rows each relation has, while it is there
        self.rows: dict[str, int] = {}
        #: whether any relation was too large to stay Arrow and became a table of DuckDB's
        self.has_tables = False

    @contextmanager
    def keeping(self, name: str, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Yield a function that takes the batches of a relation. The relation can be read after the block. Batches may
        be given while a result of the connection is being read.
        """
        waiting: list[pa.RecordBatch] = []
        size, table = 0, False
        self.rows[name] = 0

        def write_out() -> None:
            nonlocal size, table
            begin = f'INSERT INTO "{name}"' if table else f'CREATE OR REPLACE TABLE "{name}" AS'
            rows = pa.Table.from_batches(waiting, schema)
            # A connection beside the one of which a result may be being read.
            with self._connection.cursor() as beside, given(beside, "given", rows):
                beside.execute(f"{begin} SELECT * FROM given")
            waiting.clear()
            size, table = 0, True
            self.has_tables = True

        def keep(batch: pa.RecordBatch) -> None:
            nonlocal size
            waiting.append(batch)
            self.rows[name] += batch.num_rows
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
        """Drop a relation that is held as Arrow; return False if there is none of this name, as it may be a table."""
        self.rows.pop(name, None)
        if name not in self._bytes:
            return False
        self._connection.unregister(name)
        self._left += self._bytes.pop(name)
        return True
