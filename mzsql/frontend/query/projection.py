"""Select lists: wildcards expanded, each item a name and a value.

Promise: a wildcard expands in the order of FROM, with the merged columns of USING first; a wildcard with EXCEPT,
REPLACE or RENAME is refused. Names are those of `mzsql.frontend.query.output_names`.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.query.grouping import SelectState
from mzsql.frontend.query.output_names import output_name
from mzsql.frontend.scalar.coerce import Typed
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.rows import record_fields, starred, table_of
from mzsql.repr.errors import SqlSyntaxError, Unsupported


def plan_select_items(select: SelectState) -> list[tuple[str, Typed]]:
    """The names and values of the select list, over the rows before grouping."""
    ctx = select.context("SELECT")
    items: list[tuple[str, Typed]] = []
    for node in select.node.expressions:
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star):
            parts = record_fields(ctx.plan(node.this), position_of(node))
            items.extend(parts)
            select.items.extend((None, value) for _, value in parts)
            continue
        star = _star_of(node)
        if star is not None:
            expanded = _expanded(select, table_of(node), node)
            items.extend(expanded)
            select.items.extend((None, value) for _, value in expanded)
            continue
        value = ctx.plan(node.this if isinstance(node, exp.Alias) else node)
        items.append((output_name(node, ctx.planner.named), value))
        select.items.append((node, value))
    return items


def _star_of(node: exp.Expr) -> exp.Expr | None:
    star = node.this if isinstance(node, exp.Column) else node
    if not isinstance(star, exp.Star):
        return None
    if any(star.args.values()):
        raise Unsupported("* with EXCEPT, REPLACE or RENAME is not supported")
    return star


def _expanded(
    select: SelectState, table: tuple[str, ...] | None, node: exp.Expr
) -> list[tuple[str, Typed]]:
    scope = select.scope
    position = position_of(node)
    if table is None and not scope.items and not select.node.args.get("from_"):
        raise SqlSyntaxError("SELECT * with no tables specified is not valid", position=position)
    return starred(scope, select.positions, table, position)
