"""Optimized plans that outlive a restart, on one dedicated shard.

Promise: an entry is valid for one build, one object and one version of its definition, under the optimizer features it was made with;
anything else is as if it were not there, so no format is ever migrated and other builds' bytes are never decoded. A plan that imports an
index lives no longer than the index, but as what runs: EXPLAIN shows that, in every process, until another plan runs. An entry is
replaced and entries are invalidated in one atomic write; losing a race reads the other's changes and goes on (both run the same
code). Source: the expression cache design, with invalidation towards dependents as it documents it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mzsql.catalog.durable_map import Change, DurableMap
from mzsql.catalog.objects import View
from mzsql.catalog.state import CatalogState
from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.relation import Relation
from mzsql.lir.plan import DataflowDescription
from mzsql.persist import PersistClient
from mzsql.repr.ids import GlobalId

LOCAL = "local"
GLOBAL = "global"
RUNNING = "running"
"""What runs of an object, where a new index has put, or the end of an old one has left, another plan for its next start."""


class LocalExpression(msgspec.Struct, frozen=True):
    """A view's locally optimized MIR."""

    mir: Relation
    features: str
    version: int = 1


class GlobalExpressions(msgspec.Struct, frozen=True):
    """A dataflow's plan: what EXPLAIN shows of a deployed object and what runs.

    Attributes:
        mir: the dataflow's globally optimized MIR.
        plan: the physical plan.
        index_imports: the indexes that either uses.
        features: the optimizer features it was made with, spelled.
        version: the version of the object's definition.
        notices: what the optimizer had to say.
    """

    mir: MirDataflow
    plan: DataflowDescription
    index_imports: tuple[GlobalId, ...]
    features: str
    version: int = 1
    notices: tuple[str, ...] = ()


_TYPES: dict[str, Any] = {
    LOCAL: LocalExpression,
    GLOBAL: GlobalExpressions,
    RUNNING: GlobalExpressions,
}


class CacheCounts(msgspec.Struct):
    """How often a plan was there: mutable."""

    hits: int = 0
    misses: int = 0


def entry_key(build: str, gid: GlobalId, kind: str) -> str:
    """The durable key of an entry."""
    return f"{build}/{gid}/{kind}"


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


