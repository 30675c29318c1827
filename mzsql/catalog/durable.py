"""The catalog on its shard; the only module that knows how entries are encoded, but for what every format shares.

Promise: an entry is a key ``<kind>/<name>`` and a JSON value, readable by people and by other versions. Entries of
older versions are decoded (`mzsql.catalog.objects` says how); entries of an older format after the steps to this one
(`mzsql.catalog.migrations`). The format in the environment's entry is checked before anything else is decoded, and what
this version cannot read is refused with an error that says whether a newer version wrote it or it is no catalog. A
change is appended only if it was computed from the newest contents (`DurableCatalog.transact`), so a command's
preconditions hold when it is carried out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import msgspec

from mzsql.catalog.change import FIELDS, SINGLE, Change
from mzsql.catalog.commands.deployments import check_generation
from mzsql.catalog.durable_map import Change as Entries
from mzsql.catalog.durable_map import DurableMap
from mzsql.catalog.former_ids import with_present_ids
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
    Object,
    Replica,
    Role,
    Schema,
    Standby,
    schemas_of,
)
from mzsql.catalog.state import CatalogState
from mzsql.persist import NewerVersion, PersistClient
from mzsql.repr.errors import EnvironmentRefused, Fenced
from mzsql.repr.garbage import undisturbed
from mzsql.repr.version import VERSION

#: The format version of an environment, in its marker file and in its catalog; a higher one is refused. Read as
#: `durable.FORMAT_VERSION`, so that there is one value.
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
"""The type of each kind of entry."""
_KINDS = {
    field: field if field in SINGLE or field == "managed" else field.removesuffix("s")
    for field in FIELDS
}
"""The prefix of entry keys for each field of a state or a change: the keys of ``items`` are ``item/u1``, …."""
_FIELDS = {kind: field for field, kind in _KINDS.items()}
_NAMES = {"meta": "environment", "lease": "leader", "deployment": "current"}
"""The name of the single entry of its kind."""
_OF_NO_PLAN = ("lease", "standby", "arrangement", "managed", "counter", "audit")
"""Kinds of entries that plans do not depend on."""
_FIRST: Mapping[str, Mapping[str, object]] = {
    "databases": {FIRST_ID: FIRST_DATABASE},
    "roles": {FIRST_ID: FIRST_ROLE},
}
"""Entries that every environment starts with. They are written only once changed, or as null once dropped."""


def encode(change: Change) -> Entries:
    """The durable entries for a change."""
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
    """The state that durable entries encode.

    Raises:
        EnvironmentRefused: a newer version wrote them, or they are not a catalog.
    """
    return _state({key: _decoded(key, value) for key, value in _present(entries).items()})


def _present(entries: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """A catalog's entries, converted to the present format."""
    change = _migration(entries)
    return migrated(entries, change) if change else entries


def _migration(entries: Mapping[str, bytes]) -> Entries:
    """The change that converts entries to the present format; a newer format is refused."""
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


def _decoded(key: str, value: bytes, renewed: set[str] | None = None) -> object:
    """An entry's value. An object's key goes to ``renewed`` where it depends on builtin relations by ids that they do not
    have now (`mzsql.catalog.former_ids`).
    """
    kind = key.partition("/")[0]
    if kind not in _TYPES:
        raise _unreadable(f'an entry "{key}"', f'there is no kind "{kind}"')
    try:
        decoded: object = msgspec.json.decode(value, type=_TYPES[kind])
    except msgspec.MsgspecError as failure:
        raise _unreadable(f'an entry "{key}"', failure) from None
    if not isinstance(decoded, Object):
        return decoded
    present = with_present_ids(decoded)
    if present != decoded and renewed is not None:
        renewed.add(key)
    return present


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
    """The present catalog, read without a lease or any write; None where there is none."""
    table = persist.peek(shard_id)
    if table is None or not {"key", "value"} <= set(table.column_names):
        # Another program's shard might have this id.
        return None
    pairs = zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)
    return decode(dict(pairs))


