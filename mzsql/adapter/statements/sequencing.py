"""Sequencing: which function carries out a plan, by the plan's class.

Promise: each family of statements contributes a table; here they become one. Inside a BEGIN block DDL is deferred to
COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mzsql.adapter.planning.statements import StatementPlanner
from mzsql.adapter.session.prepared import PreparedStatements
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.statements.defining import Defining
from mzsql.adapter.statements.result import Result
from mzsql.adapter.statements.transactions import Transactions
from mzsql.frontend.plan import plans as p

#: Carries out a plan in a session's transaction.
Run = Callable[[Session, Transaction, Any], Result]
#: The functions of one family of statements, by class of plan.
Runs = Mapping[type[p.Plan], Run]


class Sequencer:
    """Carries out planned statements. Thread-safe; a session is used by one thread at a time.

    Args:
        families: the families' tables.
        defining: carries out DDL.
        transactions: defers DDL to COMMIT.
        prepared: the prepared statements that EXECUTE runs.
        statements: plans their texts.
    """

    def __init__(
        self,
        families: tuple[Runs, ...],
        defining: Defining,
        transactions: Transactions,
        prepared: PreparedStatements,
        statements: StatementPlanner,
    ) -> None:
        self._runs = {plan: run for family in families for plan, run in family.items()}
        self._defining = defining
        self._transactions = transactions
        self._prepared = prepared
        self._statements = statements

    def run(self, session: Session, transaction: Transaction, plan: p.Plan) -> Result:
        """Carry out a plan.

        Raises:
            SqlError: it cannot be carried out; nothing of it was done.
        """
        if isinstance(plan, p.ExecutePlan):
            text = self._prepared.text(session, plan)
            return self.run(session, transaction, self._statements.plan_text(session, text))
        if not plan.defines:
            return self._runs[type(plan)](session, transaction, plan)
        if not transaction.implicit:
            self._transactions.defer(session, transaction, plan)
            return Result(plan.tag_text)
        return self._defining.run(session, plan)
