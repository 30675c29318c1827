"""Plans of statements about a session: its variables, its transaction, what it asks to be explained."""

from __future__ import annotations

from typing import ClassVar

from mzsql.frontend.catalog import CatalogItem
from mzsql.frontend.plan.ddl_plans import (
    CreateIndexPlan,
    CreateMaterializedViewPlan,
    CreateViewPlan,
)
from mzsql.frontend.plan.plans import SelectPlan
from mzsql.frontend.plan.sequenced import StatementPlan


class ExplainPlan(StatementPlan, frozen=True, tag="explain"):
    """EXPLAIN.

    Attributes:
        stage: ``raw``, ``decorrelated``, ``locally optimized``, ``optimized``, ``physical``.
        format: ``text``, ``json``, ``sql``, ``dot``.
        options: name (lower case, spaces) to value: True for one given without a value.
        explainee: the plan of the statement, or for VIEW, MATERIALIZED VIEW, INDEX the object (its deployed plan).
        replan: whether the object is to be planned anew (REPLAN …).
    """

    command: ClassVar[str] = "EXPLAIN"

    stage: str
    format: str
    options: tuple[tuple[str, bool | int | str], ...]
    explainee: (
        SelectPlan | CreateViewPlan | CreateMaterializedViewPlan | CreateIndexPlan | CatalogItem
    )
    replan: bool = False


class ShowVariablePlan(StatementPlan, frozen=True, tag="show_variable"):
    """SHOW <variable>; `name` in lower case."""

    command: ClassVar[str] = "SHOW"

    name: str


class SetVariablePlan(StatementPlan, frozen=True, tag="set_variable"):
    """SET a variable; `values` None: to its default (SET … TO DEFAULT, RESET)."""

    command: ClassVar[str] = "SET"

    name: str
    values: tuple[str, ...] | None
    local: bool = False

    @property
    def tag_text(self) -> str:
        """``SET or RESET``."""
        return "RESET" if self.values is None else "SET"


class SetTransactionPlan(StatementPlan, frozen=True, tag="set_transaction"):
    """SET TRANSACTION, or with `of_session` SET SESSION CHARACTERISTICS AS TRANSACTION; None where a mode was not
    given.
    """

    command: ClassVar[str] = "SET"

    isolation: str | None = None
    read_only: bool | None = None
    of_session: bool = False


class AlterSystemPlan(StatementPlan, frozen=True, tag="alter_system"):
    """ALTER SYSTEM SET; `values` None: RESET to the default; `name` ``all``: RESET ALL."""

    command: ClassVar[str] = "ALTER SYSTEM"

    name: str
    values: tuple[str, ...] | None


class BeginPlan(StatementPlan, frozen=True, tag="begin"):
    """BEGIN; None where a mode was not given."""

    command: ClassVar[str] = "BEGIN"

    isolation: str | None = None
    read_only: bool | None = None


class CommitPlan(StatementPlan, frozen=True, tag="commit"):
    """COMMIT, END."""

    command: ClassVar[str] = "COMMIT"


class RollbackPlan(StatementPlan, frozen=True, tag="rollback"):
    """ROLLBACK, ABORT."""

    command: ClassVar[str] = "ROLLBACK"
