"""Plans of the statements about databases, schemas, clusters, roles, names and comments.

Promise: names are whole. Whether what they name exists is for the catalog to say when the plan is carried out, inside its
compare-and-append; objects of schemas are resolved here, as they are for every statement.
"""

from __future__ import annotations

import msgspec

from mzsql.frontend.catalog import CatalogItem, FullName


class CreateSchemaPlan(msgspec.Struct, frozen=True, tag="create_schema"):
    """A schema of a database."""

    database: str
    name: str
    if_not_exists: bool = False

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "CREATE SCHEMA"


class CreateDatabasePlan(msgspec.Struct, frozen=True, tag="create_database"):
    """A database, which gets a schema ``public``."""

    name: str
    if_not_exists: bool = False

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "CREATE DATABASE"


class CreateRolePlan(msgspec.Struct, frozen=True, tag="create_role"):
    """A role."""

    name: str

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "CREATE ROLE"


class ReplicaPlan(msgspec.Struct, frozen=True):
    """A replica by its name and SIZE."""

    name: str
    size: str


class ClusterOptions(msgspec.Struct, frozen=True):
    """What was said of a cluster; None: nothing. `ignored`: options that are understood and mean nothing here."""

    size: str | None = None
    replication_factor: int | None = None
    managed: bool | None = None
    replicas: tuple[ReplicaPlan, ...] | None = None
    ignored: tuple[str, ...] = ()


class CreateClusterPlan(msgspec.Struct, frozen=True, tag="create_cluster"):
    """A cluster, managed where it has a size, else with the replicas named."""

    name: str
    options: ClusterOptions
    if_not_exists: bool = False

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "CREATE CLUSTER"


class AlterClusterPlan(msgspec.Struct, frozen=True, tag="alter_cluster"):
    """New options of a cluster."""

    name: str
    options: ClusterOptions
    if_exists: bool = False

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "ALTER CLUSTER"


class CreateReplicaPlan(msgspec.Struct, frozen=True, tag="create_replica"):
    """A replica of a cluster that is not managed."""

    cluster: str
    replica: ReplicaPlan
    if_not_exists: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "CREATE CLUSTER REPLICA"


class Target(msgspec.Struct, frozen=True):
    """What a statement is about: an object (None where IF EXISTS lets it be missing), or whatever else `name` names.

    Attributes:
        kind: ``table``, ``view``, ``materialized view``, ``index``, ``schema``, ``database``, ``cluster``, ``cluster replica``, ``role``.
        name: its whole name: of a schema its database and it, of a replica its cluster and it.
        item: the object, for the first four kinds.
        if_exists: whether it need not exist.
    """

    kind: str
    name: tuple[str, ...]
    item: CatalogItem | None = None
    if_exists: bool = False

    @property
    def is_item(self) -> bool:
        """Whether it is an object of a schema."""
        return self.kind in ("table", "view", "materialized view", "index")

    def __str__(self) -> str:
        return ".".join(self.name)


class DropNamedPlan(msgspec.Struct, frozen=True, tag="drop_named"):
    """DROP of schemas, databases, clusters, replicas or roles."""

    kind: str
    targets: tuple[Target, ...]
    cascade: bool

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return f"DROP {self.kind.upper()}"


class RenamePlan(msgspec.Struct, frozen=True, tag="rename"):
    """ALTER … RENAME TO."""

    target: Target
    to: str

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return f"ALTER {self.target.kind.upper()}"


class SwapPlan(msgspec.Struct, frozen=True, tag="swap"):
    """ALTER … SWAP WITH: each gets the other's name."""

    target: Target
    other: Target

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return f"ALTER {self.target.kind.upper()}"


class SetSchemaPlan(msgspec.Struct, frozen=True, tag="set_schema"):
    """ALTER … SET SCHEMA: `to` is the object's new whole name; None where IF EXISTS lets it be missing."""

    target: Target
    to: FullName | None

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return f"ALTER {self.target.kind.upper()}"


class SetClusterPlan(msgspec.Struct, frozen=True, tag="set_cluster"):
    """ALTER MATERIALIZED VIEW … SET CLUSTER."""

    target: Target
    cluster: str

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return f"ALTER {self.target.kind.upper()}"


class SetOwnerPlan(msgspec.Struct, frozen=True, tag="set_owner"):
    """ALTER … OWNER TO."""

    target: Target
    role: str

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return f"ALTER {self.target.kind.upper()}"


class AlterRolePlan(msgspec.Struct, frozen=True, tag="alter_role"):
    """ALTER ROLE … INHERIT, which is what every role does: the role has to exist, nothing changes."""

    target: Target

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "ALTER ROLE"


class MembershipPlan(msgspec.Struct, frozen=True, tag="membership"):
    """GRANT role TO role, REVOKE role FROM role."""

    roles: tuple[str, ...]
    members: tuple[str, ...]
    revoke: bool

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "REVOKE ROLE" if self.revoke else "GRANT ROLE"


class PrivilegesPlan(msgspec.Struct, frozen=True, tag="privileges"):
    """GRANT and REVOKE of privileges.

    `privileges` None: ALL. Without `targets` it is the system, or with `places` (schemas or databases by their names; none: everywhere)
    all there is of `kind` within them.
    """

    privileges: tuple[str, ...] | None
    kind: str
    targets: tuple[Target, ...]
    places: tuple[tuple[str, ...], ...] | None
    roles: tuple[str, ...]
    revoke: bool

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "REVOKE" if self.revoke else "GRANT"


class OwnedPlan(msgspec.Struct, frozen=True, tag="owned"):
    """REASSIGN OWNED; DROP OWNED where there is no `to`."""

    roles: tuple[str, ...]
    to: str | None
    cascade: bool

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "DROP OWNED" if self.to is None else "REASSIGN OWNED"


class CommentPlan(msgspec.Struct, frozen=True, tag="comment"):
    """COMMENT ON; `column` counts from 1; `text` None takes the comment away."""

    target: Target
    column: int | None
    text: str | None

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "COMMENT"


class ShowCreateClusterPlan(msgspec.Struct, frozen=True, tag="show_create_cluster"):
    """SHOW CREATE CLUSTER."""

    name: str


CatalogPlan = (
    CreateSchemaPlan
    | CreateDatabasePlan
    | CreateRolePlan
    | CreateClusterPlan
    | AlterClusterPlan
    | CreateReplicaPlan
    | DropNamedPlan
    | RenamePlan
    | SwapPlan
    | SetSchemaPlan
    | SetClusterPlan
    | SetOwnerPlan
    | AlterRolePlan
    | MembershipPlan
    | PrivilegesPlan
    | OwnedPlan
    | CommentPlan
)
CATALOG_PLANS = (
    CreateSchemaPlan,
    CreateDatabasePlan,
    CreateRolePlan,
    CreateClusterPlan,
    AlterClusterPlan,
    CreateReplicaPlan,
    DropNamedPlan,
    RenamePlan,
    SwapPlan,
    SetSchemaPlan,
    SetClusterPlan,
    SetOwnerPlan,
    AlterRolePlan,
    MembershipPlan,
    PrivilegesPlan,
    OwnedPlan,
    CommentPlan,
)
