"""Rules for three-valued logic, including LIKE, and for choices between values: CASE and COALESCE.

Promise: every rule keeps what `mzsql.render.simplify` promises; it uses facts on the parts of its node, and what
may be assumed there (`context.Context`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.render.facts import BOOLEAN, STRING, Fact, null, one_of, truth
from mzsql.render.simplify.context import Calls, Context, Rules
from mzsql.render.simplify.pieces import (
    Ast,
    Known,
    as_kind,
    bare,
    closed,
    common_kind,
    needed,
    result_kind,
    with_parts,
)


def _is(ctx: Context, ast: Ast) -> Known:
    if not isinstance(ast.expression, exp.Null):
        return with_parts(ast, this=ctx.of(ast.this)[0]), Fact()
    inner, fact = ctx.of(ast.this)
    may = truth(may_hold=fact.nulls, may_not=fact.values, nulls=False, fails=fact.fails)
    asked = None if fact.fails else _where_null(ctx, inner)
    if asked:
        return closed(functools.reduce(_both, asked)), may
    return with_parts(ast, this=closed(inner)), may


def _where_null(ctx: Context, ast: Ast) -> list[Ast] | None:
    """Conditions, never NULL, that together hold exactly where a chosen text is NULL; None if that depends on more than
    conditions.
    """
    node = bare(ast)
    if isinstance(node, exp.Anonymous) and str(node.this).upper() == "COALESCE":
        found = [_where_null(ctx, one) for one in node.expressions]
        return None if None in found else [one for some in found for one in some or ()]
    if not isinstance(node, exp.Case) or node.args.get("this") is not None:
        return None
    default = node.args.get("default")
    if default is not None and ctx.of(default.copy())[1].values:
        return None
    conditions: list[Ast] = []
    for one in node.args["ifs"]:
        held, condition = ctx.of(one.this.copy())
        _, fact = ctx.of(one.args["true"].copy())
        if condition.kind != BOOLEAN or condition.nulls or condition.fails:
            return None
        if fact.nulls or fact.fails:
            return None
        inner = bare(held)
        conditions.append(bare(inner.this) if isinstance(inner, exp.Not) else s.not_(held))
    return conditions


def _both(left: Ast, right: Ast) -> Ast:
    return exp.And(this=closed(left), expression=closed(right))


def without_default(condition: Ast) -> Ast | None:
    """The condition in ``COALESCE(condition, FALSE)``; None for other expressions."""
    node = bare(condition)
    if not isinstance(node, exp.Anonymous) or str(node.this).upper() != "COALESCE":
        return None
    if len(node.expressions) != 2 or node.expressions[1] != s.boolean(False):
        return None
    asked: Ast = node.expressions[0]
    return asked


def _like(ctx: Context, ast: Ast) -> Known:
    """LIKE, and the ESCAPE around it. A literal pattern is known not to end in an escape character, so it cannot fail."""
    inner, fact = ctx.of(ast.this)
    made = with_parts(ast, this=inner)
    if isinstance(ast, exp.Escape):
        return made, fact
    pattern = ast.expression
    if not isinstance(pattern, exp.Literal) or fact.kind not in ("TEXT", STRING):
        return made, Fact()
    return made, truth(
        may_hold=fact.values, may_not=fact.values, nulls=fact.nulls, fails=fact.fails
    )


def _not(ctx: Context, ast: Ast) -> Known:
    inner, fact = ctx.of(ast.this)
    if fact.kind != BOOLEAN:
        return with_parts(ast, this=closed(inner)), Fact()
    may = truth(
        may_hold=fact.values and fact.low != 1,
        may_not=fact.values and fact.high != 0,
        nulls=fact.nulls,
        fails=fact.fails,
    )
    return with_parts(ast, this=closed(inner)), may


def _and(ctx: Context, ast: Ast) -> Known:
    return _connected(ctx, ast, neutral=True)


def _or(ctx: Context, ast: Ast) -> Known:
    return _connected(ctx, ast, neutral=False)


def _connected(ctx: Context, ast: Ast, *, neutral: bool) -> Known:
    sides = [ctx.of(ast.this), ctx.of(ast.expression)]
    return joined(ast, sides, neutral=neutral)


def joined(ast: Ast, sides: Sequence[Known], *, neutral: bool) -> Known:
    """Two simplified sides of an AND (`neutral` True) or an OR."""
    if any(fact.kind != BOOLEAN for _, fact in sides):
        return with_parts(ast, this=closed(sides[0][0]), expression=closed(sides[1][0])), Fact()
    whole, other = Fraction(int(neutral)), Fraction(int(not neutral))
    fails = any(fact.fails for _, fact in sides)
    for made, fact in sides:
        if fact.constant == other and not fact.fails:
            return made, fact
    kept = [(made, fact) for made, fact in sides if fact.constant != whole or fact.fails]
    if not kept:
        return sides[0]
    if len(kept) == 1:
        return kept[0]
    facts = [fact for _, fact in kept]
    may_hold, may_not = _either(facts) if neutral else tuple(reversed(_either(facts, False)))
    merged = truth(
        may_hold=may_hold,
        may_not=may_not,
        nulls=any(fact.nulls for fact in facts),
        fails=fails,
    )
    return with_parts(ast, this=closed(kept[0][0]), expression=closed(kept[1][0])), merged


def _case(ctx: Context, ast: Ast) -> Known:
    if ast.args.get("this") is not None:
        return ast, Fact()
    branches: list[tuple[Ast, Fact, Ast, Fact]] = []
    every: list[Ast] = []
    kinds: list[str | None] = []
    otherwise: Known | None = None
    with ctx.given(None):
        for one in ast.args["ifs"]:
            held, condition = ctx.condition(one.this)
            with ctx.given(held):
                value, fact = ctx.of(one.args["true"])
            ctx.exclude(held)
            every.append(exp.If(this=held, true=value))
            kinds.append(fact.kind)
            if otherwise is not None or (condition.never and not condition.fails):
                continue
            if condition.always and not condition.fails:
                otherwise = value, fact
                continue
            branches.append((held, condition, value, fact))
        default = ast.args.get("default")
        last = (s.null(), null()) if default is None else ctx.of(default)
    kinds.append(last[1].kind)
    kind = result_kind(common_kind(kinds))
    if kind is None:
        return exp.Case(ifs=every, default=None if default is None else last[0]), Fact()
    last = otherwise or last
    facts = [fact for _, _, _, fact in branches] + [last[1]]
    merged = one_of(facts)
    fails = merged.fails or any(condition.fails for _, condition, _, _ in branches)
    out = replace(merged, kind=kind, fails=fails)
    if not branches:
        return as_kind(last, kind), out
    if not merged.values and not merged.fails:
        # It is NULL whichever branch is taken, also within a TRY, where a failing condition gives NULL.
        return as_kind(last, kind), replace(out, fails=False)
    if not fails and all(value == last[0] for _, _, value, _ in branches):
        return as_kind(last, kind), out
    if len(branches) == 1 and not fails and not last[1].values:
        held, _, value, fact = branches[0]
        if fact.kind == kind and _only_null(ctx, held, value):
            return value, out
    typed = any(fact.kind == kind for fact in facts)
    ifs = [exp.If(this=held, true=value) for held, _, value, _ in branches]
    last_value = last[0] if typed else as_kind(last, kind)
    made = exp.Case(ifs=ifs, default=None if isinstance(last_value, exp.Null) else last_value)
    return made, out


def _only_null(ctx: Context, condition: Ast, value: Ast) -> bool:
    """Whether a value is NULL wherever a condition does not hold, so that the condition need not be evaluated."""
    known = [one for one in needed(value) if isinstance(one, exp.Column)]
    if not known:
        return False
    with ctx.given(s.and_(*(s.is_not_null(one) for one in known))):
        _, fact = ctx.condition(condition.copy())
    if not fact.always or fact.fails:
        return False
    # The value will be computed for every row, so it must not fail where the condition does not hold either.
    return not ctx.of(value.copy())[1].fails


def _coalesce(ctx: Context, ast: Ast) -> Known:
    known = [ctx.of(arg) for arg in ast.expressions]
    kind = result_kind(common_kind([fact.kind for _, fact in known]))
    if kind is None:
        return with_parts(ast, expressions=[made for made, _ in known]), Fact()
    found: list[Known] = []
    for made, fact in known:
        if fact.values or fact.fails:
            found.append((made, fact))
        if not fact.nulls and not fact.fails:
            break
    if not found:
        return s.null(), null(kind)
    merged = one_of(fact for _, fact in found)
    merged = replace(merged, kind=kind, nulls=all(fact.nulls for _, fact in found))
    if len(found) == 1:
        return as_kind(found[0], kind), merged
    if all(fact.kind != kind for _, fact in found):
        found[-1] = as_kind(found[-1], kind), found[-1][1]
    return with_parts(ast, expressions=[made for made, _ in found]), merged


def _either(facts: Sequence[Fact], neutral: bool = True) -> tuple[bool, bool]:
    """For AND (`neutral`): whether it may be TRUE, and whether it may be FALSE. For OR: whether FALSE, and whether
    TRUE.
    """
    whole, other = Fraction(int(neutral)), Fraction(int(not neutral))
    may_whole = all(fact.values and whole in (fact.low, fact.high) for fact in facts)
    may_other = any(fact.values and other in (fact.low, fact.high) for fact in facts)
    return may_whole, may_other


RULES: Rules = {
    exp.Is: _is,
    exp.Not: _not,
    exp.And: _and,
    exp.Or: _or,
    exp.Case: _case,
    exp.Like: _like,
    exp.Escape: _like,
}
CALLS: Calls = {"COALESCE": _coalesce}
