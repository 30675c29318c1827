"""UPDATE … FROM: rows of a table changed by rows of other relations.

Promise: as in PostgreSQL, a row is changed once, however many rows it matches. Which of them changes it is determined
by their values, so the result is deterministic; equal rows of the table are changed alike.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogItem
from mzsql.frontend.names.scope import Scope
from mzsql.frontend.query.from_clause import plan_from
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.query.returning import Written
from mzsql.frontend.scalar.coerce import Typed, operator_call
from mzsql.repr.errors import SqlError
from mzsql.repr.types import BIGINT, BOOLEAN, ColumnType, RelationDesc, RelationType


def joined(
    planner: QueryPlanner, relation: hir.Relation, scope: Scope, sources: exp.Select
) -> tuple[hir.Relation, Scope]:
    """The table's rows joined with the FROM clause, whose columns come last.

    Raises:
        SqlError: a relation in FROM has the table's name.
    """
    right, other = plan_from(planner, sources, None)
    for name in other.table_names() & scope.table_names():
        raise SqlError(f'table name "{name[-1]}" specified more than once', sqlstate="42712")
    both = replace(scope, items=(*scope.items, *other.items), tables=(*scope.tables, *other.tables))
    return hir.Join(relation, right, Literal(True, BOOLEAN), "inner"), both


def once(rows: Written, table: CatalogItem, sources: int) -> Written:
    """One match for each row of the table, as often as the table has the row.

    Args:
        rows: old row, new row, columns of the FROM clause, columns of RETURNING.
        table: the table.
        sources: how many columns the FROM clause has; the result omits them.
    """
    assert table.desc is not None
    arity, width = table.desc.arity, rows.desc.arity
    first = hir.TopK(rows.relation, tuple(range(arity)), (), Literal(1, BIGINT), 0)
    again = hir.Get(table.id, table.desc.typ)
    same = [_same(i, width + i, column) for i, column in enumerate(table.desc.typ.columns)]
    matched = hir.Filter(hir.Join(first, again, Literal(True, BOOLEAN), "inner"), tuple(same))
    kept = (*range(2 * arity), *range(2 * arity + sources, width))
    desc = RelationDesc(
        tuple(rows.desc.names[i] for i in kept),
        RelationType(tuple(rows.desc.typ.columns[i] for i in kept)),
    )
    return msgspec.structs.replace(rows, relation=hir.Project(matched, kept), desc=desc)


def _same(left: int, right: int, column: ColumnType) -> hir.Scalar:
    """IS NOT DISTINCT FROM of two columns."""
    a, b = (Typed(hir.Column(i), column.type, column.nullable) for i in (left, right))
    equal = operator_call("=", [a, b], None).expr
    nulls = tuple(hir.Call("is_null", (side.expr,), BOOLEAN) for side in (a, b))
    return hir.Call("or", (equal, hir.Call("and", nulls, BOOLEAN)), BOOLEAN)
