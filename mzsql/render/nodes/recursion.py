"""WITH MUTUALLY RECURSIVE: what a runner repeats until nothing changes, at one time or at each time of a step.

Promise: bindings begin empty and are computed in order, each from the newest contents of those before it and the
previous contents of the others, until a round changes none of them, as Materialize does. An error row counts once
however often it occurs, so that errors reach a fixpoint too.

Trade-off: every round computes its bindings from full contents; only the contents are carried over to the next
round.
Source: Materialize's documentation, "Recursive CTEs".
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.nodes import relations_in
from mzsql.render.statement import (
    DIFF,
    ERROR,
    Ast,
    big,
    col,
    named,
    no_error,
    null_of,
    select,
    subquery,
)
from mzsql.render.updates import remaining, summed
from mzsql.repr.types import ColumnType


@dataclass(frozen=True)
class Binding:
    """One binding.

    Attributes:
        relation: its contents as statements read them: c0 …, mz_error, mz_diff.
        empty: a query without rows, of its types, for the beginning.
        loops: recursions inside it, to be run before `statement` in every round.
        statement: its contents, consolidated.
    """

    relation: str
    empty: exp.Expression
    loops: tuple[Loop, ...]
    statement: exp.Expression


@dataclass(frozen=True)
class Loop:
    """A recursion; `limit` is (rounds, whether to return the state after them instead of failing)."""

    bindings: tuple[Binding, ...]
    limit: tuple[int, bool] | None


@dataclass(frozen=True)
class Recursion:
    """A recursive node of a dataflow, which a runner computes anew at each time at which its inputs change.

    Attributes:
        relation: its name in statements: c0 …, mz_error, mz_diff; in a step its changes, with mz_time.
        lir_id: the node.
        columns: types of c0 ….
        loops: to be run first.
        statement: its contents after that, consolidated, for DuckDB.
        inputs: the ``snap_…`` relations that it reads.
    """

    relation: str
    lir_id: int
    columns: tuple[ColumnType, ...]
    loops: tuple[Loop, ...]
    statement: exp.Expression
    inputs: tuple[str, ...]


def relations_of(loops: tuple[Loop, ...], statement: exp.Expression) -> frozenset[str]:
    """The names of all relations, including intermediate ones, that recursions and the statement above them read."""
    found = set(relations_in(statement))
    for loop in loops:
        for one in loop.bindings:
            found |= relations_of(one.loops, one.statement)
    return frozenset(found)


def counted(statement: exp.Expression, arity: int, engine: Engine) -> exp.Expression:
    """A statement of c0 …, mz_error, mz_diff with equal rows added up; an error row counts once."""
    row: list[Ast] = [*(col(f"c{i}") for i in range(arity)), col(ERROR)]
    body = statement.copy()
    with_ = body.args.get("with_")
    body.set("with_", None)
    times = s.case((s.is_null(col(ERROR)), summed()), otherwise=big(1, engine))
    made = select(
        [*row, named(s.big(times), DIFF)],
        subquery(body, "q"),
        group=row,
        having=remaining(),
    )
    if with_ is not None:
        made.set("with_", with_)
    return made


def nothing(columns: tuple[ColumnType, ...], engine: Engine) -> exp.Expression:
    """A query without rows, of these columns."""
    items: list[Ast] = [named(null_of(t, engine), f"c{i}") for i, t in enumerate(columns)]
    items += [named(no_error(engine), ERROR), named(big(0, engine), DIFF)]
    return exp.Select(expressions=items, where=exp.Where(this=s.boolean(value=False)))


def strictest(limits: tuple[tuple[int, bool] | None, ...]) -> tuple[int, bool] | None:
    """The limit with the fewest rounds; None if there is none."""
    return min((limit for limit in limits if limit is not None), default=None)
