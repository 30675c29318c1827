"""The catalog on its shard, and the only place that knows how its entries are spelled there.

Promise: an entry is a key, ``<kind>/<name>``, and a JSON value, readable by people and by other versions; what older versions wrote is
decoded (`mzsql.catalog.objects` has how), in an older format after the steps to this one (`mzsql.catalog.migrations`). The format that
the environment's own entry names is looked at before anything else is decoded, and what this version cannot read is refused, never a bare
failure: it is of a newer version, or no catalog. A change is appended iff it was computed from the newest contents
(`DurableCatalog.transact`), so a command's preconditions hold when it is carried out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from mzsql.catalog.change import FIELDS, SINGLE, Change
from mzsql.catalog.commands.deployments import check_generation
from mzsql.catalog.durable_map import Change as Entries
from mzsql.catalog.durable_map import DurableMap
from mzsql.catalog.migrations import format_of, migrated, migration
from mzsql.catalog.objects import (
    FIRST_DATABASE,
    FIRST_ID,
    FIRST_ROLE,
    AuditEvent,
    Cluster,
    Database,
    Deployment,
    Item,
    Lease,
    Meta,
    Replica,
    Role,
    Schema,
    Standby,
    schemas_of,
)
from mzsql.catalog.state import CatalogState
from mzsql.persist import NewerVersion, PersistClient
from mzsql.repr.errors import EnvironmentRefused, Fenced
from mzsql.repr.version import VERSION

#: The format of an environment, in its marker and its catalog; a higher one is refused. Read where it is, so that there is one.
FORMAT_VERSION = 1

T = TypeVar("T")

_TYPES: Mapping[str, Any] = {
    "meta": Meta,
    "item": Item,
    "cluster": Cluster,
    "replica": Replica,
    "schema": str | Schema,
    "database": Database | None,
    "role": Role | None,
    "comment": str,
    "counter": int,
    "managed": str,
    "arrangement": str,
    "setting": str,
    "lease": Lease,
    "standby": Standby,
    "deployment": Deployment,
    "audit": AuditEvent,
}
"""What entries of each kind hold."""
_KINDS = {
    field: field if field in SINGLE or field == "managed" else field.removesuffix("s")
    for field in FIELDS
}
"""What the entries of a field of the state and of changes are called: ``items`` are ``item/u1``, …"""
_FIELDS = {kind: field for field, kind in _KINDS.items()}
_NAMES = {"meta": "environment", "lease": "leader", "deployment": "current"}
"""The name of the one entry of its kind."""
_OF_NO_PLAN = ("lease", "standby", "arrangement", "managed", "counter", "audit")
"""What no plan depends on: who leads, where contents are, what was given out and what was done."""
_FIRST: Mapping[str, Mapping[str, object]] = {
    "databases": {FIRST_ID: FIRST_DATABASE},
    "roles": {FIRST_ID: FIRST_ROLE},
}
"""What every environment begins with is written only once it is changed, or dropped: then it is null."""


def encode(change: Change) -> Entries:
    """The durable entries of a change."""
    return dict(_encoded(change))


def _encoded(change: Change) -> Iterator[tuple[str, bytes | None]]:
    for field, kind in _KINDS.items():
        new = getattr(change, field)
        if field in SINGLE:
            if new is not None:
                yield f"{kind}/{_NAMES[kind]}", msgspec.json.encode(new)
            continue
        for name, value in new.items():
            gone = value is None and name not in _FIRST.get(field, {})
            yield f"{kind}/{name}", None if gone else msgspec.json.encode(value)


def decode(entries: Mapping[str, bytes]) -> CatalogState:
    """The state that durable entries spell.

    Raises:
        EnvironmentRefused: a newer version wrote them, or they are no catalog's.
    """
    return _state({key: _decoded(key, value) for key, value in _present(entries).items()})


def _present(entries: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """A catalog's entries in the present format."""
    change = _migration(entries)
    return migrated(entries, change) if change else entries


def _migration(entries: Mapping[str, bytes]) -> Entries:
    """What has to be changed of a catalog for it to be of the present format; one of a newer format is refused."""
    try:
        found = format_of(entries)
    except msgspec.MsgspecError as failure:
        raise _unreadable("the entry of its environment", failure) from None
    if found is not None and found > FORMAT_VERSION:
        raise EnvironmentRefused(
            f"the catalog was written by a newer mzsql: its format is {found}, this one knows up to {FORMAT_VERSION}",
            hint="Upgrade mzsql to open it.",
        )
    try:
        return migration(entries, FORMAT_VERSION)
    except msgspec.MsgspecError as failure:
        raise _unreadable(f"an entry of format {found}", failure) from None


def _decoded(key: str, value: bytes) -> object:
    kind = key.partition("/")[0]
    if kind not in _TYPES:
        raise _unreadable(f'an entry "{key}"', f'there is no kind "{kind}"')
    try:
        decoded: object = msgspec.json.decode(value, type=_TYPES[kind])
    except msgspec.MsgspecError as failure:
        raise _unreadable(f'an entry "{key}"', failure) from None
    return decoded


def _unreadable(what: str, why: object) -> EnvironmentRefused:
    return EnvironmentRefused(
        f"the catalog has {what} that mzsql {VERSION} cannot read: {why}",
        hint="Where a newer mzsql has written it, upgrade to that.",
    )


