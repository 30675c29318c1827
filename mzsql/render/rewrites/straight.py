"""Outputs of a step that are rows of one of its relations unchanged, which therefore need no engine.

Promise: the statement that `taken_out` leaves and the outputs that it takes out together have the original
statement's rows. An arrangement of an input gets the input's updates with columns left out or reordered; the columns
are then passed on as they are in memory. In a step over a three-way join that is most of the result.

Trade-off: only outputs whose columns are all columns or NULL are taken out. Conditions and constants are left to the
engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.render.rendered import StepOutput

_TAG, _ERROR, _TIME, _DIFF = "mz_tag", "mz_error", "mz_time", "mz_diff"


@dataclass(frozen=True)
class Straight:
    """An output that is a relation's rows.

    Attributes:
        tag: the output's tag.
        relation: the relation, all of whose rows it has.
        columns: for each of the output's columns, then mz_time and mz_diff, the relation's column.
    """

    tag: int
    relation: str
    columns: tuple[str, ...]


def taken_out(
    statement: exp.Expression, outputs: Collection[StepOutput], relations: Collection[str]
) -> tuple[exp.Expression | None, tuple[Straight, ...]]:
    """Take unchanged rows out of a step's statement.

    Args:
        statement: a lean statement; it is modified.
        outputs: the step's outputs.
        relations: the relations that it reads.

    Returns:
        The remaining statement (None if nothing remains), and what was taken out.
    """
    by_tag = {one.tag: one for one in outputs}
    branches = _branches(statement)
    if branches is None:
        return statement, ()
    found: list[Straight] = []
    left: list[exp.Select] = []
    for branch in branches:
        straight = _straight(branch, by_tag, relations)
        if straight is None:
            left.append(branch)
        else:
            found.append(straight)
    if not found:
        return statement, ()
    if not left:
        return None, tuple(found)
    with_ = statement.args.get("with_")
    _narrow(left, by_tag)
    made: exp.Expression = left[0]
    for branch in left[1:]:
        made = exp.Union(this=made, expression=branch, distinct=False)
    made.set("with_", with_)
    return made, tuple(found)


def _branches(statement: exp.Expression) -> list[exp.Select] | None:
    """The branches of a UNION ALL, in order; None if the statement is something else."""
    found, waiting = list[exp.Select](), [statement]
    while waiting:
        one = waiting.pop()
        if isinstance(one, exp.Union):
            if one.args.get("distinct") or one.args.get("order") or one.args.get("limit"):
                return None
            waiting += [one.expression, one.this]
        elif isinstance(one, exp.Select) and (one is statement or not one.args.get("with_")):
            found.append(one)
        else:
            return None
    return found


#: The parts of a query that passes on a relation's rows.
_PLAIN = frozenset(("kind", "expressions", "from_", "with_"))


def _straight(
    branch: exp.Select, outputs: Mapping[int, StepOutput], relations: Collection[str]
) -> Straight | None:
    if any(value for key, value in branch.args.items() if key not in _PLAIN):
        return None
    from_ = branch.args.get("from_")
    source = None if from_ is None else from_.this
    if not isinstance(source, exp.Table) or source.name not in relations:
        return None
    items = {item.alias_or_name: item.unalias() for item in branch.expressions}
    tag = _tag(items)
    if tag is None or not _is_null(items[_ERROR]):
        return None
    names = [*(f"c{position}" for position in outputs[tag].positions), _TIME, _DIFF]
    columns = [items[name] for name in names]
    if not all(isinstance(one, exp.Column) for one in columns):
        return None
    return Straight(tag, source.name, tuple(one.name for one in columns))


def _tag(items: Mapping[str, exp.Expression]) -> int | None:
    tag = items.get(_TAG)
    while isinstance(tag, exp.Cast):
        tag = tag.this
    return int(tag.this) if isinstance(tag, exp.Literal) and not tag.is_string else None


def _is_null(item: exp.Expression) -> bool:
    while isinstance(item, exp.Cast):
        item = item.this
    return isinstance(item, exp.Null)


def _narrow(branches: list[exp.Select], outputs: Mapping[int, StepOutput]) -> None:
    """Remove the columns that none of the remaining branches' outputs has."""
    wanted = {_TAG, _ERROR, _TIME, _DIFF}
    for branch in branches:
        tag = _tag({item.alias_or_name: item.unalias() for item in branch.expressions})
        if tag is None:
            return
        wanted |= {f"c{position}" for position in outputs[tag].positions}
    # The first branch names the columns of a union.
    places = [i for i, item in enumerate(branches[0].expressions) if item.alias_or_name in wanted]
    for branch in branches:
        branch.set("expressions", [branch.expressions[i] for i in places])
