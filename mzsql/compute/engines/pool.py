"""DuckDB for small peeks: an in-memory database, one for wide statements, and one for kept plans.

Promise: a statement runs over Arrow tables, and its rows come piece by piece, as they are asked for. Queries run
side by side and never see each other's relations. A statement that is canceled or past its deadline ends DuckDB's
work. Trade-off: opening a database costs more than most queries, so the databases stay open, and idle connections
are kept for the next query. What is not small goes through `mzsql.compute.peek.files`.

A query over few rows costs mainly parsing and planning. `at_once` binds it only once, since its few rows need not come in pieces; of
long texts, with which tools query the catalog, it keeps the plan (`mzsql.compute.engines.plans`) for the next time.
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
from mzsql.compute.engines.pieces import PIECE_ROWS, pieces
from mzsql.compute.engines.plans import BY_SIZE, Plan, Plans, Simple
from mzsql.expr.engines import WIDE_SETTINGS, is_wide, locked_connection
from mzsql.persist import duck
from mzsql.repr.errors import InternalError
from mzsql.repr.interrupt import Interrupt, current
from mzsql.threads import plainly

#: Most idle connections that are kept.
_IDLE = 16
#: A long text's result with more rows comes in pieces, and …
AT_ONCE_ROWS = 8192
#: … a short one's, which is over at most so many rows: what is too much is thrown away, so it must not have cost much.
SHORT_ROWS = PIECE_ROWS
#: The length, in characters, from which on a text's plan is worth keeping.
LONG_TEXT = 8 * 1024
#: For how many texts it is remembered that they are not answered at once.
_REMEMBERED = 1024
#: Most characters of text that are kept planned; that takes some 150 MB.
_PLANNED_CHARACTERS = 750_000

#: What a database is for. They are separate because the optimizer's settings belong to a database.
Use: TypeAlias = Literal["usual", "wide", "planned"]
_SETTINGS: Mapping[Use, Mapping[str, str]] = {
    "usual": {},
    "wide": WIDE_SETTINGS,
    # As for steps: the sizes of relations are unknown when the plan is made, so it cannot order joins by them.
    "planned": {"threads": "1", "disabled_optimizers": BY_SIZE},
}


class DuckDbPool:
    """DuckDB databases and their connections. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._databases: dict[Use, duckdb.DuckDBPyConnection] = {}
        self._idle: dict[Use, list[duckdb.DuckDBPyConnection]] = {kind: [] for kind in _SETTINGS}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._plans = Plans(_PLANNED_CHARACTERS)
        #: hashes of long texts that have many rows or cannot be planned
        self._in_pieces: OrderedDict[int, None] = OrderedDict()
        self._closed = False

    def query(self, statement: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """As `pieces`, the whole result in one table."""
        return pa.concat_tables(self.pieces(statement, relations))

    def pieces(
        self,
        statement: str,
        relations: Mapping[str, pa.Table],
        loops: Sequence[recursion.LoopText] = (),
    ) -> Iterator[pa.Table]:
        """The statement's result over the given relations and the contents of the recursions `loops`: at least one
        piece.

        Raises:
            DataError: a recursion reached a limit that is an error.
            QueryCanceled: this thread's statement was canceled, or its deadline passed.
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
            # The directory that it spills to may have been removed: the next query gets a new database, which spills
            # elsewhere.
            self._leave(database, kind)
            raise
        finally:
            if whole:
                self._give_back(database, connection, kind)
            else:
                # A query that ended half way may have left relations or tables behind.
                connection.close()

    # --- at once ------------------------------------------------------------------------------

    def at_once(
        self, statement: str, relations: Mapping[str, pa.Table], limit: int | None
    ) -> pa.Table | None:
        """The whole result of a statement over few rows; None if it has more than `AT_ONCE_ROWS` rows (a short one:
        `SHORT_ROWS`) or had better come in pieces.

        Args:
            statement: the text. A LIMIT that is appended must cut its rows in their order.
            relations: what it reads.
            limit: its LIMIT, if it has one.

        Raises:
            QueryCanceled: this thread's statement was canceled, or its deadline passed.
        """
        if is_wide(statement) or not self._is_for_this(statement):
            return None
        is_long = len(statement) >= LONG_TEXT
        most = AT_ONCE_ROWS if is_long else SHORT_ROWS
        if not is_long and sum(one.num_rows for one in relations.values()) > most:
            return None
        if limit is not None and limit > most:
            return None
        text = statement if limit is not None else f"{statement} LIMIT {most + 1}"
        interrupt = current()
        interrupt.check()
        try:
            if is_long:
                rows = self._planned(text, relations).run(relations, interrupt=interrupt)
            else:
                rows = self._bound_once(text, relations, interrupt)
        except duckdb.Error:
            # An interrupted statement fails with an error of DuckDB's. Any other error will be raised when the statement
            # runs as written.
            interrupt.check()
            self._keep_off(statement)
            return None
        if rows is not None and rows.num_rows > most:
            self._keep_off(statement)
            return None
        return rows

    def _bound_once(
        self, text: str, relations: Mapping[str, pa.Table], interrupt: Interrupt
    ) -> pa.Table:
        """A statement's result in one table. A relation object, of which `pieces` reads, would be bound twice."""
        database, connection = self._take("usual")
        try:
            for name, table in relations.items():
                connection.register(name, table)
            with interrupt.on_interrupt(connection.interrupt):
                # An interrupt that came before the run began would not end it.
                interrupt.check()
                rows = duck.table_of(connection, text)
            for name in relations:
                connection.unregister(name)
        except BaseException:
            # It may have left relations behind.
            connection.close()
            raise
        self._give_back(database, connection, "usual")
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
        """The text's plan, made if there is none."""
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
        """A database of this kind, and a connection to it."""
        with self._lock:
            if self._closed:
                raise InternalError("the engine of small queries was closed")
            if kind not in self._databases:
                if self._scratch is None:
                    self._scratch = tempfile.TemporaryDirectory(
                        prefix="mzsql-queries-", ignore_cleanup_errors=True
                    )
                # A subdirectory, so that our own directory keeps its permissions: DuckDB would recreate a removed one
                # readable for everybody.
                spilled = {"temp_directory": str(Path(self._scratch.name) / "spilled")}
                settings = {**spilled, **_SETTINGS[kind]}
                self._databases[kind] = plainly(lambda: locked_connection(settings=settings))
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
        """Stop using a database; it is closed with the last query that runs on it."""
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
        """Close the databases; no query may be running. Idempotent."""
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
