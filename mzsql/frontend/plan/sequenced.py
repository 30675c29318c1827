"""What every plan says of itself, so that whoever sequences statements asks the plan and looks at no text.

Promise: a plan's class says whether it writes rows, whether it defines objects, and whether several like it may stand in one transaction;
the plan itself says its command tag. A class that says nothing is of a statement that only reads, or that is about the session.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class StatementPlan(msgspec.Struct, frozen=True):
    """A statement's plan.

    Attributes:
        command: PostgreSQL's command tag, without the count that some have behind it.
        writes: whether it writes rows of tables, which nobody sees before its transaction is committed.
        defines: whether it changes the catalog's objects; inside of BEGIN it is carried out by COMMIT.
        stageable: of those that define, whether it only changes entries of the catalog, so that it can be tried without being done:
            a transaction may hold several of them, and what follows in it sees the names that they give.
    """

    command: ClassVar[str] = ""
    writes: ClassVar[bool] = False
    defines: ClassVar[bool] = False
    stageable: ClassVar[bool] = False

    @property
    def tag_text(self) -> str:
        """The command tag, for statements that say more than their class does."""
        return self.command


class DefiningPlan(StatementPlan, frozen=True):
    """The plan of a statement that changes what exists."""

    defines: ClassVar[bool] = True
