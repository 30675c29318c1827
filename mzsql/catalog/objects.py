"""What exists in an environment: objects (tables, views, materialized views, indexes, types), what contains them
(databases, schemas, clusters with replicas, roles), and who leads.

Promise: immutable structs, each kind of object with only the fields that it has. They are durable as JSON with named
fields, so fields can be added and removed with defaults. What older versions wrote is read: a schema was only its id,
under its name; the first database and the first role were not written, and exist unless an entry removes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from mzsql.expr.scalar import Scalar
from mzsql.frontend.catalog import SYSTEM_CLUSTER, is_temporary, shown_parts
from mzsql.frontend.plan.catalog_plans import INTROSPECTION_MS
from mzsql.repr.ids import GlobalId
from mzsql.repr.refresh import OnRefresh, RefreshSchedule
from mzsql.repr.types import RelationDesc, SqlType

#: The database, schema, cluster and role that every environment starts with.
DATABASE = "materialize"
DEFAULT_SCHEMA = "public"
DEFAULT_CLUSTER = "quickstart"
DEFAULT_ROLE = "mzsql"
FIRST_ID = "u1"


class Size(msgspec.Struct, frozen=True):
    """What a SIZE means: so many processes with so many workers each."""

    processes: int
    workers: int

    @property
    def total(self) -> int:
        """A replica's number of workers: the parts that its work is split into."""
        return self.processes * self.workers


SIZES: Mapping[str, Size] = {
    **{str(n): Size(1, n) for n in (1, 2, 4, 8, 16, 32)},
    **{f"{n}-1": Size(n, 1) for n in (2, 4, 8)},
    **{f"{n}-{n}": Size(n, n) for n in (2, 4)},
}


class Privilege(msgspec.Struct, frozen=True):
    """Privileges that one role granted another: their ids (``p`` for PUBLIC), and a letter for each privilege."""

    grantee: str
    grantor: str
    modes: str


class DefaultPrivilege(msgspec.Struct, frozen=True, omit_defaults=True):
    """Privileges granted on objects when they are created.

    Attributes:
        role: the id of the creating role; ``p``: every role.
        object_type: ``table`` (any relation), ``type``, ``schema``, ``database`` or ``cluster``.
        grantee: the id of the role that gets them; ``p``: PUBLIC.
        modes: a letter for each privilege.
        database, schema: the ids of where the object is created; None: anywhere.
    """

    role: str
    object_type: str
    grantee: str
    modes: str
    database: str | None = None
    schema: str | None = None

    @property
    def place(self) -> tuple[str, str, str, str | None, str | None]:
        """Everything but the privileges: the key by which entries are merged."""
        return self.role, self.object_type, self.grantee, self.database, self.schema


class Database(msgspec.Struct, frozen=True, omit_defaults=True):
    """A database; `privileges` None: its initial ones."""

    id: str
    name: str
    owner: str = FIRST_ID
    privileges: tuple[Privilege, ...] | None = None


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema.

    Attributes:
        database: its database's id.
        session: of a session's temporary schema, the process that the session is of, as ``host pid``, and the id of that
            process's reader of the catalog's shard; None for any other.
    """

    id: str
    name: str
    database: str = FIRST_ID
    owner: str = FIRST_ID
    privileges: tuple[Privilege, ...] | None = None
    session: tuple[str, str] | None = None


class Role(msgspec.Struct, frozen=True, omit_defaults=True):
    """A role.

    Attributes:
        member_of: the ids of the roles that it is a direct member of.
        system_privileges: its privileges on the system.
        parameters: defaults of variables in its sessions, sorted by name.
        default_privileges: its ALTER DEFAULT PRIVILEGES; the first role's include those for every role. None: never
            set.
    """

    id: str
    name: str
    member_of: tuple[str, ...] = ()
    system_privileges: tuple[Privilege, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    default_privileges: tuple[DefaultPrivilege, ...] | None = None


class ReplicaProcess(msgspec.Struct, frozen=True):
    """The process that runs a replica: its name (`leader.this_process`), where it listens, the secret that both sides
    prove to know, and its build.
    """

    who: str
    host: str
    port: int
    secret: str
    build: str


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica of a cluster; `process` is set where a process of its own runs it. It reports introspection rows every
    `introspection_ms` milliseconds; 0: never.
    """

    id: str
    name: str
    cluster_id: str
    size: str
    workers: int
    process: ReplicaProcess | None = None
    introspection_ms: int = INTROSPECTION_MS


