"""FROM: tables, subqueries, table functions, and joins.

Promise: a relation's scope names its columns. The right side of every join is planned one scope further in, its left side reachable only
under LATERAL, which table functions always are. A comma binds weaker than JOIN, so what is between commas is joined first. USING and
NATURAL put the merged columns first, as the SQL standard says; both sides' own columns stay reachable by their table's name.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogItem, PartialName
from mzsql.frontend.hir_visit import visit_relation_columns
from mzsql.frontend.names.items import check_qualifiers, unknown_item
from mzsql.frontend.names.scope import Scope, ScopeItem, TableName, column_like
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.parse.shows import shown_by
from mzsql.frontend.query import record_functions, table_functions
from mzsql.frontend.query.show import shown_query
from mzsql.frontend.scalar import qualified
from mzsql.frontend.scalar.coerce import (
    Typed,
    call,
    combine_types,
    operator_call,
    to_boolean,
)
from mzsql.frontend.scalar.context import ExprContext, QueryPlans
from mzsql.frontend.scalar.nodes import combine, function_name, position_of
from mzsql.repr import types as t
from mzsql.repr.errors import (
    AmbiguousColumn,
    SqlError,
    SqlSyntaxError,
    UndefinedColumn,
    Unsupported,
)
from mzsql.repr.types import ColumnType

#: A relation and the scope of its columns.
Factor = tuple[hir.Relation, Scope]

_KINDS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
_TABLE_ARGS = frozenset(
    {"this", "alias", "db", "catalog", "joins", "laterals", "rows_from", "ordinality", "only"}
)
#: Functions of PostgreSQL's that are relations here: the relation, and its schema.
_RELATIONS = {
    "pg_get_keywords": ("mz_keywords", "mz_internal"),
    "pg_timezone_abbrevs": ("pg_timezone_abbrevs", "pg_catalog"),
    "pg_timezone_names": ("pg_timezone_names", "pg_catalog"),
}
UNIT = hir.Constant(((),), t.RelationType(()))


def plan_from(planner: QueryPlans, node: exp.Select, outer: Scope | None) -> Factor:
    """The rows of the FROM clause and their scope; one row without columns where there is no FROM.

    Raises:
        SqlSyntaxError: FROM is not followed by a relation.
    """
    clause = node.args.get("from_")
    if clause is None:
        return UNIT, Scope((), outer)
    if clause.this is None:
        raise SqlSyntaxError("Expected identifier, found EOF", position=position_of(node))
    outer = None if outer is None else replace(outer, base=True)
    relation: hir.Relation = UNIT
    scope: Scope | None = None
    for first, joins in _between_commas(clause.this, node):
        around = outer if scope is None else replace(scope, left=True)
        right, right_scope = _joined(planner, first, joins, around)
        if scope is None:
            relation, scope = right, replace(right_scope, outer=outer)
        else:
            relation, scope = _inner(relation, right, _product(scope, right_scope))
    assert scope is not None
    _refuse_duplicates(scope, node)
    return relation, scope


def _between_commas(first: exp.Expr, node: exp.Expr) -> list[tuple[exp.Expr, list[exp.Expr]]]:
    """The relations between commas, each with the joins that follow it."""
    for lateral in node.args.get("laterals") or ():
        raise SqlSyntaxError(
            "Expected end of statement, found LATERAL", position=position_of(lateral)
        )
    found: list[tuple[exp.Expr, list[exp.Expr]]] = [(first, [])]
    for join in node.args.get("joins") or ():
        if join.meta.get("comma"):
            found.append((join.this, []))
        else:
            found[-1][1].append(join)
    return found


def _joined(
    planner: QueryPlans, first: exp.Expr, joins: list[exp.Expr], around: Scope | None
) -> Factor:
    """Relations joined one after the other; ``around`` is what is to the left of all of them, and the outer scopes."""
    relation, scope = _factor(planner, first, around)
    scope = replace(scope, outer=around)
    for join in joins:
        relation, scope = _join(planner, relation, scope, join)
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


def _factor(planner: QueryPlans, node: exp.Expr, lateral: Scope | None) -> Factor:
    """One relation of a FROM clause; ``lateral`` is what is to its left, reachable only under LATERAL, and the outer scopes."""
    blocked = None if lateral is None else lateral.blocked()
    match node:
        case exp.Table():
            relation, scope = _table(planner, node, blocked, lateral)
        case exp.Subquery():
            relation, scope = _derived(planner, node, lateral)
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
    if not node.args.get("joins"):
        return relation, scope
    # A parenthesized join: its relations see each other and, under LATERAL, what is to the left of the parentheses.
    scope = replace(scope, outer=lateral)
    for join in node.args["joins"]:
        relation, scope = _join(planner, relation, scope, join)
    return relation, scope


def _table(
    planner: QueryPlans, node: exp.Table, blocked: Scope | None, lateral: Scope | None
) -> Factor:
    show = shown_by(node)
    if show is not None:
        done = planner.query(shown_query(show, planner.catalog), blocked).finish()
        columns = zip(done.names, done.types, strict=True)
        return done.relation, Scope(tuple(ScopeItem(n, None, c) for n, c in columns))
    for key, value in node.args.items():
        if value and key not in _TABLE_ARGS:
            raise Unsupported(
                f"{key.replace('_', ' ').upper()} is not supported in FROM",
                position=position_of(node),
            )
    if node.args.get("rows_from"):
        return _rows_from(planner, node, lateral)
    if isinstance(node.this, exp.Anonymous):
        instead = _as_relation(node, node.this)
        if instead is not None:
            return _table(planner, instead, blocked, lateral)
        return _call_in_from(planner, node, node.this, lateral)
    if not isinstance(node.this, exp.Identifier):
        del blocked
        if isinstance(node.this, exp.Dot):
            parts = [*(node.args[k] for k in ("catalog", "db") if node.args.get(k)), node.this]
            named = ".".join(name for part in parts for name in qualified.names(part))
            raise SqlSyntaxError(
                f"qualified name did not have between 1 and 3 components: {named}",
                position=position_of(node),
            )
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
    scope = _aliased(Scope(tuple(items)), alias, item.name.parts)
    return hir.Get(item.id, item.desc.typ), scope


def resolve_relation(planner: QueryPlans, name: PartialName, node: exp.Expr) -> CatalogItem:
    """The relation that a name refers to; its place in the text is recorded in the planner's references.

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


