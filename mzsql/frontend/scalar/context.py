"""Where an expression stands, and what it may ask of the query around it.

Promise: whoever plans a kind of node knows this module and no other one that plans: parts of an expression are planned by
`ExprContext.plan`, which finds the handler in one table, and queries inside of it by `QueryPlans`. So expressions and queries, which nest
in each other without end, are modules that do not import each other in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogView, FullName
from mzsql.frontend.names.named_types import NamedTypes
from mzsql.frontend.names.scope import Scope
from mzsql.frontend.scalar.coerce import Typed
from mzsql.frontend.scalar.collector import Collector
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.planned import Cte, Pending, Planned
from mzsql.repr.errors import Unsupported
from mzsql.repr.interrupt import check_for_interrupts


class QueryPlans(Protocol):
    """Who plans the queries of a statement, as its clauses and expressions see it.

    Attributes:
        catalog: where names resolve.
        references: the catalog's objects as they stand in the text: start, end, whole name.
        types: finds types of users' own.
        handlers: what plans each kind of node of an expression.
    """

    @property
    def catalog(self) -> CatalogView: ...  # noqa: D102  described above

    @property
    def references(self) -> list[tuple[int, int, FullName]]: ...  # noqa: D102

    @property
    def types(self) -> NamedTypes: ...  # noqa: D102

    @property
    def handlers(self) -> Handlers: ...  # noqa: D102

    def query(self, node: exp.Expr, outer: Scope | None, *, keep_unknown: bool = False) -> Pending:
        """A query with its WITH clause, its end still open; `keep_unknown` leaves untyped literals to who asks."""
        ...

    def subquery(self, node: exp.Expr, outer: Scope) -> Planned:
        """A query inside an expression, one scope further in than `outer`."""
        ...

    def values(self, node: exp.Values, outer: Scope | None) -> Planned:
        """The rows of VALUES."""
        ...

    def find_cte(self, name: str) -> Cte | None:
        """The innermost common table expression of a name."""
        ...

    def select_list_table_function(self, ctx: ExprContext, node: exp.Expr) -> Typed:
        """The value of a table function's call in a select list, whose rows are joined to the others."""
        ...


class SelectRows(Protocol):
    """A SELECT while its list is planned: table functions in the list add to its rows."""

    node: exp.Select
    relation: hir.Relation
    scope: Scope


@dataclass
class ExprContext:
    """Where an expression stands.

    Attributes:
        planner: plans its subqueries.
        scope: the columns it may read.
        clause: how an error names the clause: ``WHERE``, ``SELECT``.
        aggregates: collects aggregates, where the clause allows them.
        table_functions: collects set-returning functions of a select list; None where none may stand.
        windows: whether window functions may stand.
        positions: where each column of the innermost scope was first mentioned.
        named_windows: the WINDOW clause.
        inside_aggregate: whether it is part of an aggregate's arguments, where no other aggregate may stand.
        select: the SELECT whose list or ORDER BY it is part of, where table functions may stand.
    """

    planner: QueryPlans
    scope: Scope
    clause: str
    aggregates: Collector | None = None
    table_functions: list[exp.Expr] | None = None
    windows: bool = False
    positions: dict[int, int | None] = field(default_factory=dict)
    named_windows: dict[str, exp.Expr] = field(default_factory=dict)
    inside_aggregate: bool = False
    select: SelectRows | None = None

    def plan(self, node: exp.Expr) -> Typed:
        """The typed scalar that a node means.

        Raises:
            SqlError: what the node's handler finds wrong with it.
            Unsupported: no kind of node has been given a meaning here that it is of.
        """
        check_for_interrupts()
        handler = self.planner.handlers.get(type(node))
        if handler is None:
            raise Unsupported(f"{_spelled(node)} is not supported", position=position_of(node))
        return handler(self, node)


#: What plans a node; its second argument is the node, of the type that it is found by.
Handler = Callable[[ExprContext, Any], Typed]
#: Handlers by the type of node.
Handlers = Mapping[type[exp.Expr], Handler]


def _spelled(node: exp.Expr) -> str:
    """A node as a person may recognize it."""
    words = "".join(f" {c}" if c.isupper() else c for c in type(node).__name__).strip().lower()
    return f"expression of kind {words!r}"
