"""SQL over Arrow tables on the driver: the small evaluations around a step, in DuckDB, in process.

Promise: `query` runs a statement built as an AST over named Arrow tables and returns an Arrow table; nothing is read from or left in
any catalog, the thread that calls pays, and calls from several threads do not meet. Used for distinct keys, for cutting a batch by
worker, for peeks and steps that are too small for a Spark job.

Over few rows parsing and planning are all that a statement costs. So a step's text is parsed once, and over few rows it is run as it was
written, without the optimizer's passes and on one thread: its joins are written in the order in which rows are few.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
import weakref
from collections.abc import Mapping

import duckdb
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.expr.engines import (
    WIDE_SETTINGS,
    is_wide,
    locked_connection,
    to_sql,
)
from mzsql.expr.functions.table import Engine
from mzsql.render.templates import Text
from mzsql.repr.frontier import Timestamp

#: A step over at most so many rows is run as it was written.
SMALL_ROWS = 20_000
#: So many parsed texts are kept, beside those of steps.
SIMPLE_TEXTS = 1000

# The copy that this warns of is worth less than the second binding of the relation that it recommends.
warnings.filterwarnings(
    "ignore", message="Arrow output on a DB-API result", module=r"mzsql\.compute\.driver"
)


class Driver:
    """DuckDB connections, one of each kind for each calling thread that has use for it."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[duckdb.DuckDBPyConnection] = []
        self._simple: dict[str, duckdb.Statement] = {}
        #: what the texts of steps were parsed to
        self._parsed: weakref.WeakKeyDictionary[Text, duckdb.Statement] = (
            weakref.WeakKeyDictionary()
        )

    def query(self, statement: exp.Expression, relations: Mapping[str, pa.Table]) -> pa.Table:
        """The statement's result over the given relations."""
        return self.run(to_sql(statement, Engine.DUCKDB), relations)

    def run(self, text: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """As `query`, of a statement that is written already."""
        return self._run(self._connection("wide" if is_wide(text) else "usual"), text, relations)

    def simple(self, text: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """As `run`, of a statement that is asked for again and again and is best run as it is written: one relation, no joins."""
        if sum(table.num_rows for table in relations.values()) > SMALL_ROWS:
            return self.run(text, relations)
        connection = self._connection("small")
        with self._lock:
            parsed = self._simple.get(text)
            if parsed is None:
                while len(self._simple) >= SIMPLE_TEXTS:
                    self._simple.pop(next(iter(self._simple)))
                (parsed,) = connection.extract_statements(text)
                self._simple[text] = parsed
        return self._run(connection, parsed, relations)

    def step(
        self, text: Text, lower: Timestamp, upper: Timestamp, relations: Mapping[str, pa.Table]
    ) -> pa.Table:
        """A step's result. Its text is parsed once, which is half of what a step of few rows would cost else."""
        rows = sum(table.num_rows for table in relations.values())
        with_parameters = text.with_parameters
        if with_parameters is None:
            return self.run(text.at(lower, upper), relations)
        kind = "small" if rows <= SMALL_ROWS else "wide" if is_wide(with_parameters) else "usual"
        connection = self._connection(kind)
        parsed = self._parsed.get(text)
        if parsed is None:
            (parsed,) = connection.extract_statements(with_parameters)
            self._parsed[text] = parsed
        given = {
            name: value
            for name, value in text.parameters(lower, upper).items()
            if name in parsed.named_parameters
        }
        return self._run(connection, parsed, relations, given)

    def _run(
        self,
        connection: duckdb.DuckDBPyConnection,
        statement: str | duckdb.Statement,
        relations: Mapping[str, pa.Table],
        parameters: Mapping[str, int] | None = None,
    ) -> pa.Table:
        for name, table in relations.items():
            connection.register(name, table)
        try:
            # One binding: a relation object would be bound when it is made and again when it is asked for its rows.
            return connection.execute(statement, parameters).to_arrow_table()
        finally:
            for name in relations:
                connection.unregister(name)

    def _connection(self, kind: str) -> duckdb.DuckDBPyConnection:
        mine: duckdb.DuckDBPyConnection | None = getattr(self._local, kind, None)
        if mine is None:
            mine = locked_connection(settings=_settings(kind))
            setattr(self._local, kind, mine)
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


@functools.cache
def _settings(kind: str) -> Mapping[str, str]:
    if kind == "wide":
        return WIDE_SETTINGS
    if kind == "usual":
        return {}
    with contextlib.closing(locked_connection()) as connection:
        passes = connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()
    return {"threads": "1", "disabled_optimizers": ",".join(name for (name,) in passes)}
