"""FROM: tables, subqueries, table functions, and the joins between them.

Promise: a relation's scope names its columns; the right side of every join is planned one scope further in, its left side reachable only
under LATERAL (table functions always are). USING and NATURAL put the merged columns first, as SQL says; both sides' own columns stay
reachable by their table's name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogItem, PartialName
from mzsql.frontend.coerce import (
    Typed,
    apply,
    call,
    combine_types,
    operator_call,
    resolve,
    to_boolean,
)
from mzsql.frontend.expressions import ExprContext
from mzsql.frontend.hir_visit import visit_relation_columns
from mzsql.frontend.nodes import combine, function_name, position_of
from mzsql.frontend.parse_pieces import fold
from mzsql.frontend.scope import Scope, ScopeItem, TableName
from mzsql.repr import types as t
from mzsql.repr.errors import (
    AmbiguousColumn,
    SqlError,
    SqlSyntaxError,
    UndefinedColumn,
    UndefinedFunction,
    UndefinedTable,
    Unsupported,
)
from mzsql.repr.types import ColumnType, type_name

if TYPE_CHECKING:
    from mzsql.frontend.query import QueryPlanner

#: A relation and its columns' scope items, without the scopes around.
Factor = tuple[hir.Relation, Scope]

_KINDS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
_TABLE_ARGS = frozenset(
    {"this", "alias", "db", "catalog", "joins", "laterals", "rows_from", "ordinality", "only"}
)
UNIT = hir.Constant(((),), t.RelationType(()))


def plan_from(planner: QueryPlanner, node: exp.Select, outer: Scope | None) -> Factor:
    """The FROM clause's rows; one row of no columns where there is none."""
    clause = node.args.get("from_")
    if clause is None:
        return UNIT, Scope((), outer)
    if clause.this is None:
        raise SqlSyntaxError("Expected identifier, found EOF", position=position_of(node))
    relation, scope = _factor(planner, clause.this, Scope((), outer), first=True)
    scope = replace(scope, outer=outer)
    for join in [*(node.args.get("joins") or ()), *(node.args.get("laterals") or ())]:
        relation, scope = _join(planner, relation, scope, join)
    _refuse_duplicates(scope, node)
    return relation, scope


def _refuse_duplicates(scope: Scope, node: exp.Expr) -> None:
    seen: set[TableName] = set()
    for name in scope.tables:
        if name in seen:
            raise SqlError(
                f'table name "{name[-1]}" specified more than once',
                position=position_of(node.args.get("from_")),
                sqlstate="42712",
            )
        seen.add(name)


# --- factors ---------------------------------------------------------------------------------------


def _factor(planner: QueryPlanner, node: exp.Expr, left: Scope, *, first: bool = False) -> Factor:
    """One relation of a FROM clause. `left` is what stands to its left; for the first, only the scopes around."""
    blocked = left.outer if first else replace(left, reachable=False)
    lateral = left.outer if first else left
    match node:
        case exp.Table():
            relation, scope = _table(planner, node, blocked, lateral)
        case exp.Subquery():
            relation, scope = _derived(planner, node, blocked)
        case exp.Values():
            done = planner.values(node, blocked)
            items = [ScopeItem(n, None, c) for n, c in zip(done.names, done.types, strict=True)]
            relation, scope = done.relation, _aliased(Scope(tuple(items)), node.args.get("alias"))
        case exp.Lateral():
            relation, scope = _lateral(planner, node, lateral)
        case exp.Select() | exp.SetOperation():
            done = planner.query(node, blocked).finish()
            items = [ScopeItem(n, None, c) for n, c in zip(done.names, done.types, strict=True)]
            relation, scope = done.relation, Scope(tuple(items))
        case _:
            raise Unsupported(
                "this form of a FROM clause is not supported", position=position_of(node)
            )
    for join in [*(node.args.get("joins") or ()), *(node.args.get("laterals") or ())]:
        # A parenthesized join: its own names see only each other and what is around.
        relation, scope = _join(planner, relation, replace(scope, outer=blocked), join)
    return relation, scope


