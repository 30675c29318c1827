"""Rules for comparisons of two values.

Promise: every rule keeps what `mzsql.render.simplify` promises; it uses facts on the parts of its node, and what
may be assumed there (`context.Context`).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from sqlglot import expressions as exp

from mzsql.render.facts import (
    BOOLEAN,
    DATE,
    INTEGERS,
    NULL,
    NUMBER,
    STRING,
    Fact,
    fits,
    is_number,
    null,
    truth,
)
from mzsql.render.simplify.context import Context, Rules
from mzsql.render.simplify.pieces import Ast, Known, bare, closed, typed, with_parts


def _compared(ctx: Context, ast: Ast) -> Known:
    (left, a), (right, b) = ctx.of(ast.this), ctx.of(ast.expression)
    if a.kind == b.kind == "TIMESTAMP" and not (a.fails or b.fails):
        days = _of_days(ctx, type(ast), left, right)
        if days is not None:
            return _compared(ctx, days)
    made = with_parts(ast, this=closed(left), expression=closed(right))
    fails = a.fails or b.fails or not _comparable(a, b)
    if not a.values or not b.values:
        return made, replace(null(BOOLEAN), fails=fails)
    may_hold, may_not = _outcomes(type(ast), a, b)
    return made, truth(may_hold=may_hold, may_not=may_not, nulls=a.nulls or b.nulls, fails=fails)


Operator: TypeAlias = type[exp.Expression]
#: The comparison with its sides exchanged.
_TURNED: Mapping[Operator, Operator] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
#: The comparison of a day that is equivalent to one with a time after midnight of the given day.
_LATER: Mapping[Operator, Operator] = {
    exp.LT: exp.LTE,
    exp.LTE: exp.LTE,
    exp.GT: exp.GT,
    exp.GTE: exp.GT,
}


def _of_days(ctx: Context, operator: Operator, left: Ast, right: Ast) -> exp.Expression | None:
    """A comparison of timestamps as one of dates, which can use the statistics of files; None if it is not equivalent
    to one.
    """
    day, other = _day(ctx, left), _day(ctx, right)
    if day is not None and other is not None:
        return operator(this=day, expression=other)
    if day is None:
        if other is None:
            return None
        return _of_days(ctx, _TURNED[operator], right, left)
    written = bare(right)
    if not (isinstance(written, exp.Cast) and isinstance(written.this, exp.Literal)):
        return None
    at = datetime.datetime.fromisoformat(written.this.name)
    if at.tzinfo is not None:
        return None
    if at.time() != datetime.time():
        if operator not in _LATER:
            return None
        operator = _LATER[operator]
    literal = typed(exp.Literal.string(at.date().isoformat()), DATE)
    return operator(this=day, expression=literal)


def _day(ctx: Context, ast: Ast) -> Ast | None:
    """The date that is cast to a timestamp; None if it is something else."""
    node = bare(ast)
    if not isinstance(node, exp.Cast) or isinstance(node, exp.TryCast):
        return None
    inner, fact = ctx.of(node.this.copy())
    return inner if fact.kind == DATE else None


def _same(ctx: Context, ast: Ast) -> Known:
    (left, a), (right, b) = ctx.of(ast.this), ctx.of(ast.expression)
    made = with_parts(ast, this=closed(left), expression=closed(right))
    fails = a.fails or b.fails or not _comparable(a, b)
    return made, truth(may_hold=True, may_not=True, nulls=False, fails=fails)


def _between(ctx: Context, ast: Ast) -> Known:
    inner, fact = ctx.of(ast.this)
    (low, a), (high, b) = ctx.of(ast.args["low"]), ctx.of(ast.args["high"])
    made = with_parts(ast, this=closed(inner), low=closed(low), high=closed(high))
    above, below = _outcomes(exp.GTE, fact, a), _outcomes(exp.LTE, fact, b)
    fails = any(x.fails for x in (fact, a, b)) or not (
        _comparable(fact, a) and _comparable(fact, b)
    )
    return made, truth(
        may_hold=above[0] and below[0],
        may_not=above[1] or below[1],
        nulls=fact.nulls or a.nulls or b.nulls,
        fails=fails,
    )


def _comparable(a: Fact, b: Fact) -> bool:
    """Whether a comparison compares the values without a conversion that could fail."""
    if a.kind is None or b.kind is None:
        return False
    if a.kind == b.kind or NULL in (a.kind, b.kind) or {a.kind, b.kind} == {STRING, "TEXT"}:
        return True
    if a.kind in INTEGERS and b.kind in INTEGERS:
        return True
    for one, other in ((a, b), (b, a)):
        if other.kind == NUMBER and is_number(one.kind):
            assert one.kind is not None
            return fits(other, one.kind)
    return False


def _outcomes(operator: type[exp.Expression], a: Fact, b: Fact) -> tuple[bool, bool]:
    """Whether a comparison of two values may hold, and whether it may not."""
    if a.texts is not None and b.texts is not None and operator in (exp.EQ, exp.NEQ):
        equal, differ = bool(a.texts & b.texts), len(a.texts | b.texts) > 1
        return (equal, differ) if operator is exp.EQ else (differ, equal)
    exact = all(is_number(x.kind) or x.kind in (DATE, BOOLEAN) for x in (a, b))
    if exact and operator in (exp.EQ, exp.NEQ) and _zero_and_other(a, b):
        return (False, True) if operator is exp.EQ else (True, False)
    if not exact or a.low is None or a.high is None or b.low is None or b.high is None:
        return True, True
    if operator in (exp.GT, exp.GTE):
        return _outcomes(exp.LT if operator is exp.GT else exp.LTE, b, a)
    if operator is exp.LT:
        return a.low < b.high, a.high >= b.low
    if operator is exp.LTE:
        return a.low <= b.high, a.high > b.low
    may_equal = a.low <= b.high and b.low <= a.high
    may_differ = not (a.low == a.high == b.low == b.high)
    return (may_equal, may_differ) if operator is exp.EQ else (may_differ, may_equal)


def _zero_and_other(a: Fact, b: Fact) -> bool:
    """Whether one is 0 and the other never."""
    return any(x.constant == 0 and y.nonzero for x, y in ((a, b), (b, a)))


RULES: Rules = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _compared),
    exp.NullSafeEQ: _same,
    exp.Between: _between,
}
