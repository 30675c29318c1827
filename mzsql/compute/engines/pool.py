"""DuckDB for small peeks: a database in memory, one for wide statements, and one for statements that are planned once.

Promise: a statement runs over Arrow tables, and its rows come a piece at a time, as they are asked for; queries run side by side and see
each other's relations never. A statement that is cancelled or late ends DuckDB's work. The trade-off: opening a database costs more
than most queries, so the one in memory stays open, and idle connections to it are kept for the next query. What is not small is
`mzsql.compute.peek.files`'s.

What tools ask of the catalog are long texts over few rows: reading and planning them is most of what they cost. `at_once` binds such a
text once and not twice, as its few rows need not come in pieces, and keeps its plan (`mzsql.compute.engines.plans`) for the next time.
"""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import duckdb
import pyarrow as pa

from mzsql.compute.engines import recursion
from mzsql.compute.engines.pieces import pieces
from mzsql.compute.engines.plans import BY_SIZE, Plan, Plans, Simple
from mzsql.expr.engines import WIDE_SETTINGS, is_wide, locked_connection
from mzsql.repr.errors import InternalError
from mzsql.repr.interrupt import current

#: So many idle connections are kept.
_IDLE = 16
#: A result of more rows comes in pieces.
AT_ONCE_ROWS = 8192
#: A text of so many characters is worth a plan that is kept.
LONG_TEXT = 8 * 1024
#: Of so many texts it is known that they are not answered at once.
_REMEMBERED = 1024
#: So many characters of texts are kept planned: some 100 MB.
_PLANNED_CHARACTERS = 500_000

#: What a database is for: an optimizer's settings are those of a database.
Use: TypeAlias = Literal["usual", "wide", "planned"]
_SETTINGS: Mapping[Use, Mapping[str, str]] = {
    "usual": {},
    "wide": WIDE_SETTINGS,
    # As for steps: of relations whose rows are yet to come it knows no sizes to order joins by.
    "planned": {"threads": "1", "disabled_optimizers": BY_SIZE},
}


