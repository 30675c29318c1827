"""Aggregates, collected while the expressions around them are planned.

Promise: an aggregate is planned over the rows before grouping and leaves a marker, a column of level -1, which the
query planner replaces by a column of the `Reduce`. FILTER becomes a CASE inside the aggregate; `avg` and the variances
become sums and counts, as in Materialize. So a `Reduce` only has aggregates of the table of functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.functions.aggregate import collecting
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.hir_visit import map_columns
from mzsql.frontend.scalar import composed_aggregates
from mzsql.frontend.scalar.coerce import (
    NO_OVERLOAD,
    NOT_UNIQUE,
    Typed,
    apply,
    as_jsonb,
    call,
    cast,
    category,
    function_call,
    integer,
    operator_call,
    plain_name,
    resolve,
    settle,
    to_boolean,
    unify,
)
from mzsql.frontend.scalar.collector import Collector
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.frontend.scalar.typed import sortable
from mzsql.repr import types as t
from mzsql.repr.errors import SqlSyntaxError, UndefinedFunction, Unsupported
from mzsql.repr.types import SqlType

#: Aggregates that are planned as expressions over other aggregates.
DESUGARED = frozenset(
    {
        "avg",
        "stddev",
        "stddev_samp",
        "stddev_pop",
        "variance",
        "var_samp",
        "var_pop",
    }
)
#: Aggregates planned under another name: any_value may return any value, so it returns the least.
#: PostgreSQL's json is jsonb here.
_SYNONYMS = {
    "any_value": "min",
    "every": "bool_and",
    "json_agg": "jsonb_agg",
    "json_object_agg": "jsonb_object_agg",
}
#: Aggregates known from PostgreSQL or CockroachDB that do not exist here.
_UNSUPPORTED = frozenset({"concat_agg"})
#: The function that wraps each collected value.
_ITEMS = {"array_agg": "array_item", "list_agg": "list_item"}
#: Aggregates that collect jsonb values: the last argument is cast to jsonb.
_DOCUMENTS = frozenset({"jsonb_agg", "jsonb_object_agg"})
#: Aggregates whose result depends on the order of their input.
_ORDERED = {"string_agg": 2, **collecting.ARGUMENTS}


def is_aggregate(name: str) -> bool:
    """Whether a name means an aggregate."""
    return (
        name in (DESUGARED | _UNSUPPORTED | composed_aggregates.NAMES)
        or name in _SYNONYMS
        or (name not in ("any", "all") and bool(functions.aggregates_named(name)))
    )


@dataclass(frozen=True)
class _Call:
    """An aggregate's call, taken apart; `said` is the name as written, `name` the aggregate that it means."""

    said: str
    name: str
    args: tuple[exp.Expr, ...]
    distinct: bool
    star: bool
    order: tuple[exp.Expr, ...]
    position: int | None


def _take_apart(node: exp.Expr) -> _Call:
    args: list[exp.Expr] = list(node.expressions)
    order: list[exp.Expr] = []
    if args and isinstance(args[-1], exp.Order):
        order = list(args[-1].expressions)
        args[-1] = args[-1].this
    distinct = False
    if args and isinstance(args[0], exp.Distinct):
        distinct = True
        args = [*args[0].expressions, *args[1:]]
    star = len(args) == 1 and isinstance(args[0], exp.Star)
    name = function_name(node)
    return _Call(
        name,
        _SYNONYMS.get(name, name),
        tuple(args),
        distinct,
        star,
        tuple(order),
        position_of(node),
    )


def plan_aggregate(
    ctx: ExprContext, collector: Collector, node: exp.Expr, where: exp.Expr | None
) -> Typed:
    """The marker of an aggregate, or the expression over markers that it is planned as.

    Args:
        ctx: the context of its arguments.
        collector: collects the aggregates of this grouping.
        node: the call.
        where: the condition of FILTER.
    """
    if function_name(node) in composed_aggregates.NAMES:
        return composed_aggregates.regression(ctx, collector, node, where)
    parts = _take_apart(node)
    condition = None
    if where is not None:
        inner = replace(
            ctx,
            clause="FILTER",
            aggregates=None,
            windows=False,
            table_functions=None,
            inside_aggregate=False,
        )
        condition = to_boolean(inner.plan(where), "argument of FILTER", parts.position)
    _refuse_unknown(parts)
    if parts.star:
        true = Typed(Literal(True, t.BOOLEAN), t.BOOLEAN, False)
        return _add(collector, "count", [true], condition, False, parts.position, "count")
    args = [ctx.plan(a) for a in parts.args]
    _refuse_outer([*args, *([] if condition is None else [condition])], parts.position)
    if parts.name in _ORDERED:
        return _ordered(ctx, collector, parts, args, condition)
    if parts.name in DESUGARED:
        return _desugar(collector, parts, args, condition)
    if parts.name in ("bool_or", "bool_and") and [a.typ.kind for a in args] == ["boolean"]:
        return _counted(collector, parts, args[0], condition)
    if parts.said == "any_value" and _has_no_least(args):
        return composed_aggregates.any_value(ctx, collector, parts.args[0], where)
    if parts.name in ("min", "max") and [a.typ.kind for a in args] == ["array"]:
        return composed_aggregates.extreme_array(ctx, collector, parts.name, parts.args[0], where)
    return _add(collector, parts.name, args, condition, parts.distinct, parts.position, parts.said)


