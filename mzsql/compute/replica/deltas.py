"""What inputs bring to steps: read once for all the dataflows that take the same span, and only as far as it matters to each.

Promise: `Deltas.of` has exactly the updates of an input in ``[lower, upper)``, which are definite, so that whoever asks for the same gets
the same table. `Deltas.relevant` leaves out the updates of which a dataflow's statement makes nothing (`mzsql.render.relevant`); that is
asked for all installed dataflows over an input at once, by one statement, when the first of them asks. So a transaction that passes no
filter of a view costs that view next to nothing, and lookups have only the keys that matter.

Trade-off: the last `KEPT` deltas stay in memory, unless they are larger than `KEPT_BYTES`.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.relations import parts_frame
from mzsql.compute.protocols import ComputeSettings
from mzsql.compute.replica.inputs import Input
from mzsql.compute.replica.target import no_updates
from mzsql.persist import PartRef
from mzsql.render.dataflow import RenderedDataflow
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: So many deltas are kept for others who ask for the same,
KEPT = 32
#: none of which is larger.
KEPT_BYTES = 16 * 1024 * 1024
#: So many conditions are asked by one statement.
TOGETHER = 32

_Span: TypeAlias = tuple[GlobalId, pa.Schema, Timestamp, Timestamp]


@dataclass
class Delta:
    """The updates of one input in a step; `table` is None where they are too many for the driver."""

    source: Input
    rows: int
    bytes: int
    table: pa.Table | None
    parts: list[PartRef] = field(default_factory=list)
    #: of conditions that were asked already, which rows they are true of
    passed: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)


class Deltas:
    """The deltas of a replica's steps. Thread-safe.

    Args:
        driver: evaluates conditions.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Span, Delta] = OrderedDict()
        #: what each installed dataflow asks of its inputs
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
        """The updates of an input in ``[lower, upper)``, where `upper` is at most the input's."""
        span = source.spec.id, source.schema, lower, upper
        with self._lock:
            known = self._kept.get(span)
            if known is not None:
                self._kept.move_to_end(span)
                return known
        made = _read(source, lower, upper, session, settings)
        if made.table is not None and made.table.nbytes <= KEPT_BYTES:
            with self._lock:
                made = self._kept.setdefault(span, made)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return made

    def enroll(self, rendered: RenderedDataflow) -> None:
        """Have what a dataflow asks of its inputs asked with what others do, as long as it lives: from when its statements are there."""
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
        """The updates that may matter to a dataflow; None where there are too many for the driver."""
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
        if pc.all(passed, skip_nulls=False).as_py():
            return table
        return table.filter(passed)

    def _ask(self, gid: GlobalId, table: pa.Table, condition: str) -> dict[str, pa.ChunkedArray]:
        """Which rows a condition is true of, and others that will be asked."""
        with self._lock:
            known = {one[gid] for one in self._conditions.values() if gid in one}
        every = sorted(known | {condition})
        # In an order that stays, so that it is the same statement each time.
        first = every.index(condition) // TOGETHER * TOGETHER
        group = every[first : first + TOGETHER]
        items = ", ".join(f'coalesce({one}, false) AS "p{i}"' for i, one in enumerate(group))
        # DuckDB keeps no order where a table is in several pieces.
        places = np.arange(table.num_rows)
        found = self._driver.simple(
            f'SELECT {items}, "mz_place" FROM "delta"',
            {"delta": table.append_column("mz_place", pa.array(places))},
        )
        at = found.column("mz_place").to_numpy()
        if not np.array_equal(at, places):
            found = found.take(pa.array(np.argsort(at)))
        return {one: found.column(i) for i, one in enumerate(group)}


def _read(
    source: Input,
    lower: Timestamp,
    upper: Timestamp,
    session: Callable[[], SparkSession],
    settings: ComputeSettings,
) -> Delta:
    parts = list(source.parts_between(lower, upper))
    rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    if not parts:
        return Delta(source, 0, 0, no_updates(source.schema))
    if rows > settings.rows_here or size > settings.bytes_here:
        # Compaction may have put few updates of the step beside many older ones: count before calling it large.
        frame = parts_frame(session(), parts, source.schema, between=(lower, upper))
        count = int(frame.count())
        if count > settings.rows_here:
            return Delta(source, count, size, None, parts)
    table = source.updates(lower, upper)
    return Delta(source, table.num_rows, size, table)
