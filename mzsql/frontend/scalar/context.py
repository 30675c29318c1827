"""The context of an expression: its scope, and what its planning may ask of the query around it.

Promise: a module that plans one kind of node needs to know only this module: it plans subexpressions by
`ExprContext.plan`, which looks the handler up in one table, and subqueries by `QueryPlans`. So expressions and queries
can nest in each other while their modules do not import each other.
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
from mzsql.frontend.scalar.planned_queries import Cte, Pending, Planned
from mzsql.repr.errors import Unsupported
from mzsql.repr.interrupt import check_for_interrupts

#: The name of a subquery's only column, which names its value in a select list, by the id of the subquery's node. The
#: node is kept, so that no other one gets its id; it is not written into, since a parsed text may be planned again.
Subqueries = dict[int, tuple[exp.Expr, str]]


class QueryPlans(Protocol):
    """Plans the queries of a statement, as seen by clauses and expressions."""

    @property
    def catalog(self) -> CatalogView:
        """Where names are resolved."""
        ...

    @property
    def references(self) -> list[tuple[int, int, FullName]]:
        """The catalog's objects in the text: start, end, full name."""
        ...

    @property
    def types(self) -> NamedTypes:
        """What resolves types that users created."""
        ...

    @property
    def handlers(self) -> Handlers:
        """What plans each kind of expression node."""
        ...

    @property
    def named(self) -> Subqueries:
        """The columns of the subqueries that were planned as values; what is planned as one adds itself."""
        ...

    @property
    def whole_rows(self) -> list[int | None]:
        """Where a table's name stands for its row."""
        ...

    def query(self, node: exp.Expr, outer: Scope | None, *, keep_unknown: bool = False) -> Pending:
        """Plan a query with its WITH clause, not finished yet; with ``keep_unknown`` untyped literals keep the type
        unknown.
        """
        ...

    def subquery(self, node: exp.Expr, outer: Scope) -> Planned:
        """Plan a query inside an expression, one scope further in than ``outer``."""
        ...

    def values(self, node: exp.Values, outer: Scope | None) -> Planned:
        """Plan the rows of VALUES."""
        ...

    def find_cte(self, name: str) -> Cte | None:
        """The innermost CTE with this name; None where there is none."""
        ...

    def cte_names(self) -> list[str]:
        """The names of all CTEs that can be named."""
        ...

    def select_list_table_function(self, ctx: ExprContext, node: exp.Expr) -> Typed:
        """The value of a table function call in a select list; its rows are joined to the SELECT's."""
        ...


class SelectRows(Protocol):
    """A SELECT whose list is being planned: table functions in the list add to its rows."""

    node: exp.Select
    relation: hir.Relation
    scope: Scope


@dataclass
class ExprContext:
    """The context of an expression.

    Attributes:
        planner: plans its subqueries.
        scope: the columns that it may read.
        clause: the clause's name in errors: ``WHERE``, ``SELECT``.
        aggregates: collects aggregates; None where the clause allows none.
        table_functions: collects table functions of a select list; None where none are allowed.
        windows: whether window functions are allowed.
        positions: where each column of the innermost scope was first mentioned in the text.
        named_windows: the WINDOW clause.
        inside_aggregate: whether it is in an aggregate's arguments, where no other aggregate is allowed.
        select: the SELECT whose list or ORDER BY it is part of, where table functions are allowed.
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
        """The typed scalar for a node.

        Raises:
            SqlError: the node's handler refuses it.
            Unsupported: no handler exists for its kind of node.
        """
        check_for_interrupts()
        handler = self.planner.handlers.get(type(node))
        if handler is None:
            raise Unsupported(f"{_spelled(node)} is not supported", position=position_of(node))
        return handler(self, node)


#: Plans a node; the second argument has the node type that the handler is registered for.
Handler = Callable[[ExprContext, Any], Typed]
#: Handlers by node type.
Handlers = Mapping[type[exp.Expr], Handler]


def _spelled(node: exp.Expr) -> str:
    """A description of a node's kind for an error message."""
    words = "".join(f" {c}" if c.isupper() else c for c in type(node).__name__).strip().lower()
    return f"expression of kind {words!r}"
