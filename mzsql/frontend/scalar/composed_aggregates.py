"""Aggregates that are expressions over others: ``corr(y, x)``, ``percentile_cont(0.5) WITHIN GROUP (ORDER BY v)``,
``rank(3) …``.

Promise: each has the meaning in PostgreSQL's documentation, in groups and, without WITHIN GROUP, over windows. It is
maintained incrementally as its parts are: regressions are sums and counts, ordered-set aggregates an array of the
group's sorted values. The trade-off: the last digits of regressions are those of sums of squares, not of PostgreSQL's
running means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import expressions as exp

from mzsql.frontend.scalar.collector import Collector
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.defined import filled
from mzsql.frontend.scalar.nodes import function_name, position_of, unparen
from mzsql.frontend.scalar.typed import Typed
from mzsql.repr.errors import SqlError, UndefinedFunction, Unsupported

#: $1 is y, $2 is x, as doubles; $3 is which rows count: those where both are not NULL.
_N, _Y, _X = "count(*) FILTER (WHERE $3)", "sum($1) FILTER (WHERE $3)", "sum($2) FILTER (WHERE $3)"
_COUNT = f"nullif({_N}, 0)"
_SXX = f"(sum($2 * $2) FILTER (WHERE $3) - {_X} * {_X} / {_COUNT})"
_SYY = f"(sum($1 * $1) FILTER (WHERE $3) - {_Y} * {_Y} / {_COUNT})"
_SXY = f"(sum($1 * $2) FILTER (WHERE $3) - {_X} * {_Y} / {_COUNT})"
_REGRESSIONS: Mapping[str, str] = {
    "corr": f"{_SXY} / nullif(sqrt(abs({_SXX})) * sqrt(abs({_SYY})), 0)",
    "covar_pop": f"{_SXY} / {_COUNT}",
    "covar_samp": f"{_SXY} / nullif({_N} - 1, 0)",
    "regr_avgx": f"{_X} / {_COUNT}",
    "regr_avgy": f"{_Y} / {_COUNT}",
    "regr_count": _N,
    "regr_intercept": f"({_Y} - {_X} * {_SXY} / nullif({_SXX}, 0)) / {_COUNT}",
    "regr_r2": f"CASE WHEN {_SXX} <> 0 THEN CASE WHEN {_SYY} = 0 THEN 1 ELSE {_SXY} * {_SXY} / nullif({_SXX} * {_SYY}, 0) END END",
    "regr_slope": f"{_SXY} / nullif({_SXX}, 0)",
    "regr_sxx": _SXX,
    "regr_sxy": _SXY,
    "regr_syy": _SYY,
}
NAMES = frozenset(_REGRESSIONS)

#: $1 is the fraction, $2 the array of the group's sorted values.
_FRACTION = """CASE WHEN mz_internal.mz_raise_if($1 < 0 OR $1 > 1, 'percentile value ' || $1::text || ' is not between 0 and 1')
    OR $1 IS NULL THEN NULL ELSE {value} END"""
_PLACE = "($1::double precision * (cardinality($2) - 1))"
_FLOOR = f"(($2)[floor{_PLACE}::bigint + 1])"
_CEILING = f"(($2)[ceil{_PLACE}::bigint + 1])"
_OF_ARRAY = {
    "percentile_cont": f"{_FLOOR} + ({_CEILING} - {_FLOOR}) * ({_PLACE} - floor{_PLACE})",
    "percentile_disc": "($2)[greatest(ceil($1::double precision * cardinality($2)), 1)::bigint]",
}
#: $1 is which rows sort before the value $2, $3 which rows count, $4 which rows have the value.
_RANKS = {
    "rank": "1 + count(*) FILTER (WHERE $3 AND $1)",
    "dense_rank": "1 + count(DISTINCT $2) FILTER (WHERE $3 AND $1)"
    " + coalesce(max(($2 IS NULL)::integer) FILTER (WHERE $3 AND $1), 0)",
    "percent_rank": "coalesce((count(*) FILTER (WHERE $3 AND $1))::double precision"
    " / nullif(count(*) FILTER (WHERE $3), 0), 0)",
    "cume_dist": "(1 + count(*) FILTER (WHERE $3 AND ($1 OR $4)))::double precision"
    " / (1 + count(*) FILTER (WHERE $3))",
}


def regression(
    ctx: ExprContext, collector: Collector, node: exp.Expr, where: exp.Expr | None
) -> Typed:
    """An aggregate of two doubles, over the rows where both are not NULL.

    Raises:
        UndefinedFunction: it has other arguments.
    """
    name, args = function_name(node), list(node.expressions)
    if len(args) != 2 or any(isinstance(arg, exp.Distinct | exp.Order | exp.Star) for arg in args):
        raise UndefinedFunction(
            f"function {name} of these arguments does not exist",
            position=position_of(node),
            hint="It takes two numbers, as in corr(y, x).",
        )
    both = _all([_known(arg) for arg in args], where)
    doubles = [_double(arg) for arg in args]
    outer = replace(ctx, aggregates=collector, inside_aggregate=False, clause="SELECT")
    return outer.plan(filled(_REGRESSIONS[name], [*doubles, both]))


def any_value(
    ctx: ExprContext, collector: Collector, value: exp.Expr, where: exp.Expr | None
) -> Typed:
    """Some non-NULL value of the group, for types without an order: the first of all."""
    outer = replace(ctx, aggregates=collector, inside_aggregate=False, clause="SELECT")
    rows = _all([_known(value)], where)
    return outer.plan(filled("(list_agg($1) FILTER (WHERE $2))[1]", [value, rows]))


def extreme_array(
    ctx: ExprContext, collector: Collector, name: str, value: exp.Expr, where: exp.Expr | None
) -> Typed:
    """The least or greatest array of the group, ``min`` or ``max``, in the order of ORDER BY; NULL of none."""
    order = "$1" if name == "min" else "$1 DESC"
    outer = replace(ctx, aggregates=collector, inside_aggregate=False, clause="SELECT")
    rows = _all([_known(value)], where)
    first = f"(list_agg($1 ORDER BY {order}) FILTER (WHERE $2))[1]"
    return outer.plan(filled(first, [value, rows]))


def within_group(ctx: ExprContext, node: exp.WithinGroup, where: exp.Expr | None) -> Typed:
    """An ordered-set or hypothetical-set aggregate.

    Raises:
        SqlError: the function does not take WITHIN GROUP.
        Unsupported: several sort keys.
    """
    call, position = node.this, position_of(node.this)
    name = function_name(call) if isinstance(call, exp.Anonymous) else ""
    keys = node.expression.expressions
    if name not in (*_OF_ARRAY, *_RANKS, "mode"):
        raise SqlError(
            f"{name or 'this'} is not an ordered-set aggregate, so it cannot have WITHIN GROUP",
            position=position,
            sqlstate="42809",
        )
    if len(keys) != 1:
        raise Unsupported("WITHIN GROUP with several keys is not supported", position=position)
    given = list(call.expressions)
    if len(given) != (0 if name == "mode" else 1):
        raise UndefinedFunction(
            f"function {name} of {len(given)} arguments does not exist", position=position
        )
    if name in _RANKS:
        return ctx.plan(_rank(name, keys[0], given[0], where))
    values = _values(keys[0], where, doubles=name == "percentile_cont")
    if name == "mode":
        return ctx.plan(filled("mz_internal.mz_mode($1)", [values]))
    fraction = unparen(given[0])
    of_one = _FRACTION.format(value=_OF_ARRAY[name])
    if isinstance(fraction, exp.Array):
        listed = [filled(of_one, [part, values]) for part in fraction.expressions]
        return ctx.plan(exp.Array(expressions=listed))
    return ctx.plan(filled(of_one, [fraction, values]))


def _values(key: exp.Ordered, where: exp.Expr | None, *, doubles: bool) -> exp.Expr:
    """The array of the group's sorted values."""
    value = _double(key.this) if doubles else key.this
    order = exp.Order(this=value.copy(), expressions=[key.copy()])
    collected = exp.Anonymous(this="array_agg", expressions=[order])
    condition = exp.Where(this=_all([_known(key.this)], where))
    return exp.Filter(this=collected, expression=condition)