def _has_no_least(args: Sequence[Typed]) -> bool:
    """Whether the only argument has a type without an order, so that min cannot stand for any_value."""
    if len(args) != 1 or args[0].typ.kind == "unknown":
        return False
    return resolve(functions.aggregates_named("min"), [args[0].typ]) is None


def _refuse_unknown(parts: _Call) -> None:
    """Refuse calls in forms that no aggregate has."""
    if parts.name in _UNSUPPORTED:
        raise Unsupported(f"{parts.name} not yet supported", position=parts.position)
    if parts.name == "count" and not parts.args:
        raise SqlSyntaxError(
            "count(*) must be used to call a parameterless aggregate function",
            position=parts.position,
            sqlstate="42809",
        )
    if parts.star and parts.name != "count":
        raise UndefinedFunction(f"function {parts.said}() does not exist", position=parts.position)
    if len(parts.args) > 1 and isinstance(parts.args[0], exp.Star):
        raise SqlSyntaxError("Expected right parenthesis, found comma", position=parts.position)
    if parts.star and parts.distinct:
        raise SqlSyntaxError("DISTINCT * not supported as function args", position=parts.position)


def _refuse_outer(values: Sequence[Typed], position: int | None) -> None:
    """Refuse an aggregate over columns of an enclosing query only: by the SQL standard it would belong to that query."""
    inner = outer = False

    def visit(depth: int, column: hir.Column) -> hir.Scalar:
        nonlocal inner, outer
        inner = inner or column.level == depth
        outer = outer or column.level > depth
        return column

    for value in values:
        map_columns(value.expr, visit)
    if outer and not inner:
        raise Unsupported(
            "aggregate functions that refer exclusively to outer columns not yet supported",
            position=position,
        )


def _ordered(
    ctx: ExprContext,
    collector: Collector,
    parts: _Call,
    args: list[Typed],
    condition: Typed | None,
) -> Typed:
    """An aggregate over a sequence: its argument is a row of a row of its arguments, followed by the sort keys."""
    keys: list[Typed] = []
    order: list[tuple[bool, bool]] = []
    # Without an ORDER BY of its own it takes the order of the rows that it is over.
    for item in parts.order or collector.order:
        keys.append(sortable(settle(ctx.plan(item.this))))
        order.append((bool(item.args.get("desc")), not item.args.get("nulls_first")))
    shown = f"function {parts.name}({', '.join(plain_name(a.typ) for a in args)})"
    if len(args) != _ORDERED[parts.name]:
        raise UndefinedFunction(f"{shown} does not exist", position=parts.position)
    if parts.name == "array_agg" and args[0].typ.kind == "unknown":
        raise _not_unique(shown, parts.position)
    if parts.name == "string_agg":
        args = _texts(args, shown, parts.position)
    if parts.name in _DOCUMENTS:
        args = [*args[:-1], as_jsonb(args[-1])]
    func, row = in_order(parts.name, args, keys, tuple(order))
    expr = row.expr
    if condition is not None:
        expr = hir.If(condition.expr, expr, Literal(None, row.typ))
    typ = func.result_type([row.typ])
    made = collector.add(hir.Aggregate(func.key, expr, parts.distinct, typ, func.nullable))
    of_arrays = parts.name == "array_agg" and args[0].typ.kind == "array"
    return call("array_accumulated", [made], typ) if of_arrays else made


def in_order(
    name: str, args: Sequence[Typed], keys: Sequence[Typed], order: tuple[tuple[bool, bool], ...]
) -> tuple[Any, Typed]:
    """The aggregate over a sequence in the order of these keys, and the row that it reads.

    Args:
        name: the aggregate.
        args: its arguments.
        keys: the sort keys.
        order: for each key, whether it is descending, and whether NULLs come last.
    """
    row = call("row", [_collected(name, args), *keys])
    return functions.aggregate(functions.ordered_key(name, order)), row