class Cluster(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster. A `managed` one has `replication_factor` replicas of `size` (None: those that exist), which report
    introspection rows every `introspection_ms` milliseconds (0: never). One with a `schedule` is switched on and off by the leader.
    """

    id: str
    name: str
    managed: bool = True
    size: str | None = None
    replication_factor: int | None = None
    owner: str = FIRST_ID
    privileges: tuple[Privilege, ...] | None = None
    introspection_ms: int = INTROSPECTION_MS
    schedule: OnRefresh | None = None


class Object(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """The fields of every user's object.

    Attributes:
        id: its global id.
        schema: its schema's name.
        create_sql: the statement that creates it, with qualified names.
        depends_on: the objects that its definition uses.
        version: counts redefinitions under one id; part of what validates a cached plan.
        created_at: milliseconds since the epoch.
        database: its database's name.
        owner: the owning role's id.
        privileges: the privileges granted on it; None: the initial ones.
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
        """Its kind for messages: ``materialized view``."""
        return self.kind.replace("-", " ")

    @property
    def full_name(self) -> str:
        """``materialize.public.name``; ``mz_temp.name`` of a temporary object."""
        return ".".join(shown_parts(self.database, self.schema, self.name))

    @property
    def temporary(self) -> bool:
        """Whether it is a session's own, and gone with that."""
        return is_temporary(self.schema)


class Table(Object, frozen=True, omit_defaults=True, kw_only=True, tag="table"):
    """A table.

    Attributes:
        desc: names and types of its columns.
        shard: the shard that holds its rows.
        defaults: column defaults by position; None where a column has none.
        as_of: the time at which its contents begin.
        retain_ms: how many milliseconds of history are retained; None: the default.
    """

    kind: ClassVar[str] = "table"
    desc: RelationDesc
    shard: str
    defaults: tuple[Scalar | None, ...] = ()
    as_of: int = 0
    retain_ms: int | None = None


class View(Object, frozen=True, omit_defaults=True, kw_only=True, tag="view"):
    """A view: a named query, and names and types of its columns."""

    kind: ClassVar[str] = "view"
    desc: RelationDesc


class MaterializedView(
    Object, frozen=True, omit_defaults=True, kw_only=True, tag="materialized-view"
):
    """A materialized view, whose contents a cluster maintains in a shard.

    Attributes:
        cluster: the name of the cluster.
        desc, shard, as_of, retain_ms: as in `Table`.
        refresh: its REFRESH schedule; None: ON COMMIT.
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
        on_id: the relation that it is on.
        key: its key expressions over the relation's columns.
        cluster: the name of the cluster that maintains it.
        as_of: the time at which its dataflow begins.
        retain_ms: how many milliseconds of history of the relation are retained for it.
    """

    kind: ClassVar[str] = "index"
    on_id: GlobalId
    key: tuple[Scalar, ...] = ()
    cluster: str
    as_of: int = 0
    retain_ms: int | None = None


class Type(Object, frozen=True, omit_defaults=True, kw_only=True, tag="type"):
    """A named type."""

    kind: ClassVar[str] = "type"
    typ: SqlType


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of the audit log.

    Attributes:
        event_type: ``create``, ``alter``, ``drop``, ``grant``, ``revoke`` or ``comment``.
        object_type: the kind of thing; ``system`` for a system variable.
        details: what identifies the thing, as JSON.
        user: the name of the role that ran the statement.
        occurred_at: milliseconds since the epoch.
    """

    event_type: str
    object_type: str
    details: str
    user: str
    occurred_at: int


Item = Table | View | MaterializedView | Index | Type
"""Any object of a user."""
RelationItem = Table | View | MaterializedView
"""Objects with columns."""
Stored = Table | MaterializedView
"""Objects with a shard."""
Maintained = MaterializedView | Index
"""Objects with a dataflow."""


def cluster_of(item: Item) -> str | None:
    """The name of the cluster that maintains an object; None where it has no dataflow."""
    return item.cluster if isinstance(item, Maintained) else None


def type_of(item: Item) -> SqlType | None:
    """The type that an object names; None for any other object."""
    return item.typ if isinstance(item, Type) else None


#: The roles that every environment has and nobody changes: who owns what is built in, and who is asked for help.
SYSTEM_ROLES = (Role("s1", "mz_system"), Role("s2", "mz_support"))
#: The role that owns what is built in.
SYSTEM_OWNER = SYSTEM_ROLES[0].id

CATALOG_CLUSTER = Cluster("s2", SYSTEM_CLUSTER, owner=SYSTEM_OWNER, managed=False)
"""The system's own cluster, which every environment has. Queries that only read the catalog run on it, in the process
that is asked. It has no replicas, maintains nothing, and cannot be changed.
"""


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """The leader's lease: a token, the wall-clock time in milliseconds when it expires (0: given back), the deploy
    generation, the process, its build.
    """

    token: str
    expires_at: int
    generation: int
    who: str
    build: str = ""


class Deployment(msgspec.Struct, frozen=True):
    """The deploy generation promoted last, by which process, and when, in milliseconds since the epoch."""

    generation: int
    who: str
    promoted_at: int


class Standby(msgspec.Struct, frozen=True):
    """A process that waits to lead, and since when, in milliseconds since the epoch."""

    who: str
    since: int


class SetAside(msgspec.Struct, frozen=True):
    """A damaged shard of the expression cache, or a damaged entry: its name, when the damage was found, and what it
    was.
    """

    shard: str
    found_at: int
    reason: str
    entry: str | None = None


class Meta(msgspec.Struct, frozen=True):
    """An environment's own entry: written once, checked at every opening.

    `blob_marked`: whether its Blob store holds the environment's id, which older programs did not write.
    `caches_set_aside`: the latest shards that were `cache_shard` before and turned out to be damaged.
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
    """Schemas by entry key, decoded; an older entry is an id stored under the schema's name."""
    found: dict[str, Schema] = {}
    for key, value in entries.items():
        found[key] = value if isinstance(value, Schema) else Schema(str(value), key)
    return found


def number(gid: str) -> int:
    """The number of an id such as ``u7``."""
    return int(gid[1:])
