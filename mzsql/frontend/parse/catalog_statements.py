"""Statements about databases, schemas, clusters, roles, names and comments, as parsed."""

from __future__ import annotations

from dataclasses import dataclass, field

from mzsql.frontend.parse.statements import Name, Statement
from mzsql.repr.refresh import OnRefresh


@dataclass(frozen=True)
class Option:
    """An option: its name in capitals, its value (True where none is written, a list for REPLICAS, None for SCHEDULE = MANUAL) and
    its position.
    """

    name: str
    value: str | int | bool | tuple[ReplicaSpec, ...] | tuple[str, ...] | OnRefresh | None
    position: int
    quoted: bool = True


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica of CREATE CLUSTER … REPLICAS (…)."""

    name: str
    options: tuple[Option, ...]
    position: int


@dataclass(frozen=True)
class Creates(Statement):
    """A CREATE statement with a name."""

    name: Name
    if_not_exists: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class CreateSchema(Creates):
    """CREATE SCHEMA."""


@dataclass(frozen=True)
class CreateDatabase(Creates):
    """CREATE DATABASE."""


@dataclass(frozen=True)
class CreateRole(Statement):
    """CREATE ROLE; `attributes` in capitals, such as ``NOINHERIT``."""

    name: Name
    attributes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class CreateCluster(Creates):
    """CREATE CLUSTER."""

    options: tuple[Option, ...]


@dataclass(frozen=True)
class CreateReplica(Creates):
    """CREATE CLUSTER REPLICA cluster.name; `name` has the cluster as its schema."""

    options: tuple[Option, ...]


@dataclass(frozen=True)
class DropNamed(Statement):
    """DROP of schemas, databases, clusters, cluster replicas or roles; `cascade` None where neither CASCADE nor
    RESTRICT is written.
    """

    kind: str
    names: tuple[Name, ...]
    if_exists: bool = False
    cascade: bool | None = None


@dataclass(frozen=True)
class Alters(Statement):
    """An ALTER statement with a kind and a name."""

    kind: str
    name: Name
    if_exists: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Rename(Alters):
    """ALTER <kind> name RENAME TO new."""

    to: str


@dataclass(frozen=True)
class Swap(Alters):
    """ALTER SCHEMA | CLUSTER name SWAP WITH other."""

    other: Name


@dataclass(frozen=True)
class SetSchema(Alters):
    """ALTER <kind> name SET SCHEMA s."""

    schema: Name


@dataclass(frozen=True)
class SetCluster(Alters):
    """ALTER <kind> name SET CLUSTER c."""

    cluster: Name


@dataclass(frozen=True)
class SetOwner(Alters):
    """ALTER <kind> name OWNER TO role."""

    role: str


@dataclass(frozen=True)
class AlterCluster(Statement):
    """ALTER CLUSTER name SET (options), or with `reset` RESET (names), whose options have no values."""

    name: Name
    options: tuple[Option, ...]
    reset: bool
    if_exists: bool = False


@dataclass(frozen=True)
class AlterRole(Statement):
    """ALTER ROLE name [WITH] attributes."""

    name: Name
    attributes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class AlterRoleVariable(Statement):
    """ALTER ROLE name SET variable {TO | =} values, or RESET variable; `values` None for RESET and DEFAULT."""

    name: Name
    variable: str
    values: tuple[str, ...] | None


@dataclass(frozen=True)
class Membership(Statement):
    """GRANT roles TO members, REVOKE roles FROM members."""

    roles: tuple[Name, ...]
    members: tuple[Name, ...]
    revoke: bool


@dataclass(frozen=True)
class Privileges(Statement):
    """GRANT privileges ON what TO roles, REVOKE … FROM.

    Attributes:
        privileges: their keywords; None: ALL.
        kind: ``table``, ``type``, ``schema``, ``database``, ``cluster``, ``system``.
        names: the things they are on, or for ALL … IN the names of schemas or databases.
        every: ``schema`` or ``database`` for ALL … IN, ``everywhere`` for ALL without IN; else None.
        roles: the grantees.
        position: the position of the privileges in the text.
    """

    privileges: tuple[str, ...] | None
    kind: str
    names: tuple[Name, ...]
    every: str | None
    roles: tuple[Name, ...]
    revoke: bool
    position: int


@dataclass(frozen=True)
class DefaultPrivileges(Statement):
    """ALTER DEFAULT PRIVILEGES … GRANT or REVOKE.

    Attributes:
        makers: the roles whose future objects are meant; None: every role's.
        within: ``schema`` or ``database`` for IN; else None.
        places: the names after IN.
        privileges: their keywords; None: ALL.
        kind: the kind of objects: ``table``, ``type``, ``schema``, ``database``, ``cluster``.
        roles: the grantees.
        position: the position of the privileges in the text.
    """

    makers: tuple[Name, ...] | None
    within: str | None
    places: tuple[Name, ...]
    privileges: tuple[str, ...] | None
    kind: str
    roles: tuple[Name, ...]
    revoke: bool
    position: int


@dataclass(frozen=True)
class Owned(Statement):
    """REASSIGN OWNED BY roles TO role; DROP OWNED BY roles where `to` is None."""

    roles: tuple[Name, ...]
    to: Name | None
    cascade: bool = False


@dataclass(frozen=True)
class Comment(Statement):
    """COMMENT ON <kind> name IS text; for a column, `name` is its relation's."""

    kind: str
    name: Name
    column: str | None
    text: str | None


@dataclass(frozen=True)
class ShowCreateCluster(Statement):
    """SHOW CREATE CLUSTER."""

    name: Name
