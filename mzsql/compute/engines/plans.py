"""Statements that are planned once and run over other tables each time.

Promise: `Plan.run` returns the statement's result over the tables it is given, as `Driver.run` does, for about a
quarter of the CPU time when rows are few: parsing, binding and planning are done when the plan is made. A plan is
for tables of the schemas it was made for (`fits`). Only one thread at a time runs it; `run` returns None to a second
one, which runs the text itself.

How: each relation is registered once, as an object that hands out whatever table it holds (the Arrow PyCapsule
interface), on a connection of the plan's own. Nothing is created or dropped between two runs, so DuckDB's catalog
does not change and the prepared statement stays valid. A parameter that occurs in two places would make DuckDB
silently plan anew, so `mzsql.render.rewrites.templates` gives each place a name of its own. DuckDB from 2.0.1 on plans anew
for every statement that reads a relation, which is why an earlier release is required.

Trade-off: a plan does not know how many rows will come, so joins run in the written order, which suits steps of few
rows. And it takes memory, some hundred bytes for each character of the text; `Plans` keeps the most recently used
ones.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from mzsql.persist import duck
from mzsql.render.rewrites.templates import Text
from mzsql.repr.interrupt import Interrupt

#: Most characters of text that are kept planned; that takes some 300 MB.
PLANNED_CHARACTERS = 1_500_000

#: A text that belongs to no dataflow, and the schemas of its relations.
Simple: TypeAlias = tuple[str, tuple[pa.Schema, ...]]

#: Passes of DuckDB's optimizer that order joins by size, which is unknown when a plan is made.
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
    """One planned statement.

    Args:
        connection: its own, closed with it.
        text: the statement.
        schemas: of each relation that it reads.
        parameters: names of its parameters.

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
        """Whether the tables have the names and schemas that it was planned for."""
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
            parameters: values by name.
            interrupt: may end it.

        Raises:
            duckdb.Error: running it failed.
            QueryCanceled: it was interrupted before it began.
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
                return duck.table_of(self._connection, call)
            with interrupt.on_interrupt(self._connection.interrupt):
                # An interrupt that came before the run began would not end it.
                interrupt.check()
                return duck.table_of(self._connection, call)
        finally:
            for slot in self._slots.values():
                slot.table = slot.empty
            self._running.release()

    def close(self) -> None:
        """Close its connection; nobody may be running it."""
        self._connection.close()


class Plans:
    """The plans of the texts that were run last. Thread-safe.

    Args:
        most: most characters of text that are kept planned.
    """

    def __init__(self, most: int = PLANNED_CHARACTERS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._clock = itertools.count()
        #: a step's plan is freed with its text, which is freed with its dataflow
        self._of_texts: weakref.WeakKeyDictionary[Text, Plan] = weakref.WeakKeyDictionary()
        self._of_simple: dict[Simple, Plan] = {}
        #: the time of each plan's last use, by a counter
        self._used: weakref.WeakKeyDictionary[Plan, int] = weakref.WeakKeyDictionary()

    def get(self, key: Text | Simple, tables: Mapping[str, pa.Table]) -> Plan | None:
        """The plan of a text for such tables; None if there is none."""
        with self._lock:
            plan = self._store(key).get(key)
            if plan is None or not plan.fits(tables):
                return None
            self._used[plan] = next(self._clock)
            return plan

    def has(self, key: Text | Simple) -> bool:
        """Whether there is a plan of a text."""
        with self._lock:
            return key in self._store(key)

    def keep(self, key: Text | Simple, plan: Plan) -> None:
        """Keep a plan, replacing the text's earlier one; the least recently used ones are dropped."""
        with self._lock:
            self._store(key)[key] = plan
            self._used[plan] = next(self._clock)
            self._trim()

    def drop(self, key: Text | Simple, plan: Plan) -> None:
        """Drop a plan if it still is the text's. Its connection is closed when the last thread that runs it is done."""
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
        # The last one stays however long it is, or it would be made again at each use.
        for _, key, plan in sorted(plans, key=lambda one: one[0])[:-1]:
            if size <= self._most:
                return
            size -= plan.size
            # A thread that runs it still holds it; the connection is closed when that is done.
            del self._store(key)[key]

    def __len__(self) -> int:
        with self._lock:
            return len(self._of_simple) + len(self._of_texts)

    def close(self) -> None:
        """Close all plans; none may be running."""
        with self._lock:
            for plan in (*self._of_simple.values(), *self._of_texts.values()):
                plan.close()
            self._of_simple.clear()
            self._of_texts.clear()
