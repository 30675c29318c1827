"""ArrangementShards: the state of a dataflow, each in a shard of its replica (docs/architecture.md, decision 5).

Promise: after a restart an arrangement is found again by its fingerprint, its number of workers and its format,
whichever release wrote it, or is made anew. Dataflows of a replica that need equal arrangements share the shard,
each with handles of its own (`compute.replica.arrangements.arrangement`). The shard is deleted with its last user.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import duckdb

from mzsql.compute.dependencies import ArrangementRegistry, ComputeSettings, ExportLog
from mzsql.compute.engines.driver import Driver
from mzsql.compute.replica.arrangements.arrangement import Arrangement, ArrangementDesc
from mzsql.compute.replica.arrangements.hot import Hot
from mzsql.compute.replica.arrangements.merges import Merges
from mzsql.compute.replica.arrangements.run_files import FORMAT, HotDirectory
from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.target import (
    with_time,
)
from mzsql.expr.engines import scratch_path
from mzsql.persist import (
    CRITICAL,
    PersistClient,
    ShardFinalized,
)
from mzsql.render.nodes.naming import FILLING, arrangement_name
from mzsql.repr.errors import Fenced
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId


class ArrangementShards:
    """The arrangements of one replica: the shard of each, and the number of dataflows that use it.

    A shard is registered under an arrangement's name only once it is filled, with `since` at the time of filling; so
    a registered one can be read from its since on. Until then it is registered under a name derived from its id, so
    that it is found and deleted after a crash.
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
        """Open the replica's arrangements.

        Args:
            persist: the client for their shards.
            registry: maps names to shards.
            replica_id: the replica.
            driver: evaluates small statements.
            settings: bounds on what is kept in memory, and timeouts.
            log: the export log, in which an index's updates become durable; None: they are written to its shard.
            later: runs the merging of traces at convenient moments; None: traces merge in steps.
            kept: the replica's local directory in which traces are saved over a restart; None: they are not saved.
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
        # Protects only the map above. `_lock` is held while a shard is opened, which waits for backends; `cool` must
        # not wait for that.
        self._hot_lock = threading.Lock()
        self._reserved: set[str] = set()  # shards that nobody has opened yet
        self._left: set[str] = set()  # shards that could not end yet

    def _name(self, desc: ArrangementDesc) -> str:
        settings = self._settings
        return arrangement_name(desc.fingerprint, settings.workers, settings.arrangement_format)

    def exists(self, desc: ArrangementDesc) -> bool:
        """Whether a filled shard is registered for it."""
        return self._registry.arrangement_shard(self._replica, self._name(desc)) is not None

    def find(self, desc: ArrangementDesc) -> Arrangement | None:
        """Open the filled arrangement; None if there is none."""
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
        """Reserve ids for `count` new shards, and register them in one write, so that shards left by a crash are found
        and deleted.
        """
        shards = [self._persist.new_shard_id() for _ in range(count)]
        with self._lock:
            self._reserved.update(shards)
            self._registry.update(self._replica, {FILLING + shard: shard for shard in shards})
        return shards

    def give_back(self, shards: Sequence[str]) -> None:
        """Unregister reserved ids that were not used."""
        with self._lock:
            left = self._reserved.intersection(shards)
            if left:
                self._registry.update(self._replica, dict.fromkeys(FILLING + one for one in left))
                self._reserved -= left

    def begin(self, desc: ArrangementDesc, shard: str, as_of: Timestamp) -> Arrangement:
        """Open a new shard of a reserved id, to be filled at `as_of` and then published."""
        with self._lock:
            arrangement = self._open(desc, shard, as_of)
            self._reserved.discard(shard)
            return arrangement

    def publish(self, arrangements: Sequence[Arrangement], as_of: Timestamp) -> None:
        """Register arrangements that were filled at `as_of` under their names, in place of earlier ones if there are
        any.
        """
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
        """Close a dataflow's handles. With `retire` the shard is deleted if nobody else uses it; an unregistered one is
        deleted in any case.
        """
        each_by_itself((arrangement.close, partial(self._leave, arrangement, retire)))

    def _leave(self, arrangement: Arrangement, retire: bool) -> None:
        """Count a user less; delete the shard after the last one."""
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
        """Delete registered shards that no dataflow of this replica uses, and release holds of dataflows that do not
        exist any more.

        Args:
            installed: the dataflows that may hold an index that they read.

        Returns:
            The number of shards deleted.
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
        """Whether shards could not be deleted because others still read them, so that `retire_unused` should be called
        again. Does not block.
        """
        return bool(self._left)

    def runs_here(self) -> bool:
        """Whether nobody else has become the one to run this replica. Asks the catalog's shard."""
        return self._registry.runs(self._replica)

    def _end(self, shard: str, name: str | None = None) -> None:
        """Delete a shard and its registration under ``name``. One that others still read stays registered under its id,
        to be deleted later.
        """
        timeout, left = self._settings.timeout, FILLING + shard
        self._kept.remove(shard)
        # A crash may have come between registering the id and creating the shard.
        exists = self._persist.exists(shard, timeout=timeout)
        # The shard goes first: a name whose shard is ending is treated as absent, while a shard without a name would
        # never be found again.
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
        """Release holds on a shard of this replica's dataflows that were dropped while the replica was away; return
        whether there were any.

        Another process may have become the one to run this replica, unnoticed so far, and have dataflows that this one
        does not know. So who runs it is asked after the holds are known: those that the other made before are not
        released, and one that it takes over afterwards has another token.
        """
        timeout, ours = self._settings.timeout, f"{self._replica}/"
        left = [
            holder
            for holder in self._persist.holders(shard)
            if holder.kind == CRITICAL
            and holder.id.startswith(ours)
            and holder.id.removeprefix(ours) not in installed
        ]
        if not left or not self._registry.runs(self._replica):
            return False
        ended = False
        for holder in left:
            with contextlib.suppress(Fenced):  # a dataflow of another process has taken it over
                self._persist.open_critical_reader(
                    shard, holder.id, expected_token=holder.token, timeout=timeout
                ).release(timeout=timeout)
                ended = True
        return ended

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
        """What the files of a trace's runs depend on besides the shard: the rows' schema, their order, and the function
        that hashes keys.
        """
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
        """Release the directory of saved traces for another process. No arrangement may be open."""
        self._kept.close()

    def cool(self) -> None:
        """Drop the least recently used traces until the others fit in memory. Does not wait for the opening of
        arrangements.
        """
        with self._hot_lock:
            kept = sorted(self._hot.values(), key=lambda hot: hot.used, reverse=True)
        size = 0
        for hot in kept:
            size += hot.bytes
            if size > self._settings.hot_bytes:
                hot.cool()