class DuckDbPool:
    """DuckDB's databases and their connections. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._databases: dict[Use, duckdb.DuckDBPyConnection] = {}
        self._idle: dict[Use, list[duckdb.DuckDBPyConnection]] = {kind: [] for kind in _SETTINGS}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._plans = Plans(_PLANNED_CHARACTERS)
        #: the hashes of long texts that have many rows, or cannot be planned
        self._in_pieces: OrderedDict[int, None] = OrderedDict()
        self._closed = False

    def query(self, statement: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """As `pieces`, the whole result."""
        return pa.concat_tables(self.pieces(statement, relations))

    def pieces(
        self,
        statement: str,
        relations: Mapping[str, pa.Table],
        loops: Sequence[recursion.LoopText] = (),
    ) -> Iterator[pa.Table]:
        """The statement's result over the given relations, and over what the recursions `loops` come to: at least one piece.

        Raises:
            DataError: a recursion reached a limit that is an error.
            QueryCanceled: the statement that this thread runs was cancelled, or its time was over.
        """
        interrupt = current()
        interrupt.check()
        kind: Use = "wide" if is_wide(statement) else "usual"
        database, connection = self._take(kind)
        whole = False
        try:
            for name, table in relations.items():
                connection.register(name, table)
            yield from pieces(connection, statement, loops, interrupt)
            for name in relations:
                connection.unregister(name)
            for name in recursion.tables(loops):
                connection.execute(f'DROP TABLE IF EXISTS "{name}"')
            whole = True
        except duckdb.IOException:
            # Where it spills to may have been removed: the next query is to have a database that spills elsewhere.
            self._leave(database, kind)
            raise
        finally:
            if whole:
                self._give_back(database, connection, kind)
            else:
                # What ended half way may have left something behind.
                connection.close()

    # --- at once ------------------------------------------------------------------------------

    def at_once(
        self, statement: str, relations: Mapping[str, pa.Table], limit: int | None
    ) -> pa.Table | None:
        """The whole result of a long statement over few rows; None where that is more than `AT_ONCE_ROWS`, or it is better taken in pieces.

        Args:
            statement: the text, in an order of its rows that its LIMIT, or one that is added, cuts.
            relations: what it reads.
            limit: its LIMIT, if it has one.

        Raises:
            QueryCanceled: the statement that this thread runs was cancelled, or its time was over.
        """
        if len(statement) < LONG_TEXT or is_wide(statement) or not self._is_for_this(statement):
            return None
        if limit is not None and limit > AT_ONCE_ROWS:
            return None
        text = statement if limit is not None else f"{statement} LIMIT {AT_ONCE_ROWS + 1}"
        interrupt = current()
        interrupt.check()
        try:
            rows = self._planned(text, relations).run(relations, interrupt=interrupt)
        except duckdb.Error:
            # Interrupted work fails in DuckDB's words. What else is the matter it says itself, run as it is written.
            interrupt.check()
            self._keep_off(statement)
            return None
        if rows is not None and rows.num_rows > AT_ONCE_ROWS:
            self._keep_off(statement)
            return None
        return rows

    def _is_for_this(self, statement: str) -> bool:
        with self._lock:
            return hash(statement) not in self._in_pieces

    def _keep_off(self, statement: str) -> None:
        """Have a statement's rows come in pieces from now on."""
        with self._lock:
            self._in_pieces[hash(statement)] = None
            if len(self._in_pieces) > _REMEMBERED:
                self._in_pieces.popitem(last=False)

    def _planned(self, text: str, relations: Mapping[str, pa.Table]) -> Plan:
        """A text's plan, made where there is none."""
        schemas = {name: one.schema for name, one in relations.items()}
        key: Simple = text, tuple(schemas.values())
        plan = self._plans.get(key, relations)
        if plan is None:
            _, connection = self._take("planned")
            plan = Plan(connection, text, schemas)
            self._plans.keep(key, plan)
        return plan

    # --- databases ----------------------------------------------------------------------------

    def _take(self, kind: Use) -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
        """A database, and a connection to it."""
        with self._lock:
            if self._closed:
                raise InternalError("the engine of small queries was closed")
            if kind not in self._databases:
                if self._scratch is None:
                    self._scratch = tempfile.TemporaryDirectory(
                        prefix="mzsql-queries-", ignore_cleanup_errors=True
                    )
                # Below the directory, which is nobody else's: one that was removed DuckDB would make anew for everybody to look into.
                spilled = {"temp_directory": str(Path(self._scratch.name) / "spilled")}
                self._databases[kind] = locked_connection(settings={**spilled, **_SETTINGS[kind]})
            database, idle = self._databases[kind], self._idle[kind]
            return database, idle.pop() if idle else database.cursor()

    def _give_back(
        self,
        database: duckdb.DuckDBPyConnection,
        connection: duckdb.DuckDBPyConnection,
        kind: Use,
    ) -> None:
        with self._lock:
            here = self._databases.get(kind) is database
            if not self._closed and here and len(self._idle[kind]) < _IDLE:
                self._idle[kind].append(connection)
                return
        connection.close()

    def _leave(self, database: duckdb.DuckDBPyConnection, kind: Use) -> None:
        """Use a database no more; it goes with the last query that runs on it."""
        with self._lock:
            if self._databases.get(kind) is not database:
                return
            del self._databases[kind]
            gone, self._idle[kind] = [database, *self._idle[kind]], []
            if self._scratch is not None and not Path(self._scratch.name).is_dir():
                self._scratch = None
        for one in gone:
            one.close()

    def close(self) -> None:
        """Close the database; no query runs any more. Idempotent."""
        with self._lock:
            self._closed = True
            open_now = [one for idle in self._idle.values() for one in idle]
            open_now += self._databases.values()
            self._idle = {kind: [] for kind in _SETTINGS}
            self._databases = {}
            scratch, self._scratch = self._scratch, None
        self._plans.close()
        for connection in open_now:
            connection.close()
        if scratch is not None:
            scratch.cleanup()
