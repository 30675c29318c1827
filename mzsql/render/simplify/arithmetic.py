"""Rules for arithmetic and its guards: TRY, and the quotient that `mzsql.expr` writes.

Promise: every rule keeps what `mzsql.render.simplify` promises; it uses facts on the parts of its node, and what
may be assumed there (`context.Context`).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sqlglot import expressions as exp

from mzsql.expr.functions.number.numeric import division_of, small_quotient
from mzsql.render.facts import (
    BIGINT,
    DATE,
    HUGEINT,
    INTEGERS,
    NUMBER,
    Fact,
    decimal,
    decimal_kind,
    decimal_of,
    fits,
    is_number,
    negated,
    product_of,
    sum_of,
)
from mzsql.render.simplify.context import Calls, Context, Rules
from mzsql.render.simplify.pieces import Ast, Known, casts, closed, holds, with_parts


def _neg(ctx: Context, ast: Ast) -> Known:
    inner, fact = ctx.of(ast.this)
    made = with_parts(ast, this=closed(inner))
    if not is_number(fact.kind):
        return made, Fact()
    out = negated(fact)
    return made, replace(out, fails=fact.fails or not holds(out))


def _add(ctx: Context, ast: Ast) -> Known:
    (left, a), (right, b) = ctx.of(ast.this), ctx.of(ast.expression)
    return _operated(ast, (left, a), (right, b), *sum_of(a, b))


def _sub(ctx: Context, ast: Ast) -> Known:
    (left, a), (right, b) = ctx.of(ast.this), ctx.of(ast.expression)
    low, high = sum_of(a, negated(b))
    if a.kind == b.kind == DATE:
        made = with_parts(ast, this=closed(left), expression=closed(right))
        nulls, fails = a.nulls or b.nulls, a.fails or b.fails
        return made, Fact(BIGINT, a.values and b.values, nulls, low, high, fails)
    return _operated(ast, (left, a), (right, b), low, high)


def _mul(ctx: Context, ast: Ast) -> Known:
    (left, a), (right, b) = ctx.of(ast.this), ctx.of(ast.expression)
    kind = _operation(exp.Mul, a, b)
    for kept, other in (((left, a), b), ((right, b), a)):
        if other.constant == 1 and not other.fails and kept[1].kind == kind is not None:
            return kept
    return _operated(ast, (left, a), (right, b), *product_of(a, b))


def _operated(
    ast: Ast,
    left: Known,
    right: Known,
    low: Fraction | None,
    high: Fraction | None,
) -> Known:
    a, b = left[1], right[1]
    made = with_parts(ast, this=closed(left[0]), expression=closed(right[0]))
    kind = _operation(type(ast), a, b)
    if kind is None:
        return made, Fact()
    out = Fact(kind, a.values and b.values, a.nulls or b.nulls, low, high)
    operands = all(casts(x, kind) or type(ast) is exp.Mul for x in (a, b))
    return made, replace(out, fails=a.fails or b.fails or not (operands and holds(out)))


def _mod(ctx: Context, ast: Ast) -> Known:
    (left, a), (right, b) = ctx.of(ast.this), ctx.of(ast.expression)
    made = with_parts(ast, this=closed(left), expression=closed(right))
    if a.kind != b.kind or not is_number(a.kind) or a.kind == NUMBER:
        return made, Fact()
    if a.size is not None and b.low is not None and a.size < b.low and not (b.fails or b.nulls):
        return left, a
    return made, Fact(
        a.kind,
        a.values and b.values,
        a.nulls or b.nulls,
        None if a.low is None else min(a.low, Fraction(0)),
        None if a.high is None else max(a.high, Fraction(0)),
        # Modulo zero fails.
        a.fails or b.fails or not b.nonzero,
    )


def _abs(ctx: Context, ast: Ast) -> Known:
    inner, fact = ctx.of(ast.expressions[0])
    if not is_number(fact.kind) or fact.kind == NUMBER:
        return with_parts(ast, expressions=[inner]), Fact()
    size = fact.size
    low = None if size is None else Fraction(0)
    fails = fact.fails or (fact.kind in INTEGERS and size is None)
    return with_parts(ast, expressions=[inner]), replace(fact, low=low, high=size, fails=fails)


def _try(ctx: Context, ast: Ast) -> Known:
    operands = division_of(ast)
    if operands is not None:
        return _quotient(ctx, ast, *operands)
    inner, fact = ctx.of(ast.expressions[0])
    if not fact.fails:
        return inner, fact
    return with_parts(ast, expressions=[inner]), replace(fact, nulls=True, fails=False)


def _quotient(ctx: Context, ast: Ast, dividend: Ast, divisor: Ast) -> Known:
    (left, a), (right, b) = ctx.of(dividend.copy()), ctx.of(divisor.copy())
    kind = decimal_kind(38, 18)
    plain = Fact(kind, fails=False)
    shape, size, other = decimal(a.kind), a.size, b.size
    if a.kind != b.kind or shape is None or size is None or other is None or a.fails or b.fails:
        return ast, plain
    unit = 10 ** shape[1]
    if 2 * size * unit * 10**18 + other * unit >= 10**38 or not fits(
        Fact(low=Fraction(0), high=max(size, other) * unit), a.kind
    ):
        return ast, plain
    positive = b.low is not None and b.low >= 0
    made = small_quotient(left, right, shape[1], positive=positive, nonzero=b.nonzero)
    size *= unit
    nulls = a.nulls or b.nulls or not b.nonzero
    return made, replace(plain, nulls=nulls, low=-size, high=size)


def _operation(operator: type[exp.Expression], a: Fact, b: Fact) -> str | None:
    """The type that DuckDB gives an operation; None if it is not certain."""
    for x, y in ((a, b), (b, a)):
        if x.kind in INTEGERS:
            if y.kind == NUMBER and x.kind in (BIGINT, HUGEINT) and fits(y, x.kind):
                return x.kind
            if y.kind in INTEGERS and INTEGERS[x.kind] >= INTEGERS[y.kind]:
                return x.kind
    if decimal(a.kind) is None and decimal(b.kind) is None:
        return None
    first, second = decimal_of(a), decimal_of(b)
    if first is None or second is None:
        return None
    if operator is exp.Mul:
        scale = first[1] + second[1]
        return decimal_kind(38, scale) if first[0] + second[0] >= 38 >= scale else None
    scale = max(first[1], second[1])
    whole = max(first[0] - first[1], second[0] - second[1])
    return decimal_kind(min(38, whole + scale + 1), scale)


RULES: Rules = {
    exp.Neg: _neg,
    exp.Add: _add,
    exp.Sub: _sub,
    exp.Mul: _mul,
    exp.Mod: _mod,
}
CALLS: Calls = {"TRY": _try, "ABS": _abs}
