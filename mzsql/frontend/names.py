"""Names of objects: those that exist, and those about to be made."""

from __future__ import annotations

from mzsql.frontend.catalog import SYSTEM_SCHEMAS, CatalogItem, CatalogView, FullName, PartialName
from mzsql.frontend.statements import Name, Show
from mzsql.repr.errors import SqlError, UndefinedObject, UndefinedTable


def check_qualifiers(catalog: CatalogView, name: PartialName, position: int | None) -> None:
    """Refuse a database or schema that does not exist.

    Raises:
        UndefinedTable: ``unknown database 'd'``, ``unknown schema 's'``.
    """
    if name.database is not None and not catalog.has_database(name.database):
        raise UndefinedTable(
            f"unknown database '{name.database}'", position=position, sqlstate="3D000"
        )
    if name.schema is not None and not (
        catalog.has_schema(None, name.schema)
        or catalog.has_schema(name.database or catalog.database, name.schema)
    ):
        raise UndefinedTable(f"unknown schema '{name.schema}'", position=position, sqlstate="3F000")


def item_named(catalog: CatalogView, name: Name) -> CatalogItem:
    """The object of a name.

    Raises:
        UndefinedTable: ``unknown catalog item 'x'``.
    """
    item = find_item(catalog, name)
    if item is None:
        raise UndefinedTable(f"unknown catalog item '{name}'", position=name.position)
    return item


def find_item(catalog: CatalogView, name: Name) -> CatalogItem | None:
    """The object of a name, or None."""
    check_qualifiers(catalog, name.partial, name.position)
    return catalog.resolve_item(name.partial)


def new_name(catalog: CatalogView, name: Name) -> FullName:
    """The whole name of an object about to be made: in the schema named, else the first of the search path that exists.

    Raises:
        SqlError: no such schema, or one of the system's.
    """
    partial = name.partial
    check_qualifiers(catalog, partial, name.position)
    database = partial.database or catalog.database
    schema = partial.schema
    if schema is None:
        known = [s for s in catalog.search_path if catalog.has_schema(database, s)]
        if not known:
            raise SqlError(
                "no schema has been selected to create in",
                position=name.position,
                hint="Name the schema, or SET search_path to one that exists.",
                sqlstate="3F000",
            )
        schema = known[0]
    if schema in SYSTEM_SCHEMAS:
        raise SqlError(
            f"system schema '{schema}' cannot be modified", position=name.position, sqlstate="42501"
        )
    return FullName(database, schema, partial.item)


def schema_named(catalog: CatalogView, name: Name) -> tuple[str | None, str]:
    """Database and schema of a schema's name (``s`` or ``d.s``).

    Raises:
        UndefinedTable: ``unknown schema 's'``.
    """
    schema, database = name.partial.item, name.partial.schema
    if database is None and catalog.has_schema(None, schema):
        return None, schema
    database = database or catalog.database
    if not catalog.has_schema(database, schema):
        raise UndefinedTable(f"unknown schema '{schema}'", position=name.position, sqlstate="3F000")
    return database, schema


def shown_schema(statement: Show, catalog: CatalogView) -> tuple[str | None, str] | None:
    """Whose objects SHOW lists: those of the schema named, else of the first of the search path that exists. For SHOW SCHEMAS it is a
    database, the session's where none is named.

    Raises:
        UndefinedTable: there is no such schema or database.
    """
    named = statement.schema
    if statement.kind == "schemas":
        database = catalog.database if named is None else named.partial.item
        if named is not None and not catalog.has_database(database):
            raise UndefinedTable(
                f"unknown database '{database}'", position=named.position, sqlstate="3D000"
            )
        return database, ""
    if named is not None:
        return schema_named(catalog, named)
    if statement.on is not None or (statement.kind == "indexes" and statement.cluster is not None):
        return None
    for schema in catalog.search_path:
        if catalog.has_schema(catalog.database, schema):
            return catalog.database, schema
    return catalog.database, "public"


def cluster_name(catalog: CatalogView, name: Name | None) -> str:
    """The cluster named, else the session's.

    Raises:
        UndefinedObject: ``unknown cluster 'c'``.
    """
    cluster = catalog.cluster if name is None else name.partial.item
    if not catalog.has_cluster(cluster):
        raise UndefinedObject(
            f"unknown cluster '{cluster}'", position=None if name is None else name.position
        )
    return cluster


def expect_kind(item: CatalogItem, kind: str, name: Name, verb: str) -> None:
    """Refuse to ``verb`` (DROP, ALTER) an object that is of another kind than the statement says, or the system's."""
    if item.name.database is None:
        raise SqlError(
            f"system item '{item.name}' cannot be modified",
            position=name.position,
            sqlstate="42501",
        )
    found = item.kind.replace("-", " ")
    # As in PostgreSQL, statements about tables and about views say which they mean.
    if found != kind:
        raise SqlError(
            f"{item.name} is not {'an' if kind == 'index' else 'a'} {kind}",
            position=name.position,
            hint=f"Use {verb} {found.upper()}.",
            sqlstate="42809",
        )
