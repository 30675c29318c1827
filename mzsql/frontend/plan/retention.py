"""ALTER … SET (RETAIN HISTORY FOR …)."""

from __future__ import annotations

from mzsql.frontend.catalog import CatalogItem, CatalogView
from mzsql.frontend.names.items import target_item
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.parse.retention import retained_ms, with_retention
from mzsql.frontend.plan import ddl_plans
from mzsql.frontend.plan.planners import NestingPlanners, PlanStatement
from mzsql.repr.errors import Unsupported

_KINDS = ("table", "materialized-view", "index")


def altered(
    statement: st.AlterRetain, catalog: CatalogView
) -> tuple[CatalogItem | None, int | None]:
    """The object to alter (None where it need not exist), and the retained milliseconds (None for RESET).

    Raises:
        Unsupported: the kind of object keeps no history of its own.
    """
    item = target_item(
        catalog, statement.kind, statement.name, "alter", if_exists=statement.if_exists
    )
    if item is None:
        return None, None
    position = statement.name.position
    if item.kind not in _KINDS:
        raise Unsupported(
            f"RETAIN HISTORY of {item.described} is not supported",
            position=position,
            hint="What it reads can retain history, and so can an index on it.",
        )
    if statement.retain is None:
        return item, None
    return item, retained_ms(statement.retain, position)


def missing(statement: st.AlterRetain) -> ddl_plans.AlterRetainPlan:
    """The plan of ALTER … IF EXISTS for an object that does not exist."""
    return ddl_plans.AlterRetainPlan(statement.kind, str(statement.name), None, None, "")


def plan_alter_retain(
    statement: st.AlterRetain, catalog: CatalogView, plan_statement: PlanStatement
) -> ddl_plans.AlterRetainPlan:
    """ALTER … SET or RESET (RETAIN HISTORY), with the object's definition rewritten to have the option."""
    item, retain_ms = altered(statement, catalog)
    if item is None:
        return missing(statement)
    # Plan the object's own statement as if it had been created with the option.
    (made,) = parse_statements(item.create_sql)
    plan = plan_statement(with_retention(made, statement.retain), catalog)
    assert isinstance(
        plan,
        ddl_plans.CreateTablePlan
        | ddl_plans.CreateMaterializedViewPlan
        | ddl_plans.CreateIndexPlan,
    )
    return ddl_plans.AlterRetainPlan(
        statement.kind, str(statement.name), item, retain_ms, plan.create_sql
    )


#: The planners of this family.
NESTING: NestingPlanners = {st.AlterRetain: plan_alter_retain}
