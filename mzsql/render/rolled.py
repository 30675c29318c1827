"""What a key's updates come to as they happen: at each of a step's updates the sums up to it, over what was there before and the step.

Promise: `rolled` puts out the step's updates, each with its own values and the sums of all rows of its key that are not later. It reads
state, which has any number of rows of a key below the step, and updates, at most one of a key at each time.

Where all updates of a step have one time (`StepState.at_once`), which is what a small step is, a key has one update at most: nothing runs
then, and what would be a window, which sorts all rows, is a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.render.statement import TIME, Ast, big, col, named, ordered, select, window
from mzsql.render.step_state import StepState

#: A column of updates that is never NULL, and what casts it to its type.
Own = tuple[exp.Column, Callable[[Ast], Ast]]
#: A sum: what is added up, the name it gets, and what casts it to its type.
Sum = tuple[Ast, str, Callable[[Ast], Ast]]


def rolled(
    r: StepState, source: str, key: Sequence[Ast], own: Sequence[Own], sums: Sequence[Sum]
) -> exp.Select:
    """Of a relation's updates the key, the columns `own`, the sums up to each, and the time; of its state nothing, or times below the step.

    Args:
        r: the step.
        source: state at times below the step, and updates in it.
        key: columns; none: all rows are one key's.
        own: columns of the update.
        sums: of columns.
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
        # Of the keys that are left each has an update. Whoever reads this does not know that, and would be ready for NULL.
        return s.coalesce(made, cast(s.num(0)))

    mine = s.gte(col(TIME), big(r.lower, r.engine))
    items: list[Ast] = list(key)
    for one, cast in own:
        items.append(named(known(exp.Max(this=s.case((mine.copy(), one))), cast), one.name))
    for part, name, cast in sums:
        total = cast(exp.Sum(this=part))
        # With keys it is one of rows that are there.
        items.append(named(total if key else known(total, cast), name))
    items.append(named(exp.Max(this=col(TIME)), TIME))
    touched = s.gte(exp.Max(this=col(TIME)), big(r.lower, r.engine))
    return select(items, source, group=key, having=touched)
