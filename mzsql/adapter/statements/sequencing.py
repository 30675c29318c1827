"""Sequencing: which function carries out a plan, by the plan's class.

Promise: each family of statements contributes a table; here they become one. Inside a BEGIN block DDL is deferred to
COMMIT.
"""

from __future__ import annotations

from mzsql.adapter.planning.statements import StatementPlanner
from mzsql.adapter.session.prepared import PreparedStatements
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.statements.result import Result
from mzsql.adapter.statements.tables import Run, Runs
from mzsql.adapter.statements.transactions import Transactions
from mzsql.frontend.plan import cursor_plans
from mzsql.frontend.plan import plans as p


class Sequencer:
    """Carries out planned statements. Thread-safe; a session is used by one thread at a time.

    Args:
        families: the families' tables.
        transactions: defers DDL to COMMIT.
        prepared: the prepared statements that EXECUTE runs.
        statements: plans their texts.
    """

    def __init__(
        self,
        families: tuple[Runs, ...],
        transactions: Transactions,
        prepared: PreparedStatements,
        statements: StatementPlanner,
    ) -> None:
        self._runs: dict[type[p.Plan], Run] = {cursor_plans.ExecutePlan: self._execute}
        for family in families:
            assert not self._runs.keys() & family.keys(), "a plan is of one family"
            self._runs.update(family)
        self._transactions = transactions
        self._prepared = prepared
        self._statements = statements

    @property
    def plans(self) -> frozenset[type[p.Plan]]:
        """The classes of the plans that it carries out."""
        return frozenset(self._runs)

    def run(self, session: Session, transaction: Transaction, plan: p.Plan) -> Result:
        """Carry out a plan.

        Raises:
            SqlError: it cannot be carried out; nothing of it was done.
        """
        if plan.defines and not transaction.implicit:
            self._transactions.defer(session, transaction, plan)
            return Result(plan.tag_text)
        return self._runs[type(plan)](session, transaction, plan)

    def _execute(
        self, session: Session, transaction: Transaction, plan: cursor_plans.ExecutePlan
    ) -> Result:
        text = self._prepared.text(session, plan)
        return self.run(session, transaction, self._statements.plan_text(session, text))
