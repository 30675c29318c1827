"""The inputs' updates in a step: read once for all dataflows with the same span, and reduced to what matters to each.

Promise: `Deltas.of` returns exactly the updates of an input in ``[lower, upper)``; these are definite, so all who
ask for a span share one table. `Deltas.relevant` leaves out updates that cannot affect a dataflow's statement
(`mzsql.render.rewrites.relevant`). Arrow evaluates comparisons itself (`compute.replica.step.conditions`); of the other
conditions of the installed dataflows over an input one statement evaluates many, when the first of them is asked for.
So a transaction that passes none of a view's filters costs that view next to nothing, and
lookups get only the keys that matter.

Trade-off: the last `KEPT` deltas stay in memory, except those larger than `KEPT_BYTES`.
docs/architecture.md, "The way of an update through a dataflow", step 2.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.engines.arrays.vectors import Mask
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.relations import parts_frame
from mzsql.compute.replica.dataflows.inputs import Input
from mzsql.compute.replica.step.conditions import evaluated, is_known
from mzsql.compute.replica.step.relation_facts import fact_of
from mzsql.compute.replica.target import no_updates
from mzsql.persist import PartRef
from mzsql.render.dataflow import RenderedDataflow
from mzsql.render.facts import Fact
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: How many deltas are kept for other dataflows that ask for the same span.
KEPT = 32
#: Larger deltas are not kept, in bytes.
KEPT_BYTES = 16 * 1024 * 1024
#: How many conditions one statement evaluates.
TOGETHER = 32

_Span: TypeAlias = tuple[GlobalId, pa.Schema, Timestamp, Timestamp]


@dataclass
class Delta:
    """The updates of one input in a step. `table` is None if they are too many for the driver."""

    source: Input
    rows: int
    bytes: int
    table: pa.Table | None
    parts: list[PartRef] = field(default_factory=list)
    #: results of conditions that were evaluated: for each row whether it is relevant
    passed: dict[str, Mask] = field(default_factory=dict)
    #: what is true of each row, by column, as far as it was asked for
    facts: dict[str, Fact] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def fact(self, column: str) -> Fact:
        """What is true of a column in each row, and so in those that matter to a dataflow; `table` is there. Measured once for
        all dataflows.
        """
        known = self.facts.get(column)
        if known is None:
            assert self.table is not None
            known = fact_of(self.table.schema.field(column), self.table.column(column))
            self.facts[column] = known
        return known


class Deltas:
    """The deltas of a replica's steps. Thread-safe.

    Args:
        driver: evaluates the conditions.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Span, Delta] = OrderedDict()
        #: the condition of each installed dataflow on each of its inputs
        self._conditions: weakref.WeakKeyDictionary[RenderedDataflow, dict[GlobalId, str]] = (
            weakref.WeakKeyDictionary()
        )

    def of(
        self,
        source: Input,
        lower: Timestamp,
        upper: Timestamp,
        session: Callable[[], SparkSession],
        settings: ComputeSettings,
    ) -> Delta:
        """The updates of an input in ``[lower, upper)``; `upper` is at most the input's upper."""
        span = source.spec.id, source.schema, lower, upper
        with self._lock:
            known = self._kept.get(span)
            if known is not None:
                self._kept.move_to_end(span)
                return known
        made = _read(source, lower, upper, session, settings)
        if made.table is not None and made.table.nbytes <= KEPT_BYTES:
            with self._lock:
                # Who read it first counts, so that dataflows that step at the same time share what is asked of it (`Delta.passed`).
                made = self._kept.setdefault(span, made)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return made

    def enroll(self, rendered: RenderedDataflow) -> None:
        """Register a dataflow's conditions, to be evaluated together with others', once its statements are rendered and
        as long as it lives.
        """
        if rendered.is_rendered:
            self._enroll(rendered)

    def _enroll(self, rendered: RenderedDataflow) -> None:
        by_name = rendered.relevance
        asked = {
            one.id: condition
            for one in rendered.inputs
            if (condition := by_name.get(f"delta_{one.id}")) is not None
        }
        with self._lock:
            self._conditions[rendered] = asked

    def relevant(self, delta: Delta, rendered: RenderedDataflow) -> pa.Table | None:
        """The updates that may matter to a dataflow; None if there are too many for the driver."""
        gid, table = delta.source.spec.id, delta.table
        if table is None or not table.num_rows:
            return table
        condition = rendered.relevance.get(f"delta_{gid}")
        if condition is None:
            return table
        if rendered not in self._conditions:
            self._enroll(rendered)
        with delta.turn:
            if condition not in delta.passed:
                delta.passed.update(self._ask(gid, table, condition))
            passed = delta.passed[condition]
        count = int(np.count_nonzero(passed))
        if count == table.num_rows:
            return table
        return table.filter(pa.array(passed)) if count else table.slice(0, 0)

    def prepare(self, source: Input, rendered: RenderedDataflow) -> None:
        """Plan the statement that evaluates a dataflow's condition on an input, with those of other dataflows so far.

        Raises:
            duckdb.Error: it cannot be planned; it will be run as written.
        """
        condition = rendered.relevance.get(f"delta_{source.spec.id}")
        if condition is None or is_known(condition):
            return
        self._enroll(rendered)
        delta = _placed(no_updates(source.schema))
        self._driver.plan_simple(
            _asking(self._group(source.spec.id, condition)), {"delta": delta.schema}
        )

    def _group(self, gid: GlobalId, condition: str) -> list[str]:
        """The conditions that are evaluated together with one, itself included."""
        with self._lock:
            asked = {one[gid] for one in self._conditions.values() if gid in one}
        known = {one for one in asked if not is_known(one)}
        every = sorted(known | {condition})
        # In a stable order, so that the statement is the same each time and its plan is reused.
        first = every.index(condition) // TOGETHER * TOGETHER
        return every[first : first + TOGETHER]

    def _ask(self, gid: GlobalId, table: pa.Table, condition: str) -> dict[str, Mask]:
        """Evaluate a condition, if DuckDB has to together with others of the same input that will be asked for."""
        passed = evaluated(condition, table)
        if passed is not None:
            return {condition: passed}
        group, placed = self._group(gid, condition), _placed(table)
        found = self._driver.simple(_asking(group), {"delta": placed})
        places = placed.column("mz_place").to_numpy()
        at = found.column("mz_place").to_numpy()
        if not np.array_equal(at, places):
            found = found.take(pa.array(np.argsort(at)))
        return {one: found.column(i).to_numpy() for i, one in enumerate(group)}


