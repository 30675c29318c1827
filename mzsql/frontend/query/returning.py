"""RETURNING: what a statement returns of each row that it writes.

Promise: the list is a select list over the table alone, with wildcards, names and expressions; subqueries see
everything as before the statement. Columns are those of the new row for INSERT and UPDATE, of the old row for DELETE.
It is computed together with the rows, so nothing is read twice, and where it fails nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.hir_visit import map_columns
from mzsql.frontend.names.scope import Scope
from mzsql.frontend.query.grouping import SelectState
from mzsql.frontend.query.projection import plan_select_items
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.scalar.coerce import settle
from mzsql.frontend.scalar.context import ExprContext
from mzsql.repr.types import ColumnType, RelationDesc, RelationType


class _List(SelectState):
    """A RETURNING list that is being planned."""

    def context(self, clause: str) -> ExprContext:
        """The context of a select list without aggregates, window functions or table functions."""
        del clause
        return ExprContext(self.planner, self.scope, "RETURNING")


class Written(msgspec.Struct, frozen=True):
    """The rows that a statement writes, followed by the columns that it returns.

    Attributes:
        relation: all columns.
        desc: their names and types.
        returning: names and types of the last ones; None where nothing is returned.
    """

    relation: hir.Relation
    desc: RelationDesc
    returning: RelationDesc | None = None


def written(
    planner: QueryPlanner,
    relation: hir.Relation,
    desc: RelationDesc,
    scope: Scope,
    items: Sequence[exp.Expr],
    row_at: int = 0,
) -> Written:
    """The rows of a relation with the columns of RETURNING appended.

    Args:
        planner: plans subqueries.
        relation: the rows to write.
        desc: names and types of its columns.
        scope: the table's columns, as RETURNING names them.
        items: the RETURNING list; empty: nothing is returned.
        row_at: the position in the relation at which the row begins that RETURNING sees.
    """
    if not items:
        return Written(relation, desc)
    select = _List(planner, exp.Select(expressions=list(items)), relation, scope)
    listed = [(name, settle(value)) for name, value in plan_select_items(select)]

    def moved(depth: int, column: hir.Column) -> hir.Scalar:
        own = column.level == depth
        return hir.Column(column.index + row_at, column.level) if own else column

    scalars = tuple(map_columns(value.expr, moved) for _, value in listed)
    columns = tuple(ColumnType(value.typ, value.nullable) for _, value in listed)
    returning = RelationDesc(tuple(name for name, _ in listed), RelationType(columns))
    wide = RelationDesc(
        (*desc.names, *returning.names), RelationType((*desc.typ.columns, *columns))
    )
    return Written(hir.Map(relation, scalars), wide, returning)
