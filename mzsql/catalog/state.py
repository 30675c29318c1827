"""The catalog at one step: everything that exists, and lookups in it.

Promise: immutable; `applied` is the only way from one state to the next. Nothing here does IO. Lookups that are
repeated often, as in planning thousands of objects, are indexed once per state.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from mzsql.catalog.change import FIELDS, SINGLE, Change
from mzsql.catalog.objects import (
    DATABASE,
    FIRST_DATABASE,
    FIRST_ID,
    FIRST_ROLE,
    AuditEvent,
    Cluster,
    Database,
    Deployment,
    Index,
    Item,
    Lease,
    Maintained,
    Meta,
    Object,
    RelationItem,
    Replica,
    Role,
    Schema,
    Standby,
    Stored,
    number,
)
from mzsql.frontend.catalog import TEMPORARY_SCHEMA
from mzsql.repr.errors import InternalError
from mzsql.repr.ids import GlobalId, sort_key
from mzsql.repr.lazy import lazy_property

ItemT = TypeVar("ItemT", bound=Object)


def _by_id(item: Object) -> tuple[str, int]:
    return sort_key(item.id)


class CatalogState(msgspec.Struct, frozen=True, dict=True):
    """Everything in the catalog as of one step."""

    meta: Meta | None = None
    items: dict[GlobalId, Item] = {}
    clusters: dict[str, Cluster] = {}
    replicas: dict[str, Replica] = {}
    schemas: dict[str, Schema] = {}
    counters: dict[str, int] = {}
    managed: dict[str, str] = {}
    arrangements: dict[str, str] = {}
    settings: dict[str, str] = {}
    lease: Lease | None = None
    standbys: dict[str, Standby] = {}
    deployment: Deployment | None = None
    databases: dict[str, Database] = msgspec.field(
        default_factory=lambda: {FIRST_ID: FIRST_DATABASE}
    )
    roles: dict[str, Role] = msgspec.field(default_factory=lambda: {FIRST_ID: FIRST_ROLE})
    comments: dict[str, str] = {}
    audits: dict[str, AuditEvent] = {}

    @property
    def generation(self) -> int:
        """The deploy generation in charge; 0 where none was ever promoted."""
        return 0 if self.deployment is None else self.deployment.generation

    def by_name(self, schema: str, name: str, database: str = DATABASE) -> Item | None:
        """The object with this name; None where there is none. Relations, indexes and types share a name space, as in
        PostgreSQL.
        """
        return self._named.get((database, schema, name))

    @lazy_property
    def _named(self) -> dict[tuple[str, str, str], Item]:
        return {(one.database, one.schema, one.name): one for one in reversed(self.items.values())}

    def database(self, name: str) -> Database | None:
        """The database of that name, or None."""
        return next((one for one in self.databases.values() if one.name == name), None)

    def schema(self, database: str, name: str) -> tuple[str, Schema] | None:
        """A database's schema with this name, with its entry's key; None where there is none."""
        of = self.database(database)
        for key, one in self.schemas.items():
            if of is not None and one.name == name and one.database == of.id:
                return key, one
        return None

    @lazy_property
    def temporary(self) -> dict[str, tuple[str, str]]:
        """The temporary schemas of sessions, by name: the name of the database that each is kept in, and its id."""
        databases = {one.id: one.name for one in self.databases.values()}
        return {
            one.name: (databases[one.database], one.id)
            for one in self.schemas.values()
            if one.session is not None
        }

    def seen_by(self, own: str) -> CatalogState:
        """The catalog as a session sees it: without the temporary objects of others, and its own, which are in the
        schema ``own``, in one called `TEMPORARY_SCHEMA`.
        """
        if not self.temporary:
            return self
        own = own if own in self.temporary else ""
        if own not in self._seen:
            self._seen[own] = self._seen_by(own)
        return self._seen[own]

    @lazy_property
    def _seen(self) -> dict[str, CatalogState]:
        return {}

    def _seen_by(self, own: str) -> CatalogState:
        schemas = {
            key: msgspec.structs.replace(one, name=TEMPORARY_SCHEMA) if one.name == own else one
            for key, one in self.schemas.items()
            if one.session is None or one.name == own
        }
        items = {
            gid: msgspec.structs.replace(one, schema=TEMPORARY_SCHEMA) if one.temporary else one
            for gid, one in self.items.items()
            if not one.temporary or one.schema == own
        }
        hidden = self.items.keys() - items.keys()
        comments = {
            key: text
            for key, text in self.comments.items()
            if hidden.isdisjoint(key.split("/")[1:2])
        }
        return msgspec.structs.replace(self, schemas=schemas, items=items, comments=comments)

    def cluster(self, name: str) -> Cluster | None:
        """The cluster of that name, or None."""
        return next((one for one in self.clusters.values() if one.name == name), None)

    def role(self, name: str) -> Role | None:
        """The role of that name, or None."""
        return next((one for one in self.roles.values() if one.name == name), None)

    def replicas_of(self, cluster_id: str) -> list[Replica]:
        """A cluster's replicas, oldest first."""
        found = [one for one in self.replicas.values() if one.cluster_id == cluster_id]
        return sorted(found, key=lambda one: number(one.id))

    def working(self, cluster_id: str) -> list[Replica]:
        """A cluster's replicas that some process runs, oldest first: those with a process of their own, and the oldest,
        which the leader runs where it has no process of its own.
        """
        return [
            one
            for place, one in enumerate(self.replicas_of(cluster_id))
            if place == 0 or one.process is not None
        ]

    def serving(self, cluster: str | None) -> Replica | None:
        """The replica whose indexes the cluster's queries read: the oldest; None where there is none."""
        of = None if cluster is None else self.cluster(cluster)
        return next(iter(() if of is None else self.replicas_of(of.id)), None)

    def of(self, kind: type[ItemT]) -> list[ItemT]:
        """The objects of a kind, in order of id."""
        return [item for item in self._in_order if isinstance(item, kind)]

    @lazy_property
    def _in_order(self) -> tuple[Item, ...]:
        return tuple(sorted(self.items.values(), key=_by_id))

    @property
    def relations(self) -> list[RelationItem]:
        """The objects with columns, in order of id."""
        return [item for item in self._in_order if isinstance(item, RelationItem)]

    @property
    def stored(self) -> list[Stored]:
        """The objects with a shard, in order of id."""
        return [item for item in self._in_order if isinstance(item, Stored)]

    @property
    def maintained(self) -> list[Maintained]:
        """The objects with a dataflow, in order of id."""
        return [item for item in self._in_order if isinstance(item, Maintained)]

    def shard(self, gid: GlobalId) -> str:
        """The shard of a stored object.

        Raises:
            InternalError: there is no stored object with this id.
        """
        item = self.items.get(gid)
        if not isinstance(item, Stored):
            raise InternalError(f"nothing is stored under {gid}")
        return item.shard

    def dependents(self, gid: GlobalId) -> list[Item]:
        """The objects whose definitions use ``gid``, in order of id."""
        return list(self._dependents.get(gid, ()))

    @lazy_property
    def _dependents(self) -> dict[GlobalId, list[Item]]:
        found: dict[GlobalId, list[Item]] = {}
        for item in self._in_order:
            own = (item.on_id,) if isinstance(item, Index) else ()
            for gid in dict.fromkeys((*item.depends_on, *own)):
                found.setdefault(gid, []).append(item)
        return found

    def indexes_on(self, gid: GlobalId) -> list[Index]:
        """The indexes on an object, in order of id."""
        return list(self._indexes.get(gid, ()))

    @lazy_property
    def _indexes(self) -> dict[GlobalId, list[Index]]:
        found: dict[GlobalId, list[Index]] = {}
        for index in self.of(Index):
            found.setdefault(index.on_id, []).append(index)
        return found

    def transitive_dependents(self, gid: GlobalId) -> list[Item]:
        """All objects that depend on ``gid`` directly or indirectly, dependents before what they depend on."""
        seen: dict[GlobalId, Item] = {}

        def visit(one: GlobalId) -> None:
            for item in self.dependents(one):
                if item.id not in seen:
                    visit(item.id)
                    seen[item.id] = item

        visit(gid)
        return list(seen.values())


def applied(state: CatalogState, change: Change) -> CatalogState:
    """The catalog after a change."""
    fields: dict[str, Any] = {}
    for field in FIELDS:
        new = getattr(change, field)
        if field in SINGLE:
            if new is not None:
                fields[field] = new
        elif new:
            old = getattr(state, field)
            fields[field] = {k: v for k, v in {**old, **new}.items() if v is not None}
    return msgspec.structs.replace(state, **fields)


def removed(state: CatalogState, change: Change) -> list[Item]:
    """The objects that a change removes, as they are in ``state``."""
    return [state.items[gid] for gid, item in change.items.items() if item is None]
