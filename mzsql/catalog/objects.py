"""What there is in an environment: tables, views, materialized views, indexes and types; what holds them (databases, schemas, clusters
with their replicas, roles); and who leads.

Promise: immutable structs, each kind of object with just the fields that it has; durable as JSON of named fields, so fields come and go
with defaults. What older versions wrote is read: a schema was its id alone, under its name; the first database and the first role were not
written at all, and are there unless an entry says that they are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from mzsql.expr.scalar import Scalar
from mzsql.frontend.catalog import SYSTEM_CLUSTER
from mzsql.frontend.plan.catalog_plans import INTROSPECTION_MS
from mzsql.repr.ids import GlobalId
from mzsql.repr.refresh import RefreshSchedule
from mzsql.repr.types import RelationDesc, SqlType

#: The database, the schema, the cluster and the role that every environment begins with.
DATABASE = "materialize"
DEFAULT_SCHEMA = "public"
DEFAULT_CLUSTER = "quickstart"
DEFAULT_ROLE = "mzsql"
FIRST_ID = "u1"


class Size(msgspec.Struct, frozen=True):
    """What a SIZE stands for: as many processes of so many workers each."""

    processes: int
    workers: int

    @property
    def total(self) -> int:
        """Into how many parts a replica of this size cuts its work."""
        return self.processes * self.workers


SIZES: Mapping[str, Size] = {
    **{str(n): Size(1, n) for n in (1, 2, 4, 8, 16, 32)},
    **{f"{n}-1": Size(n, 1) for n in (2, 4, 8)},
    **{f"{n}-{n}": Size(n, n) for n in (2, 4)},
}


class Privilege(msgspec.Struct, frozen=True):
    """What one role granted another on something: their ids (``p`` for PUBLIC), and a letter for each privilege."""

    grantee: str
    grantor: str
    modes: str


class DefaultPrivilege(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is granted on things when they are made.

    Attributes:
        role: the id of whoever makes them; ``p``: everybody.
        object_type: what they are: ``table`` (any relation), ``type``, ``schema``, ``database``, ``cluster``.
        grantee: the id of who is granted it; ``p``: PUBLIC.
        modes: a letter for each privilege.
        database, schema: the ids of where they are made; None: anywhere.
    """

    role: str
    object_type: str
    grantee: str
    modes: str
    database: str | None = None
    schema: str | None = None

    @property
    def place(self) -> tuple[str, str, str, str | None, str | None]:
        """All of it but the privileges."""
        return self.role, self.object_type, self.grantee, self.database, self.schema


class Database(msgspec.Struct, frozen=True, omit_defaults=True):
    """A database; `privileges` None: those that such a thing begins with."""

    id: str
    name: str
    owner: str = FIRST_ID
    privileges: tuple[Privilege, ...] | None = None


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema of a database, which is given by its id."""

    id: str
    name: str
    database: str = FIRST_ID
    owner: str = FIRST_ID
    privileges: tuple[Privilege, ...] | None = None


class Role(msgspec.Struct, frozen=True, omit_defaults=True):
    """A role, the ids of the roles that it is a member of, what it was granted on the system, and what its sessions begin with.

    Attributes:
        parameters: variables of sessions and their values, in the order of their names.
        default_privileges: what is granted on what it makes, and with the first role's on what anybody makes; None: nobody has said.
    """

    id: str
    name: str
    member_of: tuple[str, ...] = ()
    system_privileges: tuple[Privilege, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    default_privileges: tuple[DefaultPrivilege, ...] | None = None


class ReplicaProcess(msgspec.Struct, frozen=True):
    """The process that runs a replica: its host and number, where it listens, what proves that it is it who answers, and its build."""

    who: str
    host: str
    port: int
    secret: str
    build: str


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica of a cluster; `process` where one of its own has taken it. It looks every `introspection_ms` milliseconds at what it is to
    tell of itself; 0: it tells nothing.
    """

    id: str
    name: str
    cluster_id: str
    size: str
    workers: int
    process: ReplicaProcess | None = None
    introspection_ms: int = INTROSPECTION_MS


