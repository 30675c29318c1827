"""Planning a session's statements.

Promise: names are resolved in the catalog as it is now, under the session's search path, including what the session's
transaction has staged.
"""

from __future__ import annotations

import msgspec

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.session.catalog import SessionCatalog
from mzsql.adapter.session.session import Session
from mzsql.catalog.settings import TABLE_KEYS, system_value
from mzsql.frontend import parse_statements, plan_statement
from mzsql.frontend.plan import plans as p


class Scope(msgspec.Struct, frozen=True):
    """What a statement of a session is planned in.

    Attributes:
        catalog: the catalog under the session's names.
        table_keys: whether tables may have keys.
    """

    catalog: SessionCatalog
    table_keys: bool


class StatementPlanner:
    """Plans the statements of the sessions of one process. Thread-safe."""

    def __init__(self, env: Environment, planner: Planner) -> None:
        self._env = env
        self._planner = planner

    def scope(self, session: Session) -> Scope:
        """What a session's next statement is planned in."""
        settings = self._env.catalog.state.settings
        keys = any(system_value(settings, name) == "on" for name in TABLE_KEYS)
        return Scope(self._catalog(session), keys)

    def plan_text(self, session: Session, text: str) -> p.Plan:
        """The plan of a text that is one statement.

        Raises:
            SqlError: names or types cannot be resolved.
        """
        (statement,) = parse_statements(text)
        scope = self.scope(session)
        return plan_statement(statement, scope.catalog, table_keys=scope.table_keys)

    def _catalog(self, session: Session) -> SessionCatalog:
        transaction = session.transaction
        staged = None if transaction is None else transaction.staged
        return self._planner.catalog(
            search_path=session.search_path,
            cluster=session.get("cluster"),
            database=session.get("database"),
            temporary=session.temporary,
            state=None if staged is None else staged.state,
        )