def _state(entries: Mapping[str, object]) -> CatalogState:
    fields: dict[str, Any] = {field: {} for field in FIELDS if field not in SINGLE}
    for key, decoded in entries.items():
        kind, _, name = key.partition("/")
        field = _FIELDS[kind]
        if field in SINGLE:
            fields[field] = decoded
        else:
            fields[field][name] = decoded
    for field, first in _FIRST.items():
        fields[field] = {k: v for k, v in {**first, **fields[field]}.items() if v is not None}
    fields["schemas"] = schemas_of(fields["schemas"])
    return CatalogState(**fields)


def peek_catalog(persist: PersistClient, shard_id: str) -> CatalogState | None:
    """The catalog as it is, read without a lease and changing nothing; None where there is none."""
    table = persist.peek(shard_id)
    if table is None or not {"key", "value"} <= set(table.column_names):
        # A shard of somebody else's may have any id.
        return None
    pairs = zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)
    return decode(dict(pairs))


class DurableCatalog:
    """The catalog of an environment, followed by this process. Thread-safe.

    Attributes:
        generation: the deploy generation that this process is of: once a higher one was promoted, `sync` and `transact` raise `Fenced`.
            None until that is known.
    """

    def __init__(self, persist: PersistClient, shard_id: str) -> None:
        self.generation: int | None = None
        self._map = DurableMap(persist, shard_id, "catalog")
        self._lock = threading.RLock()
        self._decoded: tuple[int, CatalogState] | None = None
        self._entries: dict[str, tuple[bytes, object]] = {}
        self._definitions = 0

    @property
    def state(self) -> CatalogState:
        """The catalog as last seen; asks nobody."""
        known = self._decoded
        if known is not None and known[0] == self._map.upper:
            return known[1]
        with self._lock:
            step = self._map.upper
            if self._decoded is None or self._decoded[0] != step:
                self._decoded = (step, self._decode(step))
            return self._decoded[1]

    def _decode(self, step: int) -> CatalogState:
        """The state at ``step``; what has not changed since the last one is not decoded again."""
        before, now = self._entries, self._map.entries()
        try:
            return self._decode_from(before, _present(now), step)
        except EnvironmentRefused:
            self._check_deployment(now)
            raise

    def _check_deployment(self, entries: Mapping[str, bytes]) -> None:
        """Fenced where that is why this version cannot read what was written since: it says more."""
        entry = entries.get(f"deployment/{_NAMES['deployment']}")
        if entry is not None and self.generation is not None:
            with contextlib.suppress(EnvironmentRefused):
                deployment = _decoded("deployment", entry)
                assert isinstance(deployment, Deployment)
                check_generation(CatalogState(deployment=deployment), self.generation)

    def _decode_from(
        self,
        before: Mapping[str, tuple[bytes, object]],
        now: Mapping[str, bytes],
        step: int,
    ) -> CatalogState:
        changed = before.keys() - now.keys()
        entries: dict[str, tuple[bytes, object]] = {}
        for key, value in now.items():
            found = before.get(key)
            if found is None or found[0] != value:
                changed.add(key)
                found = value, _decoded(key, value)
            entries[key] = found
        if any(key.partition("/")[0] not in _OF_NO_PLAN for key in changed):
            self._definitions = step
        self._entries = entries
        state = _state({key: decoded for key, (_, decoded) in entries.items()})
        if self._decoded is None:
            return state
        # What has not changed stays the same value, by which others see that it has not.
        fields = {_FIELDS[key.partition("/")[0]] for key in changed}
        last = self._decoded[1]
        same = {field: getattr(last, field) for field in FIELDS if field not in fields}
        return msgspec.structs.replace(state, **same)

    @property
    def definitions(self) -> int:
        """The step at which this process saw the latest change of what plans depend on: those of an earlier one may be outdated."""
        with self._lock:
            assert self.state is not None
            return self._definitions

    @property
    def step(self) -> int:
        """How many changes this process has seen."""
        return self._map.upper

    def entries(self) -> dict[str, bytes]:
        """The durable entries as last seen."""
        return self._map.entries()

    def await_change(self, timeout: float) -> bool | None:
        """As `DurableMap.await_change`."""
        return self._map.await_change(timeout)

    def sync(self) -> CatalogState:
        """The catalog as it is now, other processes' changes included.

        Raises:
            Fenced: a higher deploy generation was promoted, or a newer version has changed the catalog, which only one in charge does.
        """
        with self._fencing():
            self._map.sync()
        return self._checked()

    @contextlib.contextmanager
    def _fencing(self) -> Iterator[None]:
        """A process that has joined a deployment, and finds what a newer version wrote, was fenced."""
        try:
            yield
        except NewerVersion as newer:
            if self.generation is None:
                raise
            raise Fenced(
                f"fenced by a newer deployment: {newer.message}", hint=newer.hint
            ) from None

    def _checked(self) -> CatalogState:
        state = self.state
        if self.generation is not None:
            check_generation(state, self.generation)
        return state

    def transact(self, command: Callable[[CatalogState], tuple[Change, T]]) -> T:
        """Apply a command atomically; its second result is returned. It may be called several times and must be pure.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        answer: list[T] = []

        def make(entries: Mapping[str, bytes]) -> Entries:
            # `state` decodes the same ones, once for each step.
            change, result = command(self._checked())
            answer[:] = [result]
            made = encode(change)
            return {**_migration(entries), **made} if made else made

        with self._lock, self._fencing():
            self._map.apply(make)
        return answer[0]

    def close(self) -> None:
        """Give the handles up. Idempotent."""
        self._map.close()