def find_relation(planner: QueryPlans, name: PartialName, position: int | None) -> CatalogItem:
    """The catalog's relation with a name.

    Raises:
        UndefinedTable: there is none.
        SqlError: the object has no columns.
    """
    catalog = planner.catalog
    check_qualifiers(catalog, name, position)
    item = catalog.resolve_item(name)
    if item is None:
        raise unknown_item(catalog, name, position, also=planner.cte_names())
    if item.desc is None:
        raise SqlError(
            f"catalog item '{item.name}' is {item.described} and so cannot be depended upon",
            position=position,
            sqlstate="42809",
        )
    return item


def _aliased(scope: Scope, alias: exp.Expr | None, name: TableName | None = None) -> Scope:
    """The scope under its alias, else under the relation's own name."""
    if alias is None or not (alias.this or alias.args.get("columns")):
        return scope.renamed(name, ())
    table = fold(alias.this) if alias.this else None
    columns = tuple(
        fold(c.this) if isinstance(c, exp.ColumnDef) else fold(c)
        for c in alias.args.get("columns") or ()
    )
    visible = sum(item.starred for item in scope.items)
    if len(columns) > visible:
        raise SqlSyntaxError(
            f"{table} has {visible} columns available but {len(columns)} columns specified",
            position=position_of(alias),
            sqlstate="42P10",
        )
    return scope.renamed((table,) if table else name, columns)


