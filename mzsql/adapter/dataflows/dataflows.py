"""The environment's dataflows in this process: installed while it leads, stopped when it does not.

Promise: while this process leads, every materialized view and index in the catalog has a dataflow, whoever created it. Plans come from the
expression cache; those that startup had to make are written there in one write. While many are installed, Python's cycle collector does
not start, for `UNDISTURBED_SECONDS` at most. Read holds on history that nothing needs are released.
While a view filters by ``mz_now()``, or a refresh is due, time advances even where nobody writes. The leading thread is joined on close;
Spark starts with the first dataflow. The trade-off: one thread does all of this, so the dataflows' order needs no locks between leaders.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pyspark import SparkContext
from pyspark.sql import SparkSession

from mzsql.adapter.dataflows.connections import Connections, InProcess
from mzsql.adapter.dataflows.due_refreshes import DueRefreshes
from mzsql.adapter.dataflows.history import HistoryRelease
from mzsql.adapter.dataflows.lag import LagHistory
from mzsql.adapter.dataflows.metrics_history import MetricsHistory
from mzsql.adapter.dataflows.order import in_order
from mzsql.adapter.dataflows.preflight import Preflight, Unreported
from mzsql.adapter.dataflows.replica_history import ReplicaHistory
from mzsql.adapter.dataflows.replica_reports import ReplicaReports
from mzsql.adapter.dataflows.scheduled_clusters import ScheduledClusters
from mzsql.adapter.dataflows.storage_history import StorageHistory
from mzsql.adapter.environment.arrangement_registry import CatalogArrangements
from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.dropped import remove_orphaned
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import LEASE_MS, Leadership, runs_within
from mzsql.adapter.environment.status_collections import StatusCollections, register_managed
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.process import PlansAhead
from mzsql.catalog.objects import Maintained
from mzsql.catalog.settings import INTROSPECTION, STEP_ENGINE, system_value
from mzsql.catalog.state import CatalogState
from mzsql.compute.controller.controller import ComputeController
from mzsql.compute.dependencies import ArrangementRegistry, ExportLog
from mzsql.compute.engines.spark_session import require_java
from mzsql.repr.errors import Fenced
from mzsql.repr.garbage import undisturbed
from mzsql.repr.ids import GlobalId
from mzsql.threads import Backoff, Supervised

_log = logging.getLogger(__name__)

#: Seconds between two looks of the leading thread at its lease and, where Consensus cannot notify, at the catalog.
TICK = 0.5
#: At most so many dataflows are installed before the thread looks at the catalog again and other threads get the lock.
AT_ONCE = 64
#: While more than `AT_ONCE` are installed garbage is not looked for: what is made for each stays. For so many seconds at most.
UNDISTURBED_SECONDS = 10.0
#: After a pause of so many seconds the thread reads the catalog without a notification: a process that was suspended may have missed some.
PAUSE_SECONDS = LEASE_MS / 4000
#: The longest pause, in seconds, before commands that a replica has not confirmed are sent again.
_AGAIN_SECONDS = 30.0
#: Seconds that a DDL statement waits at most for replicas to confirm the commands that follow from it.
SETTLE_SECONDS = 60.0
_RETIRE_SECONDS = 60.0
"""Seconds between two attempts to retire shards of dropped objects that somebody still reads."""


class Dataflows:
    """Leads where it may, and maintains the dataflows. Thread-safe.

    Args:
        env: the environment.
        planner: plans the dataflows.
        spark: creates the Spark session; called when the first dataflow is installed.
        lead: whether to try to lead at all.
        reconcile_cache: removes stale entries from the expression cache, after a promotion.

    Attributes:
        replicas: says how the replicas are.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        spark: Callable[[], SparkSession] | None,
        *,
        lead: bool,
        reconcile_cache: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._reconcile_cache = reconcile_cache
        self._planner = planner
        self._spark = spark
        self._lock = threading.RLock()
        self._leadership = Leadership(
            env.catalog, env.clock, generation=env.generation, build=env.build
        )
        here = CatalogArrangements(env.catalog, partial(runs_within, self._leadership.token))
        self._connections = Connections(env, self._here(here, env.exports))
        self._controller = ComputeController(
            self._connections,
            env.collections,
            StatusCollections(env.manager, env.clock.monotonic, env.oracle.present_ms),
            present=lambda: env.wal.state.upper - 1,
            monotonic=env.clock.monotonic,
            transient_ids=env.transient_ids,
        )
        self._lag = LagHistory(env)
        self._storage = StorageHistory(env)
        self.replicas = ReplicaReports(env, self._controller)
        self._metrics = MetricsHistory(env, self.replicas.usage)
        self._replica_history = ReplicaHistory(env, self._controller.offline)
        self._refreshing = DueRefreshes(env)
        self._scheduled = ScheduledClusters(env)
        self._deployed: dict[GlobalId, GlobalExpressions] = {}
        # Objects without a dataflow yet, as of the parts of the catalog in `_reconciled`; new plans not yet written to the cache.
        self._missing: dict[GlobalId, Maintained] = {}
        self._reconciled: tuple[object, ...] = ()
        self._pause = self._again_at = 0.0
        self._unwritten: dict[GlobalId, GlobalExpressions] = {}
        self._took_up: set[GlobalId] = set()
        self._more = self._looked = False
        # The pause of garbage collection while many dataflows are installed, and when it began; None: there was none since all were.
        self._undisturbed = contextlib.ExitStack()
        self._undisturbed_at: float | None = None
        self._ahead = PlansAhead(env.cache.lacking, planner.features)
        self._leads = False
        # The count of dropped replicas at the last retirement of their shards; -1 when none was done since this process leads.
        self._retired = 0
        self._retire_at = 0.0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self.fenced: Fenced | None = None
        self._thread: Supervised | None = None
        self._beside: Preflight | None = None
        if lead and env.awaits_promotion:
            controller = ComputeController(
                self._here(env.preparations, None),
                env.collections,
                Unreported(),
                present=lambda: env.wal.state.upper - 1,
                read_only=True,
            )
            self._beside = Preflight(env, planner, controller)
        self._may_lead = lead and (env.awaits_promotion or not env.read_only)
        self._follows = lead
        self._stale = threading.Event()
        self._notified = False
        self._history = HistoryRelease(env)
        if self._follows:
            if not (self._may_lead and env.catalog.state.maintained):
                env.startup.completed()
            # Whoever opens an environment does not wait for its dataflows: the thread takes them up at once.
            self._wake.set()
            # A process that never leads only releases its own holds and needs no notifications.
            self._notified = not self._may_lead or env.follow_catalog(self._changed)
            # The pause after a failure is never longer than TICK, so that the lease is renewed in time however often the thread fails.
            self._thread = env.supervisor.start(
                "leader",
                self._run,
                thread_name="mzsql-leader",
                backoff=Backoff(TICK / 4, TICK),
                for_good=(Fenced,),
            )

    # --- leading ------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this process runs the controllers."""
        return self._leads

    @property
    def controller(self) -> ComputeController:
        """The compute controller; it has replicas while this process leads and there are dataflows."""
        return self._controller

    def _changed(self) -> None:
        """Another process may have changed the catalog."""
        self._stale.set()
        self._wake.set()

    def _here(self, registry: ArrangementRegistry, exports: ExportLog | None) -> InProcess:
        return InProcess(self._env, self._spark, self._planner.renderings, registry, exports)

    def _run(self, thread: Supervised) -> None:
        clock = self._env.clock
        ticked = clock.monotonic()
        # After a failure it is unknown how far the last look came, so read the catalog again.
        again = thread.status.status != "running"
        while not self._stop.is_set():
            if not (self._missing or self._more):
                self._wake.wait(TICK)
            self._wake.clear()
            if self._stop.is_set():
                return
            paused = clock.monotonic() - ticked > PAUSE_SECONDS
            ticked = clock.monotonic()
            try:
                self.tick(fetch=again or paused or not self._notified or self._stale.is_set())
            except Fenced as fenced:
                self.fenced = fenced
                self._resign()
                raise
            again = False
            thread.well()

    def tick(self, *, fetch: bool = True, first: Iterable[GlobalId] = ()) -> None:
        """Take or renew the lease where there are dataflows, and reconcile what is installed with the catalog. A call installs at most
        `AT_ONCE`.

        Args:
            fetch: whether to read the catalog's shard for changes of other processes.
            first: objects to install in this call if they are not yet.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        with self._lock:
            self._looked = True
            if fetch:
                self._stale.clear()
            state = self._env.sync() if fetch else self._env.seen()
            try:
                self._lead(state, first)
                if self._leads and (self._controller.temporal or self._refreshing.due(state)):
                    self._env.pass_time()
                if self._leads:
                    self._scheduled.look(state)
                    self._lag.look(self._controller.status)
                    self._storage.look(state)
                    self._metrics.look(state)
                    self._replica_history.look(
                        self._env.catalog.state.replicas.values(), self._controller.commanded
                    )
                self._history.look()
            except Fenced:
                if self._env.fenced:
                    raise
                # Another leader took the critical holds over, so this process leads no more; only a higher deploy generation is an error.
                self._resign()

    def _lead(self, state: CatalogState, first: Iterable[GlobalId]) -> None:
        if self._beside is not None:
            if self._env.awaits_promotion:
                self._more = self._beside.look(state, step_engine=self.step_engine())
            else:
                self._more = False
                self._beside.stop()
                self._beside = None
                self._reconcile_cache()
        if self._env.read_only or not (self._leads or state.maintained):
            if not self._more:
                self._env.startup.completed()
            return
        leads = self._leadership.hold(state)
        if leads and not self._leads:
            self._take_over()
        elif not leads and self._leads:
            self._resign()
        if self._leads:
            self._reconcile(self._env.seen(), first)
            self._retire()
        else:
            self._env.startup.completed()

    def _take_over(self) -> None:
        self._retired = -1
        # Before any dataflow is installed: what was hydrated ahead of the promotion is then found as arrangements to go on from.
        self._env.preparations.take_over(self._env.generation)
        self._env.collections.own_holds()
        register_managed(self._env)
        self._lag.begin()
        self._storage.begin()
        self._metrics.begin()
        self._replica_history.begin()
        # The catalog's step only grows, so a later leader has a higher epoch, and replicas refuse commands of a lower one.
        self._connections.epoch = self._env.catalog.step
        self._leads = self.replicas.leads = True

    def _resign(self) -> None:
        with self._lock:
            self._leads = self.replicas.leads = False
            self._metrics.end()
            self._disturb()
            self._env.collections.disown_holds()
            self._deployed.clear()
            self._reconciled = ()
            self._missing = {}
        try:
            self._controller.stop()
        finally:
            # The new leader plans what is missing.
            self._ahead.close()

    # --- installing ---------------------------------------------------------------------------

    def _reconcile(self, state: CatalogState, first: Iterable[GlobalId]) -> None:
        engine = self.step_engine()
        # A new catalog state shares its unchanged parts with the old one, so `_same` compares identities and costs nothing.
        introspect = self.introspects()
        seen = (*_wanted(state), engine, introspect)
        now = self._env.clock.monotonic()
        again = not self._controller.heard and now >= self._again_at
        if again or not _same(seen, self._reconciled):
            missing = self._controller.reconcile(state, step_engine=engine, introspect=introspect)
            self._missing = {item.id: item for item in missing}
            self._deployed = {
                g: e for g, e in self._deployed.items() if g in self._controller.installed
            }
            self._reconciled = seen
            # Send commands again that a replica has not confirmed, after growing pauses.
            self._pause = min(2 * self._pause, _AGAIN_SECONDS) if again else TICK
            self._again_at = now + self._pause
        if self._missing:
            self._undisturb()
            self._env.startup.wanted = len(self._missing) + len(self._controller.installed)
            self._install(state, first)
        if not self._missing:
            self._disturb()
            self._ahead.close()
            self._write_plans()
            self._controller.maintain(self._knows_all)
            self._env.startup.completed()

    def _undisturb(self) -> None:
        """Begin the pause of garbage collection where many dataflows are missing, or end it where it has lasted long."""
        now = self._env.clock.monotonic()
        if self._undisturbed_at is None:
            if len(self._missing) > AT_ONCE:
                self._undisturbed_at = now
                self._undisturbed.enter_context(undisturbed())
        elif now - self._undisturbed_at > UNDISTURBED_SECONDS:
            self._undisturbed.close()

    def _disturb(self) -> None:
        self._undisturbed.close()
        self._undisturbed_at = None

    def _knows_all(self) -> bool:
        """Whether this process leads, and every dataflow that is wanted is installed, by the catalog as it is now. Reads that.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        state = self._env.sync()
        knows = _same(_wanted(state), self._reconciled[: len(_wanted(state))])
        if not (knows and self._leadership.is_held(state)):
            self._wake.set()
            return False
        return True

    def _install(self, state: CatalogState, first: Iterable[GlobalId]) -> None:
        """Install the next dataflows that are missing."""
        startup = self._env.startup
        self._ahead.look(state, self._missing)
        batch: dict[GlobalId, Maintained] = {}
        wanted = (*first, *self._env.collections.awaited())
        for item in in_order(self._missing, state.items, wanted):
            batch[item.id] = item
            if len(batch) >= AT_ONCE:
                break
        with startup.phase("plans", len(batch)):
            made = self._plans(batch)
        self._deployed |= made
        plans = {gid: expressions.sealed for gid, expressions in made.items()}
        outlines = {gid: outline for gid, one in made.items() if (outline := one.outline)}
        with startup.phase("taking up", len(plans)):
            self._controller.install(batch.values(), plans, state, outlines)
        for gid in batch:
            self._missing.pop(gid, None)

    def _plans(self, batch: dict[GlobalId, Maintained]) -> dict[GlobalId, GlobalExpressions]:
        """The plans of a batch. Indexes that they import and that are missing are added to the batch: a dataflow needs its imports
        installed.
        """
        made: dict[GlobalId, GlobalExpressions] = {}
        waiting = list(batch.values())
        while waiting:
            item = waiting.pop()
            try:
                made[item.id] = found = self._plan(item)
            except Exception as failure:
                self._controller.cannot_run(item, failure)
                continue
            for index in found.index_imports:
                if index in self._missing and index not in batch:
                    batch[index] = self._missing[index]
                    waiting.append(batch[index])
        return made

    def _plan(self, item: Maintained) -> GlobalExpressions:
        """The plan of a missing dataflow: from a planning process, from the expression cache, or made here."""
        began = self._env.clock.monotonic()
        ahead = self._ahead.take(item.id)
        found = ahead or self._planner.deploy(item)
        items = self._env.catalog.state.items
        if not all(index in items for index in found.index_imports):
            # The cached plan imports an index that was dropped, and was only kept for the dataflow that ran until now: plan without it.
            found = self._planner.deploy(item, fresh=True)
        elif found.outline is not None and ahead is None:
            self._took_up.add(item.id)
            return found
        found = self._unwritten[item.id] = self._planner.outlined(found)
        spent = self._env.clock.monotonic() - began
        self._env.startup.spent("optimization", began, spent, 1)
        return found

    def _write_plans(self) -> None:
        """Write the plans that had to be made, in one write; the dataflows installed since the last call run with their cached plans."""
        made, self._unwritten = self._unwritten, {}
        running, self._took_up = self._took_up, set()
        if made or running:
            self._planner.remember_all(made, running={*made, *running})

    def _retire(self) -> None:
        """Retire the shards that dropped objects and replicas left, once every installed dataflow has found the arrangements that it
        reuses.
        """
        gone = self._controller.replicas_gone
        now = self._env.clock.monotonic()
        if self._retired == gone or now < self._retire_at or self._missing:
            return
        if self._controller.waiting:
            return
        waiting = remove_orphaned(self._env)
        if CatalogArrangements(self._env.catalog).retire(self._env.persist) and not waiting:
            self._retired = gone
        env = self._env
        env.local.clear(env.catalog.state.replicas, env.clock.now_ms() / 1000)
        # A shard that somebody still reads is retired later, so try again after a while.
        self._retire_at = now + _RETIRE_SECONDS

    def step_engine(self) -> str:
        """The engine for dataflow steps and large queries: ``auto``, ``spark`` or ``duckdb``."""
        return system_value(self._env.catalog.state.settings, STEP_ENGINE)

    def introspects(self) -> bool:
        """Whether replicas are to report introspection rows."""
        settings = self._env.catalog.state.settings
        return system_value(settings, INTROSPECTION) == "on"

    def require_spark(self) -> None:
        """Check that Java is there where this process would have to start Spark for a dataflow.

        Raises:
            EnvironmentRefused: no Java is installed.
        """
        if (
            self.step_engine() != "duckdb"
            and self._may_lead
            and self._spark is not None
            and SparkContext._active_spark_context is None
        ):
            require_java()

    def begin(self) -> None:
        """Look for the first time, where the thread has not yet: before this process changes what exists, so that what was there goes on
        with the plans that it ran with, and before it tells what runs.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        with self._lock:
            if self._may_lead and not self._looked:
                self.tick()

    def catch_up(self, first: Iterable[GlobalId] = ()) -> None:
        """Install what a DDL statement of this process has just created (``first``), and wait until replicas have confirmed it."""
        if not self._may_lead:
            return
        self.tick(first=first)
        self._controller.settle(SETTLE_SECONDS)

    def deployed(self, gid: GlobalId) -> GlobalExpressions | None:
        """The plan that this process runs for an object, whatever indexes were created or dropped since; None where it runs none.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        self.begin()
        return self._deployed.get(gid)

    @property
    def plans(self) -> Mapping[GlobalId, GlobalExpressions]:
        """The plans that run here, by object."""
        return self._deployed

    def failure(self, gid: GlobalId) -> str | None:
        """Why an object's dataflow could not be installed, or failed in its last step; None where neither is so."""
        if self._thread is not None and self._thread.failed:
            return f"the thread that maintains dataflows has ended: {self._thread.status.error}"
        return self._controller.failure(gid)

    def close(self) -> None:
        """Stop the controllers and give the lease back. Idempotent."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.stop()
            self._thread.join()
        steps = (
            self._ahead.close,
            self._metrics.close,
            self._stop_preparing,
            self._resign,
            self._give_back,
        )
        close_all(steps, self._env.clock)

    def _stop_preparing(self) -> None:
        if self._beside is not None:
            self._beside.stop()
            self._env.preparations.released()

    def _give_back(self) -> None:
        if self._may_lead:
            # A fenced process has no lease to give back.
            with contextlib.suppress(Fenced):
                self._leadership.release()


def _wanted(state: CatalogState) -> tuple[object, ...]:
    """The parts of the catalog that say which dataflows are wanted where."""
    return state.items, state.clusters, state.replicas


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether two tuples hold identical objects."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
