"""Running sums over a key's updates: at each update of a step, the sum over everything up to it, state included.

Promise: `rolled` returns the step's updates, each with its own values and the sums over all rows of its key that are
not later. It reads state (any number of rows of a key, at times below the step) and updates (at most one of a key at
each time).

If all updates of a step have one time (`StepState.at_once`), as in most small steps, a key has at most one update,
so nothing is running, and a GROUP BY replaces the window, which would sort all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.render.statement import TIME, Ast, big, col, named, ordered, select, window
from mzsql.render.step.state import StepState

#: A column of updates that is never NULL, and the cast to its type.
Own = tuple[exp.Column, Callable[[Ast], Ast]]
#: A sum: what is added up, its name, and the cast to its type.
Sum = tuple[Ast, str, Callable[[Ast], Ast]]


def rolled(
    r: StepState, source: str, key: Sequence[Ast], own: Sequence[Own], sums: Sequence[Sum]
) -> exp.Select:
    """For a relation's updates the key, the columns `own`, the sums up to each update, and the time. Rows of the state
    are returned with times below the step, or not at all.

    Args:
        r: the step.
        source: state at times below the step, and updates in it.
        key: key columns; if there are none, all rows belong to one key.
        own: columns of the update.
        sums: what to add up.
    """
    if not r.at_once:
        running: list[Ast] = [
            named(
                cast(window(exp.Sum(this=part), list(key), [ordered(col(TIME))], rows=True)), name
            )
            for part, name, cast in sums
        ]
        return select([*key, *(one for one, _ in own), *running, col(TIME)], source)

    def known(made: Ast, cast: Callable[[Ast], Ast]) -> Ast:
        # Every remaining key has an update, so this is never NULL; COALESCE says so to simplification and to whoever
        # reads the column.
        return s.coalesce(made, cast(s.num(0)))

    mine = s.gte(col(TIME), big(r.lower, r.engine))
    items: list[Ast] = list(key)
    for one, cast in own:
        items.append(named(known(exp.Max(this=s.case((mine.copy(), one))), cast), one.name))
    for part, name, cast in sums:
        # With keys every group has rows, so the sum is not NULL.
        total = cast(exp.Sum(this=part))
        items.append(named(total if key else known(total, cast), name))
    items.append(named(exp.Max(this=col(TIME)), TIME))
    touched = s.gte(exp.Max(this=col(TIME)), big(r.lower, r.engine))
    return select(items, source, group=key, having=touched)
