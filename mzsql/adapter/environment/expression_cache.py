"""Optimized plans that outlive a restart, on one dedicated shard.

Promise: an entry is valid for one build, one object and one version of its definition, under the optimizer features it was made with;
anything else is as if it were not there, so no format is ever migrated and other builds' bytes are never decoded. A plan that imports an
index lives no longer than the index, but as what runs: EXPLAIN shows that, in every process, until another plan runs. An entry is
replaced and entries are invalidated in one atomic write; losing a race reads the other's changes and goes on (both run the same
code). Nothing that is wrong with the shard, or with an entry, is anybody's failure: the shard is set aside (`CacheShard`), an entry is as
if it were not there, and plans are made again. The shard is read when it is first asked for anything, not when an environment is opened.
Source: the expression cache design, with invalidation towards dependents as it documents it.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Protocol, TypeVar

import msgspec

from mzsql.adapter.environment.cache_entries import (
    ARRANGEMENT,
    CHARGE,
    GLOBAL,
    LOCAL,
    OF_DEPLOYMENTS,
    RUNNING,
    WAITING,
    GlobalExpressions,
    LocalExpression,
)
from mzsql.catalog.durable_map import Change, DurableMap
from mzsql.catalog.objects import View
from mzsql.catalog.state import CatalogState
from mzsql.expr.relation import Relation
from mzsql.location import LocationError
from mzsql.persist import CorruptPart, MissingPart, NewerVersion, PersistClient
from mzsql.repr.errors import DatatypeMismatch, Fenced, InternalError, QueryCanceled, SqlError
from mzsql.repr.ids import GlobalId
from mzsql.transform import OptimizerFeatures

T = TypeVar("T")
Entry = LocalExpression | GlobalExpressions
#: Every object (indexes too) with the version of its definition, and the optimizer features in force, spelled; None: they do not matter.
Current = tuple[Mapping[GlobalId, int], str | None]

_log = logging.getLogger(__name__)

_READ: Mapping[str, Callable[[bytes], Entry]] = {
    LOCAL: LocalExpression.read,
    GLOBAL: GlobalExpressions.read,
    RUNNING: GlobalExpressions.read,
}

#: The name under which entries stand that are of a deployment, and of no object.
DEPLOYMENT = GlobalId("deployment")

#: So many shards in a row that turn out to be damaged are the store's fault: then plans are kept in memory.
_MOST_SHARDS = 3


class CacheCounts(msgspec.Struct):
    """How often a plan was there: mutable."""

    hits: int = 0
    misses: int = 0


class CacheShard(Protocol):
    """Where an environment remembers which shard its cache is on."""

    def current(self) -> str:
        """The shard, as last seen."""

    def set_aside(self, shard: str, reason: str) -> str | None:
        """The shard to be used instead of a damaged one, which is remembered as such; None where this process may not choose one."""

    def damaged_entry(self, key: str, reason: str) -> None:
        """Take note of an entry that cannot be read."""


class OneShard:
    """A cache on a shard that nobody replaces: damage is logged, and then plans are kept in memory."""

    def __init__(self, shard: str) -> None:
        self._shard = shard

    def current(self) -> str:
        """The shard."""
        return self._shard

    def set_aside(self, shard: str, reason: str) -> str | None:
        """None."""
        del shard, reason
        return None

    def damaged_entry(self, key: str, reason: str) -> None:
        """It was logged."""


def entry_key(build: str, gid: GlobalId, kind: str) -> str:
    """The durable key of an entry."""
    return f"{build}/{gid}/{kind}"


def parts_of(key: str) -> tuple[str, GlobalId, str]:
    """Build, object and kind of a key; a text that is none is of no build."""
    build, _, rest = key.rpartition("/")
    build, _, gid = build.rpartition("/")
    return build, GlobalId(gid), rest


def dependents_of_index(state: CatalogState, on: GlobalId) -> set[GlobalId]:
    """What an index on ``on`` may change the plan of: itself, its direct dependents, and those through plain views."""
    found = {on}
    pending = [on]
    while pending:
        for item in state.dependents(pending.pop()):
            if item.id not in found:
                found.add(item.id)
                if isinstance(item, View):
                    pending.append(item.id)
    return found


class _InMemory:
    """The entries of a process that can use no shard, as a `DurableMap` has them."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}

    def entries(self) -> dict[str, bytes]:
        return dict(self._entries)

    def get(self, key: str) -> bytes | None:
        return self._entries.get(key)

    def sync(self) -> bool:
        return False

    def apply(self, make: Callable[[Mapping[str, bytes]], Change]) -> int:
        for key, value in make(self._entries).items():
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value
        return 0

    def close(self) -> None:
        self._entries.clear()


