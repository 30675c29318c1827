"""Conditions: logic, comparisons, LIKE, IN, ANY and ALL, EXISTS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.hir_visit import shifted
from mzsql.frontend.scalar.coerce import (
    Typed,
    call,
    exact_numeric,
    operator_call,
    to_boolean,
)
from mzsql.frontend.scalar.containers import elements_query
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import (
    combine,
    known,
    negate,
    position_of,
    unparen,
)
from mzsql.frontend.scalar.rows import Operand, compare, operand, query_sides, same, subquery_value
from mzsql.frontend.scalar.standard import similar_to
from mzsql.repr import types as t
from mzsql.repr.errors import (
    DataError,
    SqlError,
    SqlSyntaxError,
    UndefinedFunction,
    Unsupported,
)
from mzsql.repr.types import SqlType


def _connector(ctx: ExprContext, node: exp.Expr) -> Typed:
    kind = type(node)
    key, clause = ("and", "AND argument") if kind is exp.And else ("or", "OR argument")
    operands: list[exp.Expr] = []
    while isinstance(node, kind):  # the chain is as long as the text, and leans to the left
        operands.append(node.expression)
        node = node.this
    operands.append(node)
    operands.reverse()
    planned = [to_boolean(ctx.plan(o), clause, position_of(o)) for o in operands]
    return combine(key, planned)


def _not(ctx: ExprContext, node: exp.Expr) -> Typed:
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.In) and node.this is inner:
        return _in(ctx, inner, negated=True)
    if isinstance(inner, exp.Between) and node.this is inner:
        return _between(ctx, inner, negated=True)
    if isinstance(inner, exp.Like | exp.ILike) and node.this is inner:
        return _like(ctx, inner, negated=True)
    operand = to_boolean(ctx.plan(node.this), "NOT argument", position_of(node.this))
    return call("not", [operand])


def _is(ctx: ExprContext, node: exp.Expr) -> Typed:
    value = ctx.plan(node.this)
    right = node.expression
    if isinstance(right, exp.Null):
        done = call("is_null", [known(value)])
    elif isinstance(right, exp.Boolean):
        condition = to_boolean(value, "argument of IS TRUE", position_of(node.this))
        done = call("is_true" if right.this else "is_false", [condition])
    elif isinstance(right, exp.Column) and right.name.lower() == "unknown":
        condition = to_boolean(value, "argument of IS UNKNOWN", position_of(node.this))
        done = call("is_null", [condition])
    else:
        raise SqlSyntaxError(
            "Expected NULL, NOT NULL, TRUE, NOT TRUE, FALSE, NOT FALSE, UNKNOWN, NOT UNKNOWN after IS",
            position=position_of(right),
        )
    return negate(done) if node.args.get("negate") else done


def _same(ctx: ExprContext, node: exp.Expr) -> Typed:
    """IS NOT DISTINCT FROM."""
    left, right = operand(ctx, node.this), operand(ctx, node.expression)
    return same(left, right, position_of(node))


def _distinct_from(ctx: ExprContext, node: exp.Expr) -> Typed:
    return negate(_same(ctx, node))


# --- operators -----------------------------------------------------------------------------------

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "^",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.RegexpLike: "~",
    exp.RegexpILike: "~*",
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBContains: "?",
    exp.ArrayContainsAll: "@>",
    exp.ArrayContainedBy: "<@",
}
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})


def _binary(ctx: ExprContext, node: exp.Expr) -> Typed:
    symbol = _OPERATORS[type(node)]
    if isinstance(node.expression, exp.Any | exp.All):
        return _quantified(ctx, node, symbol)
    if symbol in _COMPARISONS:
        left, right = operand(ctx, node.this), operand(ctx, node.expression)
        return compare(symbol, left, right, position_of(node))
    planned = [ctx.plan(node.this), ctx.plan(node.expression)]
    return operator_call(symbol, planned, position_of(node))


def _named_operator(ctx: ExprContext, node: exp.Expr) -> Typed:
    """``a OPERATOR(pg_catalog.~) b``: an operator by its schema and name."""
    spelled = node.args["operator"]
    text = spelled if isinstance(spelled, str) else spelled.name or spelled.sql()
    schema, _, symbol = text.replace('"', "").replace(" ", "").rpartition(".")
    if schema not in ("", "pg_catalog", "mz_catalog"):
        raise UndefinedFunction(
            f"operator does not exist: {schema}.{symbol}", position=position_of(node)
        )
    negated = symbol.startswith("!") and symbol != "!="
    symbol = {"!=": "<>"}.get(symbol, symbol.removeprefix("!"))
    if symbol in _COMPARISONS:
        left, right = operand(ctx, node.this), operand(ctx, node.expression)
        return compare(symbol, left, right, position_of(node))
    planned = [ctx.plan(node.this), ctx.plan(node.expression)]
    done = operator_call(symbol, planned, position_of(node))
    return negate(done) if negated else done


def _unary(symbol: str) -> Callable[[ExprContext, exp.Expr], Typed]:
    def plan(ctx: ExprContext, node: exp.Expr) -> Typed:
        inner = unparen(node.this)
        if symbol == "-" and isinstance(inner, exp.Literal) and not inner.is_string:
            return _negative(ctx, inner)
        operand = ctx.plan(node.this)
        if symbol == "+" and operand.typ.kind != "unknown":
            return operand
        return operator_call(symbol, [operand], position_of(node))

    return plan


def _negative(ctx: ExprContext, node: exp.Expr) -> Typed:
    """-<number>: a literal, so that the smallest integer can be written."""
    text = str(node.this)
    if text.isdigit():
        for kind, bits in (("integer", 31), ("bigint", 63)):
            if int(text) <= 2**bits:
                typ = SqlType(kind)
                return Typed(Literal(-int(text), typ), typ, False)
    del ctx
    return exact_numeric(text, "-")


def _like_symbol(node: exp.Expr) -> str:
    return "~~*" if isinstance(node, exp.ILike) else "~~"


def _like(ctx: ExprContext, node: exp.Expr, *, negated: bool = False) -> Typed:
    symbol = _like_symbol(node)
    negated = negated or bool(node.args.get("negate"))
    if isinstance(node.expression, exp.Any | exp.All):
        return _quantified(ctx, node, symbol, negated=negated)
    args = [ctx.plan(node.this), ctx.plan(node.expression)]
    done = operator_call(symbol, args, position_of(node))
    return negate(done) if negated else done


def _escape(ctx: ExprContext, node: exp.Expr) -> Typed:
    inner = node.this
    if isinstance(inner, exp.SimilarTo) and node.expression.is_string:
        return similar_to(ctx, inner, _one_letter(node))
    if not isinstance(inner, exp.Like | exp.ILike) or isinstance(
        inner.expression, exp.Any | exp.All
    ):
        raise Unsupported("ESCAPE with this operand is not supported", position=position_of(node))
    pattern = inner.expression
    if not (node.expression.is_string and pattern.is_string):
        escaped = [ctx.plan(pattern), ctx.plan(node.expression)]
        args = [ctx.plan(inner.this), call("like_escape", escaped)]
        done = operator_call(_like_symbol(inner), args, position_of(node))
        return negate(done) if inner.args.get("negate") else done
    escape = _one_letter(node)
    if escape != "\\":
        inner = inner.copy()
        inner.set("expression", exp.Literal.string(_reescaped(pattern.name, escape)))
    return _like(ctx, inner)


def _one_letter(node: exp.Expr) -> str:
    """The escape character of LIKE … ESCAPE; it may be empty."""
    escape = node.expression.name
    if len(escape) > 1:
        raise DataError(
            "invalid escape string",
            position=position_of(node),
            hint="Escape string must be empty or one character.",
            sqlstate="22025",
        )
    return str(escape)


def _reescaped(text: str, escape: str) -> str:
    """The pattern with a backslash as its escape character."""
    out: list[str] = []
    escaped = False
    for letter in text:
        if escaped or letter != escape:
            out.append("\\\\" if letter == "\\" and not escaped else letter)
            escaped = False
        else:
            out.append("\\")
            escaped = True
    return "".join(out)


def _between(ctx: ExprContext, node: exp.Expr, *, negated: bool = False) -> Typed:
    value, low, high = (ctx.plan(node.args[part]) for part in ("this", "low", "high"))
    position = position_of(node)
    if node.args.get("symmetric"):
        one = _within(value, low, high, position, negated=False)
        other = _within(value, high, low, position, negated=False)
        done = combine("or", [one, other])
        return negate(done) if negated else done
    return _within(value, low, high, position, negated=negated)


def _within(value: Typed, low: Typed, high: Typed, position: int | None, *, negated: bool) -> Typed:
    if negated:
        below = operator_call("<", [value, low], position)
        return combine("or", [below, operator_call(">", [value, high], position)])
    above = operator_call(">=", [value, low], position)
    return combine("and", [above, operator_call("<=", [value, high], position)])


# --- IN, ANY, ALL, subqueries --------------------------------------------------------------------


def _in(ctx: ExprContext, node: exp.Expr, *, negated: bool = False) -> Typed:
    query = node.args.get("query")
    if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Values):
        (query,) = node.expressions
    if query is not None:
        done = _any_all(ctx, node.this, "=", query, position_of(node), every=False)
        return negate(done) if negated else done
    if node.args.get("field") is not None or node.args.get("unnest") is not None:
        raise SqlSyntaxError(
            "Expected left parenthesis, found identifier", position=position_of(node)
        )
    if not node.expressions:
        raise SqlSyntaxError(
            "Expected an expression, found right parenthesis", position=position_of(node)
        )
    symbol, key = ("<>", "and") if negated else ("=", "or")
    position = position_of(node)
    left = operand(ctx, node.this)
    members = [operand(ctx, e) for e in node.expressions]
    return combine(key, [compare(symbol, left, m, position) for m in members])


def _quantified(ctx: ExprContext, node: exp.Expr, symbol: str, *, negated: bool = False) -> Typed:
    quantifier = node.expression
    query = unparen(quantifier.this)
    bare = isinstance(query, exp.Literal) and query.is_string
    if bare or isinstance(query, exp.Parameter | exp.Placeholder | exp.Null):
        query = _array_of(query, ctx.plan(node.this).typ)
    if not isinstance(query, exp.Subquery | exp.Query | exp.Values):
        query = elements_query(query)
    every = isinstance(quantifier, exp.All)
    position = position_of(node)
    return _any_all(ctx, node.this, symbol, query, position, every=every, negated=negated)


def _array_of(text: exp.Expr, element: SqlType) -> exp.Expr:
    """A quoted text, NULL or a parameter in ANY or ALL as an array of what it is compared with."""
    if element.kind in ("unknown", "record") or element.element is not None:
        return text
    inner = exp.DataType(this=exp.DType.USERDEFINED, kind=element.kind)
    return exp.Cast(this=text, to=exp.DataType(this=exp.DType.ARRAY, expressions=[inner]))


def _any_all(
    ctx: ExprContext,
    left: exp.Expr,
    symbol: str,
    query: exp.Expr,
    position: int | None,
    *,
    every: bool,
    negated: bool = False,
) -> Typed:
    """``left symbol ANY|ALL (query)``: the comparison mapped over the query's rows, then reduced; ``negated`` for NOT
    LIKE ANY and the like.
    """
    target = operand(ctx, left)
    planned = ctx.planner.subquery(query, ctx.scope)
    outer, inner = query_sides(target, planned, position)
    moved = tuple(Typed(shifted(v.expr, 1), v.typ, v.nullable) for v in outer.values)
    comparison = compare(symbol, Operand(moved, outer.row), inner, position)
    if comparison.typ.kind != "boolean":
        raise SqlError(
            "op ANY/ALL requires operator to yield boolean", position=position, sqlstate="42809"
        )
    comparison = negate(comparison) if negated else comparison
    mapped = hir.Map(planned.relation, (comparison.expr,))
    column = hir.Column(len(planned.types))
    # If no comparison can be NULL, neither can the result.
    nullable = comparison.nullable
    aggregate = hir.Aggregate("all" if every else "any", column, False, t.BOOLEAN, nullable)
    return Typed(hir.Select(hir.Reduce(mapped, (), (aggregate,))), t.BOOLEAN, True)


def _exists(ctx: ExprContext, node: exp.Expr) -> Typed:
    planned = ctx.planner.subquery(node.this, ctx.scope)
    return Typed(hir.Exists(planned.relation), t.BOOLEAN, False)


def _scalar_subquery(ctx: ExprContext, node: exp.Expr) -> Typed:
    value, several = subquery_value(ctx, node)
    if several:
        raise SqlSyntaxError(
            f"Expected subselect to return 1 column, got {len(value.typ.fields)} columns",
            position=position_of(node),
        )
    return value


#: This module's handlers.
HANDLERS: dict[type[exp.Expr], Callable[[ExprContext, Any], Typed]] = {
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
    exp.Operator: _named_operator,
    exp.Is: _is,
    exp.NullSafeEQ: _same,
    exp.NullSafeNEQ: _distinct_from,
    **dict.fromkeys(_OPERATORS, _binary),
    exp.Neg: _unary("-"),
    exp.BitwiseNot: _unary("~"),
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Between: _between,
    exp.In: _in,
    exp.Exists: _exists,
    exp.Subquery: _scalar_subquery,
    exp.Select: _scalar_subquery,
    exp.Values: _scalar_subquery,
}
