"""Statements about what holds objects (databases, schemas, clusters, roles) and about what objects are called, as parsed."""

from __future__ import annotations

from dataclasses import dataclass

from mzsql.frontend.parse.statements import Name, Statement


@dataclass(frozen=True)
class Option:
    """An option: its name in capitals, its value (True where none is said, a list of replicas for REPLICAS) and its position."""

    name: str
    value: str | int | bool | tuple[ReplicaSpec, ...] | tuple[str, ...] | None
    position: int
    quoted: bool = True


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica of CREATE CLUSTER … REPLICAS (…)."""

    name: str
    options: tuple[Option, ...]
    position: int


@dataclass(frozen=True)
class CreateSchema(Statement):
    """CREATE SCHEMA."""

    name: Name
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateDatabase(Statement):
    """CREATE DATABASE."""

    name: Name
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateRole(Statement):
    """CREATE ROLE; `attributes` in capitals, such as ``NOINHERIT``."""

    name: Name
    attributes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class CreateCluster(Statement):
    """CREATE CLUSTER."""

    name: Name
    options: tuple[Option, ...]
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateReplica(Statement):
    """CREATE CLUSTER REPLICA cluster.name; `name` has the cluster as its schema."""

    name: Name
    options: tuple[Option, ...]
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropNamed(Statement):
    """DROP of schemas, databases, clusters, cluster replicas, roles; `cascade` None where neither CASCADE nor RESTRICT is said."""

    kind: str
    names: tuple[Name, ...]
    if_exists: bool = False
    cascade: bool | None = None


@dataclass(frozen=True)
class Rename(Statement):
    """ALTER <kind> name RENAME TO new."""

    kind: str
    name: Name
    to: str
    if_exists: bool = False


@dataclass(frozen=True)
class Swap(Statement):
    """ALTER SCHEMA | CLUSTER name SWAP WITH other."""

    kind: str
    name: Name
    other: Name
    if_exists: bool = False


@dataclass(frozen=True)
class SetSchema(Statement):
    """ALTER <kind> name SET SCHEMA s."""

    kind: str
    name: Name
    schema: Name
    if_exists: bool = False


@dataclass(frozen=True)
class SetCluster(Statement):
    """ALTER <kind> name SET CLUSTER c."""

    kind: str
    name: Name
    cluster: Name
    if_exists: bool = False


@dataclass(frozen=True)
class SetOwner(Statement):
    """ALTER <kind> name OWNER TO role."""

    kind: str
    name: Name
    role: str
    if_exists: bool = False


@dataclass(frozen=True)
class AlterCluster(Statement):
    """ALTER CLUSTER name SET (options) | RESET (names): the latter have no values."""

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
class Membership(Statement):
    """GRANT roles TO members, REVOKE roles FROM members."""

    roles: tuple[Name, ...]
    members: tuple[Name, ...]
    revoke: bool


@dataclass(frozen=True)
class Privileges(Statement):
    """GRANT privileges ON what TO roles, REVOKE … FROM.

    Attributes:
        privileges: their words; None: ALL.
        kind: ``table``, ``type``, ``schema``, ``database``, ``cluster``, ``system``.
        names: what they are on, or for ALL … IN the names of schemas or databases.
        every: ``schema`` or ``database`` for ALL … IN, ``everywhere`` for ALL alone; None otherwise.
        roles: who gets or loses them.
        position: where the privileges stand.
    """

    privileges: tuple[str, ...] | None
    kind: str
    names: tuple[Name, ...]
    every: str | None
    roles: tuple[Name, ...]
    revoke: bool
    position: int


@dataclass(frozen=True)
class Owned(Statement):
    """REASSIGN OWNED BY roles TO role; without `to` DROP OWNED BY roles."""

    roles: tuple[Name, ...]
    to: Name | None
    cascade: bool = False


@dataclass(frozen=True)
class Comment(Statement):
    """COMMENT ON <kind> name IS text; a column's name is its relation's and its own."""

    kind: str
    name: Name
    column: str | None
    text: str | None


@dataclass(frozen=True)
class ShowCreateCluster(Statement):
    """SHOW CREATE CLUSTER."""

    name: Name