def _asking(group: Sequence[str]) -> str:
    items = ", ".join(f'coalesce({one}, false) AS "p{i}"' for i, one in enumerate(group))
    return f'SELECT {items}, "mz_place" FROM "delta"'


def _placed(table: pa.Table) -> pa.Table:
    """A delta whose rows carry their positions: DuckDB does not keep the order of a table in several chunks."""
    return table.append_column("mz_place", pa.array(np.arange(table.num_rows)))


def _read(
    source: Input,
    lower: Timestamp,
    upper: Timestamp,
    session: Callable[[], SparkSession],
    settings: ComputeSettings,
) -> Delta:
    small = source.small_updates(lower, upper, rows=settings.rows_here, size=settings.bytes_here)
    if small is not None:
        table, size = small
        return Delta(source, table.num_rows, size, table)
    parts = list(source.parts_between(lower, upper))
    rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    if rows > settings.rows_here or size > settings.bytes_here:
        # A compacted part may hold few updates of the step among many older ones, so its size proves nothing: count.
        frame = parts_frame(session(), parts, source.schema, between=(lower, upper))
        count = int(frame.count())
        if count > settings.rows_here:
            return Delta(source, count, size, None, parts)
    table = source.updates(lower, upper)
    return Delta(source, table.num_rows, size, table)
