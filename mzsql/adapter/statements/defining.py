"""What changes the catalog's objects, by itself or as COMMIT carries it out."""

from __future__ import annotations

from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.session.session import Session
from mzsql.adapter.statements.catalog import CatalogStatements
from mzsql.adapter.statements.ddl import Definitions
from mzsql.adapter.statements.result import Result
from mzsql.frontend.plan import plans as p


class Defining:
    """Carries out what defines objects.

    Args:
        definitions: those that make and drop objects in schemas.
        namespaces: all others.
        dataflows: what maintains some of the objects.
    """

    def __init__(
        self, definitions: Definitions, namespaces: CatalogStatements, dataflows: Dataflows
    ) -> None:
        self._runs = definitions.runs()
        self._namespaces = namespaces
        self._dataflows = dataflows

    def run(self, session: Session, plan: p.Plan) -> Result:
        """Carry a statement out; SqlError where it cannot be, with nothing done."""
        if isinstance(plan, p.CreateMaterializedViewPlan | p.CreateIndexPlan):
            self._dataflows.require_spark()
        self._runs.get(type(plan), self._namespaces.run)(session, plan)
        return Result(plan.tag_text, defined=True)
