"""The expression cache: optimized plans that outlive a restart, on one dedicated shard.

Promise: an entry applies to one build, one object and one version of its definition, under the optimizer features it was made with. Any
other entry counts as absent, so no format is ever migrated and other builds' bytes are never decoded. A plan that imports an index is
invalidated with the index, except as the plan that is running: EXPLAIN shows that one, in every process, until another plan runs. Replacing
an entry and invalidating others is one atomic write; a process that loses a race reads the other's changes and retries (both run the same
code). Damage never fails a statement: a damaged shard is replaced (`CacheShard`), a damaged entry counts as absent, and plans are made
again. The shard is read at first use, not when an environment is opened. The trade-off: a new build starts with a cold cache. Source:
Materialize's expression cache design; invalidation follows the dependents of an index.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
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
    OtherFormat,
)
from mzsql.catalog.durable_map import Change, DurableMap
from mzsql.catalog.objects import View
from mzsql.catalog.state import CatalogState
from mzsql.expr.relation import Relation
from mzsql.location import LocationError
from mzsql.persist import CorruptPart, MissingPart, NewerVersion, PersistClient, ShardFinalized
from mzsql.repr.errors import DatatypeMismatch, Fenced, InternalError, QueryCanceled, SqlError
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property
from mzsql.transform import OptimizerFeatures

T = TypeVar("T")
Entry = LocalExpression | GlobalExpressions
#: Every object, indexes included, with the version of its definition; and the optimizer features in force as `spell_features` writes them
#: (None: entries apply whatever their features).
Current = tuple[Mapping[GlobalId, int], str | None]

_log = logging.getLogger(__name__)

_READ: Mapping[str, Callable[[bytes], Entry]] = {
    LOCAL: LocalExpression.read,
    GLOBAL: GlobalExpressions.read,
    RUNNING: GlobalExpressions.read,
}

#: Takes an object's place in the keys of entries that are about a deployment as a whole.
DEPLOYMENT = GlobalId("deployment")

#: After so many damaged shards the store is taken to be at fault, and plans are kept in memory.
_MOST_SHARDS = 3


class CacheCounts(msgspec.Struct):
    """How often a requested plan was in the cache. Mutable."""

    hits: int = 0
    misses: int = 0


class CacheShard(Protocol):
    """Decides which shard holds an environment's cache."""

    def current(self) -> str:
        """The shard's id, as last seen."""

    def set_aside(self, shard: str, reason: str) -> str | None:
        """Record a shard as damaged, and return the one to use instead; None where this process may not choose one."""

    def damaged_entry(self, key: str, reason: str) -> None:
        """Record an entry that cannot be read."""


class OneShard:
    """A fixed shard without a replacement: after damage plans are kept in memory."""

    def __init__(self, shard: str) -> None:
        self._shard = shard

    def current(self) -> str:
        """The shard."""
        return self._shard

    def set_aside(self, shard: str, reason: str) -> str | None:
        """Always None: there is no other shard."""
        del shard, reason
        return None

    def damaged_entry(self, key: str, reason: str) -> None:
        """Do nothing: the cache has logged it."""


def entry_key(build: str, gid: GlobalId, kind: str) -> str:
    """The durable key of an entry."""
    return f"{build}/{gid}/{kind}"


def parts_of(key: str) -> tuple[str, GlobalId, str]:
    """The build, object and kind of a key. A text that is no key has an empty build."""
    parts = key.rsplit("/", 2)
    build, gid, kind = parts if len(parts) == 3 else ("", "", *parts)[-3:]
    return build, GlobalId(gid), kind


