"""What the frontend asks of a catalog: names to objects, and nothing else.

Promise: planning reads a `CatalogView` that does not change under it, and never writes. Names follow PostgreSQL: a database, a schema, an
item; what a name leaves out comes from the session (its database, its search path).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from mzsql.expr.scalar import Scalar
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc, SqlType

#: Schemas that stand before the session's search path, as in Materialize; they belong to no database.
SYSTEM_SCHEMAS = (
    "mz_catalog",
    "pg_catalog",
    "mz_internal",
    "mz_introspection",
    "mz_unsafe",
    "information_schema",
)
#: Those of them that stand before the search path without being named there.
IMPLICIT_SCHEMAS = tuple(name for name in SYSTEM_SCHEMAS if name != "information_schema")


class PartialName(msgspec.Struct, frozen=True, cache_hash=True):
    """A name as a statement gives it."""

    item: str
    schema: str | None = None
    database: str | None = None

    def __str__(self) -> str:
        return ".".join(p for p in (self.database, self.schema, self.item) if p is not None)


def partial_name(text: str) -> PartialName:
    """The name that a text without quotes means: ``orders``, ``public.orders``, ``materialize.public.orders``.

    What has more parts than these is one that nothing has.
    """
    parts = text.split(".")
    if len(parts) > 3:
        return PartialName(text)
    return PartialName(parts[-1], *reversed(parts[:-1]))


class FullName(msgspec.Struct, frozen=True, cache_hash=True):
    """An object's whole name; objects of the system's schemas have no database."""

    database: str | None
    schema: str
    item: str

    def __str__(self) -> str:
        return ".".join(p for p in (self.database, self.schema, self.item) if p is not None)


class CatalogItem(msgspec.Struct, frozen=True, cache_hash=True):
    """An object.

    Attributes:
        id: its global id.
        name: its whole name.
        kind: ``table``, ``view``, ``materialized-view``, ``index``, ``source``, ``type`` (as `mz_objects.type` spells them).
        desc: names and types of its columns; None for an index.
        create_sql: the statement that makes it, normalized.
        defaults: for a table, each column's default; empty where none has one.
        on: for an index, the object it is on.
        keys: for an index, its key over the columns of `on`.
        cluster: for an index or a materialized view, its cluster's name.
        typ: for a type, what it is a name for.
    """

    id: GlobalId
    name: FullName
    kind: str
    desc: RelationDesc | None
    create_sql: str = ""
    defaults: tuple[Scalar | None, ...] = ()
    on: GlobalId | None = None
    keys: tuple[Scalar, ...] = ()
    cluster: str | None = None
    typ: SqlType | None = None

    @property
    def described(self) -> str:
        """Its kind as a sentence says it: ``an index``, ``a materialized view``."""
        return f"{'an' if self.kind == 'index' else 'a'} {self.kind.replace('-', ' ')}"


#: The system's own cluster, where what reads the catalog alone is answered.
SYSTEM_CLUSTER = "mz_catalog_server"


class CatalogView(Protocol):
    """The catalog as one statement sees it."""

    @property
    def database(self) -> str:
        """The session's database."""
        ...

    @property
    def search_path(self) -> tuple[str, ...]:
        """The session's schemas, first one first; new objects go to the first that exists."""
        ...

    @property
    def cluster(self) -> str:
        """The session's cluster."""
        ...

    def resolve_item(self, name: PartialName) -> CatalogItem | None:
        """The object of this name, through the search path where the schema is left out; system schemas are searched first."""
        ...

    def item(self, gid: GlobalId) -> CatalogItem:
        """The object of this id; KeyError where there is none."""
        ...

    def indexes_on(self, gid: GlobalId) -> tuple[CatalogItem, ...]:
        """The indexes on an object, in order of creation."""
        ...

    def has_schema(self, database: str | None, schema: str) -> bool:
        """Whether the schema exists; database None: one of the system's."""
        ...

    def has_database(self, database: str) -> bool:
        """Whether the database exists."""
        ...

    def has_cluster(self, cluster: str) -> bool:
        """Whether the cluster exists."""
        ...

    def item_like(self, name: PartialName) -> str | None:
        """The name, as a statement may say it, of the object that is named most like one that nothing has; None where none is like it."""
        ...

    def cluster_names(self) -> Sequence[str]:
        """The names of all clusters."""
        ...
