"""Window functions to MIR: a `Reduce` that collects each partition's rows into a list of records, which is then
unnested.

Promise: every input row comes out once, with its window function's result appended. Columns of enclosing queries are
part of the partition key, so that a window in a correlated subquery sees the rows of one outer row only.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr import functions
from mzsql.expr import scalar as ms
from mzsql.expr.functions.aggregate import windows
from mzsql.frontend import hir
from mzsql.frontend.lowering.rel import Rel
from mzsql.repr.types import ColumnType, RelationType, SqlType


def window_key(window: hir.Windowing) -> str:
    """The key of a window function's aggregate."""
    order = tuple((o.desc, o.nulls_last) for o in window.order_by)
    frame = None if window.frame is None else frame_of(window.frame)
    if window.kind == "scalar":
        frame = None
    nulls = window.ignore_nulls
    parts = tuple(
        windows.WindowFunc(func, kind, order, frame, nulls) for func, kind in window.fused
    )
    return windows.WindowFunc(window.func, window.kind, order, frame, nulls, parts).key


def frame_of(frame: hir.WindowFrame) -> windows.Frame:
    """A frame as it is encoded in an aggregate's key."""
    bounds = (frame.start, frame.end)
    start, end = (_offset(bound) for bound in bounds)
    before, after = (b.offset if isinstance(b.offset, str) else "" for b in bounds)
    return windows.Frame(start, end, frame.units, frame.exclude, (before, after))


def _offset(bound: hir.FrameBound) -> int | None:
    count = 1 if isinstance(bound.offset, str) else bound.offset or 0
    match bound.kind:
        case "preceding":
            return -count
        case "following":
            return count
        case "current row":
            return 0
        case _:
            return None


def lower_window(
    window: hir.Windowing,
    rel: Rel,
    outer: int,
    args: Sequence[ms.Scalar],
    partition: Sequence[ms.Scalar],
    order: Sequence[ms.Scalar],
) -> Rel:
    """``rel`` with the function's result as one more column.

    Args:
        window: the function.
        rel: the rows.
        outer: how many leading columns belong to enclosing queries.
        args: the function's arguments over ``rel``.
        partition: the PARTITION BY expressions over ``rel``.
        order: the ORDER BY expressions over ``rel``.
    """
    arity = rel.arity
    columns = list(rel.typ.columns)
    row = _record([ms.Column(i) for i in range(arity)], columns)
    if window.kind == "scalar":
        typ = SqlType("list", element=row.typ)
        payload = ms.Call("window_payload", (row,), typ)
    elif window.kind == "fused":
        payload = _record([row, _record(args, columns)], columns)
    else:
        payload = _record([row, *args], columns)
    argument = _record([payload, *order], columns)
    func = functions.aggregate(window_key(window))
    result = func.result_type([argument.typ])
    grown = rel.map(list(partition))
    key = [*range(outer), *range(arity, arity + len(partition))]
    aggregate = ms.AggregateExpr(func.key, argument, False, result, func.nullable)
    gathered = grown.reduce(key, [aggregate], None)
    element = result.element
    assert element is not None
    output = RelationType((ColumnType(element, nullable=False),))
    rows = gathered.flat_map("unnest_list", [ms.Column(len(key))], output)
    record = len(key) + 1
    original = _get(ms.Column(record), 1, element)
    scalars: list[ms.Scalar] = [_get(original, i, row.typ) for i in range(arity)]
    scalars.append(_get(ms.Column(record), 0, element))
    return rows.map(scalars).project(range(record + 1, record + 1 + len(scalars)))


def _record(exprs: Sequence[ms.Scalar], columns: Sequence[ColumnType]) -> ms.Call:
    types = [ms.scalar_type(e, columns) for e in exprs]
    return ms.Call("row", tuple(exprs), functions.scalar("row").result_type(types))


def _get(record: ms.Scalar, field: int, typ: SqlType) -> ms.Call:
    return ms.Call(f"record_get_{field + 1}", (record,), typ.fields[field][1].type)
