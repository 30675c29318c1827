"""Updates added up and compared: written once, for statements that are rendered and for what is run around them.

Promise: rows are equal as GROUP BY has it, null-safe; what cancels is dropped; a sum of diffs is a bigint, or fails.
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
    """Equal rows added up, those that cancel dropped.

    Args:
        source: a relation's name, or a subquery, of updates.
        row: what of them has to be equal.
        shown: how these leave, where not as they are.
        where: which of the updates count.
        positive: whether rows that were taken away oftener than they came are dropped, too.
    """
    total = exp.Sum(this=col(DIFF))
    kept = s.gt(total, s.num(0)) if positive else s.neq(total, s.num(0))
    items = [*(shown or row), named(s.big(total.copy()), DIFF)]
    return select(items, source, where=where, group=row, having=kept)


def difference(after: str, before: str, row: Sequence[Ast]) -> exp.Select:
    """The updates that lead from what one relation holds to what another one holds.

    Args:
        after: the relation that is.
        before: the relation that was.
        row: the columns of both, but mz_diff.
    """
    both = union_all(
        [
            select([*row, col(DIFF)], after),
            select([*row, named(exp.Neg(this=col(DIFF)), DIFF)], before),
        ]
    )
    return consolidated(subquery(both, "both"), row)
