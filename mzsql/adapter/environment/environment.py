"""An open environment: backends, shards, catalog, collections, oracle, for one process.

Promise: opening checks the environment's id and format before anything is written, recovers what a crash left (the write-ahead log
is followed and its writes are made visible through the oracle), and fences nobody; where timestamps are served from memory the first
operation of the oracle does (`mzsql.adapter.environment.oracles`). `sync` brings what other processes did to
the catalog here. Everything is closed by `close`, in order.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from mzsql.adapter.environment.cache_shard import CatalogCacheShard, build_of
from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.expression_cache import ExpressionCache
from mzsql.adapter.environment.leader import this_process
from mzsql.adapter.environment.locations import Locations, hot_directory
from mzsql.adapter.environment.opening import check_entry, join_deployment, open_persist
from mzsql.adapter.environment.oracles import CatalogOracle, TableOracle, open_table_oracle, wish_of
from mzsql.adapter.environment.preparations import Preparations, Standing
from mzsql.adapter.environment.startup import Startup
from mzsql.catalog.audit import audited
from mzsql.catalog.builtin import builtins_by_name
from mzsql.catalog.change import Change
from mzsql.catalog.commands.default_privileges import granted_ahead
from mzsql.catalog.commands.deployments import promote
from mzsql.catalog.commands.limits import check_limits
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.objects import DEFAULT_ROLE, Item, MaterializedView, Meta, Stored, Table
from mzsql.catalog.state import CatalogState
from mzsql.compute.replica.run_files import remove_old, remove_others
from mzsql.frontend import check_sqlglot
from mzsql.oracle.switching import DISTRIBUTED
from mzsql.persist import Clock, PersistClient, Settings, SystemClock
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
    log_shard_of,
)
from mzsql.storage.collection import SHARD, TABLE
from mzsql.storage.following import FOLLOW_SECONDS
from mzsql.threads import Backoff, Supervised

#: The one shard whose name must be known before anything can be read.
CATALOG_SHARD = "s00000000-0000-4000-8000-000000000001"

#: How long a close waits for a thread to come back from a Consensus that was closed: at once, on a machine that is not overloaded.
_JOIN_SECONDS = 5.0
#: How long a follower of the catalog rests when Consensus answers at once, doubled each time in a row; and at most, or where it fails.
_EARLY_SECONDS, _REST_SECONDS = 0.05, 1.0
#: How long a promotion waits for its deploy generation to be caught up, where nobody says otherwise; how often it looks; and how
#: long it waits for a process that prepares.
PROMOTION_SECONDS = 600.0
_LOOK_SECONDS, _BEGUN_SECONDS = 0.2, 10.0
#: So many objects that are not caught up are named.
_NAMED = 5
#: When nobody has written for so long, in milliseconds, what depends on the time moves it on.
_IDLE_MS = 1000
#: What replicas of other environments keep among the user's caches is given up after so many seconds.
_KEPT_SECONDS = 30 * 24 * 3600.0

_log = logging.getLogger(__name__)


T = TypeVar("T")


class _Believed:
    """The environment's clock, whose wall time is believed no further than others bear it out: for what is stamped without an oracle."""

    def __init__(self, clock: Clock, present_ms: Callable[[], int]) -> None:
        self.now_ms = present_ms
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep


class Environment:
    """One process's view of an environment; make it with `Environment.open`.

    Attributes:
        id: the environment's id.
        build: the program's version.
        cache: the expression cache, of this build of it.
        cache_shard: where that is, and what was wrong with it.
        preparations: what deployments that wait to be promoted have made there.
        process: this process's name among those that open the environment.
        read_only: whether DDL, writes and leading are refused, for now or for good.
        generation: the deploy generation that this process is of.
        supervisor: runs the threads of this process that belong to the environment.
        awaits_promotion: whether the generation is yet to be promoted: until then the process only reads.
        startup: where the time of opening goes.
        transient_ids: ids of queries, subscriptions and introspection subscribes.
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
        # One place says what program this is.
        self.build = persist.version
        self.process = f"{socket.gethostname()}/{uuid.uuid4()}"
        self.read_only = read_only or awaits_promotion
        self.generation = generation
        self.awaits_promotion = awaits_promotion
        self.clock = clock
        self.wal = WriteAheadLog(persist, meta.wal_shard, clock=clock)
        self.tables = Tables(persist, self.wal, clock=clock, follows=lambda: not self.read_only)
        self.supervisor = persist.supervisor
        self.exports = ExportLog(persist, log_shard_of(meta.wal_shard), clock=clock)
        self.collections = Collections(persist, self.tables, clock=clock, exports=self.exports)
        self.manager = CollectionManager(
            persist, clock=_Believed(clock, lambda: self.oracle.present_ms())
        )
        self.cache_shard = CatalogCacheShard(catalog, persist, clock, lambda: not self.read_only)
        self.cache = ExpressionCache(persist, self.cache_shard, partial(build_of, self.build))
        self.preparations = Preparations(self.cache, catalog, persist, clock, self.process)
        self.transient_ids = TransientIds()
        self._lock = threading.RLock()
        self._registered: dict[GlobalId, Item] = {}
        self._seen_step = -1
        self._old_oracle: TableOracle | None = None
        self._followers: list[Supervised] = []
        self._closing = threading.Event()

    @functools.cached_property
    def hot(self) -> Path | None:
        """The directory of this machine where replicas keep what is close of their arrangements; None: nowhere."""
        return hot_directory(self.locations, self.id)

    def clear_hot(self) -> None:
        """Give up what replicas that are gone have kept there, and replicas of environments that this user has not run here for long."""
        if self.hot is not None:
            remove_others(self.hot, self.catalog.state.replicas)
            if self.locations.directory is None:
                remove_old(self.hot.parents[1], _KEPT_SECONDS, self.clock.now_ms() / 1000)

    def kept(self, replica_id: str) -> Path | None:
        """The directory of this machine where a replica keeps what is close of its arrangements over a restart; None: nowhere."""
        return None if self.hot is None else self.hot / replica_id

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
        """Open, and make where nothing is there yet (unless ``read_only``).

        Args:
            locations: where it is.
            read_only: whether to refuse DDL and writes, and never to lead.
            deploy_generation: the generation of the deployment that this process is of; by default the one that is in charge. With a
                higher one than that the process only reads until its generation is promoted.
            create: whether to make an environment where there is none; never where ``read_only``.
            settings: of persist.
            clock: the wall clock and the monotonic one.
            admit: refuses to open, by what it raises, before anything is written: of the catalog, and the version that has written to it.

        Raises:
            EnvironmentRefused: what is there is something else or of a newer format.
            Fenced: a higher deploy generation was promoted.
            Unsupported: sqlglot is there in a form that mzsql cannot run on.
        """
        check_sqlglot()
        clock = clock or SystemClock()
        with contextlib.ExitStack() as undo:
            if read_only:
                # Compacting is a write, too; only leases are not.
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
        upper = self.wal.state.upper
        # Timestamps served from memory begin at the bound of all that were handed out, once a statement takes them over.
        distributed = wish_of(self.catalog.state).implementation == DISTRIBUTED
        if distributed and not self.read_only and upper > 0 and self.oracle.read_ts() < upper - 1:
            # A writer died between its commit and telling the oracle: the commit counts.
            self.oracle.adopt(upper - 1)
        self.sync()

    def sync(self) -> CatalogState:
        """The catalog as it is now; collections are registered and forgotten accordingly."""
        self.catalog.sync()
        return self.seen()

    def seen(self) -> CatalogState:
        """As `sync`, with the catalog as this process has last seen it."""
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
        """This process's deploy generation was promoted."""
        self.persist.take_over()
        # Another thread may be in a call of the old one.
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
        self.read_only = self.awaits_promotion = False

    def _follow(self, state: CatalogState) -> None:
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
        by_name = builtins_by_name()
        for name, shard in state.managed.items():
            schema, _, item_name = name.partition(".")
            builtin = by_name.get((schema, item_name))
            if builtin is not None and builtin.desc is not None:
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
        """Raise where the environment was opened to be read only, or is of a deploy generation that is yet to be promoted."""
        if self.awaits_promotion:
            raise Unsupported(
                f"cannot write: deploy generation {self.generation} is not in charge yet, "
                f"generation {self.catalog.state.generation} is",
                sqlstate="25006",
                hint=f"Promote it: mzsql deploy promote --generation {self.generation}, or promote() of this connection.",
            )
        if self.read_only:
            raise Unsupported(
                "cannot write: the environment was opened read-only", sqlstate="25006"
            )

    def fresh_timestamp(self) -> Timestamp:
        """A time at which a read sees every acknowledged write; complete in all tables. A strictly serializable read is at it.

        It is the lesser of the oracle's read timestamp, asked for now, and the latest time that the log, looked at afterwards, has
        complete; so it costs no durable write, however long nobody has written. It is linearizable because

        - a write acknowledged before this call is in it: it was committed to the log below the log's upper, then applied to the oracle;
        - of two calls, the later one is not at an earlier time: neither the oracle nor the log goes back;
        - a write that commits after this call is beyond it: the log takes no write below its upper.

        The first and the second hold for reads in any process, the third for what is written at any oracle's timestamp. Where the log as
        last seen here is complete at the oracle's time already, nothing need be asked of it: unless timestamps are served from memory, when
        a process that has not heard of it yet may have committed at a timestamp of the distributed oracle. That commit counts.
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
            # Nothing was ever written: time begins now.
            ts = max(ts, self.oracle.present_ms())
            self.reach(ts)
            upper = self.wal.state.upper
        return max(0, min(ts, upper - 1))

    def reach(self, ts: Timestamp) -> None:
        """Complete ``ts`` in the log, then have the oracle at it: what a writer of nothing would do.

        Raises:
            ClockSkew: ``ts`` is ahead of the time; nothing was moved.
        """
        self.oracle.check_applied(ts)
        self.wal.advance_past(ts)
        self.oracle.apply_write(ts)
        self.collections.notify()

    def pass_time(self) -> None:
        """Move time on where nobody has written for a second, for what ``mz_now()`` is asked of: a read by itself writes nothing."""
        if self.read_only or self.clock.now_ms() - self.wal.state.upper < _IDLE_MS:
            return
        # A clock that is fast is believed as far as others bear it out.
        now = self.oracle.present_ms()
        if now - self.wal.state.upper >= _IDLE_MS:
            self.reach(now)

    def define(self, command: Callable[[CatalogState], tuple[Change, T]]) -> T:
        """Carry out what a statement does to the catalog, as `DurableCatalog.transact` does, with what the audit log has of it."""
        now = self.oracle.present_ms()

        def told(state: CatalogState) -> tuple[Change, T]:
            change, answer = command(state)
            check_limits(state, change)
            change = granted_ahead(state, change)
            return audited(state, change, DEFAULT_ROLE, now), answer

        return self.catalog.transact(told)

    @property
    def fenced(self) -> bool:
        """Whether a higher deploy generation is known to have fenced this process."""
        return self.catalog.state.generation > self.generation

    def promote(self, wait: float | None = PROMOTION_SECONDS) -> dict[str, str]:
        """Put this process's deploy generation in charge, which fences every process of a lower one for good: see `_fence_commits`.

        Args:
            wait: how many seconds at most to wait before that until the generation is caught up with all that is maintained; None: not
                to look whether it is.

        Returns:
            What was not waited for, as it can be hydrated by whoever is in charge only, by name, and why; empty where ``wait`` is None.

        Raises:
            Fenced: a higher one is in charge.
            ObjectInUse: it is not caught up so soon, cannot run something, or nobody prepares it; nothing was changed.
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
        """Wait until this deploy generation is caught up; what is hydrated after the promotion only, and why."""
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
        """Move the log, after the catalog: a commit of a lower generation that looked at the catalog before now finds the log moved, and
        looks again. So once a promotion has returned, nothing of a lower generation is committed any more. No oracle is asked: a process of
        the new generation may serve timestamps from its memory by now. The log is ahead of it, as after a writer that died too early.
        """
        upper = self.wal.follow().upper
        self.wal.advance_past(upper if upper > 0 else self.oracle.present_ms())
        self.collections.notify()

    def follow_catalog(self, changed: Callable[[], None]) -> bool:
        """Have ``changed`` called whenever another process may have changed the catalog; False where Consensus cannot notify."""
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
            # The store answers again, and what happened since it failed was not told.
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
                # What was told of is not read yet, and is perhaps never: then this asks ever less often.
                self._closing.wait(rest)
                rest = min(2 * rest, _REST_SECONDS)

    def workers(self, cluster: str | None) -> int:
        """How many workers the replica has that does a cluster's work."""
        serving = self.catalog.state.serving(cluster)
        return 1 if serving is None else serving.workers

    def close(self) -> None:
        """Give everything up that this process holds. Idempotent.

        Whatever fails, all of it is closed; a store that fails keeps this for some seconds only, and the leases run out by themselves.

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
