"""The columns of relations: those of users' objects from the catalog, those of builtin views by lowering their queries at first use."""

from __future__ import annotations

from collections.abc import Callable

from mzsql.adapter.planning.walk import global_gets
from mzsql.adapter.session.catalog import SessionCatalog
from mzsql.catalog.builtin import Builtin, builtins
from mzsql.catalog.described import described
from mzsql.catalog.objects import Item, RelationItem
from mzsql.catalog.state import CatalogState
from mzsql.frontend import hir, lower_query, parse_statements, plan_statement
from mzsql.frontend.plan import plans as p
from mzsql.frontend.plan.ddl_plans import CreateViewPlan
from mzsql.repr.errors import InternalError, UndefinedTable
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc


class Descriptions:
    """The columns of all relations in one process. Thread-safe.

    Args:
        state: gives the catalog as last read.
    """

    def __init__(self, state: Callable[[], CatalogState]) -> None:
        self._state = state
        self._builtin: dict[GlobalId, RelationDesc] = {}

    def builtin_desc(self, builtin: Builtin) -> RelationDesc:
        """A builtin relation's columns; those of a view are lowered from its query where `columns.json` lacks them."""
        if builtin.desc is not None:
            return builtin.desc
        known = self._builtin.get(builtin.id)
        if known is None:
            # Listing columns asks for every builtin view at once, so none should be planned for that.
            known = described(builtin) or self.described(builtin)[0]
            self._builtin[builtin.id] = known
        return known

    def described(self, builtin: Builtin) -> tuple[RelationDesc, frozenset[GlobalId]]:
        """A builtin view's columns, by lowering its query, and the ids that the query names."""
        lowered = lower_query(self.query(builtin.query))
        return lowered.desc, global_gets(lowered.relation)

    def desc(self, gid: GlobalId) -> RelationDesc:
        """The columns of any relation.

        Raises:
            InternalError: it is an object without columns.
        """
        builtin = builtins().get(gid)
        if builtin is not None:
            return self.builtin_desc(builtin)
        item = self.item(gid)
        if not isinstance(item, RelationItem):
            raise InternalError(f"{item.full_name} has no columns")
        return item.desc

    def item(self, gid: GlobalId) -> Item:
        """A user's object.

        Raises:
            UndefinedTable: there is no such object.
        """
        item = self._state().items.get(gid)
        if item is None:
            raise UndefinedTable(f"unknown catalog item '{gid}'")
        return item

    def query(self, text: str) -> hir.Query:
        """The query of a definition that the catalog has.

        Raises:
            InternalError: it has none.
        """
        (statement,) = parse_statements(text)
        plan = plan_statement(statement, SessionCatalog(self._state(), self, stored=True))
        if not isinstance(plan, p.SelectPlan | CreateViewPlan):
            raise InternalError(f"not the definition of a view: {text}")
        return plan.query