def _table(
    planner: QueryPlanner, node: exp.Table, blocked: Scope | None, lateral: Scope | None
) -> Factor:
    for key, value in node.args.items():
        if value and key not in _TABLE_ARGS:
            raise Unsupported(
                f"{key.replace('_', ' ').upper()} is not supported in FROM",
                position=position_of(node),
            )
    if node.args.get("rows_from"):
        return _rows_from(planner, node, lateral)
    if isinstance(node.this, exp.Anonymous):
        return _call_in_from(planner, node, node.this, lateral)
    if not isinstance(node.this, exp.Identifier):
        del blocked
        raise Unsupported("this form of a table is not supported", position=position_of(node))
    name = PartialName(
        fold(node.this),
        fold(node.args["db"]) if node.args.get("db") else None,
        fold(node.args["catalog"]) if node.args.get("catalog") else None,
    )
    alias = node.args.get("alias")
    cte = planner.find_cte(name.item) if name.schema is None else None
    if cte is not None:
        items = [ScopeItem(n, None, c) for n, c in zip(cte.names, cte.types, strict=True)]
        get = hir.Get(cte.id, t.RelationType(cte.types))
        return get, _aliased(Scope(tuple(items)), alias, (name.item,))
    item = resolve_relation(planner, name, node)
    assert item.desc is not None
    items = [
        ScopeItem(n, None, c) for n, c in zip(item.desc.names, item.desc.typ.columns, strict=True)
    ]
    full = tuple(p for p in (item.name.database, item.name.schema, item.name.item) if p)
    return hir.Get(item.id, item.desc.typ), _aliased(Scope(tuple(items)), alias, full)


def resolve_relation(planner: QueryPlanner, name: PartialName, node: exp.Expr) -> CatalogItem:
    """The catalog's relation of a name; its place in the text is remembered.

    Raises:
        UndefinedTable: ``unknown catalog item 'x'``.
    """
    position = position_of(node)
    item = find_relation(planner, name, position)
    parts = [node.args.get(k) for k in ("catalog", "db", "this")]
    spots = [p.meta for p in parts if isinstance(p, exp.Expr) and "start" in p.meta]
    if spots:
        planner.references.append((spots[0]["start"], spots[-1]["end"] + 1, item.name))
    return item


def find_relation(planner: QueryPlanner, name: PartialName, position: int | None) -> CatalogItem:
    """The catalog's relation of a name."""
    catalog = planner.catalog
    if name.database is not None and not catalog.has_database(name.database):
        raise UndefinedTable(
            f"unknown database '{name.database}'", position=position, sqlstate="3D000"
        )
    if name.schema is not None and not (
        catalog.has_schema(None, name.schema)
        or catalog.has_schema(name.database or catalog.database, name.schema)
    ):
        raise UndefinedTable(f"unknown schema '{name.schema}'", position=position, sqlstate="3F000")
    item = catalog.resolve_item(name)
    if item is None:
        raise UndefinedTable(f"unknown catalog item '{name}'", position=position)
    if item.desc is None:
        raise SqlError(
            f"catalog item '{item.name}' is an {item.kind.replace('-', ' ')} and so cannot be depended upon",
            position=position,
            sqlstate="42809",
        )
    return item


def _aliased(scope: Scope, alias: exp.Expr | None, name: TableName | None = None) -> Scope:
    """The scope under its alias, or under the relation's own name."""
    if alias is None or not (alias.this or alias.args.get("columns")):
        return scope.renamed(name, ())
    table = fold(alias.this) if alias.this else None
    columns = tuple(
        fold(c.this) if isinstance(c, exp.ColumnDef) else fold(c)
        for c in alias.args.get("columns") or ()
    )
    if len(columns) > len(scope.items):
        raise SqlSyntaxError(
            f"{table} has {len(scope.items)} columns available but {len(columns)} columns specified",
            position=position_of(alias),
            sqlstate="42P10",
        )
    return scope.renamed((table,) if table else name, columns)


def _derived(planner: QueryPlanner, node: exp.Subquery, outer: Scope | None) -> Factor:
    inner = node.this
    alias = node.args.get("alias")
    if (
        isinstance(inner, exp.Table)
        or (isinstance(inner, exp.Subquery) and inner.args.get("alias") is not None)
        or (
            isinstance(inner, exp.Subquery)
            and (inner.args.get("joins") or inner.args.get("laterals"))
        )
    ):
        # (a JOIN b …): a join in parentheses; its tables keep their names unless the whole has an alias.
        relation, scope = _factor(planner, inner, Scope((), outer), first=True)
        if alias is not None:
            scope = _aliased(scope, alias)
        return relation, scope
    done = planner.query(inner, outer).finish()
    items = [ScopeItem(n, None, c) for n, c in zip(done.names, done.types, strict=True)]
    return done.relation, _aliased(Scope(tuple(items)), alias)


