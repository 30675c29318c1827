"""The catalog: what exists, as a pure state machine over durable entries.

Promise: a `CatalogState` is immutable; every command is a pure function from a state to a `Change` of durable entries, raising a
typed error where its precondition fails, so that the check stands inside the compare-and-append (`DurableCatalog.transact`). An
entry is a key and a JSON value, readable by people and by other versions. Ids come from counters in the catalog itself and are
never used twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from mzsql.catalog.durable_map import Change, DurableMap
from mzsql.catalog.objects import (
    CATALOG_CLUSTER,
    DATABASE,
    DEFAULT_CLUSTER,
    DEFAULT_ROLE,
    DEFAULT_SCHEMA,
    FIRST_DATABASE,
    FIRST_ID,
    FIRST_ROLE,
    Cluster,
    Database,
    Deployment,
    Lease,
    Meta,
    Privilege,
    Replica,
    Role,
    Schema,
    Standby,
    number,
    schemas_of,
)
from mzsql.expr.scalar import Scalar
from mzsql.persist import PersistClient
from mzsql.repr.errors import (
    DependentObjects,
    DuplicateObject,
    Fenced,
    SqlError,
    UndefinedObject,
    UndefinedTable,
)
from mzsql.repr.ids import GlobalId, sort_key
from mzsql.repr.types import RelationDesc, SqlType

#: The format of an environment; a higher one is refused.
FORMAT_VERSION = 1
__all__ = [
    "DATABASE",
    "DEFAULT_CLUSTER",
    "DEFAULT_ROLE",
    "DEFAULT_SCHEMA",
    "Cluster",
    "Database",
    "Deployment",
    "Lease",
    "Meta",
    "Replica",
    "Role",
    "Schema",
    "Standby",
]

T = TypeVar("T")


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's object.

    Attributes:
        id: its global id.
        schema: the schema's name.
        kind: table, view, materialized-view, index or type.
        create_sql: the statement that makes it, names qualified.
        desc: names and types of its columns; None for an index.
        depends_on: the objects that its definition names.
        shard: the shard of its contents (tables, materialized views).
        cluster: the cluster that maintains it (materialized views, indexes).
        on_id, key: what an index is on, and its key expressions.
        defaults: a table's column defaults by position, None where there is none.
        version: counts redefinitions under one id; part of what makes a cached plan valid.
        created_at: milliseconds since the epoch.
        as_of: the time at which a dataflow's result begins.
        retain_ms: how long its history is retained, in milliseconds; None: as long as by default.
        database: the name of its schema's database.
        owner: the id of the role that owns it.
        typ: what a type is a name for.
        privileges: who was granted what on it; None: what such a thing begins with.
    """

    id: GlobalId
    name: str
    schema: str
    kind: str
    create_sql: str
    desc: RelationDesc | None = None
    depends_on: tuple[GlobalId, ...] = ()
    shard: str | None = None
    cluster: str | None = None
    on_id: GlobalId | None = None
    key: tuple[Scalar, ...] = ()
    defaults: tuple[Scalar | None, ...] = ()
    version: int = 1
    created_at: int = 0
    as_of: int = 0
    retain_ms: int | None = None
    database: str = DATABASE
    owner: str = FIRST_ID
    typ: SqlType | None = None
    privileges: tuple[Privilege, ...] | None = None

    @property
    def full_name(self) -> str:
        """``materialize.public.name``."""
        return f"{self.database}.{self.schema}.{self.name}"