class Cluster(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster; one that is `managed` has `replication_factor` replicas of `size`, where None: as many and such as there are.

    Its replicas look every `introspection_ms` milliseconds at what they are to tell of themselves, where it is managed; 0: never.
    """

    id: str
    name: str
    managed: bool = True
    size: str | None = None
    replication_factor: int | None = None
    owner: str = FIRST_ID
    privileges: tuple[Privilege, ...] | None = None
    introspection_ms: int = INTROSPECTION_MS


class Object(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """What every user's object has.

    Attributes:
        id: its global id.
        schema: the schema's name.
        create_sql: the statement that makes it, names qualified.
        depends_on: the objects that its definition names.
        version: counts redefinitions under one id; part of what makes a cached plan valid.
        created_at: milliseconds since the epoch.
        database: the name of its schema's database.
        owner: the id of the role that owns it.
        privileges: who was granted what on it; None: what such a thing begins with.
    """

    kind: ClassVar[str]
    """What the catalog's relations and durable entries call it: ``table``, ``materialized-view``."""

    id: GlobalId
    name: str
    schema: str
    create_sql: str
    depends_on: tuple[GlobalId, ...] = ()
    version: int = 1
    created_at: int = 0
    database: str = DATABASE
    owner: str = FIRST_ID
    privileges: tuple[Privilege, ...] | None = None

    @property
    def noun(self) -> str:
        """What a person calls it: ``materialized view``."""
        return self.kind.replace("-", " ")

    @property
    def full_name(self) -> str:
        """``materialize.public.name``."""
        return f"{self.database}.{self.schema}.{self.name}"


class Table(Object, frozen=True, omit_defaults=True, kw_only=True, tag="table"):
    """A table.

    Attributes:
        desc: names and types of its columns.
        shard: the shard of its rows.
        defaults: its columns' defaults by position, None where there is none.
        as_of: the time at which its contents begin.
        retain_ms: how long its history is retained, in milliseconds; None: as long as by default.
    """

    kind: ClassVar[str] = "table"
    desc: RelationDesc
    shard: str
    defaults: tuple[Scalar | None, ...] = ()
    as_of: int = 0
    retain_ms: int | None = None


class View(Object, frozen=True, omit_defaults=True, kw_only=True, tag="view"):
    """A view: a query with a name, and names and types of its columns."""

    kind: ClassVar[str] = "view"
    desc: RelationDesc


class MaterializedView(
    Object, frozen=True, omit_defaults=True, kw_only=True, tag="materialized-view"
):
    """A materialized view: as a view, with contents that a cluster maintains in a shard.

    Attributes:
        cluster: the name of the cluster that maintains it.
        desc, shard, as_of, retain_ms: as a table's.
        refresh: when it is refreshed; None: with every commit.
    """

    kind: ClassVar[str] = "materialized-view"
    desc: RelationDesc
    shard: str
    cluster: str
    as_of: int = 0
    retain_ms: int | None = None
    refresh: RefreshSchedule | None = None


class Index(Object, frozen=True, omit_defaults=True, kw_only=True, tag="index"):
    """An index.

    Attributes:
        on_id: what it is on.
        key: its key, as expressions over the columns of that.
        cluster: the name of the cluster that maintains it.
        as_of: the time at which its dataflow begins.
        retain_ms: how long the history of what it is on is retained for it.
    """

    kind: ClassVar[str] = "index"
    on_id: GlobalId
    key: tuple[Scalar, ...] = ()
    cluster: str
    as_of: int = 0
    retain_ms: int | None = None


class Type(Object, frozen=True, omit_defaults=True, kw_only=True, tag="type"):
    """A name for a type."""

    kind: ClassVar[str] = "type"
    typ: SqlType


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a statement has done to something.

    Attributes:
        event_type: ``create``, ``alter``, ``drop``, ``grant``, ``revoke`` or ``comment``.
        object_type: what kind of thing it was done to; ``system``: to a setting.
        details: what tells it from others, as JSON.
        user: the name of the role whose statement it was.
        occurred_at: milliseconds since the epoch.
    """

    event_type: str
    object_type: str
    details: str
    user: str
    occurred_at: int


Item = Table | View | MaterializedView | Index | Type
"""Any user's object."""
RelationItem = Table | View | MaterializedView
"""What has rows and columns."""
Stored = Table | MaterializedView
"""What has a shard."""
Maintained = MaterializedView | Index
"""What a dataflow of a cluster keeps."""


def cluster_of(item: Item) -> str | None:
    """The name of the cluster that maintains an object; None where none does."""
    return item.cluster if isinstance(item, Maintained) else None


CATALOG_CLUSTER = Cluster("s2", SYSTEM_CLUSTER, managed=False)
"""The system's own cluster, which every environment has: what reads the catalog alone is answered there, by whatever process is asked.
It has no replicas, maintains nothing, and cannot be changed."""


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who leads: a token, the wall-clock time at which the lease lapses, the deploy generation, and the program's version where known."""

    token: str
    expires_at: int
    generation: int
    who: str
    build: str = ""


class Deployment(msgspec.Struct, frozen=True):
    """The deploy generation that was promoted last: which, by whom, and when, in milliseconds since the epoch."""

    generation: int
    who: str
    promoted_at: int


class Standby(msgspec.Struct, frozen=True):
    """A process that waits to lead: who it is, and since when, in milliseconds since the epoch."""

    who: str
    since: int


class SetAside(msgspec.Struct, frozen=True):
    """A shard of the expression cache that was damaged, or an entry of it: which, when that was found, and what it was."""

    shard: str
    found_at: int
    reason: str
    entry: str | None = None


class Meta(msgspec.Struct, frozen=True):
    """What an environment is: written once, checked at every open.

    `blob_marked` says that its Blob store holds the environment's id, as those of environments made by older programs may not.
    `caches_set_aside` are the latest shards that were `cache_shard` before and turned out to be damaged.
    """

    environment_id: str
    format_version: int
    wal_shard: str
    cache_shard: str
    created_at: int
    blob_marked: bool = False
    caches_set_aside: tuple[SetAside, ...] = ()


FIRST_DATABASE = Database(FIRST_ID, DATABASE)
FIRST_ROLE = Role(FIRST_ID, DEFAULT_ROLE)


def schemas_of(entries: Mapping[str, object]) -> dict[str, Schema]:
    """Schemas by the keys of their entries: an older entry is an id under the name."""
    found: dict[str, Schema] = {}
    for key, value in entries.items():
        found[key] = value if isinstance(value, Schema) else Schema(str(value), key)
    return found


def number(gid: str) -> int:
    """The number of an id such as ``u7``."""
    return int(gid[1:])