def _lateral(planner: QueryPlanner, node: exp.Lateral, left: Scope | None) -> Factor:
    inner = node.this
    alias = node.args.get("alias")
    if isinstance(inner, exp.Anonymous):
        return _call_in_from(planner, node, inner, left)
    done = planner.query(inner, left).finish()
    items = [ScopeItem(n, None, c) for n, c in zip(done.names, done.types, strict=True)]
    return done.relation, _aliased(Scope(tuple(items)), alias)


def _call_in_from(
    planner: QueryPlanner, node: exp.Expr, func: exp.Expr, left: Scope | None
) -> Factor:
    name = function_name(func)
    if node.args.get("ordinality"):
        raise Unsupported("WITH ORDINALITY is not supported", position=position_of(node))
    relation, items = table_function(planner, func, left)
    alias = node.args.get("alias")
    if alias is not None and alias.this and not alias.args.get("columns") and len(items) == 1:
        # f(x) AS a: both the relation and its one column are a.
        items = (replace(items[0], name=fold(alias.this)),)
    return relation, _aliased(Scope(items), alias, (name,))


def _rows_from(planner: QueryPlanner, node: exp.Table, left: Scope | None) -> Factor:
    calls = node.args["rows_from"]
    if len(calls) != 1:
        raise Unsupported(
            "ROWS FROM with several functions is not supported", position=position_of(node)
        )
    (only,) = calls
    only = only.copy()
    only.set("alias", node.args.get("alias"))
    return _table(planner, only, left, left)


def table_function(
    planner: QueryPlanner, node: exp.Expr, left: Scope | None
) -> tuple[hir.Relation, tuple[ScopeItem, ...]]:
    """A table function's call; its arguments may read what stands to its left.

    Raises:
        UndefinedFunction: ``function f(integer) does not exist``.
    """
    name = function_name(node)
    ctx = ExprContext(planner, Scope((), left), "the arguments of a table function in FROM")
    args = [ctx.plan(e) for e in node.expressions]
    candidates = functions.table_funcs_named(name)
    if candidates and name == "generate_series" and len(args) == 2:
        args.append(_one(args))
    func = resolve(candidates, [a.typ for a in args])
    if func is None:
        shown = f"function {name}({', '.join(type_name(a.typ) for a in args)})"
        raise UndefinedFunction(f"{shown} does not exist", position=position_of(node))
    done = apply(func, args)
    relation = hir.CallTable(func.key, tuple(a.expr for a in done), func.output)
    names = func.names or tuple(name for _ in func.output.columns)
    items = tuple(ScopeItem(n, None, c) for n, c in zip(names, func.output.columns, strict=True))
    return relation, items


def _one(args: list[Typed]) -> Typed:
    """The step that generate_series has by itself: 1 of the wider type."""
    kinds = {a.typ.kind for a in args}
    typ = t.BIGINT if "bigint" in kinds else t.INTEGER
    return Typed(Literal(1, typ), typ, False)


# --- joins -----------------------------------------------------------------------------------------


def _join(planner: QueryPlanner, relation: hir.Relation, scope: Scope, join: exp.Expr) -> Factor:
    if isinstance(join, exp.Lateral):
        right, right_scope = _factor(planner, join, scope)
        return _inner(relation, right, _product(scope, right_scope))
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    method = str(join.args.get("method") or "").upper()
    if kind not in ("", "INNER", "OUTER", "CROSS") or method not in ("", "NATURAL"):
        raise Unsupported(
            f"{' '.join(w for w in (method, side, kind) if w)} JOIN is not supported",
            position=position_of(join),
        )
    how = _KINDS[side]
    right, right_scope = _factor(planner, join.this, scope)
    if how in ("right", "full") and _is_lateral(join.this) and _reaches_left(right):
        raise SqlError(
            "the combining JOIN type must be INNER or LEFT for a LATERAL reference",
            position=position_of(join),
            sqlstate="42P10",
        )
    using, on = join.args.get("using"), join.args.get("on")
    if method == "NATURAL":
        names = _shared_names(scope, right_scope)
        return _using(relation, scope, right, right_scope, names, how, join)
    if using:
        return _using(
            relation, scope, right, right_scope, [fold(_bare(u)) for u in using], how, join
        )
    both = _product(
        _outer_side(scope, how in ("right", "full")),
        _outer_side(right_scope, how in ("left", "full")),
    )
    if on is None:
        if how != "inner" or kind == "INNER":
            raise SqlSyntaxError("Expected ON, or USING after JOIN", position=position_of(join))
        return _inner(relation, right, both)
    plain = _product(scope, right_scope)
    ctx = ExprContext(planner, plain, "JOIN conditions")
    condition = to_boolean(ctx.plan(on), "argument of JOIN/ON", position_of(on))
    return hir.Join(relation, right, condition.expr, how), both


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Column) else node


