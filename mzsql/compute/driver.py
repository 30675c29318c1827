"""SQL over Arrow tables on the driver: the small evaluations around a step, in DuckDB, in process.

Promise: `query` runs a statement built as an AST over named Arrow tables and returns an Arrow table; nothing is read from or left in
any catalog, the thread that calls pays, and calls from several threads do not meet. Used for distinct keys, for cutting a batch by
worker, for peeks and steps that are too small for a Spark job.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping

import duckdb
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.expr.engines import WIDE_SETTINGS, is_wide, locked_connection, to_sql
from mzsql.expr.functions.table import Engine

# The copy that this warns of is worth less than the second binding of the relation that it recommends.
warnings.filterwarnings(
    "ignore", message="Arrow output on a DB-API result", module=r"mzsql\.compute\.driver"
)


class Driver:
    """DuckDB connections, one for each calling thread, and one more where it has wide statements."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[duckdb.DuckDBPyConnection] = []

    def query(self, statement: exp.Expression, relations: Mapping[str, pa.Table]) -> pa.Table:
        """The statement's result over the given relations."""
        return self.run(to_sql(statement, Engine.DUCKDB), relations)

    def run(self, text: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """As `query`, of a statement that is written already."""
        connection = self._connection(wide=is_wide(text))
        for name, table in relations.items():
            connection.register(name, table)
        try:
            # One binding: a relation object would be bound when it is made and again when it is asked for its rows.
            return connection.execute(text).to_arrow_table()
        finally:
            for name in relations:
                connection.unregister(name)

    def _connection(self, *, wide: bool) -> duckdb.DuckDBPyConnection:
        name = "wide" if wide else "usual"
        mine: duckdb.DuckDBPyConnection | None = getattr(self._local, name, None)
        if mine is None:
            mine = locked_connection(settings=WIDE_SETTINGS) if wide else locked_connection()
            setattr(self._local, name, mine)
            with self._lock:
                self._all.append(mine)
        return mine

    def close(self) -> None:
        """Close the connections of all threads; none may be in use."""
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()
        self._local = threading.local()
