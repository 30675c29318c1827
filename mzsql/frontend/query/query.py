"""Queries to HIR: SELECT, set operations, VALUES, CTEs.

Promise: the shape of the plan is Materialize's: FROM, WHERE, table functions of the select list, grouping (its expressions mapped, then a
`Reduce`), HAVING, the select list (mapped), DISTINCT. Order, limit and projection are returned as a finishing, which a subquery or a view
turns into `TopK` and `Project`. Expressions of a grouped query are planned over the rows before grouping and then rewritten, so what equals
a grouping expression is recognized by its meaning, not by its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import msgspec
from sqlglot import expressions as exp

from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import ColumnOrder, Literal
from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogView, FullName
from mzsql.frontend.names.named_types import NamedTypes
from mzsql.frontend.names.scope import Scope, ScopeItem
from mzsql.frontend.names.types import resolve_type
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.query import grouping, table_functions
from mzsql.frontend.query.from_clause import plan_from
from mzsql.frontend.query.limits import is_null, literal_count, plan_limit, with_ties
from mzsql.frontend.query.ordering import (
    check_distinct_on,
    column_order,
    limit_size,
    order_items,
    sorting,
)
from mzsql.frontend.query.projection import plan_select_items
from mzsql.frontend.query.recursive_union import (
    check_linear,
    check_types,
    column_types,
    refers_to_itself,
    sides,
)
from mzsql.frontend.query.select_clauses import refuse_clauses, refuse_unknown_clauses
from mzsql.frontend.query.set_operations import cell, column_values, rows_relation, set_relation
from mzsql.frontend.scalar.coerce import Typed, as_common, cast, settle, to_boolean, unify
from mzsql.frontend.scalar.context import ExprContext, Handlers, Subqueries
from mzsql.frontend.scalar.expressions import HANDLERS
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.planned_queries import Cte, Pending, Planned, limit_inside, project
from mzsql.repr import types as t
from mzsql.repr.errors import (
    DatatypeMismatch,
    SqlError,
    SqlSyntaxError,
    Unsupported,
)
from mzsql.repr.types import ColumnType, RelationDesc, RelationType, SqlType


@dataclass
class QueryPlanner:
    """Plans the queries of one statement.

    Attributes:
        catalog: where names are resolved.
        references: the catalog's objects in the text: start, end, full name.
        ctes: the CTEs in scope, inner ones last.
        named: the columns of subqueries planned as values.
        types: resolves types that users created, and adds them to the references.
        whole_rows: where a table's name stands for its row.
        handlers: plans each kind of expression node.
    """

    handlers: ClassVar[Handlers] = HANDLERS

    catalog: CatalogView
    references: list[tuple[int, int, FullName]] = field(default_factory=list)
    ctes: list[dict[str, Cte]] = field(default_factory=list)
    named: Subqueries = field(default_factory=dict)
    whole_rows: list[int | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.types = NamedTypes(self.catalog, self.references)

    # --- entry points ----------------------------------------------------------------------------

    def top_level(self, node: exp.Expr) -> hir.Query:
        """The query of a SELECT statement, with its finishing."""
        pending = self.query(node, None)
        limit = _constant_limit(pending.limit)
        if pending.limit is not None and limit is None and not is_null(pending.limit):
            pending = limit_inside(pending)
        types = tuple(pending.types[c] for c in pending.project)
        desc = RelationDesc(pending.names, RelationType(types))
        trivial = not pending.order and limit is None and not pending.offset
        if trivial:
            done = pending.finish()
            finishing = RowSetFinishing((), None, 0, tuple(range(len(done.types))))
            return hir.Query(done.relation, desc, finishing, done.types)
        if all(order.column in pending.project for order in pending.order):
            # Every ORDER BY column is in the output: project first, so that no other column is carried along.
            place = {column: pending.project.index(column) for column in pending.project}
            order = tuple(ColumnOrder(place[o.column], o.desc, o.nulls_last) for o in pending.order)
            relation = project(pending.relation, pending.project, len(pending.types))
            finishing = RowSetFinishing(order, limit, pending.offset, tuple(range(len(types))))
            return hir.Query(relation, desc, finishing, types)
        finishing = RowSetFinishing(pending.order, limit, pending.offset, pending.project)
        return hir.Query(pending.relation, desc, finishing, pending.types)

    def view(self, node: exp.Expr) -> hir.Query:
        """The query of a view, with a trivial finishing."""
        done = self.query(node, None).finish()
        finishing = RowSetFinishing((), None, 0, tuple(range(len(done.types))))
        desc = RelationDesc(done.names, RelationType(done.types))
        return hir.Query(done.relation, desc, finishing, done.types)

    def subquery(self, node: exp.Expr, outer: Scope) -> Planned:
        """A query inside an expression, one scope further in."""
        return self.query(node, outer).finish()

    # --- queries ---------------------------------------------------------------------------------

    def query(self, node: exp.Expr, outer: Scope | None, *, keep_unknown: bool = False) -> Pending:
        """A query with its WITH clause; with ``keep_unknown`` untyped literals keep the type unknown."""
        while isinstance(node, exp.Subquery | exp.Paren) and _is_wrapper(node):
            refuse_clauses(node)
            node = node.this
        with_ = node.args.get("with_")
        if with_ is None:
            return self._body(node, outer, keep_unknown)
        if "mutually_recursive" in with_.meta:
            return self._recursive(with_, node, outer, keep_unknown)
        return self._with(with_, node, outer, keep_unknown)

    def _with(
        self, with_: exp.With, node: exp.Expr, outer: Scope | None, keep_unknown: bool
    ) -> Pending:
        bound: list[tuple[str, int, hir.Relation] | hir.RecursiveBinding] = []
        names: dict[str, Cte] = {}
        self.ctes.append(names)
        try:
            for cte in with_.expressions:
                name = fold(cte.args["alias"].this)
                if name in names:
                    raise SqlError(
                        f'WITH query name "{name}" specified more than once',
                        position=position_of(cte.args["alias"]),
                        sqlstate="42712",
                    )
                if "recursive" in with_.meta and refers_to_itself(cte.this, name):
                    bound.append(self._recursive_union(cte, name, names, outer))
                    continue
                done = self.query(cte.this, outer).finish()
                columns = _alias_columns(cte.args["alias"], done.names, name)
                local = self._fresh()
                names[name] = Cte(local, columns, done.types)
                bound.append((name, local, done.relation))
            pending = self._body(node, outer, keep_unknown)
        finally:
            self.ctes.pop()
        relation = pending.relation
        for one in reversed(bound):
            relation = (
                hir.LetRec((one,), None, relation)
                if isinstance(one, hir.RecursiveBinding)
                else hir.Let(*one, relation)
            )
        return replace(pending, relation=relation)

    def _recursive_union(
        self, cte: exp.Expr, name: str, names: dict[str, Cte], outer: Scope | None
    ) -> hir.RecursiveBinding:
        """A query of WITH RECURSIVE that refers to itself; its types are those of its left side."""
        union = sides(cte, name)
        alias = cte.args["alias"]
        left = self.query(union.this, outer).finish()
        columns = _alias_columns(alias, left.names, name)
        types = column_types(left.types)
        names[name] = Cte(self._fresh(), columns, types)
        done = self.query(union, outer, keep_unknown=True).finish()
        wanted = [c.type for c in types]
        check_types(name, wanted, [c.type for c in done.types], position_of(alias))
        value = self.cast_columns(done, wanted, "assignment", "").relation
        binding = hir.RecursiveBinding(name, names[name].id, value, RelationType(types))
        distinct = bool(union.args.get("distinct"))
        check_linear(name, binding, distinct=distinct, position=position_of(alias))
        return binding

    def _recursive(
        self, with_: exp.With, node: exp.Expr, outer: Scope | None, keep_unknown: bool
    ) -> Pending:
        names: dict[str, Cte] = {}
        self.ctes.append(names)
        try:
            for cte in with_.expressions:
                name = fold(cte.args["alias"].this)
                columns = tuple(fold(c) for c in cte.args["alias"].args["columns"])
                types = tuple(
                    ColumnType(resolve_type(typ, self.types)) for typ in cte.meta["types"]
                )
                if name in names:
                    raise SqlError(
                        f'WITH query name "{name}" specified more than once',
                        position=position_of(cte.args["alias"]),
                        sqlstate="42712",
                    )
                names[name] = Cte(self._fresh(), columns, types)
            bindings = [self._binding(cte, names, outer) for cte in with_.expressions]
            pending = self._body(node, outer, keep_unknown)
        finally:
            self.ctes.pop()
        limit = with_.meta["mutually_recursive"]
        bound = (limit["limit"], limit["return_at"]) if limit else None
        return replace(pending, relation=hir.LetRec(tuple(bindings), bound, pending.relation))

    def _binding(
        self, cte: exp.Expr, names: dict[str, Cte], outer: Scope | None
    ) -> hir.RecursiveBinding:
        name = fold(cte.args["alias"].this)
        declared = names[name]
        done = self.query(cte.this, outer, keep_unknown=True).finish()
        wanted = [c.type for c in declared.types]
        have = [t.TEXT if c.type.kind == "unknown" else c.type for c in done.types]
        differs = DatatypeMismatch(
            f'WITH MUTUALLY RECURSIVE query "{name}" declared types ({_listed(wanted)}), '
            f"but query returns types ({_listed(have)})",
            position=position_of(cte.args["alias"]),
        )
        if len(have) != len(wanted):
            raise differs
        try:
            cast_to = self.cast_columns(done, wanted, "assignment", "")
        except DatatypeMismatch:
            raise differs from None
        return hir.RecursiveBinding(
            name, declared.id, cast_to.relation, RelationType(declared.types)
        )

    def _fresh(self) -> int:
        """A local id that no CTE in scope has: their number."""
        return sum(len(names) for names in self.ctes)

    def find_cte(self, name: str) -> Cte | None:
        """The innermost CTE with this name; None where there is none."""
        for names in reversed(self.ctes):
            if name in names:
                return names[name]
        return None

    def cte_names(self) -> list[str]:
        """The names of all CTEs that can be named, inner ones first."""
        return [name for names in reversed(self.ctes) for name in names]

    def _body(self, node: exp.Expr, outer: Scope | None, keep_unknown: bool) -> Pending:
        return with_ties(self._plain_body(node, outer, keep_unknown), node)

    def _plain_body(self, node: exp.Expr, outer: Scope | None, keep_unknown: bool) -> Pending:
        if not isinstance(node, exp.Select):
            refuse_clauses(node)
        match node:
            case exp.Select():
                return self._select(node, outer, keep_unknown)
            case exp.SetOperation():
                return self._with_modifiers(self._set_operation(node, outer, keep_unknown), node)
            case exp.Values():
                return self._with_modifiers(self.values(node, outer, keep_unknown), node)
            case exp.Subquery() | exp.Paren():
                inner = self.query(node.this, outer, keep_unknown=keep_unknown)
                if not any(node.args.get(k) for k in ("order", "limit", "offset")):
                    return inner
                return self._with_modifiers(inner.finish(), node)
            case exp.Table():
                return self._with_modifiers(
                    self._set_operand(exp.select("*").from_(node), outer, keep_unknown), node
                )
            case _:
                raise Unsupported("this form of query is not supported", position=position_of(node))

    def _with_modifiers(self, done: Planned, node: exp.Expr) -> Pending:
        """ORDER BY, LIMIT and OFFSET of a set operation or VALUES: by output columns, or expressions over them."""
        items = tuple(ScopeItem(n, None, c) for n, c in zip(done.names, done.types, strict=True))
        scope = Scope(items)
        relation, types = done.relation, list(done.types)
        order: list[ColumnOrder] = []
        for item in order_items(node):
            column = grouping.ordinal_of(item.this, len(done.types), "ORDER BY")
            if column is None:
                ctx = ExprContext(self, scope, "ORDER BY clause of a set expression")
                planned = settle(ctx.plan(item.this))
                if isinstance(planned.expr, hir.Column) and planned.expr.level == 0:
                    column = planned.expr.index
                else:
                    relation = hir.Map(relation, (planned.expr,))
                    types.append(ColumnType(planned.typ, planned.nullable))
                    column = len(types) - 1
            relation, column = sorting(relation, types, column)
            order.append(column_order(item, column))
        limit, offset = plan_limit(self, node, None)
        return Pending(
            relation,
            tuple(types),
            done.names,
            tuple(order),
            limit,
            offset,
            tuple(range(len(done.types))),
        )

    # --- set operations and VALUES ---------------------------------------------------------------

    def _set_operand(self, node: exp.Expr, outer: Scope | None, keep_unknown: bool) -> Planned:
        del keep_unknown
        return self.query(node, outer, keep_unknown=True).finish()

    def _set_operation(
        self, node: exp.SetOperation, outer: Scope | None, keep_unknown: bool
    ) -> Planned:
        # A long chain of UNIONs nests on the left: unroll it, so that its length does not become recursion depth.
        chain: list[exp.SetOperation] = [node]
        while (
            isinstance(chain[-1].this, exp.SetOperation)
            and not chain[-1].this.args.get("with_")
            and not any(chain[-1].this.args.get(k) for k in ("order", "limit", "offset"))
        ):
            chain.append(chain[-1].this)
        left = self._set_operand(chain[-1].this, outer, keep_unknown)
        for op in reversed(chain):
            right = self._set_operand(op.expression, outer, keep_unknown)
            left = self._combine(op, left, right)
        if keep_unknown:
            return left
        return self.settled(left)

    def _combine(self, node: exp.SetOperation, left: Planned, right: Planned) -> Planned:
        name = type(node).__name__.upper()
        if node.args.get("by_name"):
            raise Unsupported(f"{name} BY NAME is not supported", position=position_of(node))
        if len(left.types) != len(right.types):
            raise SqlSyntaxError(
                f"each {name} query must have the same number of columns: "
                f"{len(left.types)} columns on left, {len(right.types)} on right",
                position=position_of(node.expression),
            )
        wanted: list[SqlType] = []
        for i in range(len(left.types)):
            sides = [Typed(hir.Column(i), p.types[i].type) for p in (left, right)]
            if all(side.typ.kind == "unknown" for side in sides):
                wanted.append(t.TEXT)
                continue
            _, typ = unify(sides, name, position_of(node.expression))
            wanted.append(typ)
        a = self.cast_columns(left, wanted, "implicit", name)
        b = self.cast_columns(right, wanted, "implicit", name)
        types = tuple(
            ColumnType(x.type, x.nullable or y.nullable)
            for x, y in zip(a.types, b.types, strict=True)
        )
        distinct = node.args.get("distinct", True) is not False
        return Planned(set_relation(name, a, b, distinct, self._fresh()), types, left.names)

    def cast_columns(
        self, planned: Planned, wanted: Sequence[SqlType], context: str, what: str
    ) -> Planned:
        """The relation with its columns cast to other types.

        Args:
            planned: the relation.
            wanted: the types.
            context: ``implicit`` or ``assignment``: which casts are allowed.
            what: names the construct in errors.

        Raises:
            DatatypeMismatch: a column cannot be cast.
        """
        scalars: list[hir.Scalar] = []
        outputs: list[int] = []
        types: list[ColumnType] = []
        for i, (have, typ) in enumerate(zip(planned.types, wanted, strict=True)):
            value = Typed(hir.Column(i), have.type, have.nullable)
            done = as_common(value, typ) if context == "implicit" else cast(value, typ, context)
            if done is None:
                raise DatatypeMismatch(
                    f"{what} types {t.type_name(typ)} and {t.type_name(have.type)} cannot be matched"
                )
            if done.expr == value.expr:
                outputs.append(i)
            else:
                outputs.append(len(planned.types) + len(scalars))
                scalars.append(done.expr)
            types.append(ColumnType(done.typ, done.nullable))
        relation = planned.relation
        if scalars:
            relation = _mapped(relation, tuple(scalars))
        arity = len(planned.types) + len(scalars)
        return Planned(project(relation, outputs, arity), tuple(types), planned.names)

    def settled(self, planned: Planned) -> Planned:
        """The relation with columns of unknown type cast to text."""
        if not any(c.type.kind == "unknown" for c in planned.types):
            return planned
        wanted = [t.TEXT if c.type.kind == "unknown" else c.type for c in planned.types]
        return self.cast_columns(planned, wanted, "implicit", "SELECT")

    def values(
        self,
        node: exp.Values,
        outer: Scope | None,
        keep_unknown: bool = False,
        wanted: Sequence[SqlType | None] = (),
        defaults: Sequence[Typed | None] = (),
    ) -> Planned:
        """VALUES: a constant relation where all cells are literals, else a union of mapped rows.

        Args:
            node: the VALUES.
            outer: the enclosing scope.
            keep_unknown: ignored: cells always get a definite type.
            wanted: in an INSERT the types of the target columns.
            defaults: in an INSERT the defaults of the target columns, for cells that are DEFAULT.

        Raises:
            SqlSyntaxError: rows have different numbers of cells.
        """
        del keep_unknown
        ctx = ExprContext(self, Scope((), outer), "VALUES")
        rows: list[list[Typed]] = []
        for row in node.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            rows.append([cell(ctx, c, i, defaults) for i, c in enumerate(cells)])
        width = len(rows[0]) if rows else 0
        if any(len(row) != width for row in rows):
            raise SqlSyntaxError(
                "VALUES lists must all be the same length", position=position_of(node)
            )
        columns: list[list[Typed]] = []
        position = position_of(node)
        for i in range(width):
            cells = [row[i] for row in rows]
            want = wanted[i] if i < len(wanted) else None
            columns.append(column_values(cells, want, position))
        types = tuple(
            ColumnType(column[0].typ, any(v.nullable for v in column)) for column in columns
        )
        names = tuple(f"column{i + 1}" for i in range(width))
        by_row = [tuple(column[r] for column in columns) for r in range(len(rows))]
        return Planned(rows_relation(by_row, types), types, names)

    # --- SELECT ----------------------------------------------------------------------------------

    def _select(self, node: exp.Select, outer: Scope | None, keep_unknown: bool) -> Pending:
        refuse_unknown_clauses(node)
        relation, scope = plan_from(self, node, outer)
        where = node.args.get("where")
        if where is not None:
            ctx = ExprContext(self, scope, "WHERE")
            condition = to_boolean(
                ctx.plan(where.this), "argument of WHERE", position_of(where.this)
            )
            relation = hir.Filter(relation, (condition.expr,))
        select = grouping.SelectState(self, node, relation, scope)
        items = plan_select_items(select)
        if not keep_unknown:
            items = [(name, settle(value)) for name, value in items]
        order = [(item, select.plan_order_item(item, items)) for item in order_items(node)]
        distinct = node.args.get("distinct")
        on = select.plan_distinct_on(distinct, items) if distinct is not None else None
        kept = select.plan_qualify()
        select.group()
        values = [select.regroup(value) for _, value in items]
        select.filter_groups()
        names = tuple(name for name, _ in items)
        # --- map the select list -------------------------------------------------------------
        ordered_by = [spec for _, spec in order if not isinstance(spec, int)]
        select.place_windows([*values, *map(select.regroup, ordered_by)])
        outputs = [select.place(value) for value in values]
        if kept is not None:
            select.qualify(kept, [*(spec for _, spec in order), *(on or ())], outputs)
        if distinct is not None and on is None:
            return self._select_distinct(select, node, names, outputs, order, outer)
        placed = [(item, select.place_order(spec, outputs)) for item, spec in order]
        columns = tuple(column_order(item, column) for item, column in placed)
        sizes = node.meta.get("group_size_options", {})
        if on is not None:
            keys = tuple(dict.fromkeys(select.place_order(spec, outputs) for spec in on))
            check_distinct_on(keys, columns, position_of(node))
            one = Literal(1, t.BIGINT)
            size = sizes.get("distinct on input group size", sizes.get("expected group size"))
            mapped = select.mapped()
            select.relation = hir.TopK(mapped, keys, columns, one, 0, size)
            select.pending_scalars = []
        limit, offset = plan_limit(self, node, outer)
        relation = select.mapped()
        return Pending(
            relation,
            tuple(select.types),
            names,
            columns,
            limit,
            offset,
            tuple(outputs),
            limit_size(node),
        )

    def _select_distinct(
        self,
        select: grouping.SelectState,
        node: exp.Select,
        names: tuple[str, ...],
        outputs: list[int],
        order: list[tuple[exp.Expr, grouping.OrderSpec]],
        outer: Scope | None,
    ) -> Pending:
        arity = len(select.types)
        columns: list[ColumnOrder] = []
        for item, spec in order:
            column = select.place_item(spec, outputs)
            if column >= arity or column not in outputs:
                raise SqlSyntaxError(
                    "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                    position=position_of(item),
                    sqlstate="42P10",
                )
            columns.append(column_order(item, outputs.index(column)))
        relation: hir.Relation = hir.Distinct(project(select.mapped(), outputs, len(select.types)))
        types = [select.types[c] for c in outputs]
        for at, one in enumerate(columns):
            relation, column = sorting(relation, types, one.column)
            columns[at] = msgspec.structs.replace(one, column=column)
        limit, offset = plan_limit(self, node, outer)
        all_ = tuple(range(len(outputs)))
        size = limit_size(node)
        return Pending(relation, tuple(types), names, tuple(columns), limit, offset, all_, size)

    def select_list_table_function(self, ctx: ExprContext, node: exp.Expr) -> Typed:
        """The value of a table function in a select list: joined laterally, once for equal calls."""
        return table_functions.in_select(ctx, node)


def _listed(types: Sequence[SqlType]) -> str:
    return ", ".join(t.type_name(typ) for typ in types)


def _is_wrapper(node: exp.Expr) -> bool:
    return not any(node.args.get(k) for k in ("order", "limit", "offset", "with_", "joins"))


def _alias_columns(alias: exp.Expr, names: tuple[str, ...], table: str) -> tuple[str, ...]:
    """The column names of a CTE: those given, then its query's own."""
    given = tuple(_alias_name(c) for c in alias.args.get("columns") or ())
    if len(given) > len(names):
        raise SqlSyntaxError(
            f"CTE {table} definition names {_columns(len(given))}, "
            f"but CTE {table} has {_columns(len(names))}",
            position=position_of(alias),
            sqlstate="42P10",
        )
    return (*given, *names[len(given) :])


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def _alias_name(node: exp.Expr) -> str:
    return fold(node.this) if isinstance(node, exp.ColumnDef) else fold(node)


def _constant_limit(value: Typed | None) -> int | None:
    return None if value is None else literal_count(value)


def _mapped(relation: hir.Relation, scalars: tuple[hir.Scalar, ...]) -> hir.Relation:
    return hir.Map(relation, scalars)
