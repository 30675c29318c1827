"""What every plan says about itself, so that sequencing never looks at a statement's text.

Promise: a plan's class says whether it writes rows, whether it is DDL, and whether several of its kind fit in one
transaction; the plan gives its command tag. A class that says nothing only reads, or is about the session.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class StatementPlan(msgspec.Struct, frozen=True):
    """A statement's plan.

    Attributes:
        command: PostgreSQL's command tag, without the count that some tags end with (`counted`).
        writes: whether it writes rows of tables, invisible to others until its transaction commits.
        defines: whether it changes the catalog's objects; inside BEGIN it is carried out by COMMIT.
        stageable: for DDL, whether it only changes catalog entries, so that it can be staged: a transaction may hold
            several such statements, and later ones see the names that they give.
    """

    command: ClassVar[str] = ""
    writes: ClassVar[bool] = False
    defines: ClassVar[bool] = False
    stageable: ClassVar[bool] = False

    @property
    def tag_text(self) -> str:
        """The command tag, for plans whose tag depends on more than their class."""
        return self.command

    def counted(self, rows: int) -> str:
        """The command tag of a statement that says how many rows it returned or changed."""
        return f"{self.tag_text} {rows}"


class DefiningPlan(StatementPlan, frozen=True):
    """The plan of a DDL statement."""

    defines: ClassVar[bool] = True
