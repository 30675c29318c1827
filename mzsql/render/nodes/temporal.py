"""Temporal filters (predicates on ``mz_now()``) in maintained dataflows: rows that appear and disappear by themselves.

Promise: at every time a filtered collection contains the rows that their bounds (`mzsql.expr.temporal`) allow. An
update whose row is not valid yet, or will become invalid, makes *events*: its appearance and its disappearance, each
at its own time. Events after the update's own time are kept in an arrangement by time, ``arr_<id>_t``, until a step
reaches them: at any time it contains exactly the events still to come, so it does not depend on how time is cut into
steps. A step reads only the events that are due in it. Rows whose evaluation fails are errors from the update on,
whatever their bounds.
Source: Materialize's documentation, "Temporal filters".
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.temporal import MfpPlan
from mzsql.render.statement import (
    DIFF,
    ERROR,
    TIME,
    Ast,
    big,
    col,
    named,
    no_error,
    select,
    union_all,
)
from mzsql.repr.frontier import MAX_TIMESTAMP
from mzsql.repr.types import BIGINT, ColumnType

#: Column: when an event happens.
AT = "mz_at"
#: Columns: the times from which and until which an update's row is valid.
FROM, UNTIL = "mz_from", "mz_until"


def event_columns(columns: Sequence[ColumnType]) -> tuple[ColumnType, ...]:
    """The columns of the arrangement of events: the time, then the row."""
    return (ColumnType(BIGINT, False), *columns)


def _row(arity: int, start: int = 0) -> list[Ast]:
    return [named(col(f"c{start + i}"), f"c{i}") if start else col(f"c{i}") for i in range(arity)]


def _bound(position: int, *, after: bool) -> Ast:
    return s.add(col(f"c{position}"), s.num(1)) if after else col(f"c{position}")


def intervals(
    plan: MfpPlan, relation: str, arity: int, engine: Engine, *, now: Ast, errors: bool
) -> exp.Select:
    """Each row with the times between which it is valid, if it ever is from ``now`` on.

    Args:
        plan: the bounds, which follow the row's columns in `relation`.
        relation: columns c0 …, mz_error if `errors`, then mz_time if `now` is that column, mz_diff.
        arity: number of columns of the row.
        engine: the engine that runs it.
        now: the time of the update, or of the contents.
        errors: whether there are error rows; they are valid from ``now`` on, without end.
    """
    lower = [_bound(arity + i, after=b.after) for i, b in enumerate(plan.lower)]
    first = arity + len(lower)
    upper = [_bound(first + i, after=b.after) for i, b in enumerate(plan.upper)]
    since: Ast = s.call("GREATEST", now, *lower) if lower else now
    until: Ast = big(MAX_TIMESTAMP, engine)
    if upper:
        until = s.call("LEAST", until, *upper)
    # GREATEST and LEAST ignore NULL, but a row with a NULL bound is never valid.
    there: list[Ast] = [s.is_not_null(col(f"c{arity + i}")) for i in range(len(lower) + len(upper))]
    there.append(s.lt(since, until))
    condition = s.and_(*there)
    if errors:
        condition = s.or_(s.is_not_null(col(ERROR)), condition)
    items = _row(arity)
    items += [col(ERROR)] if errors else []
    items += [named(s.big(since), FROM), named(s.big(until), UNTIL)]
    items += [col(TIME)] if isinstance(now, exp.Column) else []
    return select([*items, col(DIFF)], relation, where=[condition])


def events(
    relation: str, arity: int, engine: Engine, *, errors: bool, timed: bool, goes: bool
) -> exp.Expression:
    """The appearance and, if `goes`, the disappearance of each row of ``relation``, at mz_at.

    Nothing happens at the last possible time, which no step reaches.
    """
    meta: list[Ast] = [col(TIME)] if timed else []
    last = big(MAX_TIMESTAMP, engine)
    items = _row(arity)
    items += [col(ERROR)] if errors else []
    comes = select([*items, named(col(FROM), AT), *meta, col(DIFF)], relation)
    if not goes:
        return comes
    items = _row(arity)
    items += [named(no_error(engine), ERROR)] if errors else []
    where: list[Ast] = [s.lt(col(UNTIL), last)]
    where += [s.is_null(col(ERROR))] if errors else []
    turned = named(exp.Neg(this=col(DIFF)), DIFF)
    gone = select([*items, named(col(UNTIL), AT), *meta, turned], relation, where=where)
    return union_all([comes, gone])


def at_once(
    relation: str, state: str, arity: int, engine: Engine, *, errors: bool, bounds: tuple[Ast, Ast]
) -> exp.Expression:
    """A step's output: those events of its updates, and of the kept ones, that happen within ``bounds``, at their
    times.
    """
    lower, upper = bounds
    items = _row(arity)
    items += [col(ERROR)] if errors else []
    made = select([*items, named(col(AT), TIME), col(DIFF)], relation, where=[s.lt(col(AT), upper)])
    items = _row(arity, 1)
    items += [named(no_error(engine), ERROR)] if errors else []
    kept = select(
        [*items, named(col("c0"), TIME), col(DIFF)],
        state,
        where=[s.gte(col("c0"), lower), s.lt(col("c0"), upper)],
    )
    return union_all([made, kept])


def kept_events(
    relation: str, state: str, arity: int, *, errors: bool, bounds: tuple[Ast, Ast]
) -> exp.Expression:
    """The updates of the arrangement of events: an event after its update's time is inserted at that time, and every
    event is deleted at its own.
    """
    lower, upper = bounds
    ahead: list[Ast] = [s.gt(col(AT), col(TIME))]
    ahead += [s.is_null(col(ERROR))] if errors else []
    row: list[Ast] = [
        named(col(AT), "c0"),
        *(named(col(f"c{i}"), f"c{i + 1}") for i in range(arity)),
    ]
    turned = named(exp.Neg(this=col(DIFF)), DIFF)
    come = select([*row, col(TIME), col(DIFF)], relation, where=ahead)
    passed = select(
        [*(item.copy() for item in row), named(col(AT), TIME), turned],
        relation,
        where=[*(term.copy() for term in ahead), s.lt(col(AT), upper)],
    )
    whole: list[Ast] = [col(f"c{i}") for i in range(arity + 1)]
    due = select(
        [*whole, named(col("c0"), TIME), turned.copy()],
        state,
        where=[s.gte(col("c0"), lower), s.lt(col("c0"), upper)],
    )
    return union_all([come, passed, due])


def still_to_come(relation: str, arity: int, *, errors: bool, now: Ast) -> exp.Select:
    """The events after ``now``, as rows of the arrangement."""
    row: list[Ast] = [
        named(col(AT), "c0"),
        *(named(col(f"c{i}"), f"c{i + 1}") for i in range(arity)),
    ]
    where: list[Ast] = [s.gt(col(AT), now)]
    where += [s.is_null(col(ERROR))] if errors else []
    return select([*row, col(DIFF)], relation, where=where)
