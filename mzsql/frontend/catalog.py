"""The catalog as the frontend needs it: from names to objects.

Promise: planning reads a `CatalogView` that does not change meanwhile, and never writes. Names are PostgreSQL's:
database, schema, item; what is omitted comes from the session (its database, its search path).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from mzsql.expr.scalar import Scalar
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc, SqlType

#: The system schemas. They belong to no database and are resolved before the session's search path, as in Materialize.
SYSTEM_SCHEMAS = (
    "mz_catalog",
    "pg_catalog",
    "mz_internal",
    "mz_introspection",
    "mz_unsafe",
    "information_schema",
)
#: The system schemas that are searched for unqualified names before the search path.
IMPLICIT_SCHEMAS = tuple(name for name in SYSTEM_SCHEMAS if name != "information_schema")
#: The system schemas whose relations may be others in the next release.
UNSTABLE_SCHEMAS = ("mz_internal", "mz_introspection", "mz_unsafe")


#: A session's schema of temporary objects, which only it sees; it is in no database.
TEMPORARY_SCHEMA = "mz_temp"
_TEMPORARY_PREFIX = f"{TEMPORARY_SCHEMA}_"


def temporary_schema(token: str) -> str:
    """The name under which the catalog keeps the temporary schema of one session, told by a token of its own."""
    return _TEMPORARY_PREFIX + token


def is_temporary(schema: str) -> bool:
    """Whether a schema is one of temporary objects, by either name: users' schemas cannot begin with ``mz_``."""
    return schema == TEMPORARY_SCHEMA or schema.startswith(_TEMPORARY_PREFIX)


def shown_parts(database: str | None, schema: str, item: str) -> tuple[str, ...]:
    """A full name as people read it: a temporary schema is `TEMPORARY_SCHEMA`, and system schemas are in no database."""
    if is_temporary(schema):
        return TEMPORARY_SCHEMA, item
    return (schema, item) if database is None else (database, schema, item)


class PartialName(msgspec.Struct, frozen=True, cache_hash=True):
    """A name as written in a statement, perhaps without schema and database."""

    item: str
    schema: str | None = None
    database: str | None = None

    def __str__(self) -> str:
        return ".".join(p for p in (self.database, self.schema, self.item) if p is not None)


def partial_name(text: str) -> PartialName:
    """The name in a text without quotes, such as ``orders``, ``public.orders`` or ``materialize.public.orders``.

    A text with more than three parts becomes an item name that no object has.
    """
    parts = text.split(".")
    if len(parts) > 3:
        return PartialName(text)
    return PartialName(parts[-1], *reversed(parts[:-1]))


class FullName(msgspec.Struct, frozen=True, cache_hash=True):
    """An object's full name; objects of system schemas have no database."""

    database: str | None
    schema: str
    item: str

    @property
    def parts(self) -> tuple[str, ...]:
        """Its parts as people read them."""
        return shown_parts(self.database, self.schema, self.item)

    def __str__(self) -> str:
        return ".".join(self.parts)


class CatalogItem(msgspec.Struct, frozen=True, cache_hash=True):
    """An object of the catalog.

    Attributes:
        id: its global id.
        name: its full name.
        kind: ``table``, ``view``, ``materialized-view``, ``index``, ``source`` or ``type``, as in `mz_objects.type`.
        desc: names and types of its columns; None for an index or a type.
        create_sql: the normalized statement that creates it.
        defaults: a table's column defaults; empty where no column has one.
        on: the relation that an index is on.
        keys: an index's key expressions over the columns of `on`.
        cluster: the cluster's name of an index or a materialized view.
        typ: the type that a type object names.
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
        """Its kind with an article, for messages: ``an index``, ``a materialized view``."""
        return f"{'an' if self.kind == 'index' else 'a'} {self.kind.replace('-', ' ')}"


#: The catalog's own cluster, where queries that only read the catalog run.
SYSTEM_CLUSTER = "mz_catalog_server"


class CatalogView(Protocol):
    """The catalog as one statement sees it."""

    @property
    def database(self) -> str:
        """The session's database."""
        ...

    @property
    def search_path(self) -> tuple[str, ...]:
        """The session's schemas in order; a new object goes to the first one that exists."""
        ...

    @property
    def cluster(self) -> str:
        """The session's cluster."""
        ...

    @property
    def temporary(self) -> tuple[str, str]:
        """The database and schema, as the catalog keeps them, of the session's temporary objects; the schema need not
        exist yet.
        """
        ...

    @property
    def unsafe_functions(self) -> bool:
        """Whether the functions of ``mz_unsafe`` may be called."""
        ...

    @property
    def unstable_dependencies(self) -> bool:
        """Whether views may depend on what the next release may have otherwise."""
        ...

    def resolve_item(self, name: PartialName) -> CatalogItem | None:
        """The object that a name refers to: in the system schemas first, then along the search path; None where there
        is none.
        """
        ...

    def item(self, gid: GlobalId) -> CatalogItem:
        """The object with this id.

        Raises:
            KeyError: there is none.
        """
        ...

    def indexes_on(self, gid: GlobalId) -> tuple[CatalogItem, ...]:
        """The indexes on an object, oldest first."""
        ...

    def has_schema(self, database: str | None, schema: str) -> bool:
        """Whether the schema exists; with ``database`` None, whether it is a system schema."""
        ...

    def schema_names(self, database: str) -> Sequence[str]:
        """The names of the schemas of a database, the system's included."""
        ...

    def has_database(self, database: str) -> bool:
        """Whether the database exists."""
        ...

    def database_names(self) -> Sequence[str]:
        """The names of all databases."""
        ...

    def type_names(self) -> Sequence[str]:
        """The names of the types that users created and that need no schema before them."""
        ...

    def has_cluster(self, cluster: str) -> bool:
        """Whether the cluster exists."""
        ...

    def item_like(self, name: PartialName) -> str | None:
        """The quoted name of the object whose name is most similar to one that was not found, for a hint; None where
        none is similar.
        """
        ...

    def cluster_names(self) -> Sequence[str]:
        """The names of all clusters."""
        ...