class CatalogState(msgspec.Struct, frozen=True):
    """Everything in the catalog, as of one step."""

    meta: Meta | None = None
    items: dict[GlobalId, Item] = {}
    clusters: dict[str, Cluster] = {}
    replicas: dict[str, Replica] = {}
    schemas: dict[str, Schema] = {}
    counters: dict[str, int] = {}
    managed: dict[str, str] = {}
    arrangements: dict[str, str] = {}
    system_settings: dict[str, str] = {}
    lease: Lease | None = None
    standbys: dict[str, Standby] = {}
    deployment: Deployment | None = None
    databases: dict[str, Database] = msgspec.field(
        default_factory=lambda: {FIRST_ID: FIRST_DATABASE}
    )
    roles: dict[str, Role] = msgspec.field(default_factory=lambda: {FIRST_ID: FIRST_ROLE})
    comments: dict[str, str] = {}

    @property
    def generation(self) -> int:
        """The deploy generation that is in charge; 0 where none was ever promoted."""
        return 0 if self.deployment is None else self.deployment.generation

    def by_name(self, schema: str, name: str, database: str = DATABASE) -> Item | None:
        """The object of that name, or None. Relations and indexes share one name space, as in PostgreSQL."""
        for item in self.items.values():
            if item.name == name and item.schema == schema and item.database == database:
                return item
        return None

    def database(self, name: str) -> Database | None:
        """The database of that name, or None."""
        return next((one for one in self.databases.values() if one.name == name), None)

    def schema(self, database: str, name: str) -> tuple[str, Schema] | None:
        """The schema of that name in a database, with its entry's key, or None."""
        of = self.database(database)
        for key, one in self.schemas.items():
            if of is not None and one.name == name and one.database == of.id:
                return key, one
        return None

    def cluster(self, name: str) -> Cluster | None:
        """The cluster of that name, or None."""
        return next((one for one in self.clusters.values() if one.name == name), None)

    def role(self, name: str) -> Role | None:
        """The role of that name, or None."""
        return next((one for one in self.roles.values() if one.name == name), None)

    def replicas_of(self, cluster_id: str) -> list[Replica]:
        """A cluster's replicas, the oldest first."""
        found = [one for one in self.replicas.values() if one.cluster_id == cluster_id]
        return sorted(found, key=lambda one: number(one.id))

    def serving(self, cluster: str | None) -> Replica | None:
        """The replica that does a cluster's work: the oldest, which the others stand in for; None where it has none."""
        of = None if cluster is None else self.cluster(cluster)
        return next(iter(() if of is None else self.replicas_of(of.id)), None)

    def of_kind(self, *kinds: str) -> list[Item]:
        """Objects of these kinds in the order of their ids."""
        found = [item for item in self.items.values() if item.kind in kinds]
        return sorted(found, key=lambda item: sort_key(item.id))

    def dependents(self, gid: GlobalId) -> list[Item]:
        """The objects whose definitions name ``gid``, in the order of their ids."""
        found = [i for i in self.items.values() if gid in i.depends_on or i.on_id == gid]
        return sorted(found, key=lambda item: sort_key(item.id))

    def indexes_on(self, gid: GlobalId) -> list[Item]:
        """The indexes on an object, in the order of their ids."""
        return [i for i in self.of_kind("index") if i.on_id == gid]

    def transitive_dependents(self, gid: GlobalId) -> list[Item]:
        """All that cannot be without ``gid``, dependents before what they depend on."""
        seen: dict[GlobalId, Item] = {}

        def visit(one: GlobalId) -> None:
            for item in self.dependents(one):
                if item.id not in seen:
                    visit(item.id)
                    seen[item.id] = item

        visit(gid)
        return list(seen.values())


_KINDS: dict[str, Any] = {
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
}
#: What says who leads, and nothing else.
_OF_LEADERS = ("lease", "standby")
_FIELDS = {
    "item": "items",
    "cluster": "clusters",
    "replica": "replicas",
    "schema": "schemas",
    "database": "databases",
    "role": "roles",
    "comment": "comments",
    "counter": "counters",
    "managed": "managed",
    "arrangement": "arrangements",
    "setting": "system_settings",
    "standby": "standbys",
}


def decode(entries: Mapping[str, bytes]) -> CatalogState:
    """The state that durable entries spell; keys are ``<kind>/<name>``."""
    return _state({key: _decoded(key, value) for key, value in entries.items()})


