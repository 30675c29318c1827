"""Carrying out DDL: at once outside a transaction, at COMMIT inside one.

Promise: which function carries out a plan follows from the plan's class alone, by the tables of the families; a plan of
no family is a bug, found when the tables are made.
"""

from __future__ import annotations

from collections.abc import Callable

from mzsql.adapter.session.session import Session
from mzsql.adapter.statements.result import Result
from mzsql.adapter.statements.tables import Definers, Runs
from mzsql.frontend.plan import plans as p


class Defining:
    """Carries out DDL.

    Args:
        families: the families' tables.
        first: called before each statement: what exists is taken up before it changes.
    """

    def __init__(self, *families: Definers, first: Callable[[], None]) -> None:
        self._first = first
        self._definers = {plan: define for family in families for plan, define in family.items()}

    def run(self, session: Session, plan: p.Plan) -> Result:
        """Carry out a statement.

        Raises:
            SqlError: it cannot be carried out; nothing was done.
        """
        self._first()
        self._definers[type(plan)](session, plan)
        return Result(plan.tag_text, defined=True)

    def runs(self) -> Runs:
        """The functions that carry out these statements outside a transaction, by class of plan."""
        return dict.fromkeys(
            self._definers, lambda session, _transaction, plan: self.run(session, plan)
        )
