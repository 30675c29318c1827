"""The catalog as one statement of one session sees it: users' objects and builtin ones under one set of names.

Promise: it does not change while the statement is planned, being over one immutable `CatalogState`. Implements the
frontend's `CatalogView`.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Protocol

from mzsql.catalog.builtin import Builtin, builtins, builtins_by_name
from mzsql.catalog.objects import (
    CATALOG_CLUSTER,
    DATABASE,
    Index,
    Item,
    RelationItem,
    Table,
    cluster_of,
    type_of,
)
from mzsql.catalog.settings import UNSAFE_FUNCTIONS, UNSTABLE_DEPENDENCIES, system_value
from mzsql.catalog.state import CatalogState
from mzsql.frontend.catalog import (
    IMPLICIT_SCHEMAS,
    SYSTEM_SCHEMAS,
    TEMPORARY_SCHEMA,
    CatalogItem,
    FullName,
    PartialName,
    is_temporary,
)
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc


def user_item(item: Item) -> CatalogItem:
    """A user's object as the frontend sees it."""
    return CatalogItem(
        id=item.id,
        name=FullName(item.database, item.schema, item.name),
        kind=item.kind,
        desc=item.desc if isinstance(item, RelationItem) else None,
        create_sql=item.create_sql,
        defaults=item.defaults if isinstance(item, Table) else (),
        on=item.on_id if isinstance(item, Index) else None,
        keys=item.key if isinstance(item, Index) else (),
        cluster=cluster_of(item),
        typ=type_of(item),
    )


class Describes(Protocol):
    """What knows the columns of builtin relations."""

    def builtin_desc(self, builtin: Builtin) -> RelationDesc:
        """A builtin relation's columns."""