def _decoded(key: str, value: bytes) -> object:
    decoded: object = msgspec.json.decode(value, type=_KINDS[key.partition("/")[0]])
    return decoded


def _state(entries: Mapping[str, object]) -> CatalogState:
    fields: dict[str, dict[str, object]] = {field: {} for field in _FIELDS.values()}
    single: dict[str, object] = {}
    for key, decoded in entries.items():
        kind, _, name = key.partition("/")
        if kind in _FIELDS:
            fields[_FIELDS[kind]][name] = decoded
        else:
            single[kind] = decoded
    # What every environment begins with is written only once it is changed, or dropped: then it is null.
    first: dict[str, dict[str, object]] = {
        "databases": {FIRST_ID: FIRST_DATABASE},
        "roles": {FIRST_ID: FIRST_ROLE},
    }
    for field, known in first.items():
        fields[field] = {k: v for k, v in {**known, **fields[field]}.items() if v is not None}
    fields["schemas"] = dict(schemas_of(fields["schemas"]))
    return CatalogState(**fields, **single)  # type: ignore[arg-type]


def applied(state: CatalogState, change: Change) -> CatalogState:
    """The catalog after a change to its objects, which is not written yet."""
    fields: dict[str, dict[str, Any]] = {}
    for key, value in change.items():
        kind, _, name = key.partition("/")
        field = _FIELDS[kind]
        entries = fields.setdefault(field, dict(getattr(state, field)))
        decoded = None if value is None else _decoded(key, value)
        if decoded is None:
            entries.pop(name, None)
        else:
            entries[name] = decoded
    return msgspec.structs.replace(state, **fields)


def peek_catalog(persist: PersistClient, shard_id: str) -> CatalogState | None:
    """The catalog as it is, read without a lease and changing nothing; None where there is none."""
    table = persist.peek(shard_id)
    if table is None or not {"key", "value"} <= set(table.column_names):
        # A shard of somebody else's may have any id.
        return None
    pairs = zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)
    return decode(dict(pairs))


RETIRED = "retired"
"""Among the arrangements by their replicas: what no replica has, shards of dropped objects that are yet to end."""


def put(kind: str, name: str, value: object) -> tuple[str, bytes]:
    """A durable entry."""
    return f"{kind}/{name}", msgspec.json.encode(value)


# --- commands: state → change ---------------------------------------------------------------------


def bootstrap(state: CatalogState, meta: Meta, *, size: str, workers: int) -> Change:
    """A new environment's first entries; nothing where they are there."""
    if state.meta is not None:
        return {}
    cluster = Cluster("u1", DEFAULT_CLUSTER)
    replica = Replica("u1", "r1", cluster.id, size, workers)
    return dict(
        [
            put("meta", "environment", meta),
            put("schema", DEFAULT_SCHEMA, "u1"),
            put("cluster", cluster.id, cluster),
            put("replica", replica.id, replica),
        ]
    )


def allocate(state: CatalogState, counter: str, n: int = 1) -> tuple[int, Change]:
    """The first of ``n`` fresh numbers of a counter, counting from 1."""
    first = state.counters.get(counter, 0) + 1
    return first, dict([put("counter", counter, first + n - 1)])


def create_item(state: CatalogState, item: Item) -> Change:
    """Add an object.

    Raises:
        DuplicateObject: its name is taken.
        UndefinedTable: something that it depends on was dropped meanwhile.
        UndefinedObject: its schema or cluster does not exist.
    """
    if state.schema(item.database, item.schema) is None:
        raise UndefinedObject(f"unknown schema '{item.schema}'", sqlstate="3F000")
    taken = state.by_name(item.schema, item.name, item.database)
    if taken is not None:
        noun = taken.kind.replace("-", " ")
        raise DuplicateObject(f'{noun} "{item.full_name}" already exists', sqlstate="42P07")
    if item.cluster == CATALOG_CLUSTER.name:
        raise SqlError(f"system cluster '{item.cluster}' cannot be modified", sqlstate="42501")
    if item.cluster is not None and state.cluster(item.cluster) is None:
        raise UndefinedObject(f"unknown cluster '{item.cluster}'")
    for gid in item.depends_on:
        if gid.startswith("u") and gid not in state.items:
            raise UndefinedTable(f"an object that {item.name} depends on was dropped meanwhile")
    return dict([put("item", item.id, item)])


