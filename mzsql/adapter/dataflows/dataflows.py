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
from collections.abc import Callable, Iterable

from pyspark import SparkContext
from pyspark.sql import SparkSession

from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.expression_cache import GlobalExpressions
from mzsql.adapter.environment.leader import LEASE_MS, Leadership, seems_alive
from mzsql.adapter.environment.seams import CatalogArrangements, HydrationSink, register_managed
from mzsql.adapter.planning.planner import Planner
from mzsql.catalog.commands.retention import retention
from mzsql.catalog.objects import Maintained
from mzsql.catalog.settings import STEP_ENGINE, system_value
from mzsql.catalog.state import CatalogState
from mzsql.compute.controller.controller import ComputeController, told
from mzsql.compute.engines.spark_session import require_java
from mzsql.compute.protocol import CreateInstance, RefreshStats, ReplicaLink, Respond
from mzsql.compute.replica.dataflow import Renderings
from mzsql.compute.replica.replica import Replica
from mzsql.render.dataflow import render
from mzsql.repr.errors import Fenced, SqlError
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
#: … or as much more seldom as it takes for all collections' to be no more than so many writes a second.
RELEASE_WRITES = 50
#: A DDL statement waits so long for replicas to take what follows from it, in seconds.
SETTLE_SECONDS = 60.0
#: How much history of a collection that does not say RETAIN HISTORY is kept for reads in the past, in milliseconds.
RETAIN_MS = 60_000


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
        self.renderings = Renderings(env.collections)
        self._controller = ComputeController(
            self._connect,
            env.collections,
            HydrationSink(env.manager, env.clock.monotonic),
            build=env.build,
        )
        self._prepared: set[GlobalId] = set()
        self._deployed: dict[GlobalId, GlobalExpressions] = {}
        self._leadership = Leadership(env.catalog, env.clock, generation=env.generation)
        self._leads = False
        # How many replicas were gone when what they have left was given up last; none of it was since this process leads.
        self._retired = 0
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
    def controller(self) -> ComputeController:
        """The compute controller, which has replicas while this process leads and there are dataflows."""
        return self._controller

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
            _log.info("the first look at the dataflows has failed: %s", told(bug), exc_info=bug)

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
                if self._leads and self._controller.temporal:
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
                    "%s cannot be run by this deployment: %s", item.full_name, told(failure)
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
        self._retired = -1
        self._env.collections.own_holds()
        register_managed(self._env)
        self._leads = True

    def _resign(self) -> None:
        with self._lock:
            self._leads = False
            self._env.collections.disown_holds()
            self._deployed.clear()
        self._controller.stop()

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
        self._env.exports.keep_up()
        # Each may take two writes.
        pause = 2 * len(self._env.collections.ids()) / RELEASE_WRITES
        self._release_at = now + max(RELEASE_SECONDS, pause)
        self._released = (upper, at != upper)

    # --- installing ---------------------------------------------------------------------------

    def _reconcile(self, state: CatalogState) -> None:
        missing = self._controller.reconcile(state, step_engine=self.step_engine())
        if missing:
            self._install(missing, state)
        self._deployed = {
            g: e for g, e in self._deployed.items() if g in self._controller.installed
        }
        self._controller.maintain()

    def _install(self, missing: list[Maintained], state: CatalogState) -> None:
        made: dict[GlobalId, GlobalExpressions] = {}
        for item in missing:
            try:
                made[item.id] = self._planner.deploy(item)
                if not state.items.keys() >= set(made[item.id].index_imports):
                    # An index was dropped that was kept for it where it ran until now.
                    made[item.id] = self._planner.deploy(item, fresh=True)
            except Exception as failure:
                self._controller.cannot_run(item, failure)
        self._deployed |= made
        plans = {gid: expressions.plan for gid, expressions in made.items()}
        self._controller.install(missing, plans, self._env.catalog.state)
        self._planner.remember_all(made, runs=True)

    def _retire(self) -> None:
        """After taking over, and when replicas are gone: what they have left is given up, once all that runs has found what it reuses."""
        gone = self._controller.replicas_gone
        if self._retired == gone or any(s.state == "waiting" for s in self._controller.status()):
            return
        now = self._env.clock.monotonic()
        if now < self._retire_at:
            return
        if CatalogArrangements(self._env.catalog).retire(self._env.persist):
            self._retired = gone
        # What somebody still reads ends by itself; what is left of it then is looked for now and then.
        self._retire_at = now + _RETIRE_SECONDS

    def _connect(self, first: CreateInstance, respond: Respond) -> ReplicaLink:
        assert self._spark is not None
        env = self._env
        return Replica(
            first,
            respond,
            persist=env.persist,
            spark=self._spark,
            storage=env.collections,
            registry=CatalogArrangements(env.catalog),
            renderings=self.renderings,
            clock=env.clock,
            exports=env.exports,
        )

    def step_engine(self) -> str:
        """What is to run dataflows and large queries."""
        return system_value(self._env.catalog.state.settings, STEP_ENGINE)

    def require_spark(self) -> None:
        """Check, before a dataflow is promised, that this process could run it if it came to that.

        Raises:
            EnvironmentRefused: Spark would have to be started here, and there is no Java for it.
        """
        if (
            self.step_engine() != "duckdb"
            and self._may_lead
            and self._spark is not None
            and SparkContext._active_spark_context is None
        ):
            require_java()

    def catch_up(self) -> None:
        """Bring this process in line with a DDL statement that it has just made; replicas have taken what follows from it."""
        if not self._may_lead:
            return
        self.tick()
        self._controller.settle(SETTLE_SECONDS)

    def deployed(self, gid: GlobalId) -> GlobalExpressions | None:
        """The plan that runs here for an object, whatever indexes came or went since."""
        return self._deployed.get(gid)

    def failure(self, gid: GlobalId) -> str | None:
        """Why an object's dataflow could not be installed, or failed when it ran last, if it did."""
        if self._thread is not None and self._thread.failed:
            return f"the thread that maintains dataflows has ended: {self._thread.status.error}"
        return self._controller.failure(gid)

    def runs(self, item: Maintained) -> GlobalExpressions:
        """The plan that runs for an index or a materialized view, here or in another process."""
        return self.deployed(item.id) or self._planner.deployed(item)

    def who(self, gid: GlobalId) -> str:
        """Who maintains an object, or why nobody does, as a sentence for a person."""
        state = self._env.catalog.state
        failure = self.failure(gid)
        if failure is not None:
            return f"Its dataflow fails: {failure.rstrip('.')}."
        behind = self._failing_below(gid)
        if behind is not None:
            return behind
        names = ", ".join(f"{r.name} (size {r.size})" for r in state.replicas.values()) or "none"
        lease = state.lease
        led = seems_alive(lease, self._env.clock.now_ms())
        who = (
            f"they are run by process {lease.who}"
            if led and lease is not None
            else "no process runs them now"
        )
        return f"Replicas: {names}; {who}."

    def _failing_below(self, gid: GlobalId) -> str | None:
        """What keeps an object back of what its dataflow reads, be it through others: one that fails, as a sentence."""
        items = self._env.catalog.state.items
        met, waiting = {gid}, [gid]
        while waiting:
            item = items.get(waiting.pop())
            if not isinstance(item, Maintained):
                continue
            plan = self.runs(item).plan
            for read in (*(s.id for s in plan.source_imports), *(i.id for i in plan.index_imports)):
                if read in met:
                    continue
                met.add(read)
                waiting.append(read)
                below, failure = items.get(read), self.failure(read)
                if below is not None and failure is not None:
                    return f'It reads {below.noun} "{below.full_name}", whose dataflow fails: {failure.rstrip(".")}.'
        return None

    def refreshes(self) -> Iterable[RefreshStats]:
        """The latest refreshes."""
        return self._controller.refreshes()

    def arrangements(self) -> Iterable[tuple[str, int, str, str, int, int]]:
        """Object, node, replica, shard, updates and bytes of each arrangement of the dataflows that run, whoever maintains them."""
        state = self._env.catalog.state
        registered = [
            (name.split("/", 2), shard) for name, shard in sorted(state.arrangements.items())
        ]
        for item in state.maintained:
            gid = item.id
            expressions = self.runs(item)
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
