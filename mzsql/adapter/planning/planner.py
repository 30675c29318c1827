"""Planning: HIR to plans that run. Views are inlined, the whole is optimized and lowered; the expression cache is asked first.

Promise: planning is deterministic for a catalog and a set of optimizer features. What was planned before, by this process or an earlier one
of the same build, is not planned again. The plan returned for a deployed object is the one that runs, whatever indexes were created or
dropped since (`deployed`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial

import msgspec

from mzsql.adapter.environment.cache_entries import (
    GlobalExpressions,
    LocalExpression,
    Offered,
    StoredNotice,
)
from mzsql.adapter.environment.expression_cache import (
    ExpressionCache,
    dependents_of_index,
    spell_features,
)
from mzsql.adapter.environment.plan_files import PlanFiles
from mzsql.adapter.planning.descriptions import Descriptions
from mzsql.adapter.planning.names import Names
from mzsql.adapter.planning.view import RELATIONS, View
from mzsql.adapter.session.catalog import SessionCatalog
from mzsql.catalog import objects
from mzsql.catalog.builtin import Builtin, builtins
from mzsql.catalog.objects import Item
from mzsql.catalog.state import CatalogState
from mzsql.compute.replica.dataflows.dataflow import Renderings
from mzsql.explain import NoticeFinder, comparisons_with_null
from mzsql.expr.dataflow import (
    Export,
    IndexExport,
    MaterializedViewExport,
    MirDataflow,
    MirSource,
    PeekExport,
)
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.memo import remembering
from mzsql.expr.relation import Relation
from mzsql.expr.scalar import Scalar
from mzsql.frontend import LoweredQuery, hir, lower_query, parse_statements, plan_statement
from mzsql.frontend.plan import ddl_plans
from mzsql.lir import Planned, lower
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.rendered import Outline
from mzsql.repr.datum import Datum
from mzsql.repr.errors import InternalError
from mzsql.repr.evaluation import failed
from mzsql.repr.garbage import undisturbed
from mzsql.repr.ids import GlobalId, sort_key
from mzsql.repr.types import RelationDesc
from mzsql.transform import (
    IndexDesc,
    OptimizerContext,
    OptimizerFeatures,
    build_dataflow,
    optimize_dataflow,
    optimize_local,
)
from mzsql.transform.cardinality import Statistics, no_statistics
from mzsql.transform.fast_path import one_shot_dataflow
from mzsql.transform.unread_errors import errors_unread

_log = logging.getLogger(__name__)


#: Of the plans that a statement looks at, so many that nobody has made yet are made for it.
MOST_MADE = 100

#: Below so many cached views, dropped ones are not looked for.
_SWEEP_LEAST = 64


class Planner:
    """The planner of one process, which caches what it planned. Thread-safe.

    Args:
        state: gives the catalog as last read.
        cache: the expression cache.
        features: gives the optimizer's switches in force.
        renderings: renders plans.
        statistics: estimates how many rows a collection has, where that is known.
        files: keeps plans over builtin relations beyond the process.
    """

    def __init__(
        self,
        state: Callable[[], CatalogState],
        cache: ExpressionCache,
        features: Callable[[], OptimizerFeatures],
        renderings: Renderings,
        statistics: Statistics = no_statistics,
        files: PlanFiles | None = None,
    ) -> None:
        self._state = state
        self.descriptions = Descriptions(state)
        self._cache = cache
        self.files = PlanFiles.nowhere() if files is None else files
        self._features = features
        self.statistics = statistics
        self.renderings = renderings
        self._evaluator = Evaluator()
        self._lock = threading.RLock()
        self._views: dict[tuple[GlobalId, int, OptimizerFeatures], View] = {}
        self._sweep_at = _SWEEP_LEAST
        #: plans of deployed objects of which the cache has none: of another build, for one
        self._planned: dict[GlobalId, GlobalExpressions] = {}
        self._views_of: Planner | None = None

    def close(self) -> None:
        """Close the evaluator; nothing can be planned any more. Idempotent."""
        self._evaluator.close()

    # --- names --------------------------------------------------------------------------------

    def catalog(
        self,
        *,
        search_path: tuple[str, ...] = ("public",),
        cluster: str = "quickstart",
        database: str = "materialize",
        temporary: str | None = None,
        state: CatalogState | None = None,
        without: GlobalId | None = None,
        stored: bool = False,
    ) -> SessionCatalog:
        """The catalog under a session's names.

        Args:
            search_path: the session's schemas.
            cluster: the session's cluster.
            database: the session's database.
            temporary: the session's schema of temporary objects; None: what is planned is no session's.
            state: the catalog state; by default the one last read.
            without: an object to leave out.
            stored: whether a definition is planned that the catalog has: what settings forbid to new statements it may do.
        """
        return SessionCatalog(
            self._state() if state is None else state,
            self.descriptions,
            search_path=search_path,
            cluster=cluster,
            database=database,
            temporary=temporary,
            without=without,
            stored=stored,
        )

    def builtin_desc(self, builtin: Builtin) -> RelationDesc:
        """A builtin relation's columns."""
        return self.descriptions.builtin_desc(builtin)

    def desc(self, gid: GlobalId) -> RelationDesc:
        """The columns of any relation.

        Raises:
            UndefinedTable: there is no such object.
        """
        return self.descriptions.desc(gid)

    # --- views --------------------------------------------------------------------------------

    def view(self, gid: GlobalId) -> View:
        """A plain view, a user's or builtin, planned at first use."""
        if self._views_of is not None:
            return self._views_of.view(gid)
        features = self._features()
        builtin = builtins().get(gid)
        version = 1 if builtin is not None else self.descriptions.item(gid).version
        key = (gid, version, features)
        with self._lock:
            found = self._views.get(key)
            if found is None:
                found = self._plan_view(gid, builtin)
                self._views[key] = found
                if len(self._views) >= self._sweep_at:
                    self._sweep(features)
            return found

    def _sweep(self, features: OptimizerFeatures) -> None:
        """Drop cached views that were dropped, redefined, or planned with other features; amortized, since the threshold follows the number
        kept.
        """
        items = self._state().items
        self._views = {
            key: view
            for key, view in self._views.items()
            if key[2] == features
            and (key[0] in builtins() or (key[0] in items and items[key[0]].version == key[1]))
        }
        self._sweep_at = max(_SWEEP_LEAST, 2 * len(self._views))

    def _plan_view(self, gid: GlobalId, builtin: Builtin | None) -> View:
        if builtin is not None:
            return self._plan_builtin(gid, builtin)
        item = self.descriptions.item(gid)
        features = spell_features(self._features())
        cached = self._cache.local(gid, features, item.version)
        if cached is not None and isinstance(item, objects.View):
            view = View(cached, item.desc)
            # The name of a release does not tell which relations plugins add: one may have got another id, with other columns.
            if all(gid[0] != "s" or gid in builtins() for gid in view.reads):
                return view
        return self._from_text(item.create_sql)

    def _plan_builtin(self, gid: GlobalId, builtin: Builtin) -> View:
        """A builtin view: as an earlier process has kept it, else planned and kept."""
        key = self.files.key("view", gid, self._features())
        mir = self.files.get(key, RELATIONS.decode)
        if mir is not None:
            return View(mir, self.builtin_desc(builtin))
        made = self._from_text(builtin.query)
        self.files.put(key, msgspec.msgpack.encode(made.mir))
        return made

    def _from_text(self, text: str) -> View:
        return self.local(self.descriptions.query(text))

    def lowering(self) -> Callable[[hir.Query], LoweredQuery]:
        """The function that decorrelates queries, with the switches in force."""
        features = self._features()
        return partial(
            lower_query,
            new_outer_joins=features.enable_new_outer_join_lowering,
            variadic_left_joins=features.enable_variadic_left_join_lowering,
        )

    @undisturbed()
    def local(self, query: hir.Query) -> View:
        """A query's locally optimized MIR, with its finishing (ORDER BY, LIMIT, OFFSET) folded into it."""
        lowered = self.lowering()(query)
        relation = lowered.finishing.folded(lowered.relation)
        return View(optimize_local(relation, self.context()), lowered.desc)

    def plain_view(self, gid: GlobalId) -> View | None:
        """A plain view with its plan; None for any other object."""
        builtin = builtins().get(gid)
        if builtin is not None:
            return self.view(gid) if builtin.kind == "view" else None
        item = self._state().items.get(gid)
        return self.view(gid) if isinstance(item, objects.View) else None

    def lookup_view(self, gid: GlobalId) -> Relation | None:
        """A plain view's MIR; None for any other object."""
        view = self.plain_view(gid)
        return None if view is None else view.mir

    def source(self, gid: GlobalId) -> MirSource:
        """The dataflow import of an object. Never monotonic, since rows of tables can be deleted."""
        return MirSource(gid, self.desc(gid).typ)

    def optimize(self, relation: Relation) -> Relation:
        """Optimize a relation locally, without indexes, as a view is."""
        return optimize_local(relation, self.context())

    def evaluate(self, expr: Scalar) -> Datum:
        """The value of an expression without columns.

        Raises:
            SqlError: the evaluation fails.
        """
        (value,) = self._evaluator.evaluate([expr])
        if isinstance(value, EvalError):
            raise failed(value.message)
        return value

    def features(self) -> OptimizerFeatures:
        """The optimizer's switches in force."""
        return self._features()

    def with_features(self, features: OptimizerFeatures, *, views_too: bool) -> Planner:
        """A planner with other switches; ``views_too``: whether to plan views with them as well, or to take this planner's."""
        planner = Planner(
            self._state, self._cache, lambda: features, self.renderings, self.statistics, self.files
        )
        if not views_too:
            planner._views_of = self
        return planner

    def deployed(self, item: objects.Maintained) -> GlobalExpressions:
        """The plan that a deployed object runs with: the cached one, whatever was created or dropped since."""
        self._cache.sync()
        return self._cache.peek(item.id) or self._planned_here(item)

    def taken_up(self, index: objects.Index) -> tuple[SealedDataflow, Outline | None]:
        """A deployed index's plan and outline."""
        return self.deployed(index).as_taken_up()

    def _planned_here(self, item: objects.Maintained) -> GlobalExpressions:
        """The plan of an object that has none in the cache (for one, because another build deployed it), made once."""
        known = self.known(item)
        if known is None:
            known = self._planned[item.id] = self.deploy(item)
            items = self._state().items
            if len(self._planned) > max(_SWEEP_LEAST, len(items)):
                kept = list(self._planned.items())
                self._planned = {gid: one for gid, one in kept if gid in items}
        return known

    def outlined(self, plan: GlobalExpressions) -> GlobalExpressions:
        """The plan with its outline (its inputs and arrangements as rendered), so that the next opening need not render it.

        Raises:
            Unsupported: it cannot be maintained.
        """
        if plan.is_outlined:
            return plan
        return plan.with_outline(self.renderings.of(plan.sealed).outline)

    def known(self, item: objects.Maintained) -> GlobalExpressions | None:
        """The plan that this process has made of an object that has none in the cache; None where it has not."""
        made = self._planned.get(item.id)
        return made if made is not None and self.is_current(item, made) else None

    def outlined_once(self, item: objects.Maintained, plan: GlobalExpressions) -> GlobalExpressions:
        """A plan from `running` with its outline; remembered where the plan is one that this process made."""
        made = self.outlined(plan)
        if self._planned.get(item.id) is plan:
            self._planned[item.id] = made
        return made

    def running(
        self, known: Mapping[GlobalId, GlobalExpressions]
    ) -> Iterator[tuple[objects.Maintained, GlobalExpressions | None]]:
        """The plan that each deployed object runs with: from ``known``, else as `deployed` but decoded only when used. Of those that nobody
        has made yet, `MOST_MADE` are made now, and the others are None.
        """
        items = self._state().maintained
        others = [item.id for item in items if item.id not in known]
        cached: Mapping[GlobalId, GlobalExpressions] = {}
        if others:
            self._cache.sync()
            cached = self._cache.glances(others)
        left = MOST_MADE
        for item in items:
            plan = known.get(item.id) or cached.get(item.id) or self.known(item)
            if plan is None and left:
                plan, left = self._planned_here(item), left - 1
            yield item, plan

    def catalog_without(self, gid: GlobalId) -> SessionCatalog:
        """The catalog in which an object's own definition is planned: without the object itself."""
        return self.catalog(without=gid, stored=True)

    # --- dataflows ----------------------------------------------------------------------------

    def context(
        self,
        *,
        cluster: str | None = None,
        without: frozenset[GlobalId] = frozenset(),
        asked: set[GlobalId] | None = None,
    ) -> OptimizerContext:
        """What the optimizer may use: the indexes of a cluster, the features, the statistics.

        Args:
            cluster: the cluster whose indexes it may use; None: none.
            without: indexes that it must not use.
            asked: collects the objects whose indexes were looked up.
        """
        state = self._state()

        def indexes(gid: GlobalId) -> tuple[IndexDesc, ...]:
            if cluster is None:
                return ()
            if asked is not None:
                asked.add(gid)
            return tuple(
                IndexDesc(i.id, gid, i.key)
                for i in state.indexes_on(gid)
                if i.cluster == cluster and i.id not in without
            )

        features = self._features()
        return OptimizerContext(self._evaluator, indexes, features, statistics=self.statistics)

    def is_stored(self, gid: GlobalId) -> bool:
        """Whether an object is a table or a materialized view, whose rows lie in a shard of its own."""
        return isinstance(self._state().items.get(gid), objects.Stored)

    @undisturbed()
    def dataflow(
        self,
        export: Export,
        relation: Relation | None,
        *,
        cluster: str | None,
        asked: set[GlobalId] | None = None,
    ) -> Planned:
        """Plan a dataflow: inline views, optimize the whole, lower it.

        Args:
            export: what the dataflow puts out.
            relation: the relation to export; None for an index.
            cluster: the cluster whose indexes it may read; None: none.
            asked: collects the objects whose indexes were looked up.
        """
        without = self._not_for(export)
        if isinstance(export, PeekExport):
            assert relation is not None
            context = self.context(cluster=cluster, without=without, asked=asked)
            mir = one_shot_dataflow(relation, self, context, export)
            return Planned(mir, lower(mir, self._features()))
        with remembering():
            while True:
                context = self.context(cluster=cluster, without=without, asked=asked)
                built = build_dataflow(export, relation, self.lookup_view, self.source, context)
                mir = optimize_dataflow(built, context)
                # A one-shot query falls back to the relation where an index holds errors. A maintained dataflow cannot know whether one
                # will, so it is planned again without the indexes whose errors its plan would not read.
                unread = errors_unread(mir, self.lookup_view)
                if not unread:
                    return Planned(mir, lower(mir, self._features()))
                state = self._state()
                without |= {index.id for gid in unread for index in state.indexes_on(gid)}

    def _not_for(self, export: Export) -> frozenset[GlobalId]:
        """The indexes that a dataflow must not read: its own. For an index also later ones on the same relation, which may read it: no
        cycles.
        """
        state, on = self._state(), export.on_id if isinstance(export, IndexExport) else None
        if on is None or export.id not in state.items:
            return frozenset([export.id])
        own = sort_key(export.id)
        return frozenset(i.id for i in state.indexes_on(on) if sort_key(i.id) >= own)

    def deploy(
        self, item: objects.Maintained, relation: Relation | None = None, *, fresh: bool = False
    ) -> GlobalExpressions:
        """The plan of a materialized view or an index: from the expression cache, else made now. A new plan is not written to the cache.

        Args:
            item: the object.
            relation: a materialized view's locally optimized MIR, if known.
            fresh: whether to plan without asking the cache: for an object that is being created.
        """
        features = spell_features(self._features())
        if not fresh:
            cached = self._cache.plan(item.id, features, item.version)
            if cached is not None and self._offers(item, cached):
                return cached
        query = self._definition(item) if isinstance(item, objects.MaterializedView) else None
        if relation is None and query is not None:
            relation = self.local(query).mir
        asked: set[GlobalId] = set()
        planned = self.dataflow(_export_of(item), relation, cluster=item.cluster, asked=asked)
        used = {i.id for i in planned.plan.index_imports} | {
            i.id for i in planned.mir.index_imports
        }
        return GlobalExpressions(
            mir=planned.mir,
            plan=planned.plan,
            index_imports=tuple(sorted(used)),
            features=features,
            version=item.version,
            notices=self._notices(item, planned.mir, query),
            offered=self._offered(item, tuple(sorted(asked))),
        )

    def is_current(self, item: objects.Maintained, plan: GlobalExpressions) -> bool:
        """Whether `deploy` would make this same plan now."""
        made_for = spell_features(self._features()), item.version
        return (plan.features, plan.version) == made_for and self._offers(item, plan)

    def _offers(self, item: objects.Maintained, plan: GlobalExpressions) -> bool:
        """Whether the indexes that exist now are those that the plan was chosen among."""
        if not self._not_for(_export_of(item)).isdisjoint(plan.index_imports):
            return False
        return self._offered(item, plan.offered.on) == plan.offered

    def _offered(self, item: objects.Maintained, asked: tuple[GlobalId, ...]) -> Offered:
        """The indexes on some objects that an object's plan may read."""
        state, without = self._state(), self._not_for(_export_of(item))
        found = (
            index.id
            for gid in asked
            for index in state.indexes_on(gid)
            if index.cluster == item.cluster and index.id not in without
        )
        return Offered(asked, tuple(found))

    def _notices(
        self, item: objects.Maintained, mir: MirDataflow, query: hir.Query | None
    ) -> tuple[StoredNotice, ...]:
        """The optimizer's notices on an object's plan, without duplicates."""
        names = Names(self._state(), self.descriptions, {item.id: item.full_name})
        indexes = self.context(cluster=item.cluster, without=frozenset([item.id])).indexes
        found = NoticeFinder(names, indexes).all_of(mir)
        redacted = NoticeFinder(names, indexes, redacted=True).all_of(mir)
        if query is not None:
            of_query = comparisons_with_null(query)
            found, redacted = [*found, *of_query], [*redacted, *of_query]
        pairs = zip(found, redacted, strict=True)
        return tuple(
            dict.fromkeys(
                StoredNotice(a.kind, a.message, a.hint, b.message, b.hint, a.about)
                for a, b in pairs
            )
        )

    def _definition(self, item: objects.MaterializedView) -> hir.Query:
        (statement,) = parse_statements(item.create_sql)
        plan = plan_statement(statement, self.catalog_without(item.id))
        if not isinstance(plan, ddl_plans.CreateMaterializedViewPlan):
            raise InternalError(f"not the definition of a materialized view: {item.create_sql}")
        return plan.query

    def remember(
        self, item: Item, made: GlobalExpressions | None, local: Relation | None = None
    ) -> None:
        """Write a new object's plans to the cache. A new index also replaces the plans that may use it, from their next start on.

        Args:
            item: the new object.
            made: its plan.
            local: a view's locally optimized MIR.
        """
        features = spell_features(self._features())
        new_local, new_global = {}, {}
        if local is not None:
            new_local[item.id] = LocalExpression(local, features, item.version)
        if made is not None:
            new_global[item.id] = made
        if isinstance(item, objects.Index):
            # Only global plans: local optimization does not look at indexes.
            others = dependents_of_index(self._state(), item.on_id) - {item.id}
            new_global |= self._planned_anew(others)
        self._cache.insert_expressions(new_local, new_global)

    def _planned_anew(self, gids: Iterable[GlobalId]) -> dict[GlobalId, GlobalExpressions]:
        """New plans, for the next start, of those objects that have dataflows; one that cannot be planned is logged and fails then."""
        items, made = self._state().items, {}
        for gid in sorted(gids, key=sort_key):
            item = items.get(gid)
            if not isinstance(item, objects.Maintained):
                continue
            try:
                made[gid] = self.outlined(self.deploy(item, fresh=True))
            except Exception as failure:
                _log.warning("%s could not be planned anew: %s", item.full_name, failure)
        return made

    def remember_all(
        self, made: Mapping[GlobalId, GlobalExpressions], *, running: Set[GlobalId] = frozenset()
    ) -> None:
        """Write the plans that startup had to make, in one write.

        Args:
            made: the plans, by object.
            running: objects that run with their cached plans, those of ``made`` included; other plans are for the next start.
        """
        if made or running:
            self._cache.insert_expressions(new_global=made, running=running)

    def forget(self, gids: set[GlobalId]) -> None:
        """Remove the plans of dropped objects; what was planned with a dropped index is planned again, for its next start."""
        depended = self._cache.invalidate_entries(gids)
        if depended:
            self._cache.insert_expressions(new_global=self._planned_anew(depended))


def _export_of(item: objects.Maintained) -> Export:
    if isinstance(item, objects.Index):
        return IndexExport(item.id, item.on_id, item.key)
    return MaterializedViewExport(item.id)
