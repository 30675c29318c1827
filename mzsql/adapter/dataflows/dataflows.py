"""The dataflows of an environment in this process: installed while it leads, gone when it does not.

Promise: while this process leads, every materialized view and index in the catalog has a dataflow here, whoever created it; plans come
from the expression cache, those that startup had to make are written there in one write. History that nothing needs is released.
While a view filters by ``mz_now()``, time is moved on where nobody writes.
The thread that leads is this room's own and is joined on close; Spark starts when there is a dataflow to run.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.expression_cache import GlobalExpressions
from mzsql.adapter.environment.leader import LEASE_MS, Leadership
from mzsql.adapter.environment.seams import CatalogArrangements, HydrationSink, register_managed
from mzsql.adapter.planning.planner import Planner
from mzsql.catalog.commands.retention import retention
from mzsql.catalog.objects import Maintained, MaterializedView, Replica
from mzsql.catalog.settings import STEP_ENGINE, system_value
from mzsql.catalog.state import CatalogState
from mzsql.compute import ComputeSettings, RefreshStats
from mzsql.compute.engines.spark_session import require_java
from mzsql.compute.replica.controller import ComputeController
from mzsql.render.dataflow import RenderedDataflow, render
from mzsql.repr.errors import Fenced, ObjectInUse, SqlError
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.threads import Backoff, Supervised

_log = logging.getLogger(__name__)

#: How often the leading thread looks at its lease and, where Consensus cannot notify, at the catalog, in seconds.
TICK = 0.5
#: After a pause so long it looks at the catalog whatever it was told, as one that was stopped has been told nothing, in seconds.
PAUSE_SECONDS = LEASE_MS / 4000
#: While there is history to release it is released so often, in seconds.
RELEASE_SECONDS = 15.0
#: How much history of a collection that does not say RETAIN HISTORY is kept for reads in the past, in milliseconds.
RETAIN_MS = 60_000


def _text(failure: Exception) -> str:
    """What to say of a failure; one that is not meant for a person is a bug of ours."""
    if isinstance(failure, SqlError):
        return str(failure)
    return f"internal error: {type(failure).__name__}: {failure}"


def _indexes_first(
    items: Iterable[Maintained], plans: Mapping[GlobalId, GlobalExpressions]
) -> list[Maintained]:
    """The items in an order in which each comes after the indexes that its plan reads, which may be younger than it is."""
    by_id = {item.id: item for item in items}
    ordered: dict[GlobalId, Maintained] = {}

    def visit(item: Maintained, above: frozenset[GlobalId]) -> None:
        for gid in plans[item.id].index_imports:
            if gid in by_id and gid not in ordered and gid not in above:
                visit(by_id[gid], above | {gid})
        ordered.setdefault(item.id, item)

    for item in by_id.values():
        visit(item, frozenset({item.id}))
    return list(ordered.values())


_RETIRE_SECONDS = 60.0
"""Shards of dropped objects that somebody still reads are looked after so often."""


class Dataflows:
    """Leads where it may, and maintains. Thread-safe.

    Args:
        env: the environment.
        planner: plans what is to run.
        spark: makes the Spark session; called when the first dataflow is installed.
        lead: whether to try to lead at all.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        spark: Callable[[], SparkSession] | None,
        *,
        lead: bool,
    ) -> None:
        self._env = env
        self._planner = planner
        self._spark = spark
        self._lock = threading.RLock()
        # By the replica that each is: the oldest of every cluster that has dataflows.
        self._controllers: dict[str, ComputeController] = {}
        self._placed: dict[GlobalId, str] = {}
        self._rendered: Mapping[GlobalId, RenderedDataflow] = {}
        self._sizes: dict[str, int] = {}
        self._prepared: set[GlobalId] = set()
        self._installed: dict[GlobalId, GlobalExpressions | None] = {}
        self._failures: dict[GlobalId, str] = {}
        self._leadership = Leadership(env.catalog, env.clock, generation=env.generation)
        self._leads = False
        self._retired = True
        self._retire_at = 0.0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self.fenced: Fenced | None = None
        self._thread: Supervised | None = None
        self._may_lead = lead and (env.awaits_promotion or not env.read_only)
        self._follows = lead
        self._stale = threading.Event()
        self._notified = False
        self._release_at = 0.0
        # The log's upper when history was released last, and whether that is to be done once more.
        self._released: tuple[Timestamp, bool] = (-1, True)
        if self._follows:
            if self._may_lead and self._has_dataflows(env.catalog.state):
                self._begin()
            # One that never leads needs no news; it only gives up history of its own.
            self._notified = not self._may_lead or env.follow_catalog(self._changed)
            # However it fails, the lease is renewed in time: it never rests for longer than between two looks.
            self._thread = env.supervisor.start(
                "leader",
                self._run,
                thread_name="mzsql-leader",
                backoff=Backoff(TICK / 4, TICK),
                for_good=(Fenced,),
            )

    # --- leading ------------------------------------------------------------------------------

    @staticmethod
    def _has_dataflows(state: CatalogState) -> bool:
        return bool(state.maintained)

    @property
    def leads(self) -> bool:
        """Whether this process runs the controllers."""
        return self._leads

    @property
    def controllers(self) -> tuple[ComputeController, ...]:
        """The compute controllers, while this process leads and has dataflows: one for each cluster that has some."""
        return tuple(self._controllers.values())

    def _changed(self) -> None:
        """Another process may have changed the catalog."""
        self._stale.set()
        self._wake.set()

    def _begin(self) -> None:
        """The first look, before anything is read; a bug that it meets is the thread's to meet again, and no reason not to open."""
        try:
            self.tick()
        except SqlError:
            raise
        except Exception as bug:
            _log.info("the first look at the dataflows has failed: %s", _text(bug), exc_info=bug)

    def _run(self, thread: Supervised) -> None:
        clock = self._env.clock
        ticked = clock.monotonic()
        # Of a look that failed it is not known how far it came.
        again = thread.status.status != "running"
        while not self._stop.is_set():
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

    def tick(self, *, fetch: bool = True) -> None:
        """Take or renew the lease where dataflows need one, and bring what is installed in line with the catalog.

        Args:
            fetch: whether to look for what other processes did to the catalog.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        with self._lock:
            if fetch:
                self._stale.clear()
            state = self._env.sync() if fetch else self._env.seen()
            try:
                self._lead(state)
                if self._leads and any(c.temporal for c in self._controllers.values()):
                    self._env.pass_time()
                self._release_history()
            except Fenced:
                if self._env.fenced:
                    raise
                # Another process has taken the holds over, as whoever leads does.
                self._resign()

    def _prepare(self, state: CatalogState) -> None:
        """Plan all dataflows ahead of a promotion, so that it need not wait for that; the expression cache keeps the plans of each build
        apart.
        """
        self._prepared &= state.items.keys()
        missing = [item for item in state.maintained if item.id not in self._prepared]
        made: dict[GlobalId, GlobalExpressions] = {}
        for item in missing:
            self._prepared.add(item.id)
            try:
                made[item.id] = self._planner.deploy(item)
            except Exception as failure:
                # It is planned again, and said by its reads, once this process leads.
                _log.warning(
                    "%s cannot be run by this deployment: %s", item.full_name, _text(failure)
                )
        self._planner.remember_all(made, runs=False)

    def _lead(self, state: CatalogState) -> None:
        if self._env.awaits_promotion:
            self._prepare(state)
        if self._env.read_only or not (self._leads or self._has_dataflows(state)):
            return
        leads = self._leadership.hold(state)
        if leads and not self._leads:
            self._take_over()
        elif not leads and self._leads:
            self._resign()
        if self._leads:
            self._reconcile(self._env.seen())
            self._retire()

    def _take_over(self) -> None:
        self._retired = False
        self._env.collections.own_holds()
        register_managed(self._env)
        self._leads = True

    def _resign(self) -> None:
        with self._lock:
            self._leads = False
            self._env.collections.disown_holds()
            controllers, self._controllers = self._controllers, {}
            self._installed.clear()
            self._placed.clear()
        for controller in controllers.values():
            controller.close()

    def _release_history(self) -> None:
        """Release history every now and then while something is written, and once more when dataflows have had time to let go."""
        upper = self._env.wal.state.upper
        now = self._env.clock.monotonic()
        at, again = self._released
        if now < self._release_at or (at == upper and not again) or self._env.oracle.due:
            return
        read_ts = self._env.oracle.read_ts()
        retained = {
            gid: max(0, read_ts - ms)
            for gid, ms in retention(self._env.catalog.state, RETAIN_MS).items()
        }
        self._env.collections.release_history(max(0, read_ts - RETAIN_MS), retained)
        self._release_at = now + RELEASE_SECONDS
        self._released = (upper, at != upper)

    # --- installing ---------------------------------------------------------------------------

    def _reconcile(self, state: CatalogState) -> None:
        wanted = {
            item.id: item for item in state.maintained if state.serving(item.cluster) is not None
        }
        self._give_up_replicas(state)
        for gid in [g for g in self._installed if not self._stays(g, wanted.get(g), state)]:
            del self._installed[gid]
            self._failures.pop(gid, None)
            controller = self._controllers.get(self._placed.pop(gid, ""))
            if controller is not None:
                controller.drop(gid)
        missing = [item for gid, item in wanted.items() if gid not in self._installed]
        if not missing:
            return
        made: dict[GlobalId, GlobalExpressions] = {}
        for item in missing:
            try:
                made[item.id] = self._planner.deploy(item)
                if not state.items.keys() >= set(made[item.id].index_imports):
                    # An index was dropped that was kept for it where it ran until now.
                    made[item.id] = self._planner.deploy(item, fresh=True)
            except Exception as failure:
                self._failed(item, failure)
        for item in _indexes_first([i for i in missing if i.id in made], made):
            self._install(item, made[item.id])
        self._planner.remember_all(made, runs=True)

    def _stays(self, gid: GlobalId, item: Maintained | None, state: CatalogState) -> bool:
        """Whether what is installed is so where it belongs."""
        if item is None:
            return False
        serving = state.serving(item.cluster)
        return serving is not None and self._placed.get(gid, serving.id) == serving.id

    def _give_up_replicas(self, state: CatalogState) -> None:
        """Close the controllers of replicas that are gone, or have another size; what ran there is installed where it now belongs."""
        for replica_id in list(self._controllers):
            replica = state.replicas.get(replica_id)
            as_it_was = replica is not None and replica.workers == self._sizes[replica_id]
            if as_it_was:
                continue
            for gid in [g for g, at in self._placed.items() if at == replica_id]:
                del self._placed[gid]
                self._installed.pop(gid, None)
                self._failures.pop(gid, None)
            self._controllers.pop(replica_id).close()
            if replica is None:
                HydrationSink(self._env.manager, self._env.clock.monotonic).delete_replica(
                    replica_id
                )
            self._retired = False

    def _retire(self) -> None:
        """Arrangements that nobody uses are given up: after taking over, when replicas are gone, and where some were still read."""
        now = self._env.clock.monotonic()
        if self._retired and (now < self._retire_at or not self._leave()):
            return
        for controller in self._controllers.values():
            if any(status.state == "waiting" for status in controller.status()):
                return
        try:
            for controller in self._controllers.values():
                controller.retire_unused()
        except ObjectInUse:
            return  # a dataflow has still to open what it may reuse; the next tick tries again
        if now < self._retire_at:
            return
        self._retired = CatalogArrangements(self._env.catalog).retire(self._env.persist)
        # What somebody still reads ends by itself; what is left of it then is looked for now and then.
        self._retire_at = now + _RETIRE_SECONDS

    def _leave(self) -> bool:
        """Whether a replica has given up what somebody still reads."""
        return any(controller.left for controller in self._controllers.values())

    def _failed(self, item: Maintained, failure: Exception) -> None:
        """One object that cannot run, be it by a bug, must not keep the others from running; its reads say why."""
        self._failures[item.id] = _text(failure)
        bug = None if isinstance(failure, SqlError) else failure
        _log.warning("%s cannot be run: %s", item.full_name, _text(failure), exc_info=bug)
        self._installed.setdefault(item.id, None)

    def _install(self, item: Maintained, expressions: GlobalExpressions) -> None:
        self._installed[item.id] = expressions
        replica = self._env.catalog.state.serving(item.cluster)
        if replica is None:
            # Dropped since: the next look at the catalog finds it so.
            self._installed.pop(item.id)
            return
        self._placed[item.id] = replica.id
        try:
            self._controller_of(replica).create_dataflow(
                item.id,
                expressions.plan,
                output_shard=item.shard if isinstance(item, MaterializedView) else None,
                as_of=item.as_of,
                name=f"{item.schema}.{item.name}",
                rendered=self._rendered.get(item.id),
            )
        except Exception as failure:
            self._failed(item, failure)
        else:
            self._failures.pop(item.id, None)

    def _controller_of(self, replica: Replica) -> ComputeController:
        found = self._controllers.get(replica.id)
        if found is None:
            assert self._spark is not None
            env = self._env
            found = ComputeController(
                env.persist,
                self._spark,
                env.collections,
                CatalogArrangements(env.catalog),
                HydrationSink(env.manager, env.clock.monotonic),
                replica_id=replica.id,
                settings=ComputeSettings(
                    workers=replica.workers,
                    build=env.build,
                    step_engine=self._step_engine,
                ),
                clock=env.clock,
            )
            self._controllers[replica.id] = found
            self._sizes[replica.id] = replica.workers
        return found

    def _step_engine(self) -> str:
        return system_value(self._env.catalog.state.settings, STEP_ENGINE)

    def require_spark(self) -> None:
        """Check, before a dataflow is promised, that this process could run it if it came to that.

        Raises:
            EnvironmentRefused: Spark would have to be started here, and there is no Java for it.
        """
        if (
            self._step_engine() != "duckdb"
            and self._may_lead
            and self._spark is not None
            and SparkContext._active_spark_context is None
        ):
            require_java()

    def catch_up(self, rendered: Mapping[GlobalId, RenderedDataflow] | None = None) -> None:
        """Bring this process in line with a DDL statement that it has just made.

        Args:
            rendered: what the statement has rendered already, by object.
        """
        if not self._may_lead:
            return
        with self._lock:
            self._rendered = rendered or {}
            try:
                self.tick()
            finally:
                self._rendered = {}

    def deployed(self, gid: GlobalId) -> GlobalExpressions | None:
        """The plan that runs here for an object, whatever indexes came or went since."""
        return self._installed.get(gid)

    def failure(self, gid: GlobalId) -> str | None:
        """Why an object's dataflow could not be installed, or failed when it ran last, if it did."""
        if self._thread is not None and self._thread.failed:
            return f"the thread that maintains dataflows has ended: {self._thread.status.error}"
        controller = self._controllers.get(self._placed.get(gid, ""))
        if gid in self._failures or controller is None:
            return self._failures.get(gid)
        return next((one.error for one in controller.status() if one.object_id == gid), None)

    def refreshes(self) -> Iterable[RefreshStats]:
        """The latest refreshes."""
        return [one for each in tuple(self._controllers.values()) for one in each.refreshes()]

    def arrangements(self) -> Iterable[tuple[str, int, str, str, int, int]]:
        """Object, node, replica, shard, updates and bytes of each arrangement of the dataflows that run, whoever maintains them."""
        state = self._env.catalog.state
        registered = [
            (name.split("/", 2), shard) for name, shard in sorted(state.arrangements.items())
        ]
        for item in state.maintained:
            gid = item.id
            expressions = self._installed.get(gid) or self._planner.deployed(item)
            kept = {s.fingerprint: s.lir_id for s in render(expressions.plan).arrangements}
            for (replica, fingerprint, *_), shard in registered:
                lir_id = kept.get(fingerprint)
                if fingerprint.startswith(f"index {gid} "):
                    lir_id = expressions.plan.root.plan.lir_id
                if lir_id is not None:
                    yield gid, lir_id, replica, shard, *self._size(shard)

    def _size(self, shard: str) -> tuple[int, int]:
        reader = self._env.persist.open_reader(shard, purpose="size of an arrangement")
        try:
            upper = reader.fetch_upper()
            parts = reader.parts(upper - 1) if upper else []
            return sum(p.rows for p in parts), sum(p.bytes for p in parts)
        finally:
            reader.expire()

    def close(self) -> None:
        """Stop the controllers and give the lease back. Idempotent."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.stop()
            self._thread.join()
        close_all((self._resign, self._give_back), self._env.clock)

    def _give_back(self) -> None:
        if self._may_lead:
            # What a newer deployment has fenced has nothing to give back.
            with contextlib.suppress(Fenced):
                self._leadership.release()
