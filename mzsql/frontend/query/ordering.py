"""ORDER BY, and what depends on it in a SELECT: DISTINCT ON, and the hint about a limit's input size."""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr.scalar import ColumnOrder
from mzsql.frontend import hir
from mzsql.frontend.scalar.typed import Typed, sortable
from mzsql.repr.errors import SqlSyntaxError
from mzsql.repr.types import ColumnType


def order_items(node: exp.Expr) -> list[exp.Expr]:
    """The items of a query's ORDER BY."""
    order = node.args.get("order")
    return [] if order is None else list(order.expressions)


def column_order(item: exp.Expr, column: int) -> ColumnOrder:
    """The order of a column, as an ORDER BY item asks for it."""
    return ColumnOrder(column, bool(item.args.get("desc")), not item.args.get("nulls_first"))


def sorting(
    relation: hir.Relation, types: list[ColumnType], column: int
) -> tuple[hir.Relation, int]:
    """What orders like a column: the relation with a column for that, whose type is added to `types`, and its index; the
    column itself where it does.
    """
    typ = types[column]
    value = Typed(hir.Column(column), typ.type, typ.nullable)
    key = sortable(value)
    if key is value:
        return relation, column
    types.append(ColumnType(key.typ, key.nullable))
    return hir.Map(relation, (key.expr,)), len(types) - 1


def limit_size(node: exp.Expr) -> int | None:
    """The hint in OPTIONS about how many rows a LIMIT chooses from."""
    sizes = node.meta.get("group_size_options", {})
    size: int | None = sizes.get("limit input group size", sizes.get("expected group size"))
    return size


def check_distinct_on(
    keys: tuple[int, ...], order: tuple[ColumnOrder, ...], position: int | None
) -> None:
    """Check that the expressions of DISTINCT ON are the first ones of ORDER BY: else which row is kept would be undefined.

    Raises:
        SqlSyntaxError: they are not (42P10).
    """
    leading = [o.column for o in order[: len(keys)]]
    left = set(keys)
    for column in leading:
        if column not in left and left:
            raise SqlSyntaxError(
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                position=position,
                sqlstate="42P10",
            )
        left.discard(column)
