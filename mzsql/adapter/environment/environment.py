"""An open environment in one process: its stores, shards, catalog, collections and timestamp oracle.

Promise: opening checks the environment's id and format before it writes anything, recovers what a crash left behind (it reads the
write-ahead log and makes its committed writes visible through the oracle), and fences no other process. The one exception: where timestamps
are served from memory, the first oracle operation fences the process that served them before (`mzsql.adapter.environment.oracles`). `sync`
applies catalog changes of other processes here. `close` closes everything, in a fixed order. See docs/architecture.md, decisions 7 and 8.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from mzsql.adapter.environment.cache_shard import CatalogCacheShard, build_of
from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.expression_cache import ExpressionCache
from mzsql.adapter.environment.leader import this_process
from mzsql.adapter.environment.local_files import LocalFiles
from mzsql.adapter.environment.locations import Locations
from mzsql.adapter.environment.opening import MANAGED, check_entry, join_deployment, open_persist
from mzsql.adapter.environment.oracles import (
    BelievedClock,
    CatalogOracle,
    TableOracle,
    open_table_oracle,
    wish_of,
)
from mzsql.adapter.environment.plan_files import PlanFiles
from mzsql.adapter.environment.preparations import Preparations, Standing
from mzsql.adapter.environment.startup import Startup
from mzsql.catalog.audit import audited
from mzsql.catalog.builtin import own_builtin
from mzsql.catalog.change import Change
from mzsql.catalog.commands.default_privileges import granted_ahead
from mzsql.catalog.commands.deployments import promote
from mzsql.catalog.commands.limits import check_limits
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.objects import DEFAULT_ROLE, Item, MaterializedView, Meta, Stored, Table
from mzsql.catalog.state import CatalogState
from mzsql.frontend import check_sqlglot
from mzsql.oracle.switching import DISTRIBUTED
from mzsql.persist import PersistClient, Settings, SystemClock
from mzsql.repr.errors import (
    EnvironmentRefused,
    ObjectInUse,
    Unsupported,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId, TransientIds
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.storage import (
    Collection,
    CollectionManager,
    Collections,
    ExportLog,
    Tables,
    WriteAheadLog,
    Writing,
    log_shard_of,
)
from mzsql.storage.collection import SHARD, TABLE
from mzsql.storage.following import FOLLOW_SECONDS
from mzsql.threads import Backoff, Supervised, take_short_turns

#: The catalog's shard. Its id is a constant, because the ids of all other shards are found in the catalog.
CATALOG_SHARD = "s00000000-0000-4000-8000-000000000001"

#: How long `close` joins a follower, whose blocked call returns at once when Consensus is closed, unless the machine is overloaded.
_JOIN_SECONDS = 5.0
#: The catalog follower's pause in seconds where Consensus notifies at once, doubled each time in a row; its limit, also after a failure.
_EARLY_SECONDS, _REST_SECONDS = 0.05, 1.0
#: Seconds: a promotion's default wait for its generation to catch up; between two checks; for a process to begin preparing it.
PROMOTION_SECONDS = 600.0
_LOOK_SECONDS, _BEGUN_SECONDS = 0.2, 10.0
#: An error message names at most so many objects that have not caught up.
_NAMED = 5
#: Once nobody has written for so many milliseconds, `pass_time` advances the log, so that ``mz_now()`` moves.
_IDLE_MS = 1000

_log = logging.getLogger(__name__)


T = TypeVar("T")


class Environment:
    """One process's handle on an environment; made by `Environment.open`.

    Attributes:
        id: the environment's id.
        build: the program's version.
        cache: the expression cache, limited to the entries of this build.
        cache_shard: the cache's shard in the catalog, and the damage found in it.
        local: the directories that it has on this machine besides.
        plan_files: plans over builtin relations, kept on this machine.
        preparations: what deployments waiting for promotion have prepared in the cache.
        process: a name for this process, unique among those that open the environment.
        generation: the deploy generation of this process.
        supervisor: runs the threads that belong to the environment.
        awaits_promotion: whether the generation is not promoted yet; until then the process only reads.
        startup: how long each phase of opening took.
        transient_ids: hands out ids for queries, subscriptions and introspection subscribes.
    """

    def __init__(
        self,
        locations: Locations,
        persist: PersistClient,
        catalog: DurableCatalog,
        oracle: TableOracle,
        meta: Meta,
        *,
        read_only: bool,
        clock: SystemClock,
        generation: int = 0,
        awaits_promotion: bool = False,
        startup: Startup | None = None,
    ) -> None:
        self.startup = startup or Startup(clock.monotonic)
        self.locations = locations
        self.persist = persist
        self.catalog = catalog
        self.oracle = oracle
        self.catalog_oracle = CatalogOracle(locations.oracle, clock)
        self.meta = meta
        self.id = meta.environment_id
        # The persist client's version is the program's, so that only one place defines it.
        self.build = persist.version
        self.process = f"{socket.gethostname()}/{uuid.uuid4()}"
        self._writing = Writing(allowed=not (read_only or awaits_promotion))
        self.generation = generation
        self.awaits_promotion = awaits_promotion
        self.clock = clock
        self.wal = WriteAheadLog(persist, meta.wal_shard, clock=clock)
        self.tables = Tables(persist, self.wal, clock=clock, writing=self._writing)
        self.supervisor = persist.supervisor
        self.exports = ExportLog(persist, log_shard_of(meta.wal_shard), clock=clock)
        self.collections = Collections(persist, self.tables, clock=clock, exports=self.exports)
        self._believed = BelievedClock(clock, oracle)
        self.manager = CollectionManager(persist, clock=self._believed)
        self.cache_shard = CatalogCacheShard(catalog, persist, clock, self._writing)
        cache = ExpressionCache(persist, self.cache_shard, partial(build_of, persist.version))
        local = LocalFiles(locations, self.id)
        self.cache, self.local = cache, local
        self.plan_files = PlanFiles(lambda: local.plans, lambda: cache.build)
        self.preparations = Preparations(self.cache, catalog, persist, clock, self.process)
        self.transient_ids = TransientIds()
        self._lock = threading.RLock()
        self._registered: dict[GlobalId, Item] = {}
        self._seen_step = -1
        self._old_oracle: TableOracle | None = None
        self._followers: list[Supervised] = []
        self._closing = threading.Event()

    @property
    def read_only(self) -> bool:
        """Whether DDL, writes and leading are refused: for good, or until promotion."""
        return not self._writing.allowed

    @classmethod
    def open(
        cls,
        locations: Locations,
        *,
        read_only: bool = False,
        deploy_generation: int | None = None,
        create: bool = True,
        settings: Settings | None = None,
        clock: SystemClock | None = None,
        admit: Callable[[CatalogState, str], None] | None = None,
    ) -> Environment:
        """Open an environment, and create it where there is none (unless ``read_only``).

        Args:
            locations: where its stores are.
            read_only: whether to refuse DDL and writes, and never to lead.
            deploy_generation: the deploy generation of this process; by default the one in charge. A process of a higher generation only
                reads until its generation is promoted.
            create: whether to create an environment where there is none; ignored where ``read_only``.
            settings: persist's settings.
            clock: the wall clock and the monotonic one.
            admit: called with the catalog and the version that last wrote it, before anything is written; it refuses the opening by
                raising.

        Returns:
            The open environment; the caller closes it.

        Raises:
            EnvironmentRefused: the place holds something else, or an environment of a newer format.
            Fenced: a higher deploy generation was promoted.
            Unsupported: the installed sqlglot is one that mzsql cannot run on.
        """
        check_sqlglot()
        take_short_turns()
        clock = clock or SystemClock()
        with contextlib.ExitStack() as undo:
            if read_only:
                # A read-only process leaves maintenance to others: compaction writes. Only its readers' leases are written.
                settings = msgspec.structs.replace(settings or Settings(), maintenance="elsewhere")
            startup = Startup(clock.monotonic)
            with startup.phase("stores"):
                persist = open_persist(locations, undo, settings, clock)
                if (read_only or not create) and not persist.exists(CATALOG_SHARD):
                    raise EnvironmentRefused(f"there is no mzsql environment at {locations.where}")
            with startup.phase("catalog"):
                catalog = DurableCatalog(persist, CATALOG_SHARD)
                undo.callback(catalog.close)
                generation, awaits = join_deployment(catalog, deploy_generation)
                if admit is not None:
                    there = persist.inspect(CATALOG_SHARD)
                    admit(catalog.state, "" if there is None else there.applier_version)
                if not (read_only or awaits):
                    persist.take_over()
                elif (there := persist.inspect(CATALOG_SHARD)) and there.applier_version:
                    persist.make_as(there.applier_version)
                meta = check_entry(
                    catalog,
                    persist,
                    persist.blob,
                    locations,
                    clock.now_ms(),
                    read_only=read_only or awaits,
                )
            with startup.phase("oracle"):
                oracle = open_table_oracle(
                    locations,
                    persist.consensus,
                    catalog,
                    meta.environment_id,
                    clock,
                    read_only=read_only or awaits,
                )
            undo.callback(oracle.close)
            with startup.phase("collections"):
                env = cls(
                    locations,
                    persist,
                    catalog,
                    oracle,
                    meta,
                    read_only=read_only,
                    clock=clock,
                    generation=generation,
                    awaits_promotion=awaits and not read_only,
                    startup=startup,
                )
            undo.callback(env.close)
            with startup.phase("recovery"):
                env._recover()
            undo.pop_all()
        return env

    def _recover(self) -> None:
        """Make the log's committed writes visible, after a crash too."""
        upper = self.wal.state.upper
        # Timestamps served from memory start above every reserved one once a statement takes the oracle over: nothing is to be done then.
        distributed = wish_of(self.catalog.state).implementation == DISTRIBUTED
        if distributed and not self.read_only and upper > 0 and self.oracle.read_ts() < upper - 1:
            # A writer died after its commit to the log, before it told the oracle: the commit is durable, so it counts.
            self.oracle.adopt(upper - 1)
        self.sync()

    def sync(self) -> CatalogState:
        """The catalog with every change committed before the call; collections are registered and forgotten accordingly."""
        self.catalog.sync()
        return self.seen()

    def seen(self) -> CatalogState:
        """As `sync`, without asking the store: with the catalog as this process last read it."""
        with self._lock:
            step, state = self.catalog.step, self.catalog.state
            if step != self._seen_step:
                if self.awaits_promotion and state.generation == self.generation:
                    self._begin_to_write()
                self.oracle.see(state)
                self._follow(state)
                self._seen_step = step
        return state

    def _begin_to_write(self) -> None:
        """Leave read-only mode: this process's deploy generation was promoted."""
        self.persist.take_over()
        # The old oracle is closed only by `close`: another thread may be inside one of its calls.
        self._old_oracle, self.oracle = (
            self.oracle,
            open_table_oracle(
                self.locations,
                self.persist.consensus,
                self.catalog,
                self.id,
                self.clock,
                read_only=False,
            ),
        )
        self._believed.oracle = self.oracle
        self._writing.allowed, self.awaits_promotion = True, False

    def _follow(self, state: CatalogState) -> None:
        """Register the collections of objects that are new in ``state``, and forget those of dropped ones."""
        for gid in [g for g in self._registered if g not in state.items]:
            del self._registered[gid]
            self.collections.forget(gid)
        for gid, item in state.items.items():
            if gid in self._registered or not isinstance(item, Stored):
                continue
            self._registered[gid] = item
            self.collections.register(
                Collection(
                    id=gid,
                    name=item.full_name,
                    shard=item.shard,
                    columns=item.desc.typ.columns,
                    kind=TABLE if isinstance(item, Table) else SHARD,
                    has_errors=not isinstance(item, Table),
                    begins=item.as_of,
                    exported=isinstance(item, MaterializedView),
                )
            )
        for schema, item_name in MANAGED:
            shard = state.managed.get(f"{schema}.{item_name}")
            builtin = own_builtin(schema, item_name)
            if shard is not None and builtin.desc is not None:
                self.collections.register(
                    Collection(
                        id=builtin.id,
                        name=builtin.full_name,
                        shard=shard,
                        columns=builtin.desc.typ.columns,
                        kind=SHARD,
                    )
                )

    def require_writable(self) -> None:
        """Check that this process may write.

        Raises:
            Unsupported: the environment was opened read-only, or its generation is not promoted yet.
        """
        if self.awaits_promotion:
            raise Unsupported(
                f"cannot write: deploy generation {self.generation} is not in charge yet, "
                f"generation {self.catalog.state.generation} is",
                sqlstate="25006",
                hint=f"Promote it: mzsql deploy promote --generation {self.generation}, or promote() of this connection.",
            )
        if self.read_only:
            why = "cannot write: the environment was opened read-only"
            raise Unsupported(why, sqlstate="25006")

    def fresh_timestamp(self) -> Timestamp:
        """The timestamp of a strictly serializable read: every write acknowledged before the call is visible at it.

        It is the lesser of the oracle's read timestamp, asked for first, and the latest time below the log's upper, read afterwards. So it
        costs no durable write, however long nobody has written. Reads at it are linearizable:

        - A write acknowledged before this call is visible: its commit is in the log, below the log's upper, and was applied to the oracle
          before it was acknowledged.
        - Of two calls the later one never gets an earlier time: neither the oracle's read timestamp nor the log's upper goes back.
        - A write that commits after this call is not visible: the log accepts no write below its upper.

        The first two hold for reads in any process, the third for every write, whichever oracle gave it its timestamp. The log need not be
        read where its last known upper already lies above the oracle's time. Where timestamps are served from memory it is read all the
        same: a process that has not noticed this yet may have committed at a timestamp of the distributed oracle, and that commit counts.
        """
        ts = self.oracle.read_ts()
        upper = self.wal.state.upper
        alone = self.oracle.alone
        if alone or upper <= ts:
            upper = self.wal.follow().upper
        if alone and upper - 1 > ts:
            self.oracle.adopt(upper - 1)
            ts = upper - 1
        if upper == 0 and not self.read_only:
            # The log was never written to and has no complete time yet: complete the present one.
            ts = max(ts, self.oracle.present_ms())
            self.reach(ts)
            upper = self.wal.state.upper
        return max(0, min(ts, upper - 1))

    def reach(self, ts: Timestamp) -> None:
        """Complete ``ts`` in the log, then apply it to the oracle, as a commit without rows would.

        Raises:
            ClockSkew: ``ts`` is too far ahead of the present; nothing was changed.
        """
        self.oracle.check_applied(ts)
        self.wal.advance_past(ts)
        self.oracle.apply_write(ts)
        self.collections.notify()

    def pass_time(self) -> None:
        """Advance the log and the oracle to the present where nobody has written for `_IDLE_MS`.

        Reads write nothing, so without this ``mz_now()`` would stand still while nobody writes.
        """
        if self.read_only or self.clock.now_ms() - self.wal.state.upper < _IDLE_MS:
            return
        # A fast clock is trusted only as far as other processes confirm it.
        now = self.oracle.present_ms()
        if now - self.wal.state.upper >= _IDLE_MS:
            self.reach(now)

    def define(
        self,
        command: Callable[[CatalogState], tuple[Change, T]],
        user: str = DEFAULT_ROLE,
        policies: Mapping[str, Any] | None = None,
    ) -> T:
        """Apply a pure DDL command to the catalog in one `DurableCatalog.transact`, with default privileges and the audit log's entries
        added.

        Args:
            command: makes the change, and the answer.
            user: who the audit log says did it.
            policies: as of `audited`.
        """
        now = self.oracle.present_ms()

        def told(state: CatalogState) -> tuple[Change, T]:
            change, answer = command(state)
            check_limits(state, change)
            change = granted_ahead(state, change)
            return audited(state, change, user, now, policies), answer

        return self.catalog.transact(told)

    @property
    def fenced(self) -> bool:
        """Whether a higher deploy generation is known to have fenced this process."""
        return self.catalog.state.generation > self.generation

    def promote(self, wait: float | None = PROMOTION_SECONDS) -> dict[str, str]:
        """Put this process's deploy generation in charge. That fences every process of a lower generation for good.

        Args:
            wait: seconds to wait at most until the generation has caught up with all maintained objects; None: do not check.

        Returns:
            The objects that were not waited for because only the generation in charge can hydrate them: name to reason. Empty where
                ``wait`` is None.

        Raises:
            Fenced: a higher generation is in charge.
            ObjectInUse: the generation has not caught up in time, cannot run an object, or no process prepares it; nothing was changed.
        """
        if self.read_only and not self.awaits_promotion:
            self.require_writable()
        later = {} if wait is None else self._await_prepared(wait)
        for name, why in later.items():
            _log.warning("%s is not waited for: %s", name, why)
        now, generation = self.clock.now_ms(), self.generation

        def command(state: CatalogState) -> tuple[Change, None]:
            return promote(state, generation, this_process(), now), None

        self.catalog.transact(command)
        self.sync()
        self._fence_commits()
        return later

    def _await_prepared(self, seconds: float) -> dict[str, str]:
        """Wait until this deploy generation has caught up; the objects to be hydrated only after promotion, with the reason."""
        began = now = self.clock.monotonic()
        while True:
            state = self.sync()
            if state.generation >= self.generation:
                return {}
            standings = self.preparations.standings(state, self.generation)
            lacking = {name: one for name, one in standings.items() if not one.caught_up}
            if not lacking:
                return {name: one.why for name, one in standings.items() if one.settled}
            cannot = {name: one for name, one in lacking.items() if one.settled}
            if cannot:
                self._refuse_promotion(cannot, alive=True, settled=True)
            prepared = self.preparations.of(self.generation)
            alive = prepared is not None and prepared.alive
            if now - began >= (seconds if alive else min(seconds, _BEGUN_SECONDS)):
                self._refuse_promotion(lacking, alive=alive)
            check_for_interrupts()
            self.clock.sleep(_LOOK_SECONDS)
            now = self.clock.monotonic()

    def _refuse_promotion(
        self, lacking: Mapping[str, Standing], *, alive: bool, settled: bool = False
    ) -> None:
        some = "; ".join(f"{name}: {one.why}" for name, one in list(lacking.items())[:_NAMED])
        more = f"; and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
        if not alive:
            raise ObjectInUse(
                f"no process prepares deploy generation {self.generation}, which is not caught up with "
                f"{len(lacking)} objects ({some}{more})",
                hint=f"Open one that stays, by the new program with deploy_generation={self.generation}, "
                "or promote without waiting.",
            )
        if settled:
            raise ObjectInUse(
                f"deploy generation {self.generation} cannot run {len(lacking)} objects ({some}{more})",
                hint="Drop them, or promote without waiting: reads of what cannot be run say so from then on.",
            )
        raise ObjectInUse(
            f"deploy generation {self.generation} is not caught up with {len(lacking)} objects ({some}{more})",
            hint="Wait longer, or promote without waiting: what is not caught up is hydrated after the promotion then.",
        )

    def _fence_commits(self) -> None:
        """Advance the log after the catalog, so that commits of lower generations that are under way fail their check.

        A commit that validated the catalog before the promotion finds that the log has moved, and validates again: once `promote` returns,
        no lower generation commits any more. No oracle is asked, since a process of the new generation may already serve timestamps from
        memory. The log is then ahead of the oracle, as after a writer that died between the two, and readers recover from that.
        """
        upper = self.wal.follow().upper
        self.wal.advance_past(upper if upper > 0 else self.oracle.present_ms())
        self.collections.notify()

    def follow_catalog(self, changed: Callable[[], None]) -> bool:
        """Call ``changed`` from a thread whenever another process may have changed the catalog; False where Consensus cannot notify."""
        if not self.wal.notified:
            return False
        self._followers.append(
            self.supervisor.start(
                "catalog-follower",
                partial(self._await_catalog, changed),
                thread_name="mzsql-follow-catalog",
                backoff=Backoff(_EARLY_SECONDS, _REST_SECONDS),
            )
        )
        return True

    def _await_catalog(self, changed: Callable[[], None], thread: Supervised) -> None:
        rest = _EARLY_SECONDS
        if thread.status.status != "running":
            # Restarted after a failure: changes in between were not notified, so look once without waiting.
            self.catalog.await_change(0.0)
            thread.well()
            changed()
        while not self._closing.is_set():
            began = self.clock.monotonic()
            news = self.catalog.await_change(FOLLOW_SECONDS)
            thread.well()
            if news:
                changed()
            if self.clock.monotonic() - began >= _EARLY_SECONDS:
                rest = _EARLY_SECONDS
            else:
                # The change it told of is not read yet, and perhaps never is: ask ever less often instead of spinning.
                self._closing.wait(rest)
                rest = min(2 * rest, _REST_SECONDS)

    def workers(self, cluster: str | None) -> int:
        """How many workers the replica has that serves a cluster; 1 where none does."""
        serving = self.catalog.state.serving(cluster)
        return 1 if serving is None else serving.workers

    def close(self) -> None:
        """Release everything that this process holds, whichever part fails; leases that could not be released expire. Idempotent.

        Raises:
            SqlError: the first failure, once everything is closed.
        """
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        for thread in self._followers:
            thread.stop()
        steps = [
            self.manager.close,
            self.collections.close,
            self.exports.close,
            self.wal.close,
            self.cache.close,
            self.catalog.close,
            self.oracle.close,
            self.catalog_oracle.close,
            *(() if self._old_oracle is None else (self._old_oracle.close,)),
            self.persist.close,
            self.persist.consensus.close,
            self._join,
            self.persist.blob.close,
        ]
        close_all(steps, self.clock)

    def _join(self) -> None:
        """Those that waited for Consensus to notify them end when it is closed."""
        self.collections.join(_JOIN_SECONDS)
        for thread in self._followers:
            thread.join(_JOIN_SECONDS)