class ExpressionCache:
    """The cache of one build in one environment. Thread-safe.

    Args:
        persist: the client of the environment's shards.
        shard_id: the cache's shard.
        build: the build version, whose entries alone are seen.
    """

    def __init__(self, persist: PersistClient, shard_id: str, build: str) -> None:
        self._map = DurableMap(persist, shard_id, "expression cache")
        self._build = build
        self.counts = CacheCounts()

    def open(
        self,
        current: Mapping[GlobalId, int],
        *,
        remove_prior_versions: bool,
    ) -> dict[GlobalId, GlobalExpressions]:
        """Reconcile with what exists; the global entries of this build that remain.

        Args:
            current: every object (indexes too) with the version of its definition.
            remove_prior_versions: whether entries of other builds go (not in a read-only process).
        """
        self._map.apply(lambda entries: self._stale(entries, current, remove_prior_versions))
        kept = {}
        for key in self._map.entries():
            build, gid, kind = key.rsplit("/", 2)
            if build == self._build and kind == GLOBAL:
                found = self._decode(GlobalId(gid), GLOBAL)
                if found is not None:
                    kept[GlobalId(gid)] = found
        return kept

    def _stale(
        self, entries: Mapping[str, bytes], current: Mapping[GlobalId, int], prior: bool
    ) -> Change:
        doomed: dict[str, bytes | None] = {}
        for key, value in entries.items():
            build, gid, kind = key.rsplit("/", 2)
            if build != self._build:
                if prior:
                    doomed[key] = None
                continue
            entry = _decode(kind, value)
            if not _is_current(entry, GlobalId(gid), current, running=kind == RUNNING):
                doomed[key] = None
                running = entry_key(build, GlobalId(gid), RUNNING)
                if (
                    kind == GLOBAL
                    and running not in entries
                    and _is_current(entry, GlobalId(gid), current, running=True)
                ):
                    # Its index has gone, and is kept for as long as this runs.
                    doomed[running] = value
        return doomed

    def _decode(self, gid: GlobalId, kind: str) -> Any:
        data = self._map.entries().get(entry_key(self._build, gid, kind))
        return None if data is None else _decode(kind, data)

    def local(self, gid: GlobalId, features: str, version: int) -> Relation | None:
        """A view's cached MIR, if it was made under these features for this version."""
        entry = self._decode(gid, LOCAL)
        fits = entry is not None and (entry.features, entry.version) == (features, version)
        return entry.mir if fits else None

    def plan(self, gid: GlobalId, features: str, version: int) -> GlobalExpressions | None:
        """An object's cached plan, if it was made under these features for this version. Counted."""
        entry = self._decode(gid, GLOBAL)
        if entry is not None and (entry.features, entry.version) == (features, version):
            self.counts.hits += 1
            return entry  # type: ignore[no-any-return]
        self.counts.misses += 1
        return None

    def peek(self, gid: GlobalId) -> GlobalExpressions | None:
        """The plan that runs of a deployed object, whatever its features, not counted: for EXPLAIN."""
        entry: GlobalExpressions | None = self._decode(gid, RUNNING) or self._decode(gid, GLOBAL)
        return entry

    def update(
        self,
        new_local: Mapping[GlobalId, LocalExpression] | None = None,
        new_global: Mapping[GlobalId, GlobalExpressions] | None = None,
        invalidate: Iterable[GlobalId] = (),
        *,
        runs: bool = False,
    ) -> None:
        """Remove the entries of ``invalidate`` and put the new ones, in one write; where an id is in both, the new one stays.

        Args:
            new_local: locally optimized views.
            new_global: plans of objects: where there is one already, that is what runs until the new one does.
            invalidate: what has gone, or changes.
            runs: whether the new plans are those that run from now on.
        """
        put: dict[str, bytes] = {}
        for gid, local in (new_local or {}).items():
            put[entry_key(self._build, gid, LOCAL)] = msgspec.msgpack.encode(local)
        for gid, plan in (new_global or {}).items():
            put[entry_key(self._build, gid, GLOBAL)] = msgspec.msgpack.encode(plan)
        gone, replaced = tuple(invalidate), tuple(new_global or {})

        def change(entries: Mapping[str, bytes]) -> Change:
            result: dict[str, bytes | None] = {}
            for gid in gone:
                for kind in (LOCAL, GLOBAL, RUNNING):
                    key = entry_key(self._build, gid, kind)
                    if key in entries and not (kind == RUNNING and gid in replaced):
                        result[key] = None
            for gid in replaced:
                planned, running = (entry_key(self._build, gid, k) for k in (GLOBAL, RUNNING))
                if runs:
                    result.update({running: None} if running in entries else {})
                elif (
                    planned in entries
                    and running not in entries
                    and entries[planned] != put[planned]
                ):
                    result[running] = entries[planned]
            return {**result, **put}

        self._map.apply(change)

    def sync(self) -> None:
        """Read what other processes wrote."""
        self._map.sync()

    def close(self) -> None:
        """Give the handles up. Idempotent."""
        self._map.close()


def _is_current(
    entry: Any, gid: GlobalId, current: Mapping[GlobalId, int], *, running: bool
) -> bool:
    """Whether an entry still fits its object, and a plan the indexes that it imports; one that runs has those whatever became of them."""
    if entry is None or current.get(gid) != entry.version:
        return False
    if isinstance(entry, GlobalExpressions) and not running:
        return current.keys() >= set(entry.index_imports)
    return True


def _decode(kind: str, data: bytes) -> Any:
    """An entry of this build; None where the bytes are none: it is then as if it were not there."""
    if kind not in _TYPES:
        return None
    try:
        return msgspec.msgpack.decode(data, type=_TYPES[kind])
    except msgspec.MsgspecError:
        return None


def spell_features(features: object) -> str:
    """Optimizer features as a text that is equal iff they are."""
    return hashlib.sha256(msgspec.json.encode(features, order="sorted")).hexdigest()[:16]
