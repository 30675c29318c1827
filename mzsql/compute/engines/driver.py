"""SQL over Arrow tables on the driver, in DuckDB in this process: steps over few rows, and small evaluations around a
step.

Promise: `query` runs a statement, built as an AST, over named Arrow tables and returns an Arrow table. It reads and
leaves nothing in a catalog, runs on the calling thread, and calls from several threads do not affect each other.

Over few rows a statement costs mainly its parsing and planning. So a text that is run repeatedly is planned once
(`compute.engines.plans`); until then it is run as written, without the optimizer's passes. Both run on one thread
and join in the written order, which rendering has chosen for few rows.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import duckdb
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.compute.engines.arrays.program import Program, program_of
from mzsql.compute.engines.arrays.vectors import Unsupported
from mzsql.compute.engines.plans import BY_SIZE, Plan, Plans, Simple
from mzsql.expr.engines import (
    WIDE_SETTINGS,
    is_wide,
    locked_connection,
    to_sql,
)
from mzsql.expr.functions.table import Engine
from mzsql.persist import duck
from mzsql.render.rewrites.templates import LeanText, Text
from mzsql.repr.frontier import Timestamp
from mzsql.threads import plainly

#: Only the calling thread works: DuckDB takes the three it is told of for the caller's, and starts none. For up to two it
#: gives each GROUP BY a table of 2 MiB, and clearing that takes longer than grouping the rows of a step.
ALONE = {"threads": "3", "external_threads": "3"}
#: A step over at most this many rows runs as written, without the optimizer's passes.
SMALL_ROWS = 20_000
#: A larger step over at most this many rows runs by its kept plan.
PLANNED_ROWS = 250_000
#: A step over at most this many rows is computed with arrays, if its text is known there.
ARRAY_ROWS = 1_000
#: After how many runs of a text its plan is made.
PLAN_USES = 3
#: For how many simple texts the number of uses is kept.
SIMPLE_TEXTS = 1000


class Driver:
    """DuckDB connections: one of each kind for each calling thread, made when needed."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[duckdb.DuckDBPyConnection] = []
        self._plans = Plans()
        #: the databases on which plans are made, by kind
        self._planners: dict[str, duckdb.DuckDBPyConnection] = {}
        #: how often simple texts were run that have no plan yet
        self._simple: OrderedDict[Simple, int] = OrderedDict()
        #: how often steps' texts were run that have no plan yet; None while one is made, and after that has failed
        self._uses: weakref.WeakKeyDictionary[Text, int | None] = weakref.WeakKeyDictionary()
        #: prepared lean texts as programs over arrays; None: left to DuckDB
        self._programs: weakref.WeakKeyDictionary[Text, Program | None] = (
            weakref.WeakKeyDictionary()
        )

    def query(self, statement: exp.Expression, relations: Mapping[str, pa.Table]) -> pa.Table:
        """The statement's result over the given relations."""
        return self.run(to_sql(statement, Engine.DUCKDB), relations)

    def run(self, text: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """As `query`, for a statement given as text."""
        return self._run(self._connection("wide" if is_wide(text) else "usual"), text, relations)

    def simple(self, text: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """As `run`, for a statement over one relation, without joins, that is run again and again; it needs no
        optimizer.
        """
        rows = sum(table.num_rows for table in relations.values())
        if rows > PLANNED_ROWS:
            return self.run(text, relations)
        schemas = {name: table.schema for name, table in relations.items()}
        key: Simple = text, tuple(schemas.values())
        planned = self._planned(key, relations, None)
        if planned is not None:
            return planned
        with self._lock:
            uses = self._simple[key] = self._simple.get(key, 0) + 1
            self._simple.move_to_end(key)
            while len(self._simple) > SIMPLE_TEXTS:
                self._simple.popitem(last=False)
        if uses == PLAN_USES:
            self._plan(key, text, schemas)
        if rows > SMALL_ROWS:
            return self.run(text, relations)
        return self._run(self._connection("small"), text, relations)

    def step(
        self,
        text: Text,
        lower: Timestamp,
        upper: Timestamp,
        relations: Mapping[str, pa.Table],
        later: Callable[[Callable[[], None]], None],
    ) -> pa.Table:
        """The result of a step's statement.

        Args:
            text: the statement.
            lower: where the step begins.
            upper: where it ends.
            relations: the tables that the statement reads.
            later: runs the planning of the text, now or later.
        """
        with_parameters = text.with_parameters
        if with_parameters is None:
            return self.run(text.at(lower, upper), relations)
        parameters = text.parameters(lower, upper)
        kind = "wide" if is_wide(with_parameters) else "usual"
        rows = sum(table.num_rows for table in relations.values())
        if rows <= PLANNED_ROWS:
            planned = self._planned(text, relations, parameters)
            if planned is not None:
                return planned
            if self._is_due(text):
                schemas = {name: table.schema for name, table in relations.items()}
                later(functools.partial(self._plan, text, with_parameters, schemas, parameters))
        if rows <= SMALL_ROWS:
            kind = "small"
        return self._run(self._connection(kind), with_parameters, relations, parameters)

    def in_arrays(
        self,
        text: Text,
        lower: Timestamp,
        upper: Timestamp,
        relations: Mapping[str, pa.Table],
        outputs: Mapping[int, tuple[Sequence[str], pa.Schema]],
    ) -> dict[int, pa.Table] | None:
        """The result of a step's statement over few rows, computed without DuckDB.

        Args:
            text: the statement.
            lower: where the step begins.
            upper: where it ends.
            relations: the tables that the statement reads.
            outputs: by tag the columns that are wanted of its rows, and what they become.

        Returns:
            The rows by their tag, as far as there are any; None if DuckDB has to run it.
        """
        with self._lock:
            program = self._programs.get(text)
        if program is None or sum(one.num_rows for one in relations.values()) > ARRAY_ROWS:
            return None
        try:
            found = program.tagged(relations, text.parameters(lower, upper))
            return {tag: rows.table(*outputs[tag]) for tag, rows in found.items()}
        except Unsupported:
            return None

    def prepare(self, schemas: Mapping[str, pa.Schema], lean: LeanText) -> None:
        """Plan a step's text before it runs for the first time.

        Args:
            schemas: of each relation that the text may read.
            lean: the text, which will be run repeatedly.

        Raises:
            duckdb.Error: it cannot be planned; it will be run as written.
        """
        text = lean.text
        if text is None:
            return
        if text.with_parameters is not None:
            program = program_of(text.with_parameters)
            with self._lock:
                self._programs[text] = program
        self.plan(text, {name: schemas[name] for name in lean.reads})

    def plan(self, text: Text, schemas: Mapping[str, pa.Schema]) -> None:
        """Plan a step's text, unless it must be written anew for each step.

        Args:
            text: the text.
            schemas: of each relation that it reads.

        Raises:
            duckdb.Error: it cannot be planned; it will be run as written.
        """
        written = text.with_parameters
        if written is None:
            return
        with self._lock:
            self._uses[text] = None
        self._plan(text, written, schemas, text.parameters(0, 1))

    def plan_simple(self, text: str, schemas: Mapping[str, pa.Schema]) -> None:
        """Plan a statement that `simple` will be given, unless there is a plan of it.

        Raises:
            duckdb.Error: it cannot be planned; it will be run as written.
        """
        key: Simple = text, tuple(schemas.values())
        if not self._plans.has(key):
            self._plan(key, text, schemas)

    def is_planned(self, text: Text) -> bool:
        """Whether there is a plan of a step's text."""
        return self._plans.has(text)

    def _planned(
        self,
        key: Text | Simple,
        relations: Mapping[str, pa.Table],
        parameters: Mapping[str, int] | None,
    ) -> pa.Table | None:
        plan = self._plans.get(key, relations)
        if plan is None:
            return None
        try:
            return plan.run(relations, parameters)
        except duckdb.IOException:
            # As in `_run`. Another thread may be running a plan of the same database, which is closed with the last of
            # them.
            self._plans.drop(key, plan)
            written = key.with_parameters if isinstance(key, Text) else key[0]
            with self._lock:
                self._planners.pop(_planned_on(written or ""), None)
            raise

    def _is_due(self, text: Text) -> bool:
        """Count a use of a text; return whether it should be planned now."""
        with self._lock:
            uses = self._uses.get(text, 0)
            if uses is None:
                return False
            due = text.recurs or uses + 1 >= PLAN_USES
            self._uses[text] = None if due else uses + 1
            return due

    def _plan(
        self,
        key: Text | Simple,
        written: str,
        schemas: Mapping[str, pa.Schema],
        parameters: Iterable[str] = (),
    ) -> None:
        planner = self._planner(_planned_on(written))
        with self._lock:
            connection = planner.cursor()
        self._plans.keep(key, Plan(connection, written, schemas, frozenset(parameters)))
        with self._lock:
            if isinstance(key, Text):
                self._uses.pop(key, None)
            else:
                self._simple.pop(key, None)

    def _run(
        self,
        connection: duckdb.DuckDBPyConnection,
        statement: str,
        relations: Mapping[str, pa.Table],
        parameters: Mapping[str, int] | None = None,
    ) -> pa.Table:
        left = False
        for name, table in relations.items():
            connection.register(name, table)
        try:
            return duck.table_of(connection, statement, parameters)
        except duckdb.IOException:
            # The directory that it spills to may have been removed: the next attempt gets a new connection, which
            # spills elsewhere.
            left = True
            raise
        finally:
            # What stays registered stays in memory: a step's tables would live until the next step on this thread.
            for name in relations:
                connection.unregister(name)
            if left:
                self._leave(connection)

    def _connection(self, kind: str) -> duckdb.DuckDBPyConnection:
        # A connection runs one statement at a time, so each thread has its own.
        mine: duckdb.DuckDBPyConnection | None = getattr(self._local, kind, None)
        if mine is None:
            mine = locked_connection(settings=_settings(kind))
            setattr(self._local, kind, mine)
            with self._lock:
                self._all.append(mine)
        return mine

    def _leave(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Close a connection of this thread; a new one is made when it is needed."""
        for kind, mine in list(vars(self._local).items()):
            if mine is connection:
                delattr(self._local, kind)
        with self._lock:
            self._all = [one for one in self._all if one is not connection]
        connection.close()

    def _planner(self, kind: str) -> duckdb.DuckDBPyConnection:
        with self._lock:
            made = self._planners.get(kind)
            if made is None:
                # Its threads run every step, whoever opens it.
                made = plainly(lambda: locked_connection(settings=_settings(kind)))
                self._planners[kind] = made
            return made

    def close(self) -> None:
        """Close the connections of all threads; none may be in use."""
        self._plans.close()
        with self._lock:
            for connection in (*self._all, *self._planners.values()):
                connection.close()
            self._all.clear()
            self._planners.clear()
        self._local = threading.local()


def _planned_on(written: str) -> str:
    """The kind of database on which a statement is planned."""
    return "small" if is_wide(written) else "planned"


@functools.cache
def _settings(kind: str) -> Mapping[str, str]:
    if kind == "wide":
        return WIDE_SETTINGS
    if kind == "usual":
        return {}
    if kind == "planned":
        return {**ALONE, "disabled_optimizers": BY_SIZE}
    with contextlib.closing(locked_connection()) as connection:
        passes = connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()
    return {**ALONE, "disabled_optimizers": ",".join(name for (name,) in passes)}
