"""EXPLAIN, SHOW of variables, ALTER SYSTEM.

Promise: EXPLAIN prints what planning and timestamp selection give at this moment, and runs nothing. An ALTER SYSTEM
that returns has been handed to the dataflows of this process.
"""

from __future__ import annotations

import pyarrow as pa

from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.explaining import Explainer
from mzsql.adapter.peek.queries import Queries
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.session.show import Rows, as_table, show_variable, text_desc
from mzsql.adapter.statements.result import Result
from mzsql.adapter.statements.tables import Runs
from mzsql.catalog.commands.settings import alter_system
from mzsql.catalog.settings import is_foreign, variable
from mzsql.frontend.plan import plans as p
from mzsql.frontend.plan import session_plans
from mzsql.repr.errors import TransactionError
from mzsql.repr.types import (
    TEXT,
    UINT8,
    ColumnType,
    RelationDesc,
    RelationType,
    SqlType,
    arrow_type,
)

#: The columns of EXPLAIN FILTER PUSHDOWN.
_PUSHDOWN: tuple[tuple[str, SqlType], ...] = (
    ("Source", TEXT),
    ("Total Bytes", UINT8),
    ("Selected Bytes", UINT8),
    ("Total Parts", UINT8),
    ("Selected Parts", UINT8),
)


class SessionStatements:
    """Carries out these statements.

    Args:
        env: the environment.
        queries: gives the timestamp that a query would read at.
        explainer: prints plans.
        dataflows: follows the system variables.
    """

    def __init__(
        self, env: Environment, queries: Queries, explainer: Explainer, dataflows: Dataflows
    ) -> None:
        self._env = env
        self._queries = queries
        self._explainer = explainer
        self._dataflows = dataflows

    def runs(self) -> Runs:
        """The functions that carry out these statements, by class of plan."""
        return {
            session_plans.ExplainPlan: self._explain,
            session_plans.ShowVariablePlan: lambda session, _transaction, plan: _shown(
                *show_variable(session, plan.name), plan.tag_text
            ),
            session_plans.AlterSystemPlan: self._alter_system,
        }

    def _explain(
        self, session: Session, transaction: Transaction, plan: session_plans.ExplainPlan
    ) -> Result:
        del transaction
        if plan.stage == "timestamp" and isinstance(plan.explainee, p.SelectPlan):
            text = self._queries.explain_timestamp(session, plan.explainee, plan.format)
            return _shown(text_desc("Timestamp"), [(text,)], plan.tag_text)
        if plan.stage == "filter pushdown":
            return self._explain_pushdown(session, plan)
        title, text = self._explainer.explain(session, plan, self._env.catalog.state)
        return _shown(text_desc(title), [(text,)], plan.tag_text)

    def _explain_pushdown(self, session: Session, plan: session_plans.ExplainPlan) -> Result:
        state = self._env.catalog.state
        as_of = None
        if isinstance(plan.explainee, p.SelectPlan) and plan.explainee.as_of is not None:
            as_of = self._queries.as_of(plan.explainee)
        imports = self._explainer.sources(session, plan, state)
        rows = [
            (
                state.items[gid].full_name,
                sum(part.bytes for part in parts),
                sum(part.bytes for part in wanted),
                len(parts),
                len(wanted),
            )
            for gid, parts, wanted in self._queries.selected_parts(session, imports, as_of)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in _PUSHDOWN]
        arrays = [
            pa.array(values, arrow_type(typ))
            for values, (_, typ) in zip(columns, _PUSHDOWN, strict=True)
        ]
        names = [name for name, _ in _PUSHDOWN]
        desc = RelationDesc(
            tuple(names), RelationType(tuple(ColumnType(typ, False) for _, typ in _PUSHDOWN))
        )
        return Result(plan.tag_text, desc, pa.table(arrays, names=names), len(rows))

    def _alter_system(
        self, session: Session, transaction: Transaction, plan: session_plans.AlterSystemPlan
    ) -> Result:
        self._env.require_writable()
        if not transaction.implicit:
            raise TransactionError(
                "ALTER SYSTEM cannot run inside a transaction block", sqlstate="25001"
            )
        self._env.define(lambda state: (alter_system(state, plan.name, plan.values), None))
        self._dataflows.catch_up()
        if plan.values is not None and (is_foreign(plan.name) or not variable(plan.name).heeded):
            # Materialize's other variables are accepted with a notice, so that scripts that set them keep working.
            session.notice(f"{plan.name} has no effect")
        return Result(plan.tag_text)


def _shown(desc: RelationDesc, rows: Rows, tag: str) -> Result:
    return Result(tag, desc, as_table(desc, rows), len(rows))
