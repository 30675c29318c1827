"""EXPLAIN RAW PLAN AS JSON: HIR.

Promise: every operator is ``{"<Kind>": {…}}``, with Materialize's fields in Materialize's order; a query's finishing is
not included.
"""

from __future__ import annotations

from typing import Any

from mzsql.explain import json_scalars as js
from mzsql.explain import variants
from mzsql.explain.json_scalars import Node
from mzsql.expr import scalar as sc
from mzsql.expr.functions.aggregate.aggregates import parse_ordered_key
from mzsql.expr.relation import WRAP
from mzsql.frontend import hir
from mzsql.repr.types import ColumnType

_JOIN_KINDS = {"inner": "Inner", "left": "LeftOuter", "right": "RightOuter", "full": "FullOuter"}


def raw(rel: hir.Relation) -> Node:
    """A relation of HIR."""
    if isinstance(rel, hir.Constant) and rel.typ.columns:
        return {"CallTable": _wrapped(rel)}
    return {type(rel).__name__: _raw_fields(rel)}


def _wrapped(values: hir.Constant) -> Node:
    """VALUES: a table function that turns its arguments into rows."""
    columns = values.typ.columns
    exprs = [
        raw_scalar(sc.Literal(value, column.type))
        for row in values.rows
        for value, column in zip(row, columns, strict=True)
    ]
    return {"func": variants.table_func(WRAP, values.typ), "exprs": exprs}


def _raw_fields(rel: hir.Relation) -> Node:
    match rel:
        case hir.Constant(rows=rows, typ=typ):
            shown = [js.packed(row, typ.columns) for row in rows]
            return {"rows": shown, "typ": variants.relation_type(typ)}
        case hir.Get(id=gid, typ=typ):
            return {"id": js.any_id(gid), "typ": variants.relation_type(typ)}
        case hir.Let(name=name, id=local, value=value, body=body):
            return {"name": name, "id": local, "value": raw(value), "body": raw(body)}
        case hir.LetRec(bindings=bindings, limit=limit, body=body):
            return {
                "limit": None if limit is None else js.limit(limit),
                "bindings": [
                    [b.name, b.id, raw(b.value), variants.relation_type(b.typ)] for b in bindings
                ],
                "body": raw(body),
            }
        case hir.CallTable(func=func, exprs=exprs, output=output):
            return {
                "func": variants.table_func(func, output),
                "exprs": [raw_scalar(e) for e in exprs],
            }
        case hir.Join(left=left, right=right, on=on, kind=kind):
            shown_on = raw_scalar(on)
            return {
                "left": raw(left),
                "right": raw(right),
                "on": shown_on,
                "kind": _JOIN_KINDS[kind],
            }
        case hir.Union(inputs=inputs):
            first, *rest = (raw(part) for part in inputs)
            return {"base": first, "inputs": rest}
        case _:
            return {"input": raw(rel.input), **_own_raw_fields(rel)}


def _own_raw_fields(rel: hir.Relation) -> Node:
    match rel:
        case hir.Project(outputs=outputs):
            return {"outputs": list(outputs)}
        case hir.Map(scalars=exprs):
            return {"scalars": [raw_scalar(e) for e in exprs]}
        case hir.Filter(predicates=predicates):
            return {"predicates": [raw_scalar(p) for p in predicates]}
        case hir.Reduce():
            return {
                "group_key": list(rel.group_key),
                "aggregates": [_raw_aggregate(aggr) for aggr in rel.aggregates],
                "expected_group_size": rel.expected_group_size,
            }
        case hir.TopK():
            return {
                "group_key": list(rel.group_key),
                "order_key": js.order(rel.order_key),
                "limit": None if rel.limit is None else raw_scalar(rel.limit),
                "offset": rel.offset,
                "expected_group_size": rel.expected_group_size,
            }
        case _:
            return {}


def _raw_aggregate(aggr: hir.Aggregate) -> Node:
    func = variants.aggregate_func(aggr.func)
    return {
        "func": func,
        "expr": _ordered_argument(aggr.expr, aggr.func),
        "distinct": aggr.distinct,
    }


