"""Statements that are planned once and run over other tables each time.

Promise: `Plan.run` gives what the statement means over the tables it is given, as `Driver.run` does, for about a quarter of the CPU where
rows are few: parsing, binding and planning are done when the plan is made. A plan is for tables of the schemas it was made for (`fits`);
only one thread at a time runs it (`run` gives None to a second one, which runs the text itself).

How: each relation is registered once, as an object that hands out whatever table it holds (the Arrow PyCapsule interface), on a connection
of the plan's own. Nothing is created or dropped between two runs, so DuckDB finds its catalog as it was and keeps the prepared statement.
It would plan anew without a word if a parameter stood in two places; `mzsql.render.templates` gives each place a name of its own. Releases
from 2.0.1 on do so for whatever reads a relation, which is why an earlier one is asked for.

Trade-off: a plan knows nothing of how many rows will come. Joins are run in the order in which they are written, which is the order for
steps of few rows. And it costs memory, some hundred bytes for each character of the text: `Plans` keeps the ones used last.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from mzsql.render.templates import Text
from mzsql.repr.interrupt import Interrupt

#: So many characters of text are kept planned: some 300 MB.
PLANNED_CHARACTERS = 1_500_000

#: A text that is not a dataflow's, over relations of these schemas.
Simple: TypeAlias = tuple[str, tuple[pa.Schema, ...]]

#: Passes of DuckDB's optimizer that order joins by sizes, which a plan for tables yet to come has none of.
BY_SIZE = "join_order,build_side_probe_side"


class _Slot:
    """A relation whose rows are others in each run."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.empty = schema.empty_table()
        self.table = self.empty

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class Plan:
    """One statement, planned.

    Args:
        connection: its own, closed with it.
        text: the statement.
        schemas: of each relation that it reads.
        parameters: the names of its parameters.

    Raises:
        duckdb.Error: it cannot be planned.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        text: str,
        schemas: Mapping[str, pa.Schema],
        parameters: frozenset[str] = frozenset(),
    ) -> None:
        self.size = len(text)
        self._connection = connection
        self._slots = {name: _Slot(schema) for name, schema in schemas.items()}
        self._parameters = parameters
        self._running = threading.Lock()
        try:
            for name, slot in self._slots.items():
                connection.register(name, slot)
            connection.execute(f"PREPARE planned AS {text}")
        except BaseException:
            connection.close()
            raise

    def fits(self, tables: Mapping[str, pa.Table]) -> bool:
        """Whether the tables are those that it was planned for, by name and schema."""
        return tables.keys() == self._slots.keys() and all(
            table.schema.equals(self._slots[name].schema) for name, table in tables.items()
        )

    def run(
        self,
        tables: Mapping[str, pa.Table],
        parameters: Mapping[str, int] | None = None,
        interrupt: Interrupt | None = None,
    ) -> pa.Table | None:
        """The result over tables that fit; None while another thread runs it.

        Args:
            tables: the relations' rows.
            parameters: values by their names.
            interrupt: what may end it.

        Raises:
            duckdb.Error: what running it raises.
            QueryCanceled: it was over before it began.
        """
        given = [
            f"{name} := {value:d}"
            for name, value in (parameters or {}).items()
            if name in self._parameters
        ]
        if not self._running.acquire(blocking=False):
            return None
        try:
            for name, table in tables.items():
                self._slots[name].table = table
            call = f"EXECUTE planned({', '.join(given)})" if given else "EXECUTE planned"
            if interrupt is None:
                return self._connection.execute(call).to_arrow_table()
            with interrupt.on_interrupt(self._connection.interrupt):
                # What fell due before the run begins would not end it.
                interrupt.check()
                return self._connection.execute(call).to_arrow_table()
        finally:
            for slot in self._slots.values():
                slot.table = slot.empty
            self._running.release()

    def close(self) -> None:
        """Let go of it; nobody may be running it."""
        self._connection.close()


class Plans:
    """The plans of the texts that were run last. Thread-safe.

    Args:
        most: so many characters of text are kept planned.
    """

    def __init__(self, most: int = PLANNED_CHARACTERS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._clock = itertools.count()
        #: a step's plan goes with its text, which goes with its dataflow
        self._of_texts: weakref.WeakKeyDictionary[Text, Plan] = weakref.WeakKeyDictionary()
        self._of_simple: dict[Simple, Plan] = {}
        #: when each was used last
        self._used: weakref.WeakKeyDictionary[Plan, int] = weakref.WeakKeyDictionary()

    def get(self, key: Text | Simple, tables: Mapping[str, pa.Table]) -> Plan | None:
        """The plan of a text for such tables, if there is one."""
        with self._lock:
            plan = self._store(key).get(key)
            if plan is None or not plan.fits(tables):
                return None
            self._used[plan] = next(self._clock)
            return plan

    def keep(self, key: Text | Simple, plan: Plan) -> None:
        """Keep a plan, instead of the text's earlier one; those used longest ago go."""
        with self._lock:
            self._store(key)[key] = plan
            self._used[plan] = next(self._clock)
            self._trim()

    def drop(self, key: Text | Simple, plan: Plan) -> None:
        """Keep a plan no more, if it still is the text's; its connection is closed with the last who runs it."""
        with self._lock:
            store = self._store(key)
            if store.get(key) is plan:
                del store[key]

    def _store(self, key: Text | Simple) -> MutableMapping[Any, Plan]:
        return self._of_texts if isinstance(key, Text) else self._of_simple

    def _trim(self) -> None:
        plans: list[tuple[int, Text | Simple, Plan]] = [
            (self._used[plan], key, plan)
            for store in (self._of_simple, self._of_texts)
            for key, plan in store.items()
        ]
        size = sum(plan.size for _, _, plan in plans)
        # The last one stays, however long it is: it would be made again at each use.
        for _, key, plan in sorted(plans, key=lambda one: one[0])[:-1]:
            if size <= self._most:
                return
            size -= plan.size
            # Who runs it still holds it; its connection is closed with the last who does.
            del self._store(key)[key]

    def __len__(self) -> int:
        with self._lock:
            return len(self._of_simple) + len(self._of_texts)

    def close(self) -> None:
        """Let go of all; none may be running."""
        with self._lock:
            for plan in (*self._of_simple.values(), *self._of_texts.values()):
                plan.close()
            self._of_simple.clear()
            self._of_texts.clear()
