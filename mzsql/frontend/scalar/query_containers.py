"""``ARRAY(query)``, ``LIST(query)`` and ``MAP(query)``: a query's rows as one value.

Promise: the elements are in the query's own order, whatever form it has: output names, ordinals, expressions; also
below a LIMIT, of a set operation, of VALUES. For no rows the value is empty, not NULL. A map takes its keys from the
first column, which must be text; of equal keys the last row wins.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.scalar.aggregates import in_order
from mzsql.frontend.scalar.coerce import Typed, call, empty
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.planned_queries import Pending
from mzsql.repr.errors import DatatypeMismatch, SqlSyntaxError


def gathered(ctx: ExprContext, query: exp.Expr, kind: str, position: int | None) -> Typed:
    """The value of a query's rows; ``kind`` is array, list or map.

    Raises:
        SqlSyntaxError: the query has the wrong number of columns.
        DatatypeMismatch: a map's keys are not text.
    """
    pending = ctx.planner.query(query, ctx.scope)
    _check(pending, kind, position)
    relation = pending.relation
    if pending.limit is not None or pending.offset:
        limit = None if pending.limit is None else pending.limit.expr
        size = pending.group_size
        relation = hir.TopK(relation, (), pending.order, limit, pending.offset, size)
    keys = [_column(pending, order.column) for order in pending.order]
    order = tuple((o.desc, o.nulls_last) for o in pending.order)
    items = [_column(pending, column) for column in pending.project]
    func, row = in_order(f"{kind}_agg", items, keys, order)
    typ = func.result_type([row.typ])
    aggregate = hir.Aggregate(func.key, row.expr, False, typ, func.nullable)
    found = hir.Select(hir.Reduce(relation, (), (aggregate,)))
    return call("coalesce", [Typed(found, typ, True), empty(typ)], typ)


def _column(pending: Pending, column: int) -> Typed:
    typ = pending.types[column]
    return Typed(hir.Column(column), typ.type, typ.nullable)


def _check(pending: Pending, kind: str, position: int | None) -> None:
    given = len(pending.project)
    if kind != "map":
        if given != 1:
            raise SqlSyntaxError(
                f"Expected subselect to return 1 column, got {given} columns", position=position
            )
        return
    if given != 2:
        raise SqlSyntaxError(
            f"expected map subquery to return 2 columns, got {given} columns", position=position
        )
    if pending.types[pending.project[0]].type.kind != "text":
        raise DatatypeMismatch(
            "cannot build map from subquery because first column is not of type text",
            position=position,
        )
