"""Names of objects: those that exist, and those about to be made."""

from __future__ import annotations

from mzsql.frontend.catalog import SYSTEM_SCHEMAS, CatalogItem, CatalogView, FullName, PartialName
from mzsql.frontend.parse.statements import Name, Show
from mzsql.repr.errors import SqlError, UndefinedObject, UndefinedTable, alike


def check_database(catalog: CatalogView, database: str | None, position: int | None) -> None:
    """Refuse a database that does not exist; None: there is none to check.

    Raises:
        UndefinedTable: ``unknown database 'd'``.
    """
    if database is not None and not catalog.has_database(database):
        raise UndefinedTable(f"unknown database '{database}'", position=position, sqlstate="3D000")


def check_qualifiers(catalog: CatalogView, name: PartialName, position: int | None) -> None:
    """Refuse a database or schema that does not exist.

    Raises:
        UndefinedTable: ``unknown database 'd'``, ``unknown schema 's'``.
    """
    check_database(catalog, name.database, position)
    if name.schema is not None and not (
        catalog.has_schema(None, name.schema)
        or catalog.has_schema(name.database or catalog.database, name.schema)
    ):
        raise UndefinedTable(f"unknown schema '{name.schema}'", position=position, sqlstate="3F000")


def no_schema(position: int | None = None) -> SqlError:
    """The error of a session whose search path names no schema that exists."""
    return SqlError(
        "no valid schema selected",
        position=position,
        hint="Name the schema, or SET search_path to one that SHOW SCHEMAS lists.",
        sqlstate="3F000",
    )


def item_named(catalog: CatalogView, name: Name) -> CatalogItem:
    """The object of a name.

    Raises:
        UndefinedTable: ``unknown catalog item 'x'``.
    """
    check_qualifiers(catalog, name.partial, name.position)
    item = catalog.resolve_item(name.partial)
    if item is None:
        raise unknown_item(catalog, name.partial, name.position)
    return item


def unknown_item(
    catalog: CatalogView, name: PartialName, position: int | None = None
) -> UndefinedTable:
    """The error of a name that no object has, with a hint at the one that is most like it."""
    like = catalog.item_like(name)
    hint = None if like is None else f"Perhaps you meant {like}."
    return UndefinedTable(f"unknown catalog item '{name}'", position=position, hint=hint)


def find_item(catalog: CatalogView, name: Name) -> CatalogItem | None:
    """The object of a name behind IF EXISTS: None where it, its schema or its database does not exist."""
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
            raise no_schema(name.position)
        schema = known[0]
    if schema in SYSTEM_SCHEMAS:
        raise SqlError(
            f"system schema '{schema}' cannot be modified", position=name.position, sqlstate="42501"
        )
    return FullName(database, schema, partial.item)


def schema_named(catalog: CatalogView, name: Name) -> tuple[str | None, str]:
    """Database and schema of a schema's name (``s`` or ``d.s``).

    Raises:
        UndefinedTable: ``unknown schema 's'``, ``unknown database 'd'``.
    """
    schema, database = name.partial.item, name.partial.schema
    check_database(catalog, database, name.position)
    if catalog.has_schema(None, schema):
        return None, schema
    database = database or catalog.database
    if not catalog.has_schema(database, schema):
        raise UndefinedTable(f"unknown schema '{schema}'", position=name.position, sqlstate="3F000")
    return database, schema


#: What SHOW lists that is in no schema.
_WITHOUT_SCHEMA = ("databases", "clusters", "cluster replicas", "roles")


def shown_schema(statement: Show, catalog: CatalogView) -> tuple[str | None, str] | None:
    """Whose objects SHOW lists: those of the schema named, else of the first of the search path that exists. For SHOW SCHEMAS it is a
    database, the session's where none is named. None: those of all schemas.

    Raises:
        UndefinedTable: there is no such schema or database.
        SqlError: none is named, and the session has none that exists.
    """
    named = statement.schema
    if statement.kind == "schemas":
        database = catalog.database if named is None else named.partial.item
        if named is not None:
            check_database(catalog, database, named.position)
        elif not catalog.has_database(database):
            raise SqlError(
                "no database specified and no active database",
                detail=f"The session's database is '{database}', which does not exist.",
                hint="Name one, or SET database to one that SHOW DATABASES lists.",
                sqlstate="3D000",
            )
        return database, ""
    if named is not None:
        return schema_named(catalog, named)
    everywhere = statement.kind == "indexes" and statement.cluster is not None
    if statement.on is not None or everywhere or statement.kind in _WITHOUT_SCHEMA:
        return None
    for schema in catalog.search_path:
        if catalog.has_schema(catalog.database, schema):
            return catalog.database, schema
    raise no_schema()


def cluster_name(catalog: CatalogView, name: Name | None) -> str:
    """The cluster named, else the session's.

    Raises:
        UndefinedObject: ``unknown cluster 'c'``.
    """
    cluster = catalog.cluster if name is None else name.partial.item
    if not catalog.has_cluster(cluster):
        raise UndefinedObject(
            f"unknown cluster '{cluster}'",
            position=None if name is None else name.position,
            hint=alike(cluster, catalog.cluster_names()),
        )
    return cluster


#: The statement that does what a hint says.
_STATEMENTS = {
    "remove": "DROP",
    "show": "SHOW CREATE",
    "comment on": "COMMENT ON",
    "rename": "ALTER",
    "alter": "ALTER",
}


def expect_kind(item: CatalogItem, kind: str, name: Name, verb: str) -> None:
    """Refuse to ``verb`` (remove, alter) an object that is of another kind than the statement says, or the system's."""
    if item.name.database is None:
        raise SqlError(
            f"system item '{item.name}' cannot be modified",
            position=name.position,
            sqlstate="42501",
        )
    # As in PostgreSQL, statements about tables and about views say which they mean.
    if item.kind.replace("-", " ") != kind:
        raise wrong_kind(item, kind, name, verb)


def wrong_kind(item: CatalogItem, kind: str, name: Name, verb: str) -> SqlError:
    """The error of a statement that names an object of another kind than it says."""
    found = item.kind.replace("-", " ").upper()
    return SqlError(
        f"{item.name} is not {'an' if kind == 'index' else 'a'} {kind}",
        position=name.position,
        hint=f"Use {_STATEMENTS[verb]} {found} to {verb} {item.described}.",
        sqlstate="42809",
    )
