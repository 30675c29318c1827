"""Scalars, aggregates and `MapFilterProject` in plans AS JSON, in the form of Materialize's plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mzsql.explain import variants
from mzsql.explain.row_bytes import row_bytes
from mzsql.explain.scalars import shown_in_mfp
from mzsql.expr import scalar as sc
from mzsql.expr.functions.aggregate.aggregates import parse_ordered_key
from mzsql.expr.mfp import MapFilterProject
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType

#: A JSON object in a plan.
Node = dict[str, Any]


def global_id(gid: GlobalId) -> Node:
    """``{"User": 1}``."""
    kind = {"u": "User", "s": "System", "t": "Transient"}[gid[0]]
    return {kind: int(gid[1:])}


def any_id(gid: GlobalId | int) -> Node:
    """The id that a Get reads."""
    return {"Local": gid} if isinstance(gid, int) else {"Global": global_id(gid)}


def packed(row: Row, columns: Sequence[ColumnType]) -> Node:
    """A row of constants."""
    return {"data": row_bytes(row, columns)}


def scalar(expr: sc.Scalar) -> Node:
    """An expression."""
    match expr:
        case sc.Column(index=index):
            return {"Column": index}
        case sc.Literal(value=value, typ=typ):
            column = ColumnType(typ, value is None)
            return {"Literal": [{"Ok": packed((value,), (column,))}, variants.column_type(column)]}
        case sc.LiteralError(message=message, typ=typ):
            column = ColumnType(typ, nullable=False)
            return {"Literal": [{"Err": variants.error(message)}, variants.column_type(column)]}
        case sc.Unmaterializable(func=func):
            return {"CallUnmaterializable": variants.camel(func)}
        case sc.If(condition=c, then=t, otherwise=o):
            return {"If": {"cond": scalar(c), "then": scalar(t), "els": scalar(o)}}
        case sc.Call():
            return call(expr, scalar)


def call(expr: Any, part: Callable[[Any], Node], names: Sequence[str] | None = None) -> Node:
    """A function call of MIR, or of HIR, whose scalars ``part`` prints; ``names`` are the field names of a record."""
    count = len(expr.args)
    if expr.func == "row":
        fields = list(names or [f"f{i}" for i in range(1, count + 1)])
        kind, func = variants.record(expr, fields)
    else:
        kind, func = variants.scalar_func(expr.func, count, expr.typ)
    args = [part(arg) for arg in expr.args]
    match kind:
        case "CallUnary":
            return {kind: {"func": func, "expr": args[0]}}
        case "CallBinary":
            return {kind: {"func": func, "expr1": args[0], "expr2": args[1]}}
        case _:
            return {kind: {"func": func, "exprs": args}}


def scalars(exprs: Iterable[sc.Scalar]) -> list[Node]:
    """Expressions."""
    return [scalar(expr) for expr in exprs]


def ordered_argument(expr: sc.Scalar) -> Node:
    """The argument of an aggregate with an order: a record of the value and the sort keys, whose fields have no names."""
    if not isinstance(expr, sc.Call) or expr.func != "row":
        return scalar(expr)

    def part(arg: Any) -> Node:
        if isinstance(arg, sc.Call) and arg.func == "row" and len(arg.args) == 2:
            return call(arg, scalar, ("value", "sep"))
        return scalar(arg)

    return call(expr, part, [""] * len(expr.args))


def aggregate(aggr: sc.AggregateExpr) -> Node:
    """An aggregate."""
    ordered = parse_ordered_key(aggr.func) is not None
    expr = ordered_argument(aggr.expr) if ordered else scalar(aggr.expr)
    return {"func": variants.aggregate_func(aggr.func), "expr": expr, "distinct": aggr.distinct}


def mfp(plan: MapFilterProject, expression: Callable[[sc.Scalar], Node] = scalar) -> Node:
    """A map, filter and projection."""
    return {
        "expressions": [expression(expr) for expr in plan.expressions],
        "predicates": [[at, scalar(pred)] for at, pred in shown_in_mfp(plan.predicates)],
        "projection": list(plan.projection),
        "input_arity": plan.input_arity,
    }


def order(keys: Iterable[sc.ColumnOrder]) -> list[Node]:
    """An ORDER BY."""
    return [{"column": o.column, "desc": o.desc, "nulls_last": o.nulls_last} for o in keys]


def limits(many: Iterable[tuple[int, bool] | None]) -> list[Node | None]:
    """The limits of recursive bindings."""
    return [None if one is None else limit(one) for one in many]


def limit(one: tuple[int, bool]) -> Node:
    """The limit of a recursive binding."""
    return {"max_iters": one[0], "return_at_limit": one[1]}
