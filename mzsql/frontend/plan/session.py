"""EXPLAIN, SHOW of single things, variables, transactions.

Promise: an EXPLAIN of what has no such stage is refused when it is planned, with Materialize's words.
"""

from __future__ import annotations

from typing import Any

from sqlglot import expressions as exp

from mzsql.frontend.catalog import CatalogItem, CatalogView
from mzsql.frontend.definitions.shown_sql import redacted_sql, shown_sql
from mzsql.frontend.names.items import cluster_name, item_named, wrong_kind
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.plan import ddl_plans, plans, session_plans
from mzsql.frontend.plan.planners import NestingPlanners, Planners, PlanStatement
from mzsql.frontend.query.explain_analyze import analyzed, analyzed_cluster
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.query.show import ordered, shown_query
from mzsql.repr.errors import SqlError, Unsupported

_REF_KINDS = {"view": "view", "materialized view": "materialized-view", "index": "index"}


def _explain(
    statement: st.Explain, catalog: CatalogView, plan_statement: PlanStatement
) -> session_plans.ExplainPlan:
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
                "filter pushdown",
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
        if isinstance(explainee, ddl_plans.CreateTablePlan):
            raise Unsupported("EXPLAIN CREATE TABLE is not supported")
    return session_plans.ExplainPlan(
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


def _explain_analyze(statement: st.ExplainAnalyze, catalog: CatalogView) -> plans.SelectPlan:
    if statement.explainee is None:
        cluster: str | None = cluster_name(catalog, None)
        text = analyzed_cluster(cluster or "", statement.properties, skew=statement.skew)
    else:
        item = item_named(catalog, statement.explainee.name)
        _expect_kind(item, statement.explainee.kind)
        cluster = item.cluster
        text = analyzed(item.id, statement.properties, skew=statement.skew)
    if statement.as_sql:
        shown = exp.select(exp.alias_(exp.Literal.string(text), "SQL"))
        return plans.SelectPlan(QueryPlanner(catalog).top_level(shown), shows=True)
    (parsed,) = parse_statements(text)
    assert isinstance(parsed, st.Select)
    query = QueryPlanner(catalog).top_level(parsed.query)
    return plans.SelectPlan(query, shows=True, replicas_of=cluster)


def _show(statement: st.Show, catalog: CatalogView) -> plans.SelectPlan:
    query = ordered(statement, shown_query(statement, catalog))
    return plans.SelectPlan(QueryPlanner(catalog).top_level(query), shows=True)


def _show_create(statement: st.ShowCreate, catalog: CatalogView) -> plans.SelectPlan:
    item = item_named(catalog, statement.name)
    if item.kind.replace("-", " ") != statement.kind:
        raise wrong_kind(item, statement.kind, statement.name, "show")
    text = item.create_sql.rstrip().rstrip(";")
    if not item.id.startswith("s"):
        text = redacted_sql(text) if statement.redacted else shown_sql(text)
    shown = {"name": str(item.name), "create_sql": text}
    constants = [exp.alias_(exp.Literal.string(value), name) for name, value in shown.items()]
    query = QueryPlanner(catalog).top_level(exp.select(*constants))
    return plans.SelectPlan(query, shows=True)


#: Who may set what stands in the catalog, so SHOW ALL asks it as `pg_settings` does.
_SHOW_ALL = """
SELECT v.shown AS name, s.setting, CASE WHEN v.context = 'internal' THEN 'read only' ELSE '' END AS description
FROM unnest(mz_internal.mz_viewable_variables()) AS s (name, setting)
JOIN mz_internal.mz_variables AS v ON v.name = s.name
ORDER BY s.name
"""


def _show_variable(statement: st.ShowVariable, catalog: CatalogView) -> plans.Plan:
    name = statement.name.lower()
    if name != "all":
        return session_plans.ShowVariablePlan(name)
    (parsed,) = parse_statements(_SHOW_ALL)
    assert isinstance(parsed, st.Select)
    return plans.SelectPlan(QueryPlanner(catalog).top_level(parsed.query), shows=True)


def _variable(statement: st.SetVariable, _catalog: CatalogView) -> plans.Plan:
    if statement.system:
        return session_plans.AlterSystemPlan(statement.name.lower(), statement.values)
    return session_plans.SetVariablePlan(statement.name.lower(), statement.values, statement.local)


def _transaction(statement: st.Transaction, _catalog: CatalogView) -> plans.Plan:
    match statement.kind:
        case "begin":
            return session_plans.BeginPlan(statement.isolation, statement.read_only)
        case "commit":
            return session_plans.CommitPlan()
        case "rollback":
            return session_plans.RollbackPlan()
        case _:
            of_session = statement.kind == "set session"
            return session_plans.SetTransactionPlan(
                statement.isolation, statement.read_only, of_session=of_session
            )


#: The planners of this family.
PLANNERS: Planners = {
    st.Show: _show,
    st.ExplainAnalyze: _explain_analyze,
    st.ShowCreate: _show_create,
    st.ShowVariable: _show_variable,
    st.SetVariable: _variable,
    st.Transaction: _transaction,
}
NESTING: NestingPlanners = {st.Explain: _explain}