def _derived(planner: QueryPlans, node: exp.Subquery, lateral: Scope | None) -> Factor:
    inner = node.this
    alias = node.args.get("alias")
    record_functions.refuse_definitions(node)
    if (
        isinstance(inner, exp.Table)
        or (isinstance(inner, exp.Subquery) and inner.args.get("alias") is not None)
        or (
            isinstance(inner, exp.Subquery)
            and (inner.args.get("joins") or inner.args.get("laterals"))
        )
    ):
        # (a JOIN b …): the tables of a parenthesized join keep their names, unless the whole has an alias.
        relation, scope = _factor(planner, inner, lateral)
        if alias is not None:
            scope = _aliased(scope, alias)
        return relation, scope
    done = planner.query(inner, None if lateral is None else lateral.blocked()).finish()
    items = [ScopeItem(n, None, c) for n, c in zip(done.names, done.types, strict=True)]
    return done.relation, _aliased(Scope(tuple(items)), alias)


def _lateral(planner: QueryPlans, node: exp.Lateral, left: Scope | None) -> Factor:
    inner = node.this
    alias = node.args.get("alias")
    if isinstance(inner, exp.Anonymous):
        return _call_in_from(planner, node, inner, left)
    if isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Anonymous):
        names = inner.this.flatten() if isinstance(inner.this, exp.Dot) else (inner.this,)
        placed = node.copy()
        for key, name in zip(("db", "catalog"), reversed(list(names)), strict=False):
            placed.set(key, name.copy())
        return _call_in_from(planner, placed, inner.expression, left)
    done = planner.query(inner, left).finish()
    items = [ScopeItem(n, None, c) for n, c in zip(done.names, done.types, strict=True)]
    return done.relation, _aliased(Scope(tuple(items)), alias)


def _call_in_from(
    planner: QueryPlans, node: exp.Expr, func: exp.Expr, left: Scope | None
) -> Factor:
    name = function_name(func)
    if name in record_functions.NAMES:
        made = record_functions.as_query(planner, node, func)
        done = planner.query(made, left).finish()
        items = [ScopeItem(n, None, c) for n, c in zip(done.names, done.types, strict=True)]
        return done.relation, _aliased(Scope(tuple(items)), node.args.get("alias"), (name,))
    record_functions.refuse_definitions(node)
    if name == "unnest" and len(func.expressions) > 1:
        # unnest of several arrays returns them side by side, as in PostgreSQL.
        calls: list[exp.Expr] = [
            exp.Anonymous(this=func.this, expressions=[arg.copy()]) for arg in func.expressions
        ]
    else:
        calls = [func]
    return _calls_in_from(planner, node, [_with_schema(node, c) for c in calls], left, name)


def _as_relation(node: exp.Table, func: exp.Anonymous) -> exp.Table | None:
    """The relation whose rows a call in FROM gives; None where it gives others."""
    name = function_name(func)
    schema = node.args.get("db")
    plain = not (func.expressions or node.args.get("catalog") or node.args.get("ordinality"))
    if not plain or name not in _RELATIONS or (schema and fold(schema) != "pg_catalog"):
        return None
    read, place = _RELATIONS[name]
    alias = node.args.get("alias") or exp.TableAlias()
    alias = alias.copy()
    if not alias.this:
        alias.set("this", exp.to_identifier(name, quoted=True))
    there = exp.to_identifier(read, quoted=True), exp.to_identifier(place, quoted=True)
    return exp.Table(this=there[0], db=there[1], alias=alias)


def _with_schema(node: exp.Expr, func: exp.Expr) -> exp.Expr:
    """The call with the schema and database that precede it."""
    before = [node.args[key].copy() for key in ("catalog", "db") if node.args.get(key)]
    if not before:
        return func
    names = before[0] if len(before) == 1 else exp.Dot(this=before[0], expression=before[1])
    return exp.Dot(this=names, expression=func)


def _rows_from(planner: QueryPlans, node: exp.Table, left: Scope | None) -> Factor:
    record_functions.refuse_definitions(node)
    calls = [_with_schema(part, part.this) for part in node.args["rows_from"]]
    return _calls_in_from(planner, node, calls, left, None)