def drop_items(state: CatalogState, ids: Iterable[GlobalId], *, cascade: bool) -> Change:
    """Remove objects, with ``cascade`` also all that depend on them. Indexes always go with what they are on.

    Raises:
        DependentObjects: something else depends on one of them.
    """
    doomed = {gid for gid in ids if gid in state.items}
    for gid in tuple(doomed):
        for dependent in state.transitive_dependents(gid):
            if cascade or dependent.kind == "index":
                doomed.add(dependent.id)
    for gid in sorted(doomed, key=sort_key):
        item = state.items[gid]
        others = [d for d in state.dependents(gid) if d.id not in doomed]
        if others:
            noun = item.kind.replace("-", " ")
            by = ", ".join(f'{d.kind.replace("-", " ")} "{d.name}"' for d in others)
            raise DependentObjects(
                f'cannot drop {noun} "{item.name}": still depended upon by {by}',
                hint="Use DROP … CASCADE to drop the dependent objects too.",
            )
    return {f"item/{gid}": None for gid in doomed}


def promote(state: CatalogState, generation: int, who: str, now: int) -> Change:
    """Put a deploy generation in charge; nothing where it is already."""
    if state.generation == generation:
        return {}
    return dict([put("deployment", "current", Deployment(generation, who, now))])


def check_generation(state: CatalogState, generation: int) -> None:
    """Fenced where a higher deploy generation than ``generation`` was promoted: for good, as generations never go back."""
    newer = state.deployment
    if newer is None or newer.generation <= generation:
        return
    promoted = datetime.fromtimestamp(newer.promoted_at / 1000, UTC)
    raise Fenced(
        f"fenced by deploy generation {newer.generation}, promoted by {newer.who} at {promoted:%Y-%m-%d %H:%M:%S} UTC: "
        f"this process is of generation {generation}",
        hint=f"Connect again, as of generation {newer.generation} or without naming one; what this process has not committed is lost.",
    )


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
        with self._lock:
            step = self._map.upper
            if self._decoded is None or self._decoded[0] != step:
                self._decoded = (step, self._decode(step))
            return self._decoded[1]

    def _decode(self, step: int) -> CatalogState:
        """The state at ``step``; what has not changed since the last one is not decoded again."""
        before, now = self._entries, self._map.entries()
        changed = before.keys() - now.keys()
        entries: dict[str, tuple[bytes, object]] = {}
        for key, value in now.items():
            found = before.get(key)
            if found is None or found[0] != value:
                changed.add(key)
                found = value, _decoded(key, value)
            entries[key] = found
        if any(key.partition("/")[0] not in _OF_LEADERS for key in changed):
            self._definitions = step
        self._entries = entries
        return _state({key: decoded for key, (_, decoded) in entries.items()})

    @property
    def definitions(self) -> int:
        """The step at which this process saw the latest change of anything but who leads: plans of an earlier one may be outdated."""
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
            Fenced: a higher deploy generation was promoted.
        """
        self._map.sync()
        return self._checked()

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

        def make(entries: Mapping[str, bytes]) -> Change:
            del entries  # `state` decodes the same ones, once for each step
            change, result = command(self._checked())
            answer[:] = [result]
            return change

        with self._lock:
            self._map.apply(make)
        return answer[0]

    def close(self) -> None:
        """Give the handles up. Idempotent."""
        self._map.close()
