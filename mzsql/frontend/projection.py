"""Select lists: wildcards expanded, names given.

Promise: a column is named as PostgreSQL names it: by its alias, the column it is, the function it calls, the type it casts to, ``case``,
else ``?column?``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.coerce import Typed
from mzsql.frontend.nodes import function_name, position_of
from mzsql.frontend.parse_pieces import fold
from mzsql.repr.errors import SqlSyntaxError, Unsupported

if TYPE_CHECKING:
    from mzsql.frontend.grouping import SelectState

_KINDS: dict[type[exp.Expr], str] = {
    exp.Case: "case",
    exp.Exists: "exists",
    exp.Array: "array",
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.StrPosition: "position",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentUser: "current_user",
    exp.Interval: "interval",
    exp.AtTimeZone: "timezone",
    exp.Boolean: "bool",
}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_TYPE_NAMES = {
    "INT": "int4",
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "DECIMAL": "numeric",
    "DOUBLE": "float8",
    "FLOAT": "float4",
    "BOOLEAN": "bool",
    "CHAR": "bpchar",
}


def output_name(node: exp.Expr) -> str:
    """The name of a select list's item that has no alias."""
    match node:
        case exp.Alias():
            return fold(node.args["alias"])
        case exp.Column() | exp.Dot():
            last = node.this if isinstance(node, exp.Column) else node.expression
            return fold(last)
        case exp.Anonymous():
            return function_name(node)
        case exp.Paren() | exp.Filter() | exp.Window() | exp.IgnoreNulls() | exp.RespectNulls():
            return output_name(node.this)
        case exp.Cast():
            inner = output_name(node.this)
            if inner != "?column?":
                return inner
            kind = node.args["to"].this
            name = kind.value if isinstance(kind, exp.DType) else str(kind)
            return _TYPE_NAMES.get(name, name.lower())
        case exp.Subquery() | exp.Select():
            return _subquery_name(node)
        case exp.Trim():
            return _TRIMS.get(str(node.args.get("position")), "btrim")
        case _:
            return _KINDS.get(type(node), "?column?")


def _subquery_name(node: exp.Expr) -> str:
    inner: exp.Expr = node
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    if isinstance(inner, exp.Select) and inner.expressions:
        first = inner.expressions[0]
        return "?column?" if isinstance(first, exp.Star) else output_name(first)
    return "?column?"


def plan_select_items(select: SelectState) -> list[tuple[str, Typed]]:
    """Names and values of the select list, over the rows before grouping."""
    ctx = select.context("SELECT")
    items: list[tuple[str, Typed]] = []
    for node in select.node.expressions:
        star = _star_of(node)
        if star is not None:
            table = tuple(
                fold(node.args[part])
                for part in ("catalog", "db", "table")
                if isinstance(node, exp.Column) and node.args.get(part)
            )
            items.extend(_expanded(select, table or None, node))
            continue
        value = ctx.plan(node.this if isinstance(node, exp.Alias) else node)
        items.append((output_name(node), value))
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
    found = scope.star(table, position)
    for index in found:
        select.positions.setdefault(index, position)
    return [
        (
            scope.items[i].name,
            Typed(hir.Column(i), scope.items[i].typ.type, scope.items[i].typ.nullable),
        )
        for i in found
    ]
