"""Consolidation and difference of updates, for rendered statements and for those that runners add.

Promise: rows are equal as in GROUP BY, null-safe; rows that cancel are dropped; a sum of diffs is a bigint or fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.render.statement import DIFF, Ast, col, named, select, subquery, union_all


def consolidated(
    source: str | exp.Expression,
    row: Sequence[Ast],
    *,
    shown: Sequence[Ast] = (),
    where: Sequence[Ast] = (),
    positive: bool = False,
) -> exp.Select:
    """Add up equal rows and drop those that cancel.

    Args:
        source: a relation's name, or a subquery, of updates.
        row: the columns that must be equal.
        shown: select these instead of `row`.
        where: which updates count.
        positive: also drop rows whose diffs add up to less than 0.
    """
    total = exp.Sum(this=col(DIFF))
    kept = s.gt(total, s.num(0)) if positive else s.neq(total, s.num(0))
    items = [*(shown or row), named(s.big(total.copy()), DIFF)]
    return select(items, source, where=where, group=row, having=kept)


def difference(after: str, before: str, row: Sequence[Ast]) -> exp.Select:
    """The updates that turn the contents of one relation into those of another.

    Args:
        after: the new contents.
        before: the old contents.
        row: the columns of both, without mz_diff.
    """
    both = union_all(
        [
            select([*row, col(DIFF)], after),
            select([*row, named(exp.Neg(this=col(DIFF)), DIFF)], before),
        ]
    )
    return consolidated(subquery(both, "both"), row)
