"""Which steps are cut: those over several times whose text is not planned yet, into steps of one time each.

Promise: a step that is cut does the first of its times, by the text that every tick uses; what is left is the next step's. So a view that
falls behind for a moment, as others' steps came first, does not run a long text as written, which DuckDB takes a fifth of a second and more
to bind; that is planned meanwhile, and used from then on. Any cut of time is as right as any other.

Trade-off: a step of one time after the other costs more than one over all of them once that is planned, so only few times are taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from mzsql.compute.engines.driver import ARRAY_ROWS, Driver
from mzsql.compute.replica.dataflows.dataflow import Dataflow
from mzsql.compute.replica.step.texts import empty_relation
from mzsql.expr.functions.table import Engine
from mzsql.persist import TIME_COLUMN
from mzsql.persist.words import integers_of
from mzsql.render.rewrites.templates import StepTemplate
from mzsql.repr.frontier import Timestamp

#: A step over more times is not cut.
MOST_TIMES = 8


def first_time(
    dataflow: Dataflow,
    relevant: Mapping[str, pa.Table | None],
    driver: Driver,
    later: Callable[[Callable[[], None]], None],
) -> Timestamp | None:
    """The time that a step over updates of several times is cut after; None where it is not.

    Args:
        dataflow: the step's. Not a temporal one, whose rows come and go at times of their own.
        relevant: the updates that matter to it, by the relation's name; None where they are not on the driver.
        driver: plans the texts.
        later: runs the planning of the text over several times, now or later.
    """
    rendered = dataflow.rendered
    times = _times(relevant)
    if len(times) < 2 or rendered.temporal or rendered.recursions:
        return None
    whole = rendered.template(Engine.DUCKDB)
    if driver.is_planned(whole.text):
        return None
    if not driver.is_planned(rendered.template(Engine.DUCKDB, at_once=True).text):
        return None
    driver.plan_once(whole.text, later, partial(_schemas, dataflow, whole))
    return min(times)


def _times(relevant: Mapping[str, pa.Table | None]) -> frozenset[Timestamp]:
    """The updates' times; none if there are too many of them, or of updates."""
    times, rows = set[Timestamp](), 0
    for table in relevant.values():
        if table is None:
            return frozenset()
        rows += table.num_rows
        if rows > ARRAY_ROWS:
            return frozenset()
        if table.num_rows:
            times.update(np.unique(integers_of(table.column(TIME_COLUMN))).tolist())
        if len(times) > MOST_TIMES:
            return frozenset()
    return frozenset(times)


def _schemas(dataflow: Dataflow, template: StepTemplate) -> dict[str, pa.Schema] | None:
    """Of the relations that a step reads; None if its text is too long to be planned."""
    assert template.step is not None
    if template.is_long:
        return None
    return {name: empty_relation(dataflow, name).schema for name in template.step.reads}
