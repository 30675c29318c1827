"""Statements to plans.

Promise: `plan_statement` resolves every name and type of a statement against the given catalog, and changes nothing.
What cannot be resolved is an `SqlError` with PostgreSQL's or Materialize's message.
"""

from __future__ import annotations

from mzsql.frontend.catalog import CatalogView
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import catalog as catalog_
from mzsql.frontend.plan import cursors, ddl, dml, plans, privileges, retention, session
from mzsql.frontend.plan.cursors import timestamp_constant
from mzsql.frontend.plan.ddl import plan_create_table
from mzsql.frontend.plan.planners import NestingPlanners, Planners
from mzsql.frontend.query.query import QueryPlanner
from mzsql.repr.depth import deep
from mzsql.repr.garbage import undisturbed


@undisturbed()
def plan_statement(
    statement: st.Statement, catalog: CatalogView, *, table_keys: bool = False
) -> plans.Plan:
    """The plan of a statement.

    Args:
        statement: a result of `parse_statements`.
        catalog: where names are resolved.
        table_keys: whether CREATE TABLE may declare keys that the optimizer relies on (the system variable
            ``enable_table_keys``); nothing enforces them.

    Raises:
        SqlError: a name or type cannot be resolved, or something is not supported.
    """
    with deep():
        if isinstance(statement, st.CreateTable):
            return plan_create_table(statement, catalog, table_keys=table_keys)
        nesting = _NESTING.get(type(statement))
        if nesting is not None:
            return nesting(statement, catalog, plan_statement)
        return _PLANNERS[type(statement)](statement, catalog)


def plan_select(statement: st.Select, catalog: CatalogView) -> plans.SelectPlan:
    """A query and its AS OF."""
    planner = QueryPlanner(catalog)
    query = planner.top_level(statement.query)
    as_of = None
    if statement.as_of is not None:
        as_of = timestamp_constant(statement.as_of, catalog, "AS OF")
    return plans.SelectPlan(query, as_of, statement.at_least)


_PLANNERS: Planners = {
    st.Select: plan_select,
    **ddl.PLANNERS,
    **dml.PLANNERS,
    **session.PLANNERS,
    **cursors.PLANNERS,
    **catalog_.PLANNERS,
    **privileges.PLANNERS,
}
_NESTING: NestingPlanners = {**session.NESTING, **cursors.NESTING, **retention.NESTING}