class SessionCatalog:
    """A catalog state, with names resolved as in one session.

    Args:
        state: the users' objects.
        descriptions: knows builtin views' columns, which are planned at first use.
        database, search_path, cluster: the session's.
        temporary: the name under which the catalog keeps the session's schema of temporary objects. None: not one
            session's view; each such schema is found by that name.
        without: an object to hide, so that its own definition can be planned again.
        stored: whether a definition of the catalog is planned: what settings forbid to new statements it may do.
    """

    def __init__(
        self,
        state: CatalogState,
        descriptions: Describes,
        *,
        database: str = DATABASE,
        search_path: tuple[str, ...] = ("public",),
        cluster: str = "quickstart",
        temporary: str | None = None,
        without: GlobalId | None = None,
        stored: bool = False,
    ) -> None:
        self.state = state
        self._descriptions = descriptions
        self._database = database
        self._search_path = search_path
        self._cluster = cluster
        self._temporary = temporary
        self._gone = without
        self._stored = stored

    @property
    def database(self) -> str:
        """The session's database."""
        return self._database

    @property
    def search_path(self) -> tuple[str, ...]:
        """The session's schemas."""
        return self._search_path

    @property
    def cluster(self) -> str:
        """The session's cluster."""
        return self._cluster

    @property
    def temporary(self) -> tuple[str, str]:
        """Where the session's temporary objects are kept: in the database that was the session's when the first one was
        made.
        """
        name = self._temporary or TEMPORARY_SCHEMA
        found = self.state.temporary.get(name)
        return (self._database if found is None else found[0]), name

    @property
    def unsafe_functions(self) -> bool:
        """Whether the functions of ``mz_unsafe`` may be called."""
        return self._allowed(UNSAFE_FUNCTIONS)

    @property
    def unstable_dependencies(self) -> bool:
        """Whether views may depend on what the next release may have otherwise."""
        return self._allowed(UNSTABLE_DEPENDENCIES)

    def _allowed(self, setting: str) -> bool:
        return self._stored or system_value(self.state.settings, setting) == "on"

    def resolve_item(self, name: PartialName) -> CatalogItem | None:
        """The object that a name refers to, through the search path where it is unqualified; None where there is none."""
        database = name.database or self._database
        own = self._temporary_item(name)
        if own is not None:
            return own
        schemas = (
            (name.schema,) if name.schema is not None else (*IMPLICIT_SCHEMAS, *self._search_path)
        )
        for schema in schemas:
            if self._is_others(schema):
                continue
            if schema in SYSTEM_SCHEMAS:
                builtin = builtins_by_name().get((schema, name.item))
                if builtin is not None:
                    return self._builtin_item(builtin)
                continue
            item = self.state.by_name(schema, name.item, database)
            if item is not None and item.id != self._gone:
                return user_item(item)
        return None

    def _temporary_item(self, name: PartialName) -> CatalogItem | None:
        """The session's temporary object that a name refers to, before any other, as in Materialize."""
        if name.database is not None or name.schema not in (None, TEMPORARY_SCHEMA):
            return None
        database, schema = self.temporary
        item = self.state.by_name(schema, name.item, database)
        return None if item is None or item.id == self._gone else user_item(item)

    def _is_others(self, schema: str) -> bool:
        """Whether a schema is another session's, which this one does not see."""
        return self._temporary is not None and is_temporary(schema) and schema != self._temporary

    def _builtin_item(self, builtin: Builtin) -> CatalogItem:
        return CatalogItem(
            id=builtin.id,
            name=FullName(None, builtin.schema, builtin.name),
            kind=builtin.kind,
            desc=builtin.desc or self._descriptions.builtin_desc(builtin),
            create_sql=builtin.sql,
        )

    def item_like(self, name: PartialName) -> str | None:
        """The quoted name of the object whose name is most similar to one that was not found, for a hint; None where
        none is similar.
        """
        database = name.database or self._database
        path = (*IMPLICIT_SCHEMAS, *self._search_path)
        places: dict[str, str] = {}
        for schema, item in builtins_by_name():
            places.setdefault(item, schema)
        for one in self.state.items.values():
            if (
                one.database == database
                and not one.temporary
                and (one.schema in path or places.get(one.name) not in path)
            ):
                places[one.name] = one.schema
        found = name.item if name.item in places else None
        if found is None:
            found = next(iter(get_close_matches(name.item, list(places), n=1, cutoff=0.75)), None)
        if found is None:
            return None
        schema = places[found]
        said = name.schema is None and schema in path
        return f'"{found}"' if said else f'"{schema}"."{found}"'

    def cluster_names(self) -> list[str]:
        """The names of all clusters."""
        return [one.name for one in self.state.clusters.values()]

    def item(self, gid: GlobalId) -> CatalogItem:
        """The object with this id.

        Raises:
            KeyError: there is none.
        """
        builtin = builtins().get(gid)
        if gid == self._gone:
            raise KeyError(gid)
        return user_item(self.state.items[gid]) if builtin is None else self._builtin_item(builtin)

    def indexes_on(self, gid: GlobalId) -> tuple[CatalogItem, ...]:
        """The indexes on an object, oldest first."""
        found = () if gid == self._gone else self.state.indexes_on(gid)
        return tuple(user_item(item) for item in found if item.id != self._gone)

    def has_schema(self, database: str | None, schema: str) -> bool:
        """Whether the schema exists."""
        if database is None:
            return schema in SYSTEM_SCHEMAS or schema == TEMPORARY_SCHEMA
        return not self._is_others(schema) and self.state.schema(database, schema) is not None

    def schema_names(self, database: str) -> list[str]:
        """The names of the schemas of a database, the system's included."""
        of = {one.id for one in self.state.databases.values() if one.name == database}
        own = (
            one.name
            for one in self.state.schemas.values()
            if one.database in of and one.session is None
        )
        return [*own, *SYSTEM_SCHEMAS]

    def has_database(self, database: str) -> bool:
        """Whether the database exists."""
        return self.state.database(database) is not None

    def database_names(self) -> list[str]:
        """The names of all databases."""
        return [one.name for one in self.state.databases.values()]

    def type_names(self) -> list[str]:
        """The names of the types that users created in the schemas of the search path."""
        return [
            one.name
            for one in self.state.items.values()
            if type_of(one) is not None
            and one.database == self._database
            and one.schema in self._search_path
        ]

    def has_cluster(self, cluster: str) -> bool:
        """Whether the cluster exists."""
        return cluster == CATALOG_CLUSTER.name or self.state.cluster(cluster) is not None
