"""Which rows of a group are its first.

Promise: multiplicities count: a row with multiplicity three takes three places. Ties are broken by the whole row,
ascending, NULLs last.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr import spell
from mzsql.expr.functions import sql as s
from mzsql.expr.scalar import Literal, Scalar
from mzsql.lir import plan as lir
from mzsql.render.nodes.renderer import Renderer
from mzsql.render.statement import (
    DIFF,
    ERROR,
    TIME,
    Ast,
    big,
    col,
    columns_of,
    named,
    ordered,
    select,
    subquery,
    window,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.types import ColumnType

_NEGATIVE = "Evaluation error: LIMIT must not be negative"


def places(
    r: Renderer,
    plan: lir.TopKPlan,
    relation: str,
    columns: tuple[ColumnType, ...],
    by: list[str],
) -> exp.Select:
    """For each group (and each value of `by`) the rows in the places from `offset` to ``offset + limit``; mz_diff is
    the places each takes.
    """
    row: list[Ast] = [col(f"c{i}") for i in range(len(columns))]
    extra: list[Ast] = [col(n) for n in by]
    group: list[Ast] = [col(f"c{c}") for c in plan.group_key]
    order = _order(plan, row)
    last = s.big(window(exp.Sum(this=col(DIFF)), [*group, *extra], order, rows=True))
    placed = select([*row, *extra, col(DIFF), named(last, "mz_last")], relation)
    taken = _taken(r, plan, columns, DIFF, "mz_last")
    chosen = select([*row, *extra, named(s.big(taken), DIFF)], subquery(placed, "p"))
    return select(
        [*row, *extra, col(DIFF)], subquery(chosen, "q"), where=[s.gt(col(DIFF), s.num(0))]
    )


def moved_places(
    r: Renderer,
    plan: lir.TopKPlan,
    relation: str,
    columns: tuple[ColumnType, ...],
    lower: Timestamp,
) -> exp.Select:
    """How the places change that `places` gives out, where all updates of the relation at or after ``lower`` have one
    time: each row that takes more or fewer places then, once, with that time and the difference.

    One sort serves for the places before and after. Rows of groups without such updates may be among the relation's.
    """
    row: list[Ast] = [col(f"c{i}") for i in range(len(columns))]
    group: list[Ast] = [col(f"c{c}") for c in plan.group_key]
    here = s.gte(col(TIME), big(lower, r.engine))
    # A row whose diffs do not add up to a positive number is not there.
    counts: list[Ast] = [
        named(s.call("GREATEST", s.big(exp.Sum(this=diff)), big(0, r.engine)), name)
        for diff, name in (
            (s.case((here, big(0, r.engine)), otherwise=col(DIFF)), "mz_old"),
            (col(DIFF), "mz_new"),
        )
    ]
    held = select([*row, *counts, named(exp.Max(this=col(TIME)), TIME)], relation, group=row)
    order = _order(plan, row)
    places: list[Ast] = [
        named(s.big(window(exp.Sum(this=col(one)), group, order, rows=True)), f"{one}_last")
        for one in ("mz_old", "mz_new")
    ]
    # The time of the group's updates, whichever of its rows they are of; with a frame like this, it needs no sort of
    # its own.
    whole = window(exp.Max(this=col(TIME)), group, order, rows=True)
    whole.set("spec", exp.WindowSpec(kind="ROWS", **_EVERY_ROW))
    old: list[Ast] = [col("mz_old"), col("mz_new")]
    placed = select([*row, *old, *places, named(whole, TIME)], subquery(held, "h"))
    before, after = (
        s.call("GREATEST", _taken(r, plan, columns, one, f"{one}_last"), big(0, r.engine))
        for one in ("mz_old", "mz_new")
    )
    change = named(s.big(s.sub(after, before)), DIFF)
    chosen = select([*row, col(TIME), change], subquery(placed, "p"))
    return select(
        [*row, col(TIME), col(DIFF)], subquery(chosen, "q"), where=[s.neq(col(DIFF), s.num(0))]
    )


_EVERY_ROW = {
    "start": "UNBOUNDED",
    "start_side": "PRECEDING",
    "end": "UNBOUNDED",
    "end_side": "FOLLOWING",
}


def _order(plan: lir.TopKPlan, row: list[Ast]) -> list[exp.Ordered]:
    order = [
        ordered(col(f"c{o.column}"), desc=o.desc, nulls_last=o.nulls_last) for o in plan.order_key
    ]
    return order + [ordered(c) for c in row]


def _taken(
    r: Renderer, plan: lir.TopKPlan, columns: tuple[ColumnType, ...], diff: str, last: str
) -> Ast:
    """How many places from `offset` to ``offset + limit`` a row takes whose last place is `last`; not positive if none."""
    first = s.sub(col(last), col(diff))
    offset = big(plan.offset, r.engine)
    end: Ast = col(last)
    if plan.limit is not None:
        limit = s.big(spell.value(plan.limit, columns_of(columns), r.engine))
        # LIMIT NULL means no limit.
        bound = s.add(offset, s.coalesce(limit, col(last)))
        end = s.call("LEAST", col(last), bound)
    return s.sub(end, s.call("GREATEST", first, offset))


def refusals(
    r: Renderer,
    plan: lir.TopKPlan,
    relation: str,
    columns: tuple[ColumnType, ...],
    by: list[str],
) -> exp.Select | None:
    """An error row (mz_error, `by`, mz_diff) for each row whose group's limit fails or is negative; None if that cannot
    happen.
    """
    if plan.limit is None or not can_refuse(plan):
        return None
    given = columns_of(columns)
    limit = spell.value(plan.limit, given, r.engine)
    negative = s.case((s.lt(limit, s.num(0)), s.text(_NEGATIVE)))
    failure = spell.error(plan.limit, given, r.engine)
    message = negative if failure is None else s.coalesce(failure, negative)
    failed = select([named(message, ERROR), *(col(n) for n in by), col(DIFF)], relation)
    return select(
        [col(ERROR), *(col(n) for n in by), col(DIFF)],
        subquery(failed, "f"),
        where=[s.is_not_null(col(ERROR))],
    )


def can_refuse(plan: lir.TopKPlan) -> bool:
    """Whether the limit of a group may fail or be negative."""
    return plan.limit is not None and not _is_amount(plan.limit)


def _is_amount(limit: Scalar) -> bool:
    """Whether a limit is known to be valid or absent."""
    if not isinstance(limit, Literal):
        return False
    return limit.value is None or int(str(limit.value)) >= 0
