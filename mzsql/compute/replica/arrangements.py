"""Arrangements: the state of a dataflow, each one a shard of its replica (docs/architecture.md, decision 5).

Promise: an arrangement is found again after a restart by its fingerprint, its number of workers and its format, whatever release wrote it,
or is made anew. Dataflows of a replica that need equal ones share the shard, each with handles of its own
(`compute.replica.arrangement`). The shard is given up with its last user.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import duckdb

from mzsql.compute.engines.driver import Driver
from mzsql.compute.protocols import ArrangementRegistry, ComputeSettings, ExportLog
from mzsql.compute.replica.arrangement import Arrangement, ArrangementDesc
from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.hot import Hot
from mzsql.compute.replica.merges import Merges
from mzsql.compute.replica.run_files import FORMAT, HotDirectory
from mzsql.compute.replica.target import (
    with_time,
)
from mzsql.expr.engines import scratch_path
from mzsql.persist import (
    CRITICAL,
    PersistClient,
    ShardFinalized,
)
from mzsql.render.naming import FILLING, arrangement_name
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId


class Arrangements:
    """The arrangements of one replica: which shard each is in, and how many dataflows use it.

    A shard gets its name only when it is filled, and `since` is then at the time it was filled at: what a name leads to can be read
    from the shard's since on. Until then it is remembered under a name of its own, so that one left by a crash is found and removed.
    """

    def __init__(
        self,
        persist: PersistClient,
        registry: ArrangementRegistry,
        replica_id: str,
        driver: Driver,
        settings: ComputeSettings,
        log: ExportLog | None = None,
        later: Callable[[Callable[[], None]], None] | None = None,
        kept: Path | None = None,
    ) -> None:
        """Use them.

        Args:
            persist: where their shards are.
            registry: which shard holds which of them.
            replica_id: whose they are.
            driver: evaluates small statements.
            settings: how much of them is kept close.
            log: where an index's updates become durable; None: by themselves.
            later: runs what later steps are better off with; None: they do without.
            kept: the replica's directory on this machine, where traces are kept over a restart; None: they are not.
        """
        self._kept = HotDirectory(kept, scratch_path)
        self._persist = persist
        self._log = log
        self._merges = None if later is None else Merges(later)
        self._registry = registry
        self._replica = replica_id
        self._driver = driver
        self._settings = settings
        self._lock = threading.RLock()
        self._users: dict[str, int] = {}  # by shard
        self._hot: dict[str, Hot] = {}  # by shard
        # Of that map alone: who opens a shard waits for the store, and has the other.
        self._hot_lock = threading.Lock()
        self._reserved: set[str] = set()  # shards that nobody has opened yet
        self._left: set[str] = set()  # shards that could not end yet

    def _name(self, desc: ArrangementDesc) -> str:
        settings = self._settings
        return arrangement_name(desc.fingerprint, settings.workers, settings.arrangement_format)

    def exists(self, desc: ArrangementDesc) -> bool:
        """Whether a filled shard is remembered for it."""
        return self._registry.arrangement_shard(self._replica, self._name(desc)) is not None

    def find(self, desc: ArrangementDesc) -> Arrangement | None:
        """Open the filled arrangement, if there is one."""
        with self._lock:
            name = self._name(desc)
            shard = self._registry.arrangement_shard(self._replica, name)
            if shard is None:
                return None
            try:
                return self._open(desc, shard)
            except ShardFinalized:
                self._registry.update(self._replica, {name: None})
                return None

    def reserve(self, count: int) -> list[str]:
        """So many ids of shards to be, remembered: what they become is found and removed should this process die before they have names."""
        shards = [self._persist.new_shard_id() for _ in range(count)]
        with self._lock:
            self._reserved.update(shards)
            self._registry.update(self._replica, {FILLING + shard: shard for shard in shards})
        return shards

    def give_back(self, shards: Sequence[str]) -> None:
        """Forget ids that were reserved and not begun."""
        with self._lock:
            left = self._reserved.intersection(shards)
            if left:
                self._registry.update(self._replica, dict.fromkeys(FILLING + one for one in left))
                self._reserved -= left

    def begin(self, desc: ArrangementDesc, shard: str, as_of: Timestamp) -> Arrangement:
        """Open a new shard, of an id that was reserved, to be filled at `as_of` and then published."""
        with self._lock:
            arrangement = self._open(desc, shard, as_of)
            self._reserved.discard(shard)
            return arrangement

    def publish(self, arrangements: Sequence[Arrangement], as_of: Timestamp) -> None:
        """Let others find arrangements that were filled at `as_of`, instead of those they found before, if any."""
        for one in arrangements:
            one.hold(as_of)
        with self._lock:
            names = {self._name(one.desc): one.shard_id for one in arrangements}
            before = {
                shard
                for name in names
                if (shard := self._registry.arrangement_shard(self._replica, name)) is not None
            }
            unnamed: dict[str, str | None] = dict.fromkeys(
                FILLING + shard for shard in names.values()
            )
            self._registry.update(self._replica, {**names, **unnamed})
            for shard in before.difference(names.values(), self._users):
                self._end(shard)

    def release(self, arrangement: Arrangement, *, retire: bool) -> None:
        """Close a dataflow's handles. With `retire` the shard goes when nobody else uses it; one without a name goes anyway."""
        each_by_itself((arrangement.close, partial(self._leave, arrangement, retire)))

    def _leave(self, arrangement: Arrangement, retire: bool) -> None:
        """A dataflow uses its handles no more."""
        shard, name = arrangement.shard_id, self._name(arrangement.desc)
        with self._lock:
            self._users[shard] -= 1
            if self._users[shard]:
                return
            del self._users[shard]
            with self._hot_lock:
                hot = self._hot.pop(shard)
            hot.files.close()
            named = self._registry.arrangement_shard(self._replica, name) == shard
            if retire or not named:
                self._end(shard, name if named else None)

    def retire_unused(self, installed: Collection[GlobalId]) -> int:
        """End the registered shards that no dataflow here uses; how many. Holds of dataflows that are not there any more end, too.

        Args:
            installed: the dataflows that may hold an index that they read.
        """
        retired = 0
        with self._lock:
            for shard in self._users:
                self._end_holds(shard, installed)
            for name, shard in self._registry.entries(self._replica).items():
                if shard not in self._users and shard not in self._reserved:
                    self._end(shard, name)
                    retired += 1
            self._kept.retain(self._users)
        return retired

    @property
    def left(self) -> bool:
        """Whether others still read what was given up, so that `retire_unused` is to be called again. Waits for nobody."""
        return bool(self._left)

    def _end(self, shard: str, name: str | None = None) -> None:
        """End a shard, of which ``name`` is forgotten; one that others still read is remembered, to be cleared away later."""
        timeout, left = self._settings.timeout, FILLING + shard
        self._kept.remove(shard)
        # a crash may have come between the shard's name and the shard
        exists = self._persist.exists(shard, timeout=timeout)
        # End it first: a name that leads to a shard that is to end is forgotten, a shard without a name would stay for ever.
        held = exists and bool(self._persist.retire(shard, timeout=timeout))
        if held and self._end_holds(shard):
            held = bool(self._persist.retire(shard, timeout=timeout))
        if held:
            forgotten = {} if name is None else {name: None}
            self._left.add(shard)
            self._registry.update(self._replica, {**forgotten, left: shard})
            return
        self._left.discard(shard)
        self._registry.update(self._replica, dict.fromkeys({left, name or left}))

    def _end_holds(self, shard: str, installed: Collection[GlobalId] = ()) -> bool:
        """Give up what is held for dataflows that were dropped while this replica was away; whether there was any."""
        timeout, ours, found = self._settings.timeout, f"{self._replica}/", False
        for holder in self._persist.holders(shard):
            of = holder.id.removeprefix(ours)
            if holder.kind == CRITICAL and of != holder.id and of not in installed:
                left = self._persist.open_critical_reader(shard, holder.id, timeout=timeout)
                left.release(timeout=timeout)
                found = True
        return found

    def _open(self, desc: ArrangementDesc, shard: str, since: Timestamp = 0) -> Arrangement:
        handles = self._persist.open_shard(
            shard,
            desc.schema(),
            key=desc.key_spec(self._settings),
            purpose=f"arrangement {desc.name}",
            since=since,
            timeout=self._settings.timeout,
        )
        self._users[shard] = self._users.get(shard, 0) + 1
        hot = self._hot.get(shard)
        if hot is None:
            later = None if self._merges is None else self._merges.put
            files = self._kept.of(shard, self._signature(desc))
            hot = Hot(handles[0].upper, time.monotonic, later, files)
            with self._hot_lock:
                self._hot[shard] = hot
        else:
            hot.seen(handles[0].upper)
        return Arrangement(
            desc,
            self._persist,
            shard,
            handles,
            hot=hot,
            driver=self._driver,
            settings=self._settings,
            log=self._log,
        )

    def _signature(self, desc: ArrangementDesc) -> str:
        """What files of an arrangement's runs depend on, beside the shard: the rows' form, their order, and what hashes them."""
        what = (
            FORMAT,
            sys.byteorder,
            duckdb.__version__,
            with_time(desc.schema()).to_string(),
            desc.key_arity,
            desc.additive,
            desc.order,
        )
        return hashlib.sha256(repr(what).encode()).hexdigest()

    def close(self) -> None:
        """Let another process keep what is kept of traces; none is open any more."""
        self._kept.close()

    def cool(self) -> None:
        """Drop the traces that were not used for longest, until the others fit in memory. Waits for nobody who opens arrangements."""
        with self._hot_lock:
            kept = sorted(self._hot.values(), key=lambda hot: hot.used, reverse=True)
        size = 0
        for hot in kept:
            size += hot.bytes
            if size > self._settings.hot_bytes:
                hot.cool()
