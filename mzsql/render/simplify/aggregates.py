"""Rules for aggregates, over groups and over whole relations, for windows, and for UNNEST.

Promise: every rule keeps what `mzsql.render.simplify` promises; it uses facts on the parts of its node, and what
may be assumed there (`context.Context`).
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import expressions as exp

from mzsql.render.facts import (
    HUGEINT,
    INTEGERS,
    NULL,
    NUMBER,
    STRING,
    Fact,
    decimal,
    decimal_kind,
    one_of,
    total_of,
)
from mzsql.render.simplify.context import Calls, Context, Rules
from mzsql.render.simplify.pieces import Ast, Known, holds, is_constant, with_parts


def _sum(ctx: Context, ast: Ast) -> Known:
    inner, fact = ctx.of(ast.this)
    made = with_parts(ast, this=inner)
    kind = _summed(fact.kind)
    if kind is None:
        return made, Fact()
    low, high = total_of(fact, ctx.rows)
    total = ctx.total(inner)
    if total is not None and low is not None and high is not None:
        low, high = max(low, -total), min(high, total)
    # An ungrouped sum must stay an aggregate: as a constant the query would return a row for each input row.
    whole = not ctx.grouped
    out = Fact(kind, fact.values or whole, fact.nulls or whole, low, high)
    return made, replace(out, fails=fact.fails or not holds(out))


def _extreme(ctx: Context, ast: Ast) -> Known:
    inner, fact = ctx.of(ast.this)
    if ast.expressions or fact.kind in (None, NUMBER, STRING, NULL):
        return ast, Fact()
    whole = not ctx.grouped
    return with_parts(ast, this=inner), replace(
        fact, values=fact.values or whole, nulls=fact.nulls or whole
    )


def _window(ctx: Context, ast: Ast) -> Known:
    """A window's aggregate. A frame that has the current row is never empty, so what is known of the aggregate over
    a group holds.
    """
    spec = ast.args.get("spec")
    partition = [ctx.of(one) for one in ast.args.get("partition_by") or ()]
    parts = [made for made, fact in partition if not is_constant(fact)]
    made = with_parts(ast, partition_by=parts)
    of = {exp.Sum: _sum, exp.Max: _extreme}.get(type(ast.this))
    if of is None or spec is None or not _has_current_row(spec):
        return made, Fact()
    total, fact = of(ctx.of_groups(), ast.this)
    made.set("this", total)
    return made, fact


def _has_current_row(spec: exp.WindowSpec) -> bool:
    end = spec.args["end"]
    return bool(end == "CURRENT ROW" or (end == "UNBOUNDED" and spec.args["start"] == "UNBOUNDED"))


def _unnest(ctx: Context, ast: Ast) -> Known:
    array = ast.expressions[0]
    if not isinstance(array, exp.Array) or not array.expressions:
        return ast, Fact()
    merged = one_of(ctx.of(item)[1] for item in array.expressions)
    # It makes rows, so it must not be taken for a constant.
    return ast, merged if merged.low != merged.high else Fact(merged.kind, fails=merged.fails)


def _summed(kind: str | None) -> str | None:
    """The type of a sum; None if it is not known."""
    if kind in INTEGERS:
        return HUGEINT
    shape = decimal(kind)
    return None if shape is None else decimal_kind(38, shape[1])


RULES: Rules = {
    exp.Sum: _sum,
    exp.Max: _extreme,
    exp.Min: _extreme,
    exp.Window: _window,
}
CALLS: Calls = {"UNNEST": _unnest}
