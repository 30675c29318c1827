"""EXPLAIN: a plan at the requested stage. A query is planned as it would be now; a deployed object is shown as it runs.

Promise: the plan shown of a query is the object that its execution would take (`PeekPlans`), from the same cache: it is
not planned a second time. Exceptions are what is not executed: a plan with other optimizer switches, and the dataflow
that a fast path saves, where it is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.peek.plans import PeekPlans
from mzsql.adapter.planning.names import Names
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.session.session import Session
from mzsql.catalog.builtin import only_builtins
from mzsql.catalog.objects import (
    CATALOG_CLUSTER,
    Index,
    Item,
    Maintained,
    MaterializedView,
    View,
    cluster_of,
)
from mzsql.catalog.state import CatalogState
from mzsql.compute.peek.query import PlannedQuery
from mzsql.explain import (
    ExplainConfig,
    Frame,
    Notice,
    NoticeFinder,
    comparisons_with_null,
    explain_fast_path,
    explain_hir,
    explain_lir,
    explain_mir,
    explain_relation,
    fast_path_json,
    hir_json,
    lir_json,
    mir_json,
    relation_json,
)
from mzsql.expr.dataflow import Export, IndexExport, MaterializedViewExport, PeekExport
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.relation import Get, Relation, RowSetFinishing
from mzsql.frontend import hir, lower_as_made, lower_as_written, parse_statements, plan_statement
from mzsql.frontend.catalog import CatalogItem
from mzsql.frontend.plan import ddl_plans, session_plans
from mzsql.frontend.plan import plans as p
from mzsql.lir import Planned
from mzsql.lir.plan import SourceImport
from mzsql.render.dataflow import one_shot, render
from mzsql.render.nodes.recursion import Loop
from mzsql.repr.errors import InternalError, Unsupported
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc
from mzsql.transform.cardinality import Statistics, no_statistics
from mzsql.transform.fast_path import (
    ONE_SHOT,
    DataflowPlan,
    PeekIndexPlan,
    PeekPlan,
    peek_dataflow,
)

#: The id of what is not created.
QUERY = ONE_SHOT.id
_TITLES = {
    "raw": "Raw Plan",
    "decorrelated": "Decorrelated Plan",
    "locally optimized": "Locally Optimized Plan",
    "optimized": "Optimized Plan",
    "physical": "Physical Plan",
}


class _Subject(msgspec.Struct, frozen=True):
    """What is explained.

    Attributes:
        query: its HIR; None for an index.
        export: what its dataflow would export.
        finishing: a query's ORDER BY, LIMIT and projection; None for objects.
        desc: its columns.
        cluster: the cluster whose indexes it may read.
        name: its name in the plan.
        deployed: the running plan of a deployed object.
        statistics: estimates of row counts, where the session asks for them.
    """

    query: hir.Query | None
    export: Export
    finishing: RowSetFinishing | None
    desc: RelationDesc | None
    cluster: str
    name: str
    deployed: GlobalExpressions | None = None
    statistics: Statistics = no_statistics


class _Shown(msgspec.Struct, frozen=True):
    """A plan to print.

    Attributes:
        planned: the dataflow; of a fast path that which an engine runs over the rows that it reads.
        peek: how a query is answered; None for objects, and where the dataflow itself is asked for.
    """

    planned: Planned
    peek: PeekPlan | None


class Explainer:
    """Answers EXPLAIN.

    Args:
        planner: plans what is not a query.
        plans: gives the plans of queries.
        deployed: returns the plan of an object that runs in this process.
    """

    def __init__(
        self,
        planner: Planner,
        plans: PeekPlans,
        deployed: Callable[[GlobalId], GlobalExpressions | None],
    ) -> None:
        self._planner = planner
        self._plans = plans
        self._deployed = deployed

    def explain(
        self, session: Session, plan: session_plans.ExplainPlan, state: CatalogState
    ) -> tuple[str, str]:
        """The title of the result's only column, and the text.

        Raises:
            Unsupported: the object has no such plan, or the plan not this format; or an option would have the plan made otherwise, and the
                plan that runs was made before.
        """
        options = {name: bool(value) for name, value in plan.options}
        config = ExplainConfig.from_options(options)
        subject = self._subject(session, plan, state)
        if subject.deployed is not None and config.overrides():
            listed = ", ".join(sorted(name.replace("_", " ") for name in config.overrides()))
            raise Unsupported(
                f"EXPLAIN … WITH ({listed}) of the plan that runs is not supported: it was made without",
                hint=f"Show what would be planned: EXPLAIN … WITH ({listed}) FOR REPLAN …",
            )
        if session.get("enable_session_cardinality_estimates") == "on":
            subject = msgspec.structs.replace(subject, statistics=self._planner.statistics)
        planner = self._with_features(config)
        names = Names(state, self._planner.descriptions, {subject.export.id: subject.name})
        frame = Frame(_cluster(session, subject, plan.stage), as_dot=plan.format == "dot")
        return _TITLES[plan.stage], self._text(
            session, planner, subject, plan, config, names, frame
        )

    def sources(
        self, session: Session, plan: session_plans.ExplainPlan, state: CatalogState
    ) -> tuple[SourceImport, ...]:
        """What the physical plan reads from shards, with the filters and projections pushed into the reads."""
        subject = self._subject(session, plan, state)
        shown = self._shown(session, self._planner, subject, fast_path=False)
        return shown.planned.plan.source_imports

    def _with_features(self, config: ExplainConfig) -> Planner:
        features = self._planner.features()
        known = features.__struct_fields__
        changed = {name: value for name, value in config.overrides().items() if name in known}
        views_too = bool(config.reoptimize_imported_views)
        if not changed and not views_too:
            return self._planner
        features = msgspec.structs.replace(features, **changed)
        return self._planner.with_features(features, views_too=views_too)

    # --- what is explained --------------------------------------------------------------------

    def _subject(
        self, session: Session, plan: session_plans.ExplainPlan, state: CatalogState
    ) -> _Subject:
        what = plan.explainee
        cluster = session.get("cluster")
        match what:
            case p.SelectPlan(query=query):
                return _Subject(
                    query,
                    PeekExport(QUERY),
                    query.finishing,
                    query.desc,
                    cluster,
                    "Explained Query",
                )
            case ddl_plans.CreateViewPlan(query=query, name=name):
                return _Subject(query, PeekExport(QUERY), None, query.desc, cluster, str(name))
            case ddl_plans.CreateMaterializedViewPlan(query=query, name=name):
                export: Export = MaterializedViewExport(QUERY)
                return _Subject(query, export, None, query.desc, what.cluster, str(name))
            case ddl_plans.CreateIndexPlan():
                own = IndexExport(QUERY, what.on.id, what.keys)
                return self._index(what.on.id, own, what.cluster, str(what.name))
            case CatalogItem():
                return self._object(what, plan, state)
        raise InternalError(f"cannot explain {type(what).__name__}")

    def _index(
        self,
        on: GlobalId,
        export: Export,
        cluster: str,
        name: str,
        deployed: GlobalExpressions | None = None,
    ) -> _Subject:
        desc = self._planner.desc(on)
        return _Subject(None, export, None, desc, cluster, name, deployed)

    def _object(
        self, what: CatalogItem, plan: session_plans.ExplainPlan, state: CatalogState
    ) -> _Subject:
        item = state.items.get(what.id)
        if item is None:
            raise Unsupported(f"EXPLAIN of the system object {what.name} is not supported")
        deployed = None
        if isinstance(item, Maintained) and not plan.replan:
            deployed = self._deployed(item.id) or self._planner.deployed(item)
        cluster = cluster_of(item) or "quickstart"
        if isinstance(item, Index):
            export = IndexExport(item.id, item.on_id, item.key)
            return self._index(item.on_id, export, cluster, item.full_name, deployed)
        if not isinstance(item, View | MaterializedView):
            raise Unsupported(f"EXPLAIN of the {item.noun} {what.name} is not supported")
        query = self._definition(item)
        if isinstance(item, View):
            return _Subject(query, PeekExport(item.id), None, item.desc, cluster, item.full_name)
        export2 = MaterializedViewExport(item.id)
        return _Subject(query, export2, None, item.desc, cluster, item.full_name, deployed)

    def _definition(self, item: Item) -> hir.Query:
        (statement,) = parse_statements(item.create_sql)
        plan = plan_statement(statement, self._planner.catalog_without(item.id))
        if not isinstance(plan, ddl_plans.CreateViewPlan | ddl_plans.CreateMaterializedViewPlan):
            raise InternalError(f"not the definition of a view: {item.create_sql}")
        return plan.query

    # --- its text -----------------------------------------------------------------------------

    def _text(
        self,
        session: Session,
        planner: Planner,
        subject: _Subject,
        plan: session_plans.ExplainPlan,
        config: ExplainConfig,
        names: Names,
        frame: Frame,
    ) -> str:
        started = time.perf_counter()
        if plan.stage == "raw":
            if subject.query is None:
                raise Unsupported("EXPLAIN RAW PLAN is not supported for indexes")
            if plan.format == "json":
                return hir_json(subject.query)
            if plan.format == "sql":
                raise _unsupported_format(plan)
            return explain_hir(subject.query, names, config, frame)
        if plan.stage in ("decorrelated", "locally optimized"):
            relation = _lowered(planner, subject)
            if relation is None:
                assert isinstance(subject.export, IndexExport)
                on = planner.source(subject.export.on_id)
                relation = Get(on.id, on.typ)
            if plan.stage == "locally optimized":
                relation = planner.optimize(relation)
            if plan.stage == "decorrelated" and subject.query is not None:
                lowering = lower_as_made if plan.format == "json" else lower_as_written
                features = planner.features()
                relation = lowering(
                    subject.query,
                    new_outer_joins=features.enable_new_outer_join_lowering,
                    variadic_left_joins=features.enable_variadic_left_join_lowering,
                )
            if plan.format == "json":
                return relation_json(relation)
            if plan.format == "sql":
                raise _unsupported_format(plan)
            if config.timing:
                label = "Decorrelation" if plan.stage == "decorrelated" else "Optimization"
                frame = msgspec.structs.replace(frame, timing=_timing(label, started))
            as_written = plan.stage == "decorrelated"
            return explain_relation(
                relation,
                subject.finishing,
                names,
                config,
                frame,
                as_written=as_written,
                statistics=subject.statistics,
            )
        fast_path = not config.no_fast_path and plan.format != "sql"
        shown = self._shown(session, planner, subject, fast_path=fast_path)
        notices = () if config.no_notices else self._notices(subject, shown, config, names)
        timing = _timing("Optimization", started) if config.timing else None
        frame = msgspec.structs.replace(frame, notices=tuple(notices), timing=timing)
        return _planned_text(planner, subject, plan, shown, config, names, frame)

    def _notices(
        self, subject: _Subject, shown: _Shown, config: ExplainConfig, names: Names
    ) -> list[Notice]:
        if isinstance(shown.peek, PeekIndexPlan) and shown.peek.rows is not None:
            return []  # the index that a filter would want is there
        context = self._planner.context(
            cluster=subject.cluster, without=frozenset([subject.export.id])
        )
        finder = NoticeFinder(names, context.indexes, redacted=config.redacted)
        found = finder.of(shown.planned.mir)
        if subject.query is None or isinstance(subject.export, PeekExport):
            # A query's EXPLAIN only shows notices about its plan. Those about its text are given when an object is
            # created, and are kept in `mz_notices`.
            return found
        return [*found, *comparisons_with_null(subject.query)]

    def _shown(
        self, session: Session, planner: Planner, subject: _Subject, *, fast_path: bool
    ) -> _Shown:
        """The plan of what is explained; `fast_path`: whether a query may be answered without a dataflow."""
        if subject.deployed is not None:
            return _Shown(Planned(subject.deployed.mir, subject.deployed.plan), None)
        query = subject.query
        if query is not None and subject.finishing is not None:
            one = self._one_shot(session, planner, subject, query)
            if fast_path or isinstance(one.peek, DataflowPlan):
                return _Shown(Planned(peek_dataflow(one.peek), one.plan), one.peek)
        relation = _lowered(planner, subject)
        if relation is not None and not isinstance(subject.export, PeekExport):
            relation = planner.optimize(relation)
        return _Shown(planner.dataflow(subject.export, relation, cluster=subject.cluster), None)

    def _one_shot(
        self, session: Session, planner: Planner, subject: _Subject, query: hir.Query
    ) -> PlannedQuery:
        """A query as it is executed, or would be with other switches."""
        if planner is self._planner:
            return self._plans.explained(session, query)
        return self._plans.supposed(planner, query, subject.cluster)


def _lowered(planner: Planner, subject: _Subject) -> Relation | None:
    """The MIR of what is explained before optimization; None for an index."""
    return None if subject.query is None else planner.lowering()(subject.query).relation


def _timing(label: str, started: float) -> str:
    return f"{label} time: {(time.perf_counter() - started) * 1000:.3f}ms"


def _cluster(session: Session, subject: _Subject, stage: str) -> str | None:
    """The target cluster to show; None for a view, whose own plans are for none. Queries of system relations, and
    cheap ones that read nothing, run on the catalog's own cluster.

    Not where ``auto_route_catalog_queries`` is off, nor in a transaction that has chosen its cluster already.
    """
    if subject.query is None or not isinstance(subject.export, PeekExport):
        return subject.cluster
    if subject.finishing is None and stage not in ("optimized", "physical"):
        return None
    transaction = session.transaction
    chosen = transaction is not None and not transaction.implicit and transaction.active
    if chosen or session.get("auto_route_catalog_queries") != "on":
        return subject.cluster
    read = hir.depends_on(subject.query.relation)
    if read:
        return CATALOG_CLUSTER.name if only_builtins(read) else subject.cluster
    return subject.cluster if _may_cost(subject.query.relation) else CATALOG_CLUSTER.name


def _may_cost(query: hir.Relation) -> bool:
    """Whether a query that reads nothing might be expensive: it aggregates, or calls a function outside the scalars of
    its CTEs.
    """
    stack = [(query, True)]
    while stack:
        rel, counts = stack.pop()
        if isinstance(rel, hir.CallTable | hir.Reduce):
            return True
        if isinstance(rel, hir.Constant) and rel.typ.columns:
            # VALUES counts as a call of a table function.
            return True
        for outer in hir.relation_scalars(rel):
            for scalar in hir.walk_scalar(outer):
                if counts and isinstance(scalar, hir.Call | hir.Windowing):
                    return True
                if isinstance(scalar, hir.Exists | hir.Select):
                    stack.append((scalar.relation, counts))
        inputs = hir.relation_inputs(rel)
        if isinstance(rel, hir.Let | hir.LetRec):
            stack.extend((part, False) for part in inputs[:-1])
            inputs = inputs[-1:]
        stack.extend((part, counts) for part in inputs)
    return False


def _planned_text(
    planner: Planner,
    subject: _Subject,
    plan: session_plans.ExplainPlan,
    shown: _Shown,
    config: ExplainConfig,
    names: Names,
    frame: Frame,
) -> str:
    """The text of an optimized or a physical plan."""
    planned, peek = shown.planned, shown.peek
    physical = plan.stage == "physical"
    pushed = {s.id: s.mfp for s in planned.plan.source_imports}
    if plan.format == "sql":
        if physical:
            return statements(planned)
        raise _unsupported_format(plan)
    finishing = subject.finishing
    if peek is not None and not isinstance(peek, DataflowPlan):
        if plan.format == "json":
            return fast_path_json(peek, names)
        return explain_fast_path(peek, finishing, names, config, frame)
    if plan.format == "json":
        if physical:
            return lir_json(planned.plan, names)
        first = planner.features().enable_join_prioritize_arranged
        return mir_json(planned.mir, names, pushed, arranged_first=first)
    if physical:
        return explain_lir(planned.plan, finishing, names, config, frame)
    return explain_mir(
        planned.mir,
        finishing,
        names,
        config,
        frame,
        pushed=pushed,
        statistics=subject.statistics,
    )


def statements(planned: Planned) -> str:
    """The SQL that Spark runs: for an object its step (shown for times 0 to 1), for a query its answer, after the
    rounds of its recursions.
    """
    if not isinstance(planned.plan.export, PeekExport):
        return to_sql(render(planned.plan).step(Engine.SPARK, 0, 1).statement, Engine.SPARK) + "\n"
    statement, loops = one_shot(planned.plan).rendered(Engine.SPARK)
    rounds = [text for loop in loops for text in _rounds(loop)]
    return "".join(rounds) + to_sql(statement, Engine.SPARK) + "\n"


def _rounds(loop: Loop) -> list[str]:
    """The statements that each round of a recursion runs, in the order of its bindings."""
    limit = "" if loop.limit is None else f", {loop.limit[0]} times at most"
    until = f"until a round changes nothing{limit}"
    texts: list[str] = []
    for binding in loop.bindings:
        texts += [text for inner in binding.loops for text in _rounds(inner)]
        body = to_sql(binding.statement, Engine.SPARK)
        texts.append(f"-- {binding.relation}, from no rows, {until}:\n{body};\n")
    return texts


def _unsupported_format(plan: session_plans.ExplainPlan) -> Unsupported:
    return Unsupported(
        f"EXPLAIN {plan.stage.upper()} PLAN AS {plan.format.upper()} is not supported"
    )