def _rank(name: str, key: exp.Ordered, value: exp.Expr, where: exp.Expr | None) -> exp.Expr:
    """The rank that a value would have in the group; NULLs sort as the ORDER BY says."""
    compared = (exp.GT if key.args.get("desc") else exp.LT)(
        this=key.this.copy(), expression=value.copy()
    )
    missing, known = _is_null(key.this), _known(key.this)
    # With NULLS FIRST all NULLs precede every value, else every value precedes them.
    first = bool(key.args.get("nulls_first"))
    apart = [missing, _known(value)] if first else [known, _is_null(value)]
    before = exp.Paren(this=exp.Or(this=compared, expression=exp.paren(exp.and_(*apart))))
    both = exp.paren(exp.and_(missing.copy(), _is_null(value)))
    same = exp.EQ(this=key.this.copy(), expression=value.copy())
    equal = exp.Paren(this=exp.Or(this=same, expression=both))
    return filled(_RANKS[name], [before, key.this, _all([], where), equal])


def _is_null(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()))


def _known(value: exp.Expr) -> exp.Expr:
    return exp.Not(this=_is_null(value))


def _all(conditions: Sequence[exp.Expr], where: exp.Expr | None) -> exp.Expr:
    found: exp.Expr = exp.Boolean(this=True) if where is None else exp.Paren(this=where.copy())
    for condition in conditions:
        found = exp.And(this=found, expression=condition)
    return exp.Paren(this=found)


def _double(value: exp.Expr) -> exp.Expr:
    return exp.Cast(this=exp.Paren(this=value.copy()), to=exp.DataType(this=exp.DType.DOUBLE))
