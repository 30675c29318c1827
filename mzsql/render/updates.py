"""Consolidation, difference and expansion of updates, for rendered statements and for those that runners add.

Promise: rows are equal as in GROUP BY, null-safe; rows that cancel are dropped; a sum of diffs is a bigint or fails. This is the only place
where SQL adds up diffs or repeats rows by them; Arrow's are `mzsql.persist.consolidate` and `mzsql.repr.tables.repeated`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.render.statement import (
    DIFF,
    Ast,
    big,
    col,
    explode,
    named,
    select,
    subquery,
    union_all,
)
from mzsql.repr.types import ColumnType

#: The column that `repeated` adds.
COPY = "mz_copy"


def summed(table: str | None = None) -> Ast:
    """The diff of a group of equal rows, as a bigint; of those of an alias, if one is given."""
    return s.big(exp.Sum(this=col(DIFF, table)))


def remaining(table: str | None = None, *, positive: bool = False) -> Ast:
    """Whether a group of equal rows does not cancel; with `positive`, whether it is there, so more often than never."""
    total, none = exp.Sum(this=col(DIFF, table)), s.num(0)
    return s.gt(total, none) if positive else s.neq(total, none)


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
    items = [*(shown or row), named(summed(), DIFF)]
    return select(items, source, where=where, group=row, having=remaining(positive=positive))


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


def added_up(
    source: str, columns: Sequence[ColumnType], additive: Sequence[int], engine: Engine
) -> exp.Select:
    """A relation's rows c0 … of equal keys as one row with mz_diff 1, which has in each of the columns `additive` the sum of its values,
    each as often as its row; the other columns are the key. Rows whose sums are all 0 are dropped.
    """
    items: list[Ast] = []
    keys: list[Ast] = []
    sums: list[Ast] = []
    for i, column in enumerate(columns):
        if i in additive:
            sums.append(exp.Sum(this=s.mul(col(f"c{i}"), col(DIFF))))
            items.append(named(s.cast(sums[-1], column.type, engine), f"c{i}"))
        else:
            keys.append(col(f"c{i}"))
            items.append(col(f"c{i}"))
    kept = s.or_(*(s.neq(total, s.num(0)) for total in sums))
    return select([*items, named(big(1, engine), DIFF)], source, group=keys, having=kept)


def repeated(
    source: str | exp.Expression, row: Sequence[Ast], count: Ast, engine: Engine
) -> exp.Select:
    """Each row of a relation as often as its `count`, which is at least 1, says: `row`, and a column `COPY`."""
    numbers = s.call(
        "SEQUENCE" if engine is Engine.SPARK else "GENERATE_SERIES", big(1, engine), count
    )
    return select([*row, named(explode(numbers, engine), COPY)], source)
