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
    order = [
        ordered(col(f"c{o.column}"), desc=o.desc, nulls_last=o.nulls_last) for o in plan.order_key
    ]
    order += [ordered(c) for c in row]
    group: list[Ast] = [col(f"c{c}") for c in plan.group_key]
    last = s.big(window(exp.Sum(this=col(DIFF)), [*group, *extra], order, rows=True))
    placed = select([*row, *extra, col(DIFF), named(last, "mz_last")], relation)
    first = s.sub(col("mz_last"), col(DIFF))
    offset = big(plan.offset, r.engine)
    end: Ast = col("mz_last")
    if plan.limit is not None:
        limit = s.big(spell.value(plan.limit, columns_of(columns), r.engine))
        # LIMIT NULL means no limit.
        bound = s.add(offset, s.coalesce(limit, col("mz_last")))
        end = s.call("LEAST", col("mz_last"), bound)
    taken = s.sub(end, s.call("GREATEST", first, offset))
    chosen = select([*row, *extra, named(s.big(taken), DIFF)], subquery(placed, "p"))
    return select(
        [*row, *extra, col(DIFF)], subquery(chosen, "q"), where=[s.gt(col(DIFF), s.num(0))]
    )


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
    if plan.limit is None or _is_amount(plan.limit):
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


def _is_amount(limit: Scalar) -> bool:
    """Whether a limit is known to be valid or absent."""
    if not isinstance(limit, Literal):
        return False
    return limit.value is None or int(str(limit.value)) >= 0
