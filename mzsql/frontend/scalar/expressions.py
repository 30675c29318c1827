"""Scalar expressions: sqlglot's nodes to typed HIR scalars.

Promise: each kind of node has one function, found in one table; a node without one is refused, never guessed. Operators
and functions are resolved by `mzsql.frontend.scalar.coerce`. Aggregates, window functions and table functions go to the
collector of their clause, or are refused with PostgreSQL's message where the clause allows none.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal, Unmaterializable
from mzsql.frontend import hir
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar import calls, containers, predicates, standard
from mzsql.frontend.scalar.coerce import (
    Typed,
    cast,
    numeric_literal,
)
from mzsql.frontend.scalar.context import ExprContext, Handlers
from mzsql.frontend.scalar.nodes import (
    moment,
    null_value,
    position_of,
)
from mzsql.repr import types as t
from mzsql.repr.errors import (
    SqlSyntaxError,
    UndefinedColumn,
)
from mzsql.repr.interval_text import FIELDS, Cut, parse_interval
from mzsql.repr.values import datum_of

# --- leaves --------------------------------------------------------------------------------------


def _column(ctx: ExprContext, node: exp.Expr) -> Typed:
    parts = tuple(
        fold(node.args[part]) for part in ("catalog", "db", "table") if node.args.get(part)
    )
    position = position_of(node)
    if isinstance(node.this, exp.Star):
        row = containers.whole_row(ctx, parts, position) if parts else None
        if row is None:
            raise SqlSyntaxError("wildcard in invalid position", position=position)
        return row
    if isinstance(node.this, exp.Filter):
        # sqlglot parses a schema-qualified call with FILTER as a column of that schema.
        schemas = [node.args[part] for part in ("catalog", "db", "table") if node.args.get(part)]
        return ctx.plan(exp.Dot.build([*schemas, node.this]))
    name = fold(node.this)
    try:
        level, index = ctx.scope.resolve(parts or None, name, position)
    except UndefinedColumn:
        row = containers.whole_row(ctx, (*parts, name), position)
        if row is None:
            raise
        return row
    if level == 0:
        ctx.positions.setdefault(index, position)
    typ = ctx.scope.item(level, index).typ
    return Typed(hir.Column(index, level), typ.type, typ.nullable)


def _literal(_ctx: ExprContext, node: exp.Expr) -> Typed:
    if node.is_string:
        return Typed(Literal(str(node.this), t.UNKNOWN), t.UNKNOWN, False)
    text = str(node.this)
    try:
        return numeric_literal(text)
    except ValueError:
        raise SqlSyntaxError(f"invalid number: {text[:64]}", position=position_of(node)) from None


def _boolean(_ctx: ExprContext, node: exp.Expr) -> Typed:
    return Typed(Literal(bool(node.this), t.BOOLEAN), t.BOOLEAN, False)


def _paren(ctx: ExprContext, node: exp.Expr) -> Typed:
    return ctx.plan(node.this)


def _interval(_ctx: ExprContext, node: exp.Expr) -> Typed:
    unit = node.args.get("unit")
    span = parse_interval(str(node.this.name), None if unit is None else _cut_of(unit.name))
    return Typed(Literal(datum_of(span, t.INTERVAL), t.INTERVAL), t.INTERVAL, False)


def _cut_of(unit: str) -> Cut:
    """The fields that an interval literal is limited to, such as ``MINUTE TO SECOND(2)``."""
    fields, _, digits = unit.lower().rstrip(")").partition("(")
    first, _, last = fields.partition(" to ")
    if not last:
        return Cut(first, None, int(digits) if digits else None)
    if FIELDS.index(last) <= FIELDS.index(first):
        raise SqlSyntaxError(
            f"Invalid field range in INTERVAL '{unit}' qualifier; the first field must be larger than the last"
        )
    return Cut(last, first, int(digits) if digits else None)


def _bytes(_ctx: ExprContext, node: exp.Expr) -> Typed:
    # E'…': sqlglot has already resolved the escapes.
    return Typed(Literal(str(node.this), t.UNKNOWN), t.UNKNOWN, False)


def _current_date(_ctx: ExprContext, _node: exp.Expr) -> Typed:
    now = Typed(Unmaterializable("current_timestamp", t.TIMESTAMPTZ), t.TIMESTAMPTZ, False)
    done = cast(now, t.DATE, "explicit")
    assert done is not None
    return done


#: The handlers by node type; `ExprContext.plan` looks here.
HANDLERS: Handlers = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Null: lambda _ctx, _node: null_value(),
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Interval: _interval,
    exp.ByteString: _bytes,
    exp.CurrentDate: _current_date,
    exp.CurrentTimestamp: moment("current_timestamp", t.TIMESTAMPTZ),
    exp.CurrentUser: moment("current_user", t.TEXT),
    exp.SessionUser: moment("current_user", t.TEXT),
    exp.CurrentCatalog: moment("current_database", t.TEXT),
    exp.CurrentSchema: moment("current_schema", t.TEXT),
    **predicates.HANDLERS,
    **calls.HANDLERS,
    **containers.HANDLERS,
    **standard.HANDLERS,
}