def _collected(name: str, args: Sequence[Typed]) -> Typed:
    """What an ordered aggregate collects from a row: a row of its arguments; for jsonb_agg the jsonb value itself."""
    if name == "jsonb_agg":
        return args[0]
    return call(_ITEMS.get(name, "row"), [settle(arg) for arg in args])


def _texts(args: list[Typed], shown: str, position: int | None) -> list[Typed]:
    """The arguments of string_agg."""
    if any(a.typ.kind == "bytea" for a in args):
        raise Unsupported("string_agg on BYTEA not yet supported", position=position)
    texts = [cast(a, t.TEXT, "implicit") for a in args]
    if any(text is None for text in texts):
        raise UndefinedFunction(f"{shown} does not exist", position=position, hint=NO_OVERLOAD)
    return [text for text in texts if text is not None]


def _not_unique(shown: str, position: int | None) -> UndefinedFunction:
    return UndefinedFunction(
        f"{shown} is not unique",
        position=position,
        hint=NOT_UNIQUE,
        sqlstate="42725",
    )


def _add(
    collector: Collector,
    name: str,
    args: list[Typed],
    condition: Typed | None,
    distinct: bool,
    position: int | None,
    said: str | None = None,
) -> Typed:
    func = _overload(name, args, position, said or name)
    done = apply(func, args)
    if len(done) != 1:
        raise Unsupported(f"{name} with {len(done)} arguments is not supported", position=position)
    (value,) = done
    expr = value.expr
    if condition is not None:
        expr = hir.If(condition.expr, expr, Literal(None, value.typ))
    typ = func.result_type([value.typ])
    if func.kind == "hierarchical" or name in ("any", "all", "max", "min"):
        distinct = False  # equal values change nothing
    aggregate = hir.Aggregate(func.key, expr, distinct, typ, func.nullable)
    return collector.add(aggregate, part=said is None)


def _overload(name: str, args: list[Typed], position: int | None, said: str) -> Any:
    shown = f"function {said}({', '.join(plain_name(a.typ) for a in args)})"
    if name == "sum" and [a.typ.kind for a in args] == ["unknown"]:
        # The literal could be a number or an interval.
        raise _not_unique(shown, position)
    try:
        func = resolve(functions.aggregates_named(name), [a.typ for a in args])
    except UndefinedFunction:
        raise _not_unique(shown, position) from None
    if func is None and name == "sum" and [a.typ.kind for a in args] == ["interval"]:
        raise Unsupported("sum(interval) not yet supported", position=position)
    if func is None:
        raise UndefinedFunction(
            f"{shown} does not exist",
            position=position,
            hint=NO_OVERLOAD,
        )
    return func


# --- aggregates made of others ---------------------------------------------------------------------


def _desugar(
    collector: Collector, parts: _Call, args: list[Typed], condition: Typed | None
) -> Typed:
    # As in Materialize, avg is computed from sum: a type without a sum has no average.
    name = "sum" if parts.name == "avg" else parts.name
    shown = f"function {name}({', '.join(plain_name(a.typ) for a in args)})"
    if len(args) != 1:
        raise UndefinedFunction(f"{shown} does not exist", position=parts.position)
    (value,) = args
    if value.typ.kind not in ("interval", "unknown") and not _is_number(value.typ):
        raise UndefinedFunction(
            f"{shown} does not exist",
            position=parts.position,
            hint=NO_OVERLOAD,
        )
    if value.typ.kind == "unknown" and parts.name == "avg":
        raise _not_unique(shown, parts.position)
    if value.typ.kind == "unknown":
        value = cast(value, t.DOUBLE, "implicit") or value
    if parts.name == "avg":
        return _average(collector, parts, value, condition)
    return _variance(collector, parts, value, condition)


def _counted(collector: Collector, parts: _Call, value: Typed, condition: Typed | None) -> Typed:
    """bool_or and bool_and as counts of deciding rows, so that only one number per group is kept."""
    every = parts.name == "bool_and"
    decisive = call("not", [value]) if every else value
    total = _add(
        collector, "sum", [_as(decisive, t.INTEGER)], condition, parts.distinct, parts.position
    )
    return operator_call("=" if every else ">", [total, _bigint(0)], parts.position)


def _is_number(typ: SqlType) -> bool:

    return category(typ) == "number"


def _bigint(value: int) -> Typed:
    return _as(Typed(Literal(value, t.INTEGER), t.INTEGER, False), t.BIGINT)


