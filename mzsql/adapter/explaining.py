"""EXPLAIN: a plan at the stage asked for, of a query as it would be planned now, of a deployed object as it runs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql import explain
from mzsql.adapter.builtin import builtins
from mzsql.adapter.catalog import CatalogState, Item
from mzsql.adapter.expression_cache import GlobalExpressions
from mzsql.adapter.planner import Planned, Planner
from mzsql.adapter.session import Session
from mzsql.explain import ExplainConfig
from mzsql.expr.dataflow import Export, IndexExport, MaterializedViewExport, PeekExport
from mzsql.expr.relation import Get, Relation, RowSetFinishing
from mzsql.frontend import hir, lower_query, parse_statements, plan_statement
from mzsql.frontend import plans as p
from mzsql.frontend.catalog import CatalogItem
from mzsql.repr.errors import InternalError, Unsupported
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc

QUERY = GlobalId("t1")
_TITLES = {
    "raw": "Raw Plan",
    "decorrelated": "Decorrelated Plan",
    "locally optimized": "Locally Optimized Plan",
    "optimized": "Optimized Plan",
    "physical": "Physical Plan",
}


class Names:
    """Ids as names: explain's `Humanizer`. `own` names the object that is being created."""

    def __init__(self, state: CatalogState, planner: Planner, own: dict[GlobalId, str]) -> None:
        self._state = state
        self._planner = planner
        self._own = own

    def name(self, gid: GlobalId) -> str:
        """The object's qualified name."""
        if gid in self._own:
            return self._own[gid]
        builtin = builtins().get(gid)
        if builtin is not None:
            return builtin.full_name
        item = self._state.items.get(gid)
        return "[DELETED INDEX]" if item is None else item.full_name

    def column_names(self, gid: GlobalId) -> Sequence[str] | None:
        """The names of the object's columns."""
        if gid not in self._state.items and gid not in builtins():
            return None
        item = self._state.items.get(gid)
        if item is not None and item.desc is None:
            return None
        return self._planner.desc(gid).names


class _Subject(msgspec.Struct, frozen=True):
    """What is explained.

    Attributes:
        query: its HIR; None for an index.
        relation: for an index, a Get of what it is on.
        export: what its dataflow would export.
        finishing: a query's; None for objects.
        desc: its columns.
        cluster: the cluster whose indexes count.
        name: its name, for objects.
        deployed: the plan that runs, for deployed objects.
    """

    query: hir.Query | None
    relation: Relation | None
    export: Export
    finishing: RowSetFinishing | None
    desc: RelationDesc | None
    cluster: str
    name: str
    deployed: GlobalExpressions | None = None


class Explainer:
    """Answers EXPLAIN."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def explain(self, session: Session, plan: p.ExplainPlan, state: CatalogState) -> tuple[str, str]:
        """The column's title and the text."""
        options = {name: bool(value) for name, value in plan.options}
        config = ExplainConfig.from_options(options)
        subject = self._subject(session, plan, state)
        planner = self._with_features(config)
        names = Names(state, self._planner, {subject.export.id: subject.name})
        return _TITLES[plan.stage], self._text(planner, subject, plan, config, names)

    def _with_features(self, config: ExplainConfig) -> Planner:
        if config.enable_eager_delta_joins is None:
            return self._planner
        features = msgspec.structs.replace(
            self._planner.features(), enable_eager_delta_joins=config.enable_eager_delta_joins
        )
        return self._planner.with_features(features)

    # --- what is explained --------------------------------------------------------------------

    def _subject(self, session: Session, plan: p.ExplainPlan, state: CatalogState) -> _Subject:
        what = plan.explainee
        cluster = session.get("cluster")
        match what:
            case p.SelectPlan(query=query):
                return _Subject(
                    query, None, PeekExport(QUERY), query.finishing, query.desc, cluster, "Explained Query"
                )
            case p.CreateViewPlan(query=query, name=name):
                return _Subject(
                    query, None, PeekExport(QUERY), None, query.desc, cluster, str(name)
                )
            case p.CreateMaterializedViewPlan(query=query, name=name):
                export: Export = MaterializedViewExport(QUERY)
                return _Subject(query, None, export, None, query.desc, what.cluster, str(name))
            case p.CreateIndexPlan():
                own = IndexExport(QUERY, what.on.id, what.keys)
                return self._index(what.on.id, own, what.cluster, str(what.name))
            case CatalogItem():
                return self._object(what, plan, state)
        raise InternalError(f"cannot explain {type(what).__name__}")

    def _index(self, on: GlobalId, export: Export, cluster: str, name: str, deployed: GlobalExpressions | None = None) -> _Subject:
        get = Get(on, self._planner.relation_type(on))
        desc = self._planner.desc(on)
        return _Subject(None, get, export, None, desc, cluster, name, deployed)

    def _object(self, what: CatalogItem, plan: p.ExplainPlan, state: CatalogState) -> _Subject:
        item = state.items.get(what.id)
        if item is None:
            raise Unsupported(f"EXPLAIN of the system object {what.name} is not supported")
        deployed = None
        if item.kind in ("index", "materialized-view") and not plan.replan:
            deployed = self._planner.deployed(item)
        cluster = item.cluster or "quickstart"
        if item.kind == "index":
            assert item.on_id is not None
            export = IndexExport(item.id, item.on_id, item.key)
            return self._index(item.on_id, export, cluster, item.full_name, deployed)
        query = self._definition(item)
        if item.kind == "view":
            return _Subject(query, None, PeekExport(item.id), None, item.desc, cluster, item.full_name)
        export2 = MaterializedViewExport(item.id)
        return _Subject(query, None, export2, None, item.desc, cluster, item.full_name, deployed)

    def _definition(self, item: Item) -> hir.Query:
        (statement,) = parse_statements(item.create_sql)
        plan = plan_statement(statement, self._planner.catalog_without(item.id))
        if not isinstance(plan, p.CreateViewPlan | p.CreateMaterializedViewPlan):
            raise InternalError(f"not the definition of a view: {item.create_sql}")
        return plan.query

    # --- its text -----------------------------------------------------------------------------

    def _text(
        self, planner: Planner, subject: _Subject, plan: p.ExplainPlan, config: ExplainConfig, names: Names
    ) -> str:
        if plan.stage == "raw":
            if subject.query is None:
                raise Unsupported("EXPLAIN RAW PLAN is not supported for indexes")
            return explain.explain_hir(subject.query, names, config, title=subject.name)
        relation = subject.relation
        if subject.query is not None:
            relation = lower_query(subject.query).relation
        assert relation is not None
        if plan.stage == "decorrelated":
            return self._mir(subject, relation, planner, names, config, None)
        if plan.stage == "locally optimized":
            local = planner.optimize(relation)
            return self._mir(subject, local, planner, names, config, None)
        planned = self._planned(planner, subject, relation)
        if plan.stage == "optimized":
            return self._mir(subject, relation, planner, names, config, planned)
        return self._physical(subject, plan, planned, names, config)

    def _planned(self, planner: Planner, subject: _Subject, relation: Relation) -> Planned:
        if subject.deployed is not None:
            return Planned(subject.deployed.mir, subject.deployed.plan)
        local = planner.optimize(relation) if not isinstance(subject.export, PeekExport) else relation
        return planner.dataflow(subject.export, local, cluster=subject.cluster)
