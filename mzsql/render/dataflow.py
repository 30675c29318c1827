"""Rendering: a dataflow's physical plan to the statements that hydrate, maintain or answer it.

Promise: `render` is pure and runs nothing. What it returns names every relation that a statement reads (`mzsql.render.rendered` has
the table of them), so a runner needs no knowledge of plans: it provides the relations, runs the statements, and writes what comes
back. A step's result does not depend on how time was cut into steps, and no statement throws on a value: errors are rows.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import expressions as exp

from mzsql.expr.functions.table import Engine
from mzsql.expr.relation import RowSetFinishing
from mzsql.lir.plan import DataflowDescription
from mzsql.render.rendered import ArrangementSpec, HydrationStage, InputSpec, Lookup, Step
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType


class RenderedDataflow:
    """A dataflow, ready to be run.

    Attributes:
        inputs: what it reads: source imports, then index imports, in the description's order.
        arrangements: the state that it keeps, each after those it is filled from.
        lookups: one for each arrangement that a step reads (own arrangements and imported indexes), in an order in which one pass
            over them finds nearly all keys; repeat the pass until no new keys appear.
        output_columns: the columns c0 … of the export. For an index: the key's columns, then the thinned value.
        output_key_arity: how many leading output columns are the index's key; None unless the export is an index.
        lir_ids: every node's id, ascending.
    """

    desc: DataflowDescription
    inputs: tuple[InputSpec, ...]
    arrangements: tuple[ArrangementSpec, ...]
    lookups: tuple[Lookup, ...]
    output_columns: tuple[ColumnType, ...]
    output_key_arity: int | None
    lir_ids: tuple[int, ...]

    def hydration(self, engine: Engine) -> tuple[HydrationStage, ...]:
        """The stages that fill every arrangement and at last the export, in the order in which they must run."""
        raise AssertionError

    def step(self, engine: Engine, lower: Timestamp, upper: Timestamp) -> Step:
        """The statement that processes the inputs' updates with times in ``[lower, upper)``."""
        raise AssertionError

    def oneshot(self, engine: Engine) -> exp.Expression:
        """The contents at one time: result columns c0 …, mz_error, mz_diff, over the ``snap_…`` relations. Not consolidated."""
        raise AssertionError


def render(
    desc: DataflowDescription, *, errors_in: Callable[[GlobalId], bool] = lambda _: True
) -> RenderedDataflow:
    """Render a dataflow.

    Args:
        desc: the physical plan.
        errors_in: whether the relations of an input (by source id or index id) have a column mz_error.

    Raises:
        Unsupported: a plan that cannot be maintained yet, with a message that says what.
    """
    raise AssertionError


def finish(
    statement: exp.Expression,
    finishing: RowSetFinishing,
    columns: tuple[ColumnType, ...],
    engine: Engine,
) -> exp.Expression:
    """A one-shot query's ORDER BY, LIMIT, OFFSET and projection, multiplicities expanded.

    The result has columns c0 … of `finishing.project`, then mz_error, in the order asked for. An error row, where there is one,
    comes first and is never cut off by LIMIT: the reader fails with it.
    """
    raise AssertionError