class DurableCatalog:
    """The catalog of an environment, followed by this process. Thread-safe.

    Attributes:
        generation: this process's deploy generation; None until known. Once a higher one was promoted, `sync` and
            `transact` raise `Fenced`.
    """

    def __init__(self, persist: PersistClient, shard_id: str) -> None:
        self.generation: int | None = None
        self._map = DurableMap(persist, shard_id, "catalog")
        self._lock = threading.RLock()
        self._decoded: tuple[int, CatalogState] | None = None
        self._entries: dict[str, tuple[bytes, object]] = {}
        # Keys of objects stored with ids that builtin relations do not have now.
        self._renewed: set[str] = set()
        self._definitions = 0

    @property
    def state(self) -> CatalogState:
        """The catalog as last read; asks no store."""
        known = self._decoded
        if known is not None and known[0] == self._map.upper:
            return known[1]
        with self._lock:
            step = self._map.upper
            if self._decoded is None or self._decoded[0] != step:
                self._decoded = (step, self._decode(step))
            return self._decoded[1]

    def _decode(self, step: int) -> CatalogState:
        """The state at ``step``; entries unchanged since the last decoded state are not decoded again."""
        before, now = self._entries, self._map.entries()
        try:
            return self._decode_from(before, _present(now), step)
        except EnvironmentRefused:
            self._check_deployment(now)
            raise

    def _check_deployment(self, entries: Mapping[str, bytes]) -> None:
        """Raise Fenced where a promotion explains why newer entries cannot be read: that message tells the user more."""
        entry = entries.get(f"deployment/{_NAMES['deployment']}")
        if entry is not None and self.generation is not None:
            with contextlib.suppress(EnvironmentRefused):
                deployment = _decoded("deployment", entry)
                assert isinstance(deployment, Deployment)
                check_generation(CatalogState(deployment=deployment), self.generation)

    @undisturbed()
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
                self._renewed.discard(key)
                found = value, _decoded(key, value, self._renewed)
            entries[key] = found
        if any(key.partition("/")[0] not in _OF_NO_PLAN for key in changed):
            self._definitions = step
        self._entries = entries
        state = _state({key: decoded for key, (_, decoded) in entries.items()})
        if self._decoded is None:
            return state
        # Unchanged fields stay identical objects, so that others can test by identity whether something changed.
        fields = {_FIELDS[key.partition("/")[0]] for key in changed}
        last = self._decoded[1]
        same = {field: getattr(last, field) for field in FIELDS if field not in fields}
        return msgspec.structs.replace(state, **same)

    @property
    def definitions(self) -> int:
        """The step of the latest change to anything that plans depend on; plans made at an earlier step may be
        outdated.
        """
        with self._lock:
            assert self.state is not None
            return self._definitions

    @property
    def reader_id(self) -> str:
        """The id of this process's reader in the state of the shard, which has a lease as long as the process lives."""
        return self._map.reader_id

    @property
    def step(self) -> int:
        """How many changes this process has read."""
        return self._map.upper

    def entries(self) -> dict[str, bytes]:
        """The durable entries as last read."""
        return self._map.entries()

    def await_change(self, timeout: float) -> bool | None:
        """As `DurableMap.await_change`."""
        return self._map.await_change(timeout)

    def sync(self) -> CatalogState:
        """Read the catalog's shard.

        Returns:
            The state with every change committed before the call.

        Raises:
            Fenced: a higher deploy generation was promoted; also where a newer version changed the catalog, since only
                one in charge does.
        """
        with self._fencing():
            self._map.sync()
        return self._checked()

    def _fencing(self) -> AbstractContextManager[None]:
        """Turn a newer version's entries into Fenced, for a process that has joined a deployment."""
        return _Fencing(self)

    def _checked(self) -> CatalogState:
        state = self.state
        if self.generation is not None:
            check_generation(state, self.generation)
        return state

    def transact(self, command: Callable[[CatalogState], tuple[Change, T]]) -> T:
        """Apply a command atomically.

        Args:
            command: from the newest state to the change and the result. It is called again after a lost race, and must
                be pure.

        Returns:
            The command's result.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        answer: list[T] = []

        def make(entries: Mapping[str, bytes]) -> Entries:
            # `_checked` decodes the newest entries once per step, as `state` does.
            change, result = command(self._checked())
            # Only the last attempt is committed, so only its result counts.
            answer[:] = [result]
            made = encode(change)
            # Entries of an older format, and ids of an earlier build, are rewritten by the first change, never by a
            # process that only reads.
            return {**_migration(entries), **self._present_items(), **made} if made else made

        with self._lock, self._fencing():
            self._map.apply(make)
        return answer[0]

    def _present_items(self) -> dict[str, bytes]:
        """The objects that were stored with ids of an earlier build, as they are with those of this one. The lock is held."""
        there = self._renewed & self._entries.keys()
        return {key: msgspec.json.encode(self._entries[key][1]) for key in there}

    def close(self) -> None:
        """Close the shard's handles. Idempotent."""
        self._map.close()


class _Fencing:
    """See `DurableCatalog._fencing`. A class, as every statement reads the catalog, and a generator costs three times as much."""

    __slots__ = ("_catalog",)

    def __init__(self, catalog: DurableCatalog) -> None:
        self._catalog = catalog

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, failure: BaseException | None, *_: object) -> None:
        if isinstance(failure, NewerVersion) and self._catalog.generation is not None:
            raise Fenced(
                f"fenced by a newer deployment: {failure.message}", hint=failure.hint
            ) from None
