"""Table functions: in FROM, several side by side in ROWS FROM, numbered by WITH ORDINALITY, and in select lists.

Promise: a function's arguments may read what stands to its left. Where one column comes out, it is named as the relation is, unless the
function itself names it; a scalar function in FROM is a relation of one row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.functions import rows_from
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.coerce import Typed, apply, call, plain_name, polymorphic_problem, resolve
from mzsql.frontend.expressions import ExprContext
from mzsql.frontend.nodes import function_name, position_of
from mzsql.frontend.parse_pieces import fold
from mzsql.frontend.scope import Scope, ScopeItem
from mzsql.repr import types as t
from mzsql.repr.errors import UndefinedFunction
from mzsql.repr.types import ColumnType, RelationType, SqlType

if TYPE_CHECKING:
    from mzsql.frontend.query import QueryPlanner

_UNIT = hir.Constant(((),), RelationType(()))
Items = tuple[ScopeItem, ...]


@dataclass(frozen=True)
class _Resolved:
    """A call, its overload found and its arguments cast."""

    func: Any
    args: tuple[Typed, ...]

    @property
    def output(self) -> RelationType:
        """The columns that it yields."""
        typ: RelationType = self.func.output_type([a.typ for a in self.args])
        return typ


def call_of(node: exp.Expr) -> exp.Expr:
    """The call itself, without its schema's name."""
    return node.expression if isinstance(node, exp.Dot) else node


def in_from(
    planner: QueryPlanner,
    calls: list[exp.Expr],
    left: Scope | None,
    alias: exp.Expr | None,
    *,
    numbered: bool,
) -> tuple[hir.Relation, Items]:
    """One or several calls as a relation; `alias` names the only column of an only function."""
    if len(calls) == 1 and not numbered:
        relation, items = planned(planner, calls[0], left)
    else:
        relation, items = _side_by_side(planner, calls, left, numbered=numbered)
    plain = len(items) == 1 + numbered and len(calls) == 1
    named = alias is not None and alias.this and not alias.args.get("columns")
    if plain:
        items = (replace(items[0], scalar=not numbered), *items[1:])
    if plain and named and items[0].name == function_name(call_of(calls[0])):
        assert alias is not None
        items = (replace(items[0], name=fold(alias.this)), *items[1:])
    return relation, items


def planned(
    planner: QueryPlanner, node: exp.Expr, left: Scope | None
) -> tuple[hir.Relation, Items]:
    """One call."""
    name = function_name(call_of(node))
    if not functions.table_funcs_named(name):
        ctx = _context(planner, left)
        value = ctx.plan(node)
        item = ScopeItem(name, None, ColumnType(value.typ, value.nullable))
        return hir.Map(_UNIT, (value.expr,)), (item,)
    found = _resolve(planner, node, left)
    return _relation(found.func.key, [found]), _items([found])


def _side_by_side(
    planner: QueryPlanner, calls: list[exp.Expr], left: Scope | None, *, numbered: bool
) -> tuple[hir.Relation, Items]:
    found = [_resolve(planner, node, left) for node in calls]
    key = rows_from.key([(f.func, len(f.args)) for f in found], numbered=numbered)
    items = list(_items(found, alone=len(found) == 1))
    if numbered:
        items.append(ScopeItem("ordinality", None, ColumnType(t.BIGINT, False)))
    return _relation(key, found), tuple(items)


def _relation(key: str, found: list[_Resolved]) -> hir.CallTable:
    func = functions.table_func(key)
    args = [arg for f in found for arg in f.args]
    output = func.output_type([a.typ for a in args])
    return hir.CallTable(key, tuple(a.expr for a in args), output)


def _items(found: list[_Resolved], *, alone: bool = True) -> Items:
    items: list[ScopeItem] = []
    for f in found:
        names = f.func.names or (f.func.name,) * f.output.arity
        for name, column in zip(names, f.output.columns, strict=True):
            items.append(
                ScopeItem(name, None, ColumnType(column.type, column.nullable or not alone))
            )
    return tuple(items)