def _or_null(count: Typed, zero: Typed, position: int | None) -> Typed:
    """The count, or NULL where it is zero: division by it is then NULL instead of an error."""
    empty = operator_call("=", [count, zero], position)
    return Typed(hir.If(empty.expr, Literal(None, count.typ), count.expr), count.typ, True)


def _average(collector: Collector, parts: _Call, value: Typed, condition: Typed | None) -> Typed:
    total = _add(collector, "sum", [value], condition, parts.distinct, parts.position)
    count = _add(collector, "count", [value], condition, parts.distinct, parts.position)
    divisor = _or_null(count, _bigint(0), parts.position)
    if value.typ.kind in ("real", "double"):
        wide, over = _as(total, t.DOUBLE), _as(divisor, t.DOUBLE)
    elif value.typ.kind == "interval":
        wide, over = total, _as(divisor, t.DOUBLE)
    else:
        wide, over = _as(total, t.NUMERIC), _as(divisor, t.NUMERIC)
    return operator_call("/", [wide, over], parts.position)


def _as(value: Typed, typ: SqlType) -> Typed:
    done = cast(value, typ, "explicit")
    assert done is not None
    return done


def _variance(collector: Collector, parts: _Call, value: Typed, condition: Typed | None) -> Typed:
    """The variance (stddev: its root), from sums and a count."""
    position = parts.position
    number = t.DOUBLE if value.typ.kind in ("real", "double") else t.NUMERIC
    value = _as(value, number)
    square = operator_call("*", [value, value], position)
    squares = _squares(collector, parts, value, square, condition)
    total = _add(collector, "sum", [value], condition, parts.distinct, position)
    count = _add(collector, "count", [value], condition, parts.distinct, position)
    less = (
        count if parts.name.endswith("_pop") else operator_call("-", [count, _bigint(1)], position)
    )
    spread = _spread_of_doubles if number == t.DOUBLE else _spread_of_numerics
    return spread(parts, squares, total, count, less)


def _spread_of_doubles(
    parts: _Call, squares: Typed, total: Typed, count: Typed, less: Typed
) -> Typed:
    """(sum(x²) - sum(x)²/n) / (n or n-1), as Materialize computes it; negative rounding errors are cut off before the
    root.
    """
    position = parts.position

    def over(value: Typed, divisor: Typed) -> Typed:
        wide = _as(_or_null(divisor, _bigint(0), position), t.DOUBLE)
        return operator_call("/", [value, wide], position)

    of_total = over(operator_call("*", [total, total], position), count)
    variance = over(operator_call("-", [squares, of_total], position), less)
    zero = integer(0)
    least, _ = unify([variance, _as(zero, t.DOUBLE)], "greatest", position)
    unknown = call("is_null", [variance]).expr
    known = hir.If(unknown, Literal(None, t.DOUBLE), call("greatest", least).expr)
    positive = Typed(known, t.DOUBLE, True)
    return function_call("sqrt", [positive], position) if _is_root(parts) else positive


def _is_root(parts: _Call) -> bool:
    return parts.name.startswith("stddev")


def _spread_of_numerics(
    parts: _Call, squares: Typed, total: Typed, count: Typed, less: Typed
) -> Typed:
    """(n·sum(x²) - sum(x)²) / (n·n or n·(n-1)), as PostgreSQL computes it: only the last quotient is rounded."""
    position, number = parts.position, t.NUMERIC
    n = _as(count, number)
    of_total = operator_call("*", [total, total], position)
    spread = operator_call("-", [operator_call("*", [n, squares], position), of_total], position)
    # Exact where the scale allows it, and then never negative; rounding must not make it negative either.
    spread = function_call("abs", [spread], position)
    pairs = operator_call("*", [count, less], position)
    divisor = _as(_or_null(pairs, _bigint(0), position), number)
    variance = operator_call("/", [spread, divisor], position)
    return function_call("sqrt", [variance], position) if _is_root(parts) else variance


def _squares(
    collector: Collector, parts: _Call, value: Typed, square: Typed, condition: Typed | None
) -> Typed:
    """The sum of squares. With DISTINCT, positive and negative values are summed apart, since opposite values have the
    same square.
    """
    position = parts.position
    if not parts.distinct:
        return _add(collector, "sum", [square], condition, parts.distinct, position)
    zero = _as(_bigint(0), value.typ)
    sums = []
    for sign in (">=", "<"):
        side = operator_call(sign, [value, zero], position)
        side = side if condition is None else call("and", [condition, side])
        total = _add(collector, "sum", [square], side, parts.distinct, position)
        sums.append(call("coalesce", unify([total, zero], "coalesce", position)[0]))
    return operator_call("+", sums, position)