def _ordered_argument(expr: hir.Scalar, func: str) -> Node:
    """An aggregate's argument; with an order a record of the value and the sort keys, whose fields have no names."""
    if parse_ordered_key(func) is None or not isinstance(expr, hir.Call) or expr.func != "row":
        return raw_scalar(expr)

    def part(arg: Any) -> Node:
        if isinstance(arg, hir.Call) and arg.func == "row" and len(arg.args) == 2:
            return js.call(arg, raw_scalar, ("value", "sep"))
        return raw_scalar(arg)

    return js.call(expr, part, [""] * len(expr.args))


def raw_scalar(expr: hir.Scalar) -> Node:
    """A scalar of HIR."""
    match expr:
        case hir.Column(index=index, level=level):
            return {"Column": {"level": level, "column": index}}
        case hir.CastLiteral(shown=shown):
            return raw_scalar(shown)
        case sc.Literal(value=value, typ=typ):
            column = ColumnType(typ, value is None)
            return {"Literal": [js.packed((value,), (column,)), variants.column_type(column)]}
        case sc.LiteralError() | sc.Unmaterializable():
            return js.scalar(expr)
        case hir.If(condition=c, then=t, otherwise=o):
            return {"If": {"cond": raw_scalar(c), "then": raw_scalar(t), "els": raw_scalar(o)}}
        case hir.Exists(relation=inner):
            return {"Exists": raw(inner)}
        case hir.Select(relation=inner):
            return {"Select": raw(inner)}
        case hir.Windowing():
            return {"Windowing": _windowing(expr)}
        case hir.Call():
            return js.call(expr, raw_scalar)


def _windowing(expr: hir.Windowing) -> Node:
    return {
        "func": _window_func(expr),
        "partition_by": [raw_scalar(e) for e in expr.partition_by],
        "order_by": [raw_scalar(o.expr) for o in expr.order_by],
    }


def _window_func(expr: hir.Windowing) -> Node:
    """A window function, with its order and frame."""
    order = [
        {"column": place, "desc": o.desc, "nulls_last": o.nulls_last}
        for place, o in enumerate(expr.order_by)
    ]
    frame = _frame(expr.frame)
    match expr.kind:
        case "scalar":
            return {"Scalar": {"func": variants.camel(expr.func), "order_by": order}}
        case "value":
            return {
                "Value": {
                    "func": variants.camel(expr.func),
                    "args": _window_argument(expr),
                    "order_by": order,
                    "window_frame": frame,
                    "ignore_nulls": expr.ignore_nulls,
                }
            }
        case _:
            (arg,) = expr.args
            aggregate = {
                "func": variants.aggregate_func(expr.func),
                "expr": _ordered_argument(arg, expr.func),
                "distinct": expr.distinct,
            }
            return {
                "Aggregate": {
                    "aggregate_expr": aggregate,
                    "order_by": order,
                    "window_frame": frame,
                }
            }


def _window_argument(expr: hir.Windowing) -> Node:
    """The only argument; the three of LAG and LEAD are fields of a record."""
    (arg,) = expr.args
    if isinstance(arg, hir.Call) and arg.func == "row" and expr.func in ("lag", "lead"):
        return js.call(arg, raw_scalar, ("expr", "offset", "default"))
    return raw_scalar(arg)


def _frame(frame: hir.WindowFrame | None) -> Node:
    if frame is None:
        frame = hir.WindowFrame(
            "range", hir.FrameBound("unbounded preceding"), hir.FrameBound("current row")
        )
    return {
        "units": variants.camel(frame.units),
        "start_bound": _bound(frame.start),
        "end_bound": _bound(frame.end),
    }


def _bound(bound: hir.FrameBound) -> Any:
    if bound.offset is None:
        return variants.camel(bound.kind.replace(" ", "_"))
    return {f"Offset{variants.camel(bound.kind)}": bound.offset}
