"""Statements to plans.

Promise: `plan_statement` resolves every name and type of a statement against the catalog it is given, and changes nothing. What cannot be
resolved is a `SqlError` with PostgreSQL's or Materialize's words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mzsql.frontend.catalog import CatalogItem, CatalogView
from mzsql.frontend.names.items import item_named, wrong_kind
from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.parse.retention import with_retention
from mzsql.frontend.plan import plans
from mzsql.frontend.plan.catalog import CATALOG_PLANNERS
from mzsql.frontend.plan.cursors import (
    plan_copy_to,
    plan_execute,
    plan_prepare,
    plan_subscribe,
    timestamp_constant,
)
from mzsql.frontend.plan.ddl import (
    plan_create_index,
    plan_create_table,
    plan_create_view,
    plan_drop,
)
from mzsql.frontend.plan.dml import plan_copy_from, plan_delete, plan_insert, plan_update
from mzsql.frontend.plan.privileges import plan_privileges
from mzsql.frontend.plan.retention import altered, missing
from mzsql.frontend.plan.types import plan_create_type
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.query.shown import plan_show
from mzsql.repr.depth import deep
from mzsql.repr.errors import SqlError, Unsupported
from mzsql.repr.garbage import undisturbed


@undisturbed()
def plan_statement(
    statement: st.Statement, catalog: CatalogView, *, table_keys: bool = False
) -> plans.Plan:
    """The plan of a statement.

    Args:
        statement: what `parse_statements` gave.
        catalog: where names resolve.
        table_keys: whether CREATE TABLE may declare keys that the optimizer then relies on (the system variable
            ``enable_table_keys``); nothing enforces them.

    Raises:
        SqlError: a name, type or form that cannot be resolved or is not supported.
    """
    with deep():
        if isinstance(statement, st.CreateTable):
            return plan_create_table(statement, catalog, table_keys=table_keys)
        return _PLANNERS[type(statement)](statement, catalog)


def plan_select(statement: st.Select, catalog: CatalogView) -> plans.SelectPlan:
    """A query and its AS OF."""
    planner = QueryPlanner(catalog)
    query = planner.top_level(statement.query)
    as_of = None
    if statement.as_of is not None:
        as_of = timestamp_constant(statement.as_of, catalog, "AS OF")
    return plans.SelectPlan(query, as_of, statement.at_least)


# --- EXPLAIN, SHOW ---------------------------------------------------------------------------------

_REF_KINDS = {"view": "view", "materialized view": "materialized-view", "index": "index"}


def _explain(statement: st.Explain, catalog: CatalogView) -> plans.ExplainPlan:
    target = statement.explainee
    explainee: Any
    if isinstance(target, st.ObjectRef):
        item = item_named(catalog, target.name)
        _expect_kind(item, target.kind)
        stage = statement.stage
        allowed = {
            "view": ("raw", "decorrelated", "locally optimized"),
            "materialized view": (
                "raw",
                "decorrelated",
                "locally optimized",
                "optimized",
                "physical",
            ),
            "index": ("optimized", "physical"),
        }[target.kind]
        if stage not in allowed:
            raise SqlError(
                f"cannot EXPLAIN {stage.upper()} PLAN FOR {'REPLAN ' if statement.replan else ''}"
                f"{target.kind.upper()}",
                sqlstate="0A000",
            )
        explainee = item
    else:
        if isinstance(target, st.CreateIndex) and statement.stage in (
            "raw",
            "decorrelated",
            "locally optimized",
        ):
            raise SqlError(
                f"cannot EXPLAIN {statement.stage.upper()} PLAN FOR CREATE INDEX", sqlstate="0A000"
            )
        explainee = plan_statement(target, catalog)
        if isinstance(explainee, plans.CreateTablePlan):
            raise Unsupported("EXPLAIN CREATE TABLE is not supported")
    return plans.ExplainPlan(
        statement.stage, statement.format, statement.options, explainee, statement.replan
    )


def _expect_kind(item: CatalogItem, kind: str) -> None:
    if item.kind != _REF_KINDS.get(kind, kind):
        found = item.kind.replace("-", " ")
        article = "an" if kind == "index" else "a"
        raise SqlError(
            f"{item.name} is not {article} {kind}",
            detail=f"It is {'an' if found[0] in 'aeiou' else 'a'} {found}.",
            sqlstate="42809",
        )


def _show_create(statement: st.ShowCreate, catalog: CatalogView) -> plans.ShowCreatePlan:
    item = item_named(catalog, statement.name)
    if item.kind.replace("-", " ") != statement.kind:
        raise wrong_kind(item, statement.kind, statement.name, "show")
    return plans.ShowCreatePlan(item)


# --- sessions --------------------------------------------------------------------------------------


def _variable(statement: st.SetVariable, _catalog: CatalogView) -> plans.Plan:
    if statement.system:
        return plans.AlterSystemPlan(statement.name.lower(), statement.values)
    return plans.SetVariablePlan(statement.name.lower(), statement.values, statement.local)


def _transaction(statement: st.Transaction, _catalog: CatalogView) -> plans.Plan:
    match statement.kind:
        case "begin":
            return plans.BeginPlan(statement.isolation, statement.read_only)
        case "commit":
            return plans.CommitPlan()
        case "rollback":
            return plans.RollbackPlan()
        case _:
            of_session = statement.kind == "set session"
            return plans.SetTransactionPlan(
                statement.isolation, statement.read_only, of_session=of_session
            )


def _declare(statement: st.Declare, catalog: CatalogView) -> plans.DeclarePlan:
    inner = plan_statement(statement.statement, catalog)
    assert isinstance(inner, plans.SelectPlan | plans.SubscribePlan)
    return plans.DeclarePlan(statement.name, inner)


def _alter_retain(statement: st.AlterRetain, catalog: CatalogView) -> plans.AlterRetainPlan:
    item, retain_ms = altered(statement, catalog)
    if item is None:
        return missing(statement)
    # The object's own statement, as if it had been made so.
    (made,) = parse_statements(item.create_sql)
    plan = plan_statement(with_retention(made, statement.retain), catalog)
    assert isinstance(
        plan, plans.CreateTablePlan | plans.CreateMaterializedViewPlan | plans.CreateIndexPlan
    )
    return plans.AlterRetainPlan(
        statement.kind, str(statement.name), item, retain_ms, plan.create_sql
    )


_PLANNERS: dict[type, Callable[[Any, CatalogView], plans.Plan]] = {
    st.Select: plan_select,
    st.CreateView: plan_create_view,
    st.CreateIndex: plan_create_index,
    st.CreateType: plan_create_type,
    st.Drop: plan_drop,
    st.AlterRetain: _alter_retain,
    st.Insert: plan_insert,
    st.Update: plan_update,
    st.Delete: plan_delete,
    st.CopyFrom: plan_copy_from,
    st.Explain: _explain,
    st.Show: plan_show,
    st.ShowCreate: _show_create,
    st.ShowVariable: lambda s, _c: plans.ShowVariablePlan(s.name.lower()),
    st.SetVariable: _variable,
    st.Transaction: _transaction,
    st.Subscribe: lambda s, c: plan_subscribe(s, c, plan_statement),
    st.Declare: _declare,
    st.Fetch: lambda s, _c: plans.FetchPlan(s.name, s.count, s.timeout),
    st.Close: lambda s, _c: plans.ClosePlan(s.name),
    st.Prepare: lambda s, c: plan_prepare(s, c, plan_statement),
    st.Execute: plan_execute,
    st.Deallocate: lambda s, _c: plans.DeallocatePlan(s.name),
    st.Discard: lambda s, _c: plans.DiscardPlan(s.everything),
    **CATALOG_PLANNERS,
    cs.Privileges: plan_privileges,
    st.CopyTo: lambda s, c: plan_copy_to(s, c, plan_statement),
}