def _is_lateral(node: exp.Expr) -> bool:
    return isinstance(node, exp.Lateral) or isinstance(getattr(node, "this", None), exp.Anonymous)


def _reaches_left(right: hir.Relation) -> bool:
    found: list[bool] = []

    def visit(depth: int, column: hir.Column) -> None:
        if column.level == depth + 1:
            found.append(True)

    visit_relation_columns(right, visit)
    return bool(found)


def _inner(left: hir.Relation, right: hir.Relation, scope: Scope) -> Factor:
    return hir.Join(left, right, Literal(True, t.BOOLEAN), "inner"), scope


def _product(left: Scope, right: Scope) -> Scope:
    return Scope(
        (*left.items, *right.items), left.outer, left.reachable, (*left.tables, *right.tables)
    )


def _outer_side(scope: Scope, nulls: bool) -> Scope:
    """The scope of a side whose columns an outer join may fill with NULLs."""
    if not nulls:
        return scope
    items = tuple(replace(i, typ=ColumnType(i.typ.type, True)) for i in scope.items)
    return replace(scope, items=items)


def _shared_names(left: Scope, right: Scope) -> list[str]:
    theirs = {i.name for i in right.items if i.unqualified and i.starred}
    mine = dict.fromkeys(i.name for i in left.items if i.unqualified and i.starred)
    return [name for name in mine if name in theirs]


def _one_named(scope: Scope, name: str, side: str, node: exp.Expr) -> int:
    found = [i for i, item in enumerate(scope.items) if item.name == name and item.unqualified]
    if not found:
        raise UndefinedColumn(
            f'column "{name}" specified in USING clause does not exist in {side} table',
            position=position_of(node),
        )
    if len(found) > 1:
        raise AmbiguousColumn(
            f'common column name "{name}" appears more than once in {side} table',
            position=position_of(node),
        )
    return found[0]


def _using(
    left: hir.Relation,
    left_scope: Scope,
    right: hir.Relation,
    right_scope: Scope,
    names: list[str],
    how: str,
    node: exp.Expr,
) -> Factor:
    """Join on equality of same-named columns, which come out merged and first."""
    width = len(left_scope.items)
    scope = _product(
        _outer_side(left_scope, how in ("right", "full")),
        _outer_side(right_scope, how in ("left", "full")),
    )
    conditions: list[Typed] = []
    merged: list[tuple[int, ScopeItem]] = []
    hidden: list[int] = []
    scalars: list[hir.Scalar] = []
    for name in names:
        a = _one_named(left_scope, name, "left", node)
        b = width + _one_named(right_scope, name, "right", node)
        sides = [
            Typed(hir.Column(c), scope.items[c].typ.type, scope.items[c].typ.nullable)
            for c in (a, b)
        ]
        conditions.append(operator_call("=", sides, position_of(node)))
        if how == "full":
            both = call("coalesce", combine_types(sides, name, position_of(node)))
            item = ScopeItem(name, None, ColumnType(both.typ, both.nullable))
            merged.append((len(scope.items) + len(scalars), item))
            scalars.append(both.expr)
            hidden.extend((a, b))
        else:
            kept, gone = (b, a) if how == "right" else (a, b)
            merged.append((kept, scope.items[kept]))
            hidden.append(gone)
    taken = {c for c, _ in merged} | set(hidden)
    rest = [(i, item) for i, item in enumerate(scope.items) if i not in taken]
    concealed = [(i, replace(scope.items[i], unqualified=False, starred=False)) for i in hidden]
    columns = [*merged, *rest, *concealed]
    relation: hir.Relation = hir.Join(left, right, combine("and", conditions).expr, how)
    if scalars:
        relation = hir.Map(relation, tuple(scalars))
    outputs = tuple(i for i, _ in columns)
    if outputs != tuple(range(len(scope.items) + len(scalars))):
        relation = hir.Project(relation, outputs)
    return relation, replace(scope, items=tuple(item for _, item in columns))
