"""Planning a session's statements.

Promise: names are resolved in the catalog as it is now, under the session's search path, including what the session's
transaction has staged.
"""

from __future__ import annotations

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.session.catalog import SessionCatalog
from mzsql.adapter.session.session import Session
from mzsql.catalog.settings import TABLE_KEYS, system_value
from mzsql.frontend import parse_statements, plan_statement
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import plans as p


class StatementPlanner:
    """Plans the statements of the sessions of one process. Thread-safe."""

    def __init__(self, env: Environment, planner: Planner) -> None:
        self._env = env
        self._planner = planner

    def plan(self, session: Session, statement: st.Statement) -> p.Plan:
        """The plan of a statement.

        Raises:
            SqlError: names or types cannot be resolved.
        """
        settings = self._env.catalog.state.settings
        keys = any(system_value(settings, name) == "on" for name in TABLE_KEYS)
        return plan_statement(statement, self._catalog(session), table_keys=keys)

    def plan_text(self, session: Session, text: str) -> p.Plan:
        """The plan of a text that is one statement."""
        (statement,) = parse_statements(text)
        return self.plan(session, statement)

    def _catalog(self, session: Session) -> SessionCatalog:
        transaction = session.transaction
        staged = None if transaction is None else transaction.staged
        return self._planner.catalog(
            search_path=session.search_path,
            cluster=session.get("cluster"),
            database=session.get("database"),
            state=None if staged is None else staged.state,
        )
