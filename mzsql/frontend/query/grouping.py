"""The middle of a SELECT: grouping, HAVING, and assigning columns to expressions.

Promise: expressions arrive planned over the rows before grouping. `SelectState.group` makes the `Reduce`; `regroup`
rewrites an expression to read the grouped rows, or fails with PostgreSQL's ``column "t.a" must appear in the GROUP BY
clause or be used in an aggregate function``; `place` assigns it a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.hir_visit import map_columns, map_window, map_windows
from mzsql.frontend.names.scope import Scope, column_like
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.query import grouping_sets
from mzsql.frontend.scalar.coerce import Typed, settle, to_boolean
from mzsql.frontend.scalar.collector import MARKER, Collector
from mzsql.frontend.scalar.context import ExprContext, QueryPlans
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.typed import sortable
from mzsql.frontend.scalar.windows import named_windows
from mzsql.repr.errors import (
    AmbiguousColumn,
    GroupingError,
    SqlError,
    SqlSyntaxError,
    UndefinedColumn,
    Unsupported,
)
from mzsql.repr.types import ColumnType

#: An item of ORDER BY or DISTINCT ON: the index of an output column, or a value over the rows before grouping.
OrderSpec = int | Typed


@dataclass
class SelectState:
    """A SELECT that is being planned."""

    planner: QueryPlans
    node: exp.Select
    relation: hir.Relation
    scope: Scope
    aggregates: Collector = field(default_factory=Collector)
    table_functions: list[exp.Expr] = field(default_factory=list)
    positions: dict[int, int | None] = field(default_factory=dict)
    types: list[ColumnType] = field(default_factory=list)
    pending_scalars: list[hir.Scalar] = field(default_factory=list)
    grouped: bool = False
    having: Typed | None = None
    keys: dict[hir.Scalar, int] = field(default_factory=dict)
    #: The columns of values that were placed.
    placed: dict[hir.Scalar, int] = field(default_factory=dict)
    #: The select list's items: expression and value; the expression is None for a column from a wildcard.
    items: list[tuple[exp.Expr | None, Typed]] = field(default_factory=list)

    def context(self, clause: str) -> ExprContext:
        """The context for an expression in the select list, HAVING or ORDER BY."""
        ctx = ExprContext(self.planner, self.scope, clause, self.aggregates)
        ctx.positions = self.positions
        ctx.windows = clause != "HAVING"
        ctx.named_windows = named_windows(self.node)
        if clause in ("SELECT", "ORDER BY"):
            ctx.table_functions = self.table_functions
            ctx.select = self
        return ctx

    # --- ORDER BY and DISTINCT ON ------------------------------------------------------------------

    def plan_order_item(
        self, item: exp.Expr, items: list[tuple[str, Typed]], clause: str = "ORDER BY"
    ) -> OrderSpec:
        """An ORDER BY item: an ordinal, an output column's name, or an expression over the input."""
        node = item.this if isinstance(item, exp.Ordered) else item
        ordinal = ordinal_of(node, len(items), clause)
        if ordinal is not None:
            return ordinal
        named = _output_named(node, items)
        if named is not None:
            return named
        try:
            value = settle(self.context(clause).plan(node))
        except UndefinedColumn as unknown:
            if unknown.hint is None and isinstance(node, exp.Column) and not node.args.get("table"):
                unknown.hint = column_like(fold(node.this), (name for name, _ in items))
            raise
        for i, (_, other) in enumerate(items):
            if other.expr == value.expr:
                return i
        return value

    def plan_distinct_on(
        self, distinct: exp.Expr, items: list[tuple[str, Typed]]
    ) -> list[OrderSpec] | None:
        """The expressions of DISTINCT ON; None for a plain DISTINCT."""
        on = distinct.args.get("on")
        if on is None:
            return None
        nodes = on.expressions if isinstance(on, exp.Tuple) else [on]
        return [self.plan_order_item(n, items, "DISTINCT ON") for n in nodes]

    # --- grouping ----------------------------------------------------------------------------------

    def group(self) -> None:
        """Apply GROUP BY and plan HAVING, where there is something to group."""
        clause, having = self.node.args.get("group"), self.node.args.get("having")
        sets = self._group_keys(clause) if clause is not None else [[]]
        if having is not None:
            self.having = self.context("HAVING").plan(having.this)
        self.types = list(self.scope.types())
        if clause is None and having is None and not self.aggregates.found:
            return
        self._reduce(sets)

    def filter_groups(self) -> None:
        """Apply HAVING."""
        if self.having is None:
            return
        position = position_of(self.node.args["having"].this)
        condition = to_boolean(self.regroup(self.having), "argument of HAVING", position)
        self.relation = hir.Filter(self.relation, (condition.expr,))

    def _group_keys(self, clause: exp.Expr) -> list[list[Typed]]:
        """The keys of each grouping set; without ROLLUP, CUBE or GROUPING SETS there is one set."""
        if clause.args.get("all"):
            raise Unsupported("GROUP BY ALL is not supported", position=position_of(clause))
        planned: dict[int, Typed] = {}

        def key(node: exp.Expr) -> Typed:
            if id(node) not in planned:
                planned[id(node)] = self._group_key(node)
            return planned[id(node)]

        found = [[key(node) for node in nodes] for nodes in grouping_sets.sets_of(clause)]
        if clause.args.get("all") is False:  # GROUP BY DISTINCT
            found = list({frozenset(k.expr for k in keys): keys for keys in found}.values())
        return found

    def _group_key(self, node: exp.Expr) -> Typed:
        outputs = self.node.expressions
        ordinal = ordinal_of(node, len(self.items), "GROUP BY")
        target: exp.Expr = node
        if ordinal is not None:
            origin, value = self.items[ordinal]
            if origin is None:
                return value
            target = origin
        elif self._only_output(node):
            name = fold(node.this)
            matching = [
                o for o in outputs if isinstance(o, exp.Alias) and fold(o.args["alias"]) == name
            ]
            if len(matching) > 1:
                raise AmbiguousColumn(
                    f'column reference "{name}" is ambiguous', position=position_of(node)
                )
            target = matching[0]
        inner = target.this if isinstance(target, exp.Alias) else target
        ctx = self.context("GROUP BY")
        ctx.aggregates = None
        ctx.windows = False
        if self.table_functions:  # those of the select list are rows already
            ctx.table_functions, ctx.select = self.table_functions, self
        return settle(ctx.plan(inner))

    def _only_output(self, node: exp.Expr) -> bool:
        """Whether a bare name in GROUP BY means an output column: an alias has the name, and no input column does."""
        if not isinstance(node, exp.Column) or node.args.get("table"):
            return False
        name = fold(node.this)
        if any(self.scope.items[i].unqualified for i in self.scope.named.get(name, ())):
            return False
        outputs = self.node.expressions
        return any(isinstance(o, exp.Alias) and fold(o.args["alias"]) == name for o in outputs)

    def _reduce(self, sets: list[list[Typed]]) -> None:
        keys = {key.expr: key for keys in sets for key in keys}
        arity = len(self.types)
        self.keys = {expr: at for at, expr in enumerate(keys)}
        relation = hir.Map(self.relation, tuple(keys)) if keys else self.relation
        aggregates = tuple(self.aggregates.found)
        sizes = self.node.meta.get("group_size_options", {})
        size = sizes.get("aggregate input group size", sizes.get("expected group size"))
        columns = tuple(range(arity, arity + len(keys)))
        told = grouping_sets.check_arguments(aggregates, tuple(keys.values()))
        if told or len(sets) > 1:
            chosen = [[self.keys[key.expr] for key in own] for own in sets]
            self.relation = grouping_sets.reduced(
                relation, columns, tuple(keys.values()), chosen, aggregates, size
            )
        else:
            self.relation = hir.Reduce(relation, columns, aggregates, size)
        everywhere = set(keys).intersection(*({key.expr for key in own} for own in sets))
        self.types = [
            ColumnType(key.typ, key.nullable or expr not in everywhere)
            for expr, key in keys.items()
        ]
        self.types.extend(ColumnType(a.typ, a.nullable) for a in aggregates)
        self.grouped = True

    def regroup(self, value: Typed) -> Typed:
        """The value, rewritten to read the grouped rows.

        Raises:
            GroupingError: it reads a column that is neither grouped by nor aggregated.
        """
        if not self.grouped:
            return value
        expr = self._regroup(value.expr)
        return Typed(expr, value.typ, value.nullable)

    def _regroup(self, expr: hir.Scalar) -> hir.Scalar:
        if expr in self.keys:
            return hir.Column(self.keys[expr])
        match expr:
            case hir.Call(func=func, args=args, typ=typ):
                return hir.Call(func, tuple(self._regroup(a) for a in args), typ)
            case hir.If(condition=c, then=then, otherwise=o):
                return hir.If(self._regroup(c), self._regroup(then), self._regroup(o))
            case hir.Windowing():
                return map_window(expr, self._regroup)
            case _:
                return map_columns(expr, self._regroup_column)

    def _regroup_column(self, depth: int, column: hir.Column) -> hir.Scalar:
        if column.level == MARKER:
            return hir.Column(len(self.keys) + column.index, depth)
        if column.level != depth:
            return column
        key = self.keys.get(hir.Column(column.index))
        if key is None:
            item = self.scope.items[column.index]
            shown = f"{item.table[-1]}.{item.name}" if item.table else item.name
            raise GroupingError(
                f'column "{shown}" must appear in the GROUP BY clause or be used in an aggregate function',
                position=self.positions.get(column.index),
            )
        return hir.Column(key, depth)

    def plan_qualify(self) -> Typed | None:
        """The condition of QUALIFY over the rows before grouping; None where there is none."""
        clause = self.node.args.get("qualify")
        if clause is None:
            return None
        planned = self.context("QUALIFY").plan(clause.this)
        return to_boolean(planned, "argument of QUALIFY", position_of(clause.this))

    def qualify(self, condition: Typed, others: Sequence[OrderSpec], outputs: list[int]) -> None:
        """Filter by QUALIFY. Window functions see all rows, so those of ``others``, which are not placed yet, are
        placed before the filter.
        """
        for spec in others:
            self.place_order(spec, outputs)
        kept = self.regroup(condition)
        self.place_windows([kept])
        column = self.place(kept)
        self.relation = hir.Filter(self.mapped(), (hir.Column(column),))
        self.pending_scalars = []

    # --- placing -----------------------------------------------------------------------------------

    def place_windows(self, values: Iterable[Typed]) -> None:
        """Give each window function in values a column of its own, before them: equal calls are computed once, and each
        sees all rows, wherever in an expression it stands.
        """
        for value in values:
            for part in hir.walk_scalar(value.expr):
                if isinstance(part, hir.Windowing) and part not in self.placed:
                    self._append(part, ColumnType(part.typ))

    def place(self, value: Typed) -> int:
        """The column of a value: its own where it is a column, else a new one."""
        if isinstance(value.expr, hir.Column) and value.expr.level == 0:
            return value.expr.index
        typ = ColumnType(value.typ, value.nullable)
        if isinstance(value.expr, hir.Windowing):
            if value.expr not in self.placed:
                return self._append(value.expr, typ)
            self.types[self.placed[value.expr]] = typ
            return self.placed[value.expr]
        return self._append(value.expr, typ)

    def _append(self, expr: hir.Scalar, typ: ColumnType) -> int:
        self.pending_scalars.append(map_windows(expr, self._placed_window))
        self.types.append(typ)
        self.placed.setdefault(expr, len(self.types) - 1)
        return len(self.types) - 1

    def _placed_window(self, window: hir.Windowing) -> hir.Scalar:
        found = self.placed.get(window)
        return window if found is None else hir.Column(found)

    def place_item(self, spec: OrderSpec, outputs: list[int]) -> int:
        """The column of an ORDER BY item's value."""
        if isinstance(spec, int):
            return outputs[spec]
        value = self.regroup(spec)
        found = self.placed.get(value.expr)
        return self.place(value) if found is None else found

    def place_order(self, spec: OrderSpec, outputs: list[int]) -> int:
        """The column to order by for an ORDER BY item: its value's, or that of what orders like it."""
        column = self.place_item(spec, outputs)
        typ = self.types[column]
        key = sortable(Typed(hir.Column(column), typ.type, typ.nullable))
        found = self.placed.get(key.expr)
        return self.place(key) if found is None else found

    def mapped(self) -> hir.Relation:
        """The relation with all placed values as columns."""
        if not self.pending_scalars:
            return self.relation
        return hir.Map(self.relation, tuple(self.pending_scalars))


def ordinal_of(node: exp.Expr, count: int, clause: str) -> int | None:
    """The index of the output column that an integer literal means; None for any other node.

    Raises:
        SqlSyntaxError: the literal is not an integer.
        SqlError: there is no such column (42P10).
    """
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        raise SqlSyntaxError(f"non-integer constant in {clause}", position=position_of(node))
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    if node.is_string or not text.isdigit():
        raise SqlSyntaxError(f"non-integer constant in {clause}", position=position_of(node))
    if not 1 <= int(text) <= count:
        raise SqlError(
            f"column reference {text} in {clause} clause is out of range (1 - {count})",
            position=position_of(node),
            sqlstate="42P10",
        )
    return int(text) - 1


def _output_named(node: exp.Expr, items: list[tuple[str, Typed]]) -> int | None:
    """The output column with a bare name; None where there is none; ambiguous where different values have the name."""
    if not isinstance(node, exp.Column) or node.args.get("table"):
        return None
    name = fold(node.this)
    found = [i for i, (n, _) in enumerate(items) if n == name]
    if not found:
        return None
    if any(items[i][1].expr != items[found[0]][1].expr for i in found):
        raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=position_of(node))
    return found[0]
