"""`grouping(…)`: which GROUP BY keys a row's grouping set omits.

Promise: a call is collected among its query's aggregates, although it is none; the code for grouping sets computes its
value and checks its arguments.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed, call, settle
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import position_of
from mzsql.repr import types as t
from mzsql.repr.errors import GroupingError, SqlError, SqlSyntaxError
from mzsql.repr.types import ColumnType, SqlType

#: The name of such a call among the aggregates; no real aggregate has it.
GROUPING = "grouping"
_MAX_ARGUMENTS = 31


def plan_grouping(ctx: ExprContext, node: exp.Expr) -> Typed:
    """The marker of a call.

    Raises:
        GroupingError: the query does not group.
        SqlError: ``GROUPING must have fewer than 32 arguments`` (54023).
    """
    position = position_of(node)
    if ctx.aggregates is None or ctx.inside_aggregate:
        where = "aggregate function calls" if ctx.inside_aggregate else ctx.clause
        raise GroupingError(f"grouping operations are not allowed in {where}", position=position)
    if not node.expressions:
        raise SqlSyntaxError("Expected an expression, found right parenthesis", position=position)
    if len(node.expressions) > _MAX_ARGUMENTS:
        raise SqlError(
            "GROUPING must have fewer than 32 arguments", position=position, sqlstate="54023"
        )
    inner = replace(ctx, aggregates=None, windows=False, table_functions=None, positions={})
    args = [settle(inner.plan(e)) for e in node.expressions]
    record = SqlType(
        "record", fields=tuple((f"f{i}", ColumnType(a.typ)) for i, a in enumerate(args, start=1))
    )
    row = call("row", args, record)
    return ctx.aggregates.add(hir.Aggregate(GROUPING, row.expr, False, t.INTEGER, False))