class ExpressionCache:
    """The cache of one build in one environment. Thread-safe.

    Args:
        persist: the client of the environment's shards; None: entries are kept in memory only.
        shard: which of them is the cache's.
        build: the build version, whose entries alone are seen; or what finds it out, asked when an entry is first.
    """

    def __init__(
        self, persist: PersistClient | None, shard: CacheShard | str, build: str | Callable[[], str]
    ) -> None:
        self._persist = persist
        self._shard = OneShard(shard) if isinstance(shard, str) else shard
        self._build_of = build
        self._lock = threading.RLock()
        self._map: DurableMap | _InMemory | None = _InMemory() if persist is None else None
        self._on = ""
        self._given_up = 0
        # Entries as they were read, with their bytes: none is looked at twice.
        self._known: dict[str, tuple[bytes, Entry]] = {}
        self._opened_with: tuple[Callable[[], Current], bool] | None = None
        self._closed = False
        self.counts = CacheCounts()

    @classmethod
    def in_memory(cls) -> ExpressionCache:
        """A cache of a process that has no environment."""
        return cls(None, "", "")

    @functools.cached_property
    def _build(self) -> str:
        return self._build_of if isinstance(self._build_of, str) else self._build_of()

    # --- the shard ----------------------------------------------------------------------------

    def _with_map(self, act: Callable[[DurableMap | _InMemory], T]) -> T:
        """What ``act`` makes of the entries; on another shard where this one turns out to be damaged."""
        with self._lock:
            while True:
                found = None
                try:
                    found = self._opened_map()
                    return act(found)
                except Exception as failure:
                    if isinstance(found, _InMemory) or not _is_damage(failure):
                        raise
                    self._set_aside(failure)

    def _opened_map(self) -> DurableMap | _InMemory:
        if self._map is not None and (
            isinstance(self._map, _InMemory) or self._on == self._shard.current()
        ):
            return self._map
        if self._closed or self._persist is None:
            raise InternalError("the expression cache was closed")
        if self._map is not None:
            # Another process has set the shard aside.
            self._map.close()
        self._on = self._shard.current()
        self._map = None
        self._map = DurableMap(self._persist, self._on, "expression cache", max_conflicts=None)
        if self._opened_with is not None:
            self._reconcile(self._map, *self._opened_with)
        return self._map

    def _set_aside(self, failure: Exception) -> None:
        """Go on without the shard."""
        broken, self._map, self._known = self._map, None, {}
        if broken is not None:
            try:
                broken.close()
            except SqlError as second:
                _log.info("closing a damaged expression cache: %s", second)
        self._given_up += 1
        instead = None
        if not isinstance(failure, NewerVersion) and self._given_up <= _MOST_SHARDS:
            instead = self._shard.set_aside(self._on, str(failure))
        _log.warning(
            "the expression cache on shard %s is set aside, plans are made again%s: %s",
            self._on,
            "" if instead else " and kept in memory",
            failure,
        )
        if instead is None:
            self._map = _InMemory()

    # --- reconciliation -----------------------------------------------------------------------

    def open(
        self,
        current_ids: Mapping[GlobalId, int],
        optimizer_features: str | None = None,
        *,
        remove_prior_versions: bool,
    ) -> dict[GlobalId, GlobalExpressions]:
        """Reconcile with what exists; the global entries of this build that remain.

        Args:
            current_ids: every object (indexes too) with the version of its definition.
            optimizer_features: the features in force, spelled; None: those of no entry matter.
            remove_prior_versions: whether entries of other builds go (not in a read-only process).
        """
        current = current_ids, optimizer_features
        self._with_map(lambda found: self._reconcile(found, lambda: current, remove_prior_versions))
        return {gid: plan for gid in current_ids if (plan := self._global(gid)) is not None}

    def reconcile_when_opened(
        self, current: Callable[[], Current], *, remove_prior_versions: bool
    ) -> None:
        """As `open`, once the shard is asked for something first; returns at once.

        Args:
            current: what exists when it is called: objects are there before their entries are, so what has an entry does.
            remove_prior_versions: as of `open`.
        """
        self._opened_with = (current, remove_prior_versions)

    def _reconcile(
        self, found: DurableMap | _InMemory, current: Callable[[], Current], prior: bool
    ) -> None:
        found.apply(lambda entries: self._stale(entries, *current(), prior))

    def _stale(
        self,
        entries: Mapping[str, bytes],
        current: Mapping[GlobalId, int],
        features: str | None,
        prior: bool,
    ) -> Change:
        doomed: dict[str, bytes | None] = {}
        waiting = {build for build, _, kind in map(parts_of, entries) if kind == WAITING}
        for key, value in entries.items():
            build, gid, kind = parts_of(key)
            if build != self._build:
                # Those of a deployment that waits are its own; arrangements are to be ended before they are forgotten.
                if prior and build not in waiting and kind != ARRANGEMENT:
                    doomed[key] = None
                continue
            if kind in OF_DEPLOYMENTS:
                continue
            entry = self._read(key, value)
            if _is_current(entry, gid, current, features, running=kind == RUNNING):
                continue
            doomed[key] = None
            running = entry_key(build, gid, RUNNING)
            if (
                kind == GLOBAL
                and running not in entries
                and _is_current(entry, gid, current, features, running=True)
            ):
                # Its index has gone, and is kept for as long as this runs; or other features are for a start to come.
                doomed[running] = value
        charge = entry_key(self._build, DEPLOYMENT, CHARGE)
        if prior and charge not in entries:
            doomed[charge] = b"{}"
        return doomed

    # --- reading ------------------------------------------------------------------------------

    def _read(self, key: str, data: bytes) -> Entry | None:
        """An entry of this build; None where the bytes are none: it is then as if it were not there."""
        known = self._known.get(key)
        if known is not None and known[0] is data:
            return known[1]
        read = _READ.get(parts_of(key)[2])
        try:
            entry = None if read is None else read(data)
        except msgspec.MsgspecError as failure:
            self._damaged(key, failure)
            return None
        if entry is not None:
            self._known[key] = data, entry
        return entry

    def _damaged(self, key: str, failure: Exception) -> None:
        _log.warning("the expression cache's entry %s is made again: %s", key, failure)
        self._shard.damaged_entry(key, str(failure))

    def _entry(self, gid: GlobalId, kind: str) -> Entry | None:
        key = entry_key(self._build, gid, kind)
        data = self._with_map(lambda entries: entries.get(key))
        with self._lock:
            return self._of(key, data)

    def _of(self, key: str, data: bytes | None) -> Entry | None:
        """The entry of a key; the lock is held."""
        if data is None:
            self._known.pop(key, None)
            return None
        return self._read(key, data)

    def _usable(self, key: str, data: bytes | None) -> Entry | None:
        """As `_of`; a plan that is not what was written is none."""
        entry = self._of(key, data)
        if isinstance(entry, GlobalExpressions):
            try:
                entry.check()
            except msgspec.MsgspecError as failure:
                self._damaged(key, failure)
                return None
        return entry

    def _global(self, gid: GlobalId, kind: str = GLOBAL) -> GlobalExpressions | None:
        """A plan that is what was written."""
        key = entry_key(self._build, gid, kind)
        with self._lock:
            entry = self._usable(key, self._with_map(lambda entries: entries.get(key)))
        return entry if isinstance(entry, GlobalExpressions) else None

    def local(self, gid: GlobalId, features: str, version: int) -> Relation | None:
        """A view's cached MIR, if it was made under these features for this version."""
        entry = self._entry(gid, LOCAL)
        if not isinstance(entry, LocalExpression):
            return None
        if (entry.features, entry.version) != (features, version):
            return None
        try:
            return entry.mir
        except msgspec.MsgspecError as failure:
            self._damaged(entry_key(self._build, gid, LOCAL), failure)
            return None

    def plan(self, gid: GlobalId, features: str, version: int) -> GlobalExpressions | None:
        """An object's cached plan, if it was made under these features for this version. Counted."""
        entry = self._global(gid)
        if entry is not None and (entry.features, entry.version) == (features, version):
            self.counts.hits += 1
            return entry
        self.counts.misses += 1
        return None

    def lacking(self, gids: Iterable[GlobalId]) -> list[GlobalId]:
        """Those of the objects that have no plan, as far as is known without looking at one."""
        keys = {gid: entry_key(self._build, gid, GLOBAL) for gid in gids}
        return self._with_map(
            lambda entries: [gid for gid, key in keys.items() if entries.get(key) is None]
        )

    def peek(self, gid: GlobalId) -> GlobalExpressions | None:
        """The plan that runs of a deployed object, whatever its features, not counted: for EXPLAIN."""
        return self._global(gid, RUNNING) or self._global(gid)

    def glance(self, gid: GlobalId) -> GlobalExpressions | None:
        """As `peek`, of which nothing was decoded yet: what it imports is known, its plan may turn out to be none."""
        for kind in (RUNNING, GLOBAL):
            entry = self._entry(gid, kind)
            if isinstance(entry, GlobalExpressions):
                return entry
        return None

    # --- changes ------------------------------------------------------------------------------

    def insert_expressions(
        self,
        new_local: Mapping[GlobalId, LocalExpression] | None = None,
        new_global: Mapping[GlobalId, GlobalExpressions] | None = None,
        invalidate_ids: Iterable[GlobalId] = (),
        *,
        running: Set[GlobalId] = frozenset(),
    ) -> None:
        """Remove the entries of ``invalidate_ids`` and put the new ones, in one write; where an id is in both, the new one stays.

        Args:
            new_local: locally optimized views.
            new_global: plans of objects: where there is one already, that is what runs until the new one does.
            invalidate_ids: what has gone, or changes.
            running: objects whose plans in the cache, the new ones too, are those that run from now on.
        """
        put: dict[str, bytes] = {}
        for gid, local in (new_local or {}).items():
            put[entry_key(self._build, gid, LOCAL)] = local.to_bytes()
        for gid, plan in (new_global or {}).items():
            put[entry_key(self._build, gid, GLOBAL)] = plan.to_bytes()
        gone, replaced = tuple(invalidate_ids), tuple(new_global or {})

        def change(entries: Mapping[str, bytes]) -> Change:
            result: dict[str, bytes | None] = {}
            for gid in gone:
                for kind in (LOCAL, GLOBAL, RUNNING):
                    key = entry_key(self._build, gid, kind)
                    if key in entries and not (kind == RUNNING and gid in replaced):
                        result[key] = None
            for gid in running:
                runs = entry_key(self._build, gid, RUNNING)
                if runs in entries:
                    result[runs] = None
            for gid in replaced:
                planned, runs = (entry_key(self._build, gid, k) for k in (GLOBAL, RUNNING))
                changes = planned in entries and entries[planned] != put[planned]
                if changes and gid not in running and runs not in entries:
                    result[runs] = entries[planned]
            return {**result, **put}

        self._with_map(lambda entries: entries.apply(change))
        if gone or running:
            self._forget_gone()

    def invalidate_entries(self, dropped_ids: Set[GlobalId]) -> dict[GlobalId, GlobalExpressions]:
        """Remove all entries of this build of objects that were dropped, and those of others that depend on an index among them; the plans
        of the latter. What runs of them goes on.
        """
        removed: dict[GlobalId, GlobalExpressions] = {}

        def change(entries: Mapping[str, bytes]) -> Change:
            removed.clear()
            result: dict[str, bytes | None] = {}
            for key, value in entries.items():
                build, gid, kind = parts_of(key)
                if build != self._build:
                    continue
                if gid in dropped_ids:
                    result[key] = None
                    continue
                entry = self._read(key, value)
                if (
                    kind == GLOBAL
                    and isinstance(entry, GlobalExpressions)
                    and not dropped_ids.isdisjoint(entry.index_imports)
                ):
                    removed[gid] = entry
                    result[key] = None
                    running = entry_key(build, gid, RUNNING)
                    if running not in entries:
                        result[running] = value
            return result

        self._with_map(lambda entries: entries.apply(change))
        self._forget_gone()
        return removed

    def reconcile(self, current: Callable[[], Current], *, remove_prior_versions: bool) -> None:
        """As `open`, now, of a process that has been reading the shard before."""
        self._opened_with = (current, remove_prior_versions)
        self._with_map(lambda found: self._reconcile(found, current, remove_prior_versions))

    @property
    def build(self) -> str:
        """Of which build the entries are that this one sees as its own."""
        return self._build

    def all_entries(self) -> dict[str, bytes]:
        """The entries of every build, as they are now: for what deployments say of themselves, and for removing builds."""
        self._with_map(lambda entries: entries.sync())
        return self._with_map(lambda entries: entries.entries())

    def change(self, make: Callable[[Mapping[str, bytes]], Change]) -> None:
        """Change entries of deployments, or remove builds, in one write; ``make`` may be called several times and must be pure."""
        self._with_map(lambda entries: entries.apply(make))
        self._forget_gone()

    def sync(self) -> None:
        """Read what other processes wrote."""
        if self._with_map(lambda entries: entries.sync()):
            self._forget_gone()

    def _forget_gone(self) -> None:
        """Keep what was read of the entries that are there, and no more."""

        def there(entries: DurableMap | _InMemory) -> dict[str, tuple[bytes, Entry]]:
            return {k: known for k, known in self._known.items() if entries.get(k) is known[0]}

        with self._lock:
            self._known = self._with_map(there)

    def close(self) -> None:
        """Give the handles up. Idempotent."""
        with self._lock:
            self._closed = True
            found, self._map = self._map, None
        if found is not None:
            found.close()


def _is_damage(failure: Exception) -> bool:
    """Whether a failure says that the shard is not what it should be, rather than that a store does not answer or a call is over."""
    if isinstance(failure, CorruptPart | MissingPart | NewerVersion | DatatypeMismatch):
        return True
    if isinstance(failure, LocationError | Fenced | QueryCanceled):
        return False
    return isinstance(failure, InternalError) or not isinstance(failure, SqlError)


def _is_current(
    entry: Entry | None,
    gid: GlobalId,
    current: Mapping[GlobalId, int],
    features: str | None,
    *,
    running: bool,
) -> bool:
    """Whether an entry still fits its object, the features, and a plan the indexes that it imports; one that runs does whatever became of
    those.
    """
    if entry is None or current.get(gid) != entry.version:
        return False
    if running:
        return True
    return features in (None, entry.features) and current.keys() >= set(entry.index_imports)


@functools.lru_cache(maxsize=64)
def spell_features(features: OptimizerFeatures) -> str:
    """Optimizer features as a text that is equal iff they are."""
    return hashlib.sha256(msgspec.json.encode(features, order="sorted")).hexdigest()[:16]
