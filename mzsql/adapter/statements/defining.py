"""Carrying out DDL: at once outside a transaction, at COMMIT inside one."""

from __future__ import annotations

from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.session.session import Session
from mzsql.adapter.statements.catalog import CatalogStatements
from mzsql.adapter.statements.ddl import Definitions
from mzsql.adapter.statements.result import Result
from mzsql.frontend.plan import plans as p


class Defining:
    """Carries out DDL.

    Args:
        definitions: the statements that create and drop objects in schemas.
        namespaces: all other DDL.
        dataflows: maintains some of the objects.
    """

    def __init__(
        self, definitions: Definitions, namespaces: CatalogStatements, dataflows: Dataflows
    ) -> None:
        self._runs = definitions.runs()
        self._namespaces = namespaces
        self._dataflows = dataflows

    def run(self, session: Session, plan: p.Plan) -> Result:
        """Carry out a statement.

        Raises:
            SqlError: it cannot be carried out; nothing was done.
        """
        if isinstance(plan, p.CreateMaterializedViewPlan | p.CreateIndexPlan):
            self._dataflows.require_spark()
        self._runs.get(type(plan), self._namespaces.run)(session, plan)
        return Result(plan.tag_text, defined=True)