def dependents_of_index(state: CatalogState, on: GlobalId) -> set[GlobalId]:
    """The objects whose plans an index on ``on`` may change: ``on`` itself, its direct dependents, and what depends on it through plain
    views.
    """
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
    """The interface of a `DurableMap` over a dictionary, for a process that can use no shard."""

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
        shard: the cache's shard, or what decides which one it is.
        build: the build whose entries are visible; or a function that finds it out, called at first use.
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
        # Entries as read, with their bytes, so that none is decoded twice.
        self._known: dict[str, tuple[bytes, Entry]] = {}
        self._opened_with: tuple[Callable[[], Current], bool] | None = None
        self._closed = False
        self.counts = CacheCounts()

    @classmethod
    def in_memory(cls) -> ExpressionCache:
        """A cache without an environment, empty at first and gone with the process."""
        return cls(None, "", "")

    @lazy_property
    def _build(self) -> str:
        return self._build_of if isinstance(self._build_of, str) else self._build_of()

    # --- the shard ----------------------------------------------------------------------------

    def _with_map(self, act: Callable[[DurableMap | _InMemory], T]) -> T:
        """Apply ``act`` to the entries. Where the shard turns out to be damaged, apply it to the replacement, so ``act`` may run more than
        once.
        """
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
        """The entries of the shard in use, opened at first use and whenever another process replaced the shard; the lock is held."""
        if self._map is not None and (
            isinstance(self._map, _InMemory) or self._on == self._shard.current()
        ):
            return self._map
        if self._closed or self._persist is None:
            raise InternalError("the expression cache was closed")
        if self._map is not None:
            # Another process found damage and replaced the shard.
            self._map.close()
        self._on = self._shard.current()
        self._map = None
        self._map = DurableMap(self._persist, self._on, "expression cache", max_conflicts=None)
        if self._opened_with is not None:
            self._reconcile(self._map, *self._opened_with)
        return self._map

    def _set_aside(self, failure: Exception) -> None:
        """Replace the shard after damage; in memory where it cannot be replaced, or where a newer version wrote it."""
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
        """Remove entries that no longer apply, and read the rest.

        Args:
            current_ids: every object, indexes included, with the version of its definition.
            optimizer_features: the features in force, as `spell_features` writes them; None: entries apply whatever their features.
            remove_prior_versions: whether to remove entries of other builds too; False in a read-only process.

        Returns:
            The plans of this build that still apply, by object.
        """
        current = current_ids, optimizer_features
        self._with_map(lambda found: self._reconcile(found, lambda: current, remove_prior_versions))
        return {gid: plan for gid in current_ids if (plan := self._global(gid)) is not None}

    def reconcile_when_opened(
        self, current: Callable[[], Current], *, remove_prior_versions: bool
    ) -> None:
        """As `open`, but deferred until the shard is first used; returns at once.

        Args:
            current: what exists when it is called. An object is in the catalog before its entry is written, so an entry without an object
                is stale.
            remove_prior_versions: as in `open`.
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
        """The change that removes entries that no longer apply. `InternalError`: the shard is another map's, and stays as it is."""
        doomed: dict[str, bytes | None] = {}
        parts = [parts_of(key) for key in entries]
        waiting = {build for build, _, kind in parts if kind == WAITING}
        for (key, value), (build, gid, kind) in zip(entries.items(), parts, strict=True):
            if not build:
                raise InternalError(f"it is the shard of something else: it holds {key!r}")
            if build != self._build:
                # Entries of a waiting deployment belong to it. An arrangement's entry is the only name of its shard, so the shard is
                # retired first.
                if prior and build not in waiting and kind != ARRANGEMENT:
                    doomed[key] = None
                continue
            if kind in OF_DEPLOYMENTS:
                continue
            entry = self._read(key, value, kind)
            if _is_current(entry, gid, current, features, running=kind == RUNNING):
                continue
            doomed[key] = None
            running = entry_key(build, gid, RUNNING)
            if (
                kind == GLOBAL
                and running not in entries
                and _is_current(entry, gid, current, features, running=True)
            ):
                # The dataflow goes on with this plan although its index was dropped (the index's data is kept that long), or although the
                # next start is to plan with other features.
                doomed[running] = value
        charge = entry_key(self._build, DEPLOYMENT, CHARGE)
        if prior and charge not in entries:
            doomed[charge] = b"{}"
        return doomed

    # --- reading ------------------------------------------------------------------------------

    def _read(self, key: str, data: bytes, kind: str) -> Entry | None:
        """Decode an entry of this build, of a kind; None where it is damaged or of another format, which counts as absent."""
        known = self._known.get(key)
        if known is not None and known[0] is data:
            return known[1]
        read = _READ.get(kind)
        try:
            entry = None if read is None else read(data)
        except OtherFormat:
            return None
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
        """The entry under a key; the lock is held."""
        if data is None:
            self._known.pop(key, None)
            return None
        return self._read(key, data, parts_of(key)[2])

    def _usable(self, key: str, data: bytes | None) -> Entry | None:
        """As `_of`, with the checksum of a plan verified; a damaged plan is None."""
        entry = self._of(key, data)
        if isinstance(entry, GlobalExpressions):
            try:
                entry.check()
            except msgspec.MsgspecError as failure:
                self._damaged(key, failure)
                return None
        return entry

    def _global(self, gid: GlobalId, kind: str = GLOBAL) -> GlobalExpressions | None:
        """An object's plan with its checksum verified; None where there is none."""
        key = entry_key(self._build, gid, kind)
        with self._lock:
            entry = self._usable(key, self._with_map(lambda entries: entries.get(key)))
        return entry if isinstance(entry, GlobalExpressions) else None

    def local(self, gid: GlobalId, features: str, version: int) -> Relation | None:
        """A view's cached MIR, if it was made under these features for this version of its definition."""
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
        """An object's cached plan, if it was made under these features for this version; counted in `counts`."""
        entry = self._global(gid)
        if entry is not None and (entry.features, entry.version) == (features, version):
            self.counts.hits += 1
            return entry
        self.counts.misses += 1
        return None

    def lacking(self, gids: Iterable[GlobalId]) -> list[GlobalId]:
        """Those of the objects without an entry for a plan. Entries are not decoded, so a damaged one counts as present."""
        keys = {gid: entry_key(self._build, gid, GLOBAL) for gid in gids}
        return self._with_map(
            lambda entries: [gid for gid, key in keys.items() if entries.get(key) is None]
        )

    def peek(self, gid: GlobalId) -> GlobalExpressions | None:
        """The plan that a deployed object runs with, whatever its features; not counted. For EXPLAIN."""
        return self._global(gid, RUNNING) or self._global(gid)

    def glances(self, gids: Iterable[GlobalId]) -> dict[GlobalId, GlobalExpressions]:
        """As `peek`, for those of the objects that have a plan, with only the headers decoded: their imports are known, but a
        plan may turn out to be damaged.
        """
        asked = list(gids)
        return self._with_map(lambda entries: dict(self._glanced(entries.entries(), asked)))

    def _glanced(
        self, entries: Mapping[str, bytes], gids: Iterable[GlobalId]
    ) -> Iterator[tuple[GlobalId, GlobalExpressions]]:
        """The plans of `glances`; the lock is held."""
        build = self._build
        for gid in gids:
            for kind in (RUNNING, GLOBAL):
                key = entry_key(build, gid, kind)
                data = entries.get(key)
                entry = None if data is None else self._read(key, data, kind)
                if isinstance(entry, GlobalExpressions):
                    yield gid, entry
                    break

    # --- changes ------------------------------------------------------------------------------

    def insert_expressions(
        self,
        new_local: Mapping[GlobalId, LocalExpression] | None = None,
        new_global: Mapping[GlobalId, GlobalExpressions] | None = None,
        invalidate_ids: Iterable[GlobalId] = (),
        *,
        running: Set[GlobalId] = frozenset(),
    ) -> None:
        """Remove the entries of ``invalidate_ids`` and add new ones, in one write. An id in both keeps the new entry.

        Args:
            new_local: locally optimized views.
            new_global: plans for the next start. Where an object had another plan before, that one is kept as the running one.
            invalidate_ids: objects that were dropped or changed.
            running: objects that run with their cached plans, the new ones included, from now on.
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
        """Remove this build's entries of dropped objects, and the plans of other objects that import a dropped index.

        Returns:
            The plans removed of objects that still exist. They stay in the cache as running plans, since the dataflows go on with them.
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
                entry = self._read(key, value, kind)
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
        """As `open`, at once, in a process that has used the shard before: after a promotion."""
        self._opened_with = (current, remove_prior_versions)
        self._with_map(lambda found: self._reconcile(found, current, remove_prior_versions))

    @property
    def build(self) -> str:
        """The build whose entries are visible."""
        return self._build

    def all_entries(self) -> dict[str, bytes]:
        """The current entries of every build, by key: for the state of deployments, and for removing builds."""
        self._with_map(lambda entries: entries.sync())
        return self._with_map(lambda entries: entries.entries())

    def change(self, make: Callable[[Mapping[str, bytes]], Change]) -> None:
        """Change entries of deployments, or remove builds, in one write. ``make`` may be called several times and must be pure."""
        self._with_map(lambda entries: entries.apply(make))
        self._forget_gone()

    def sync(self) -> None:
        """Read the entries that other processes wrote."""
        if self._with_map(lambda entries: entries.sync()):
            self._forget_gone()

    def _forget_gone(self) -> None:
        """Drop decoded entries whose bytes were removed or replaced."""

        def there(entries: DurableMap | _InMemory) -> dict[str, tuple[bytes, Entry]]:
            return {k: known for k, known in self._known.items() if entries.get(k) is known[0]}

        with self._lock:
            self._known = self._with_map(there)

    def close(self) -> None:
        """Close the shard's handles. Idempotent."""
        with self._lock:
            self._closed = True
            found, self._map = self._map, None
        if found is not None:
            found.close()


def _is_damage(failure: Exception) -> bool:
    """Whether a failure means that the shard's contents are wrong, rather than that a store is unreachable or a statement was canceled."""
    if isinstance(
        failure, CorruptPart | MissingPart | NewerVersion | DatatypeMismatch | ShardFinalized
    ):
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
    """Whether an entry applies: to its object's version and the features, with every index that it imports. A running plan needs neither
    features nor indexes.
    """
    if entry is None or current.get(gid) != entry.version:
        return False
    if running:
        return True
    if features is not None and features != entry.features:
        return False
    imports = entry.index_imports
    return not imports or all(one in current for one in imports)


@functools.lru_cache(maxsize=64)
def spell_features(features: OptimizerFeatures) -> str:
    """A digest of optimizer features: equal if and only if the features are equal."""
    return hashlib.sha256(msgspec.json.encode(features, order="sorted")).hexdigest()[:16]
