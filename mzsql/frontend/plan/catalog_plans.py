"""Plan structs of statements about databases, schemas, clusters, roles, names and comments.

Promise: names are fully qualified. Whether they exist is checked by the catalog when the plan is carried out, inside
its compare-and-append; objects in schemas are resolved here, as for every statement.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import msgspec

from mzsql.frontend.catalog import CatalogItem, FullName
from mzsql.frontend.kinds import KIND
from mzsql.frontend.plan.sequenced import DefiningPlan
from mzsql.repr.refresh import OnRefresh


class CreateSchemaPlan(DefiningPlan, frozen=True, tag="create_schema"):
    """A schema of a database."""

    command: ClassVar[str] = "CREATE SCHEMA"

    database: str
    name: str
    if_not_exists: bool = False


class CreateDatabasePlan(DefiningPlan, frozen=True, tag="create_database"):
    """A database, which gets a schema ``public``."""

    command: ClassVar[str] = "CREATE DATABASE"

    name: str
    if_not_exists: bool = False


class CreateRolePlan(DefiningPlan, frozen=True, tag="create_role"):
    """A role."""

    command: ClassVar[str] = "CREATE ROLE"

    name: str


#: The default INTROSPECTION INTERVAL, in milliseconds.
INTROSPECTION_MS = 1000


class ReplicaPlan(msgspec.Struct, frozen=True):
    """A replica: its name, its SIZE, and how often it reports introspection rows (`introspection_ms`, 0: never)."""

    name: str
    size: str
    introspection_ms: int = INTROSPECTION_MS


class ClusterOptions(msgspec.Struct, frozen=True):
    """A cluster's options; None where one was not given. `manual`: whether SCHEDULE = MANUAL was. `ignored`: accepted options without
    effect here.
    """

    size: str | None = None
    replication_factor: int | None = None
    managed: bool | None = None
    replicas: tuple[ReplicaPlan, ...] | None = None
    introspection_ms: int | None = None
    schedule: OnRefresh | None = None
    manual: bool = False
    ignored: tuple[str, ...] = ()


class CreateClusterPlan(DefiningPlan, frozen=True, tag="create_cluster"):
    """CREATE CLUSTER: a managed cluster where it has a size, else one with the given replicas."""

    command: ClassVar[str] = "CREATE CLUSTER"

    name: str
    options: ClusterOptions
    if_not_exists: bool = False


class AlterClusterPlan(DefiningPlan, frozen=True, tag="alter_cluster"):
    """New options of a cluster."""

    command: ClassVar[str] = "ALTER CLUSTER"

    name: str
    options: ClusterOptions
    if_exists: bool = False


class CreateReplicaPlan(DefiningPlan, frozen=True, tag="create_replica"):
    """CREATE CLUSTER REPLICA, in an unmanaged cluster."""

    command: ClassVar[str] = "CREATE CLUSTER REPLICA"

    cluster: str
    replica: ReplicaPlan
    if_not_exists: bool = False
    ignored: tuple[str, ...] = ()


class Target(msgspec.Struct, frozen=True):
    """What a statement is about: an object (`item`; None where IF EXISTS lets it be missing), or anything else that
    `name` names.

    Attributes:
        kind: its name in `mzsql.frontend.kinds`, or ``system``.
        name: its full name: a schema's with its database, a replica's with its cluster.
        item: the object, for kinds in schemas.
        if_exists: whether it need not exist.
    """

    kind: str
    name: tuple[str, ...]
    item: CatalogItem | None = None
    if_exists: bool = False

    @property
    def is_item(self) -> bool:
        """Whether it is an object of a schema."""
        return self.kind in KIND and KIND[self.kind].in_schema

    def __str__(self) -> str:
        return ".".join(self.name)


class DropNamedPlan(DefiningPlan, frozen=True, tag="drop_named"):
    """DROP of schemas, databases, clusters, replicas or roles."""

    kind: str
    targets: tuple[Target, ...]
    cascade: bool

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return f"DROP {self.kind.upper()}"


class AlteringPlan(DefiningPlan, frozen=True):
    """The plan of a statement that changes one existing thing."""

    target: Target

    @property
    def tag_text(self) -> str:
        """``ALTER <kind>``, unless its class has a command of its own."""
        return self.command or f"ALTER {self.target.kind.upper()}"


class RenamePlan(AlteringPlan, frozen=True, tag="rename"):
    """ALTER … RENAME TO."""

    stageable: ClassVar[bool] = True

    to: str


class SwapPlan(AlteringPlan, frozen=True, tag="swap"):
    """ALTER … SWAP WITH: the two exchange their names."""

    stageable: ClassVar[bool] = True

    other: Target


class SetSchemaPlan(AlteringPlan, frozen=True, tag="set_schema"):
    """ALTER … SET SCHEMA; `to` is the object's new full name, None where IF EXISTS lets it be missing."""

    stageable: ClassVar[bool] = True

    to: FullName | None


class SetClusterPlan(AlteringPlan, frozen=True, tag="set_cluster"):
    """ALTER MATERIALIZED VIEW … SET CLUSTER."""

    cluster: str


class SetOwnerPlan(AlteringPlan, frozen=True, tag="set_owner"):
    """ALTER … OWNER TO."""

    stageable: ClassVar[bool] = True

    role: str


class AlterRolePlan(AlteringPlan, frozen=True, tag="alter_role"):
    """ALTER ROLE … INHERIT, which every role does anyway: checks that the role exists, and changes nothing."""

    command: ClassVar[str] = "ALTER ROLE"


class AlterRoleVariablePlan(AlteringPlan, frozen=True, tag="alter_role_variable"):
    """ALTER ROLE … SET, or RESET with `values` None: the defaults of variables in the role's sessions."""

    command: ClassVar[str] = "ALTER ROLE"

    variable: str
    values: tuple[str, ...] | None


class MembershipPlan(DefiningPlan, frozen=True, tag="membership"):
    """GRANT role TO role, REVOKE role FROM role."""

    roles: tuple[str, ...]
    members: tuple[str, ...]
    revoke: bool

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "REVOKE ROLE" if self.revoke else "GRANT ROLE"


class PrivilegesPlan(DefiningPlan, frozen=True, tag="privileges"):
    """GRANT and REVOKE of privileges.

    `privileges` None means ALL. Without `targets` they are on the system, or with `places` (schemas or databases;
    empty: everywhere) on all things of `kind` in them.
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


class DefaultPrivilegesPlan(DefiningPlan, frozen=True, tag="default_privileges"):
    """ALTER DEFAULT PRIVILEGES; `makers` None: objects of every role; `places`: names of schemas or databases, empty:
    everywhere.
    """

    command: ClassVar[str] = "ALTER DEFAULT PRIVILEGES"

    makers: tuple[str, ...] | None
    places: tuple[tuple[str, ...], ...]
    privileges: tuple[str, ...] | None
    kind: str
    roles: tuple[str, ...]
    revoke: bool


class OwnedPlan(DefiningPlan, frozen=True, tag="owned"):
    """REASSIGN OWNED, or DROP OWNED where `to` is None."""

    roles: tuple[str, ...]
    to: str | None
    cascade: bool

    @property
    def tag_text(self) -> str:
        """The command's tag."""
        return "DROP OWNED" if self.to is None else "REASSIGN OWNED"


class CommentPlan(AlteringPlan, frozen=True, tag="comment"):
    """COMMENT ON; `column` counts from 1; `text` None removes the comment."""

    command: ClassVar[str] = "COMMENT"
    stageable: ClassVar[bool] = True

    column: int | None
    text: str | None


PlanT = TypeVar("PlanT", bound=DefiningPlan)
