"""Rules for columns, constants, parentheses and casts.

Promise: every rule keeps what `mzsql.render.simplify` promises; it uses facts on the parts of its node, and what
may be assumed there (`context.Context`).
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from sqlglot import expressions as exp

from mzsql.render.facts import (
    BIGINT,
    DATE,
    NUMBER,
    STRING,
    Fact,
    decimal,
    fits,
    is_number,
    null,
    number,
    truth,
)
from mzsql.render.simplify.context import Context, Rules
from mzsql.render.simplify.pieces import Ast, Known, casts, kind_of, with_parts
from mzsql.render.times import STAND_INS

#: Stand-ins for times: nothing may be computed from them.
_TIMES = frozenset(str(time) for time in STAND_INS)
_EPOCH = datetime.date(1970, 1, 1)


def _column(ctx: Context, ast: Ast) -> Known:
    assert isinstance(ast, exp.Column)
    if not ast.this.args.get("quoted"):
        # A lambda's parameter.
        return ast, Fact()
    key = (ast.table or None, ast.name)
    other = ctx.copy_of(key)
    if other is not None:
        ast.set("this", exp.to_identifier(other, quoted=True))
        key = (key[0], other)
    return ast, ctx.column(key)


def _literal(_ctx: Context, ast: Ast) -> Known:
    if ast.args.get("is_string"):
        return ast, Fact(STRING, nulls=False, fails=False, texts=frozenset((ast.this,)))
    if ast.this in _TIMES:
        return ast, Fact(NUMBER, nulls=False, fails=False)
    try:
        value = Fraction(ast.this)
    except ValueError:
        return ast, Fact(nulls=False, fails=False)
    return ast, number(value, NUMBER if value.denominator == 1 else None)


def _null(_ctx: Context, ast: Ast) -> Known:
    return ast, null()


def _boolean(_ctx: Context, ast: Ast) -> Known:
    held = bool(ast.this)
    return ast, truth(may_hold=held, may_not=not held, nulls=False, fails=False)


def _paren(ctx: Context, ast: Ast) -> Known:
    inner, fact = ctx.of(ast.this)
    if isinstance(inner, exp.Binary | exp.Unary | exp.Between) and not isinstance(inner, exp.Paren):
        return with_parts(ast, this=inner), fact
    return inner, fact


def _cast(ctx: Context, ast: Ast) -> Known:
    kind = kind_of(ast.args["to"])
    inner, fact = ctx.of(ast.this)
    if not fact.values and not fact.fails:
        return ast, null(kind)
    if fact.kind == kind:
        return inner, fact
    if isinstance(inner, exp.Literal):
        known = _read_literal(inner, kind)
        if known is not None:
            return exp.Cast(this=inner, to=ast.args["to"]), known
    safe = isinstance(ast, exp.TryCast)
    if casts(fact, kind):
        made = Fact(
            kind,
            values=fact.values,
            nulls=fact.nulls,
            low=_cast_bound(fact.low, fact, kind, math.floor),
            high=_cast_bound(fact.high, fact, kind, math.ceil),
            fails=fact.fails,
            texts=fact.texts if kind == "TEXT" else None,
            other=fact.nonzero and _is_finer(kind, fact),
        )
        return exp.Cast(this=inner, to=ast.args["to"]), made
    out = Fact(kind, nulls=fact.nulls or safe, fails=fact.fails if safe else True)
    return with_parts(ast, this=inner), out


def _is_finer(kind: str, fact: Fact) -> bool:
    """Whether a cast between numbers never rounds."""
    if not (is_number(fact.kind) and is_number(kind)):
        return False
    scales = [shape[1] if (shape := decimal(one)) else 0 for one in (fact.kind, kind)]
    return scales[0] <= scales[1]


def _cast_bound(
    value: Fraction | None, fact: Fact, kind: str, outward: Callable[[Fraction], int]
) -> Fraction | None:
    """A bound after a cast, which may round in either direction; `outward` rounds away from the values within the bounds."""
    if value is None or not (is_number(fact.kind) and is_number(kind)):
        return None
    shape = decimal(kind)
    unit = Fraction(1, 10 ** (shape[1] if shape else 0))
    return outward(value / unit) * unit


def _read_literal(literal: Ast, kind: str) -> Fact | None:
    """The fact of a literal after a cast; None if it is not known."""
    text = str(literal.this)
    if text in _TIMES:
        return Fact(kind, nulls=False, fails=False) if kind == BIGINT else None
    if kind == DATE:
        try:
            day = (datetime.date.fromisoformat(text) - _EPOCH).days
        except ValueError:
            return None
        return number(day, DATE)
    if kind == "TIMESTAMP":
        try:
            datetime.datetime.fromisoformat(text)
        except ValueError:
            return None
        return Fact(kind, nulls=False, fails=False)
    if not is_number(kind):
        return None
    try:
        value = Fraction(Decimal(text))
    except (InvalidOperation, ValueError, OverflowError):
        return None
    shape = decimal(kind)
    exact = (value * 10 ** (shape[1] if shape else 0)).denominator == 1
    fact = number(value, kind)
    return fact if exact and fits(fact, kind) else None


RULES: Rules = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}