def _calls_in_from(
    planner: QueryPlans,
    node: exp.Expr,
    calls: list[exp.Expr],
    left: Scope | None,
    name: str | None,
) -> Factor:
    alias = node.args.get("alias")
    numbered = bool(node.args.get("ordinality"))
    if name is None:
        name = function_name(table_functions.call_of(calls[0]))
    relation, items = table_functions.in_from(planner, calls, left, alias, numbered=numbered)
    return relation, _aliased(Scope(items), alias, (name,))


# --- joins -----------------------------------------------------------------------------------------


def _join(planner: QueryPlans, relation: hir.Relation, scope: Scope, join: exp.Expr) -> Factor:
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    method = str(join.args.get("method") or "").upper()
    if kind not in ("", "INNER", "OUTER", "CROSS") or method not in ("", "NATURAL"):
        raise Unsupported(
            f"{' '.join(w for w in (method, side, kind) if w)} JOIN is not supported",
            position=position_of(join),
        )
    how = _KINDS[side]
    right, right_scope = _factor(planner, join.this, replace(scope, left=True))
    if how in ("right", "full") and _reaches_left(right):
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
        if kind != "CROSS":
            raise SqlSyntaxError("Expected ON, or USING after JOIN", position=position_of(join))
        return _inner(relation, right, both)
    plain = _product(scope, right_scope)
    # An ON condition does not reach what is to the left of its own join; only LATERAL does.
    plain = replace(plain, outer=None if plain.outer is None else plain.outer.blocked())
    ctx = ExprContext(planner, plain, "JOIN conditions")
    condition = to_boolean(ctx.plan(on), "argument of JOIN/ON", position_of(on))
    return hir.Join(relation, right, condition.expr, how), both


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Column) else node


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
    """The scope of a join's side; nullable where the outer join may fill its columns with NULLs."""
    if not nulls:
        return scope
    items = tuple(msgspec.structs.replace(i, typ=ColumnType(i.typ.type, True)) for i in scope.items)
    return replace(scope, items=items)


def _shared_names(left: Scope, right: Scope) -> list[str]:
    theirs = {i.name for i in right.items if i.unqualified and i.starred}
    mine = dict.fromkeys(i.name for i in left.items if i.unqualified and i.starred)
    return [name for name in mine if name in theirs]


def _one_named(scope: Scope, name: str, side: str, node: exp.Expr) -> int:
    found = [i for i in scope.named.get(name, ()) if scope.items[i].unqualified]
    if not found:
        raise UndefinedColumn(
            f'column "{name}" specified in USING clause does not exist in {side} table',
            position=position_of(node),
            hint=column_like(name, (item.name for item in scope.items if item.unqualified)),
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
    """Join on equality of columns with the same names, which are merged and come first."""
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
        alike = combine_types(sides, name, position_of(node))
        conditions.append(operator_call("=", alike, position_of(node)))
        if how == "full":
            both = call("coalesce", alike)
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
    concealed = [
        (i, msgspec.structs.replace(scope.items[i], unqualified=False, starred=False))
        for i in hidden
    ]
    columns = [*merged, *rest, *concealed]
    relation: hir.Relation = hir.Join(left, right, combine("and", conditions).expr, how)
    if scalars:
        relation = hir.Map(relation, tuple(scalars))
    outputs = tuple(i for i, _ in columns)
    if outputs != tuple(range(len(scope.items) + len(scalars))):
        relation = hir.Project(relation, outputs)
    items = [item for _, item in columns]
    tables = scope.tables
    written = node.meta.get("alias")
    if written is not None:
        alias = (fold(written),)
        for i in range(len(merged)):
            items[i] = msgspec.structs.replace(items[i], aliases=(*items[i].aliases, alias))
        tables = (*tables, alias)
    return relation, replace(scope, items=tuple(items), tables=tables)
