"""Rows that a query spells out, as in INSERT … VALUES, computed without planning.

Promise: the rows are those of the query's plan; None if a value is more than a literal or a function of literals, or
if it fails, because then planning gives the error. Calls of one function for many rows, such as the casts of a
VALUES list to the table's types, are evaluated together; a few calls one by one, because the evaluator caches recent
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mzsql.expr.evaluate import EvalError, Evaluator, TooLarge
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import Constant, Relation, Union
from mzsql.expr.scalar import Call, Column, Literal, Scalar, support
from mzsql.repr.datum import Datum, Row
from mzsql.repr.types import ColumnType, SqlType
from mzsql.transform.context import OptimizerContext
from mzsql.transform.row_wise import source
from mzsql.transform.scalars import simplify

#: Most expressions that are evaluated one by one, if no other one has the same form …
_ALONE = 64
#: … and most calls of one function.
_FEW = 32


def spelled_rows(relation: Relation, ctx: OptimizerContext) -> tuple[tuple[Row, int], ...] | None:
    """The rows of a relation that is a list of values, or a union of such lists; None for any other."""
    inputs = relation.inputs if isinstance(relation, Union) else (relation,)
    return rows_of_lists(map(source, inputs), ctx)


def rows_of_lists(
    lists: Iterable[tuple[MapFilterProject, Relation]], ctx: OptimizerContext
) -> tuple[tuple[Row, int], ...] | None:
    """As `spelled_rows`, for lists of values that are taken apart already, as by `source`."""
    found: list[tuple[Constant, MapFilterProject]] = []
    for mfp, below in lists:
        if not isinstance(below, Constant) or below.error is not None or mfp.predicates:
            return None
        if any(support(expr) for expr in mfp.expressions):
            return None
        found.append((below, mfp))
    values = _values([expr for _, mfp in found for expr in mfp.expressions], ctx)
    if values is None:
        return None
    rows: list[tuple[Row, int]] = []
    for below, mfp in found:
        more = tuple(values[expr] for expr in mfp.expressions)
        rows += [
            (tuple((*row, *more)[column] for column in mfp.projection), diff)
            for row, diff in below.rows
        ]
    return tuple(rows)


def _values(exprs: Sequence[Scalar], ctx: OptimizerContext) -> dict[Scalar, Datum] | None:
    """The value of each expression; None if one cannot be computed here."""
    evaluator = ctx.evaluator
    found: dict[Scalar, Datum] = {}
    alike: dict[tuple[str, SqlType, SqlType], dict[Call, Datum]] = {}
    alone: list[Scalar] = []
    for expr in dict.fromkeys(exprs):
        match expr:
            case Literal(value=value):
                found[expr] = value
            case Call(func=func, args=(Literal(value=value, typ=typ),)) if evaluator is not None:
                alike.setdefault((func, typ, expr.typ), {})[expr] = value
            case _:
                alone.append(expr)
    if len(alone) > _ALONE:
        return None
    for expr in alone:
        known = simplify(expr, (), ctx)
        if not isinstance(known, Literal):
            return None
        found[expr] = known.value
    for calls in alike.values():
        assert evaluator is not None
        made = _of_all(calls, evaluator)
        if made is None:
            return None
        found.update(zip(calls, made, strict=True))
    return found


def _of_all(calls: dict[Call, Datum], evaluator: Evaluator) -> list[Datum] | None:
    """The values of calls of one function; None if one fails."""
    if len(calls) <= _FEW:
        known = [one for one in evaluator.evaluate(list(calls)) if not isinstance(one, EvalError)]
        return known if len(known) == len(calls) else None
    call = next(iter(calls))
    (argument,) = call.args
    assert isinstance(argument, Literal)
    of_column = Call(call.func, (Column(0),), call.typ)
    mfp = MapFilterProject.identity(1).map([of_column]).project([1])
    rows = [((value,), 1) for value in calls.values()]
    try:
        made = evaluator.evaluate_mfp(mfp, rows, (ColumnType(argument.typ),))
    except TooLarge:
        return None
    return None if isinstance(made, EvalError) else [value for (value,), _ in made]