def _context(planner: QueryPlanner, left: Scope | None) -> ExprContext:
    return ExprContext(planner, Scope((), left), "other table functions")


def _resolve(planner: QueryPlanner, node: exp.Expr, left: Scope | None) -> _Resolved:
    """The overload that a call means.

    Raises:
        UndefinedFunction: ``function f(integer) does not exist``.
    """
    inner = call_of(node)
    name = function_name(inner)
    ctx = _context(planner, left)
    args = [ctx.plan(e) for e in inner.expressions]
    candidates = functions.table_funcs_named(name)
    if candidates and name == "generate_series" and len(args) == 2:
        args.append(_one(args))
    types = [a.typ for a in args]
    try:
        func = resolve(candidates, types)
    except UndefinedFunction:
        func = None
    if func is None:
        problem = polymorphic_problem(candidates, types)
        shown = f"{_qualified(node, name)}({', '.join(plain_name(typ) for typ in types)})"
        message = problem or f"function {shown} does not exist"
        raise UndefinedFunction(message, position=position_of(node))
    return _Resolved(func, tuple(apply(func, args)))


def _qualified(node: exp.Expr, name: str) -> str:
    """The name with the schema that was written."""
    if not isinstance(node, exp.Dot):
        return name
    return ".".join((*(fold(part) for part in node.this.find_all(exp.Identifier)), name))


def _one(args: list[Typed]) -> Typed:
    """The step that generate_series has by itself: 1 of the wider type."""
    kinds = {a.typ.kind for a in args}
    typ = t.BIGINT if "bigint" in kinds else t.INTEGER
    return Typed(Literal(1, typ), typ, False)


# --- in select lists -----------------------------------------------------------------------------


def in_select(ctx: ExprContext, node: exp.Expr) -> Typed:
    """A call in a select list: joined laterally to the rows; several are side by side, equal ones once."""
    select = ctx.select
    assert select is not None
    assert ctx.table_functions is not None
    known = ctx.table_functions
    if node not in known:
        known.append(node)
        _join(ctx, known)
    return _column(ctx, known, known.index(node))


def _join(ctx: ExprContext, calls: list[exp.Expr]) -> None:
    select = ctx.select
    assert select is not None
    base: hir.Relation = select.relation
    scope: Scope = select.scope
    if len(calls) > 1:
        assert isinstance(base, hir.Join)
        base = base.left
        scope = replace(scope, items=scope.items[: -_width(ctx, calls[:-1], scope)])
    if len(calls) == 1:
        relation, items = planned(ctx.planner, calls[0], scope)
    else:
        relation, items = _side_by_side(ctx.planner, list(calls), scope, numbered=False)
    select.relation = hir.Join(base, relation, Literal(True, t.BOOLEAN), "inner")
    hidden = [ScopeItem(i.name, None, i.typ, unqualified=False, starred=False) for i in items]
    select.scope = replace(scope, items=(*scope.items, *hidden))
    ctx.scope = select.scope


def _outputs(ctx: ExprContext, calls: list[exp.Expr], left: Scope) -> list[_Resolved]:
    return [_resolve(ctx.planner, node, left) for node in calls]


def _width(ctx: ExprContext, calls: list[exp.Expr], left: Scope) -> int:
    return sum(f.output.arity for f in _outputs(ctx, calls, left))


def _column(ctx: ExprContext, calls: list[exp.Expr], index: int) -> Typed:
    """The column of a call; of several columns a record."""
    select = ctx.select
    assert select is not None
    scope: Scope = select.scope
    ctx.scope = scope
    found = _outputs(ctx, calls, scope)
    widths = [f.output.arity for f in found]
    first = len(scope.items) - sum(widths) + sum(widths[:index])
    columns = [
        Typed(
            hir.Column(first + i),
            scope.items[first + i].typ.type,
            scope.items[first + i].typ.nullable,
        )
        for i in range(widths[index])
    ]
    if len(columns) == 1:
        return columns[0]
    names = found[index].func.names
    fields = tuple(
        (name, ColumnType(c.typ, c.nullable)) for name, c in zip(names, columns, strict=True)
    )
    return call("row", columns, SqlType("record", fields=fields))
