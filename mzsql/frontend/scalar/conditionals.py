"""Conditional expressions: CASE, COALESCE, GREATEST, LEAST and NULLIF, each with one type for all that it may come to."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed, call, operator_call, to_boolean, unify
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import function_name, known, null_value, position_of
from mzsql.repr.errors import SqlSyntaxError


def _one_row(ctx: ExprContext, what: str) -> ExprContext:
    """The context inside CASE and COALESCE, where table functions are not allowed, since only one of several values is evaluated."""
    if ctx.table_functions is None:
        return ctx
    return replace(ctx, clause=what, table_functions=None)


def case(ctx: ExprContext, node: exp.Expr) -> Typed:
    """CASE, with a value to compare or with conditions."""
    ctx = _one_row(ctx, "CASE")
    operand = node.args.get("this")
    value = ctx.plan(operand) if operand is not None else None
    conditions: list[Typed] = []
    results: list[Typed] = []
    for branch in node.args["ifs"]:
        test = ctx.plan(branch.this)
        if value is not None:
            test = operator_call("=", [value, test], position_of(branch.this))
        conditions.append(to_boolean(test, "argument of CASE/WHEN", position_of(branch.this)))
        results.append(ctx.plan(branch.args["true"]))
    default = node.args.get("default")
    results.append(null_value() if default is None else ctx.plan(default))
    done, typ = unify(results, "CASE", position_of(node))
    out = done[-1]
    for condition, result in zip(reversed(conditions), reversed(done[:-1]), strict=True):
        expr = hir.If(condition.expr, result.expr, out.expr)
        out = Typed(expr, typ, result.nullable or out.nullable)
    return out


def coalesce(ctx: ExprContext, node: exp.Expr) -> Typed:
    """COALESCE, GREATEST or LEAST.

    Raises:
        SqlSyntaxError: there are no arguments.
    """
    name = function_name(node)
    if not node.expressions:
        raise SqlSyntaxError(
            "Expected an expression, found right parenthesis", position=position_of(node)
        )
    inner = _one_row(ctx, "COALESCE") if name == "coalesce" else ctx
    values = [inner.plan(e) for e in node.expressions]
    done, _ = unify(values, name, position_of(node))
    return done[0] if len(done) == 1 else call(name, done)


def nullif(ctx: ExprContext, node: exp.Expr) -> Typed:
    """NULLIF of two values.

    Raises:
        SqlSyntaxError: there are not two arguments.
    """
    given = len(node.expressions)
    if given != 2:
        # NULLIF has a syntax of its own, in Materialize as in PostgreSQL, so a wrong number of arguments is a syntax error.
        closed = "right parenthesis"
        wanted = {0: f"an expression, found {closed}", 1: f"comma, found {closed}"}
        raise SqlSyntaxError(
            f"Expected {wanted.get(given, f'{closed}, found comma')}", position=position_of(node)
        )
    left, right = (ctx.plan(e) for e in node.expressions)
    equal = operator_call("=", [left, right], position_of(node))
    if left.typ.kind == "unknown":
        left = known(left)
    null = Literal(None, left.typ)
    return Typed(hir.If(equal.expr, null, left.expr), left.typ, True)
