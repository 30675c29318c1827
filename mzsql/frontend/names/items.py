"""Names of objects: of existing ones, and of those that a statement creates.

Promise: an unknown name fails with Materialize's or PostgreSQL's message, the position of the name, and a hint where a
similar name exists.
"""

from __future__ import annotations

from collections.abc import Iterable

from mzsql.frontend.catalog import (
    SYSTEM_SCHEMAS,
    TEMPORARY_SCHEMA,
    CatalogItem,
    CatalogView,
    FullName,
    PartialName,
    is_temporary,
)
from mzsql.frontend.names.types import builtin_type
from mzsql.frontend.parse.statements import Name, Show
from mzsql.repr.errors import SqlError, UndefinedObject, UndefinedTable, alike


def check_database(catalog: CatalogView, database: str | None, position: int | None) -> None:
    """Refuse a database that does not exist; None is accepted.

    Raises:
        UndefinedTable: ``unknown database 'd'``.
    """
    if database is not None and not catalog.has_database(database):
        raise UndefinedTable(
            f"unknown database '{database}'",
            position=position,
            hint=alike(database, catalog.database_names()),
            sqlstate="3D000",
        )


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
        raise unknown_schema(catalog, name.database, name.schema, position)


def unknown_schema(
    catalog: CatalogView, database: str | None, schema: str, position: int | None = None
) -> UndefinedTable:
    """The error for a schema that does not exist in a database (None: the session's), with a similar one as a hint."""
    return UndefinedTable(
        f"unknown schema '{schema}'",
        position=position,
        hint=alike(schema, catalog.schema_names(database or catalog.database)),
        sqlstate="3F000",
    )


def no_schema(position: int | None = None) -> SqlError:
    """The error for a session whose search path names no existing schema."""
    return SqlError(
        "no valid schema selected",
        position=position,
        hint="Name the schema, or SET search_path to one that SHOW SCHEMAS lists.",
        sqlstate="3F000",
    )


def item_named(catalog: CatalogView, name: Name) -> CatalogItem:
    """The object that a name refers to.

    Raises:
        UndefinedTable: ``unknown catalog item 'x'``.
    """
    check_qualifiers(catalog, name.partial, name.position)
    item = catalog.resolve_item(name.partial)
    if item is None:
        raise unknown_item(catalog, name.partial, name.position)
    return item


def unknown_item(
    catalog: CatalogView,
    name: PartialName,
    position: int | None = None,
    *,
    also: Iterable[str] = (),
) -> UndefinedTable:
    """The error for a name that no object has, with a similar name as a hint: of ``also`` (which the statement itself has), else of an
    object. Where the session's database does not exist, that is the hint.
    """
    like = catalog.item_like(name)
    hint = None if like is None else f"Perhaps you meant {like}."
    if name.schema is None:
        hint = alike(name.item, also) or hint
    if name.database is None and not catalog.has_database(catalog.database):
        hint = f"The session's database '{catalog.database}' does not exist: SET database to one that SHOW DATABASES lists."
    return UndefinedTable(f"unknown catalog item '{name}'", position=position, hint=hint)


def find_item(catalog: CatalogView, name: Name) -> CatalogItem | None:
    """The object that a name after IF EXISTS refers to; None where it, its schema or its database does not exist."""
    return catalog.resolve_item(name.partial)


def target_item(
    catalog: CatalogView, kind: str, name: Name, verb: str, *, if_exists: bool
) -> CatalogItem | None:
    """The object of this kind that a statement is to ``verb`` (remove, alter, …); None where IF EXISTS is said and none has the name.

    Raises:
        UndefinedTable: ``unknown catalog item 'x'``.
        SqlError: the object is of the system, or of another kind.
    """
    builtin = builtin_type(name.partial) if kind == "type" else None
    if builtin is not None:
        raise _of_system(builtin, name)
    item = find_item(catalog, name) if if_exists else item_named(catalog, name)
    if item is not None:
        expect_kind(item, kind, name, verb)
    return item


def _of_system(found: FullName, name: Name) -> SqlError:
    return SqlError(
        f"system item '{found}' cannot be modified", position=name.position, sqlstate="42501"
    )


def new_name(catalog: CatalogView, name: Name, *, temporary: bool = False) -> FullName:
    """The full name of an object to be created: in the named schema, else in the first existing one of the search path;
    of a ``temporary`` one in the session's schema of those.

    Raises:
        SqlError: the schema does not exist, is a system schema, or is no temporary one.
    """
    partial = name.partial
    if temporary:
        return _temporary_name(catalog, name)
    check_qualifiers(catalog, partial, name.position)
    database = partial.database or catalog.database
    schema = partial.schema
    if schema is None:
        known = [s for s in catalog.search_path if catalog.has_schema(database, s)]
        if not known:
            raise no_schema(name.position)
        schema = known[0]
    if schema in SYSTEM_SCHEMAS or schema == TEMPORARY_SCHEMA:
        raise SqlError(
            f"system schema '{schema}' cannot be modified", position=name.position, sqlstate="42501"
        )
    return FullName(database, schema, partial.item)


def _temporary_name(catalog: CatalogView, name: Name) -> FullName:
    """The full name of a temporary object, whose schema is not named, is `TEMPORARY_SCHEMA`, or is as definitions have it."""
    partial = name.partial
    database, schema = catalog.temporary
    if partial.schema is not None:
        check_qualifiers(catalog, partial, name.position)
        if is_temporary(partial.schema) and partial.database is not None:
            return FullName(partial.database, partial.schema, partial.item)
        if partial.schema != TEMPORARY_SCHEMA:
            raise SqlError(
                "cannot create temporary item in non-temporary schema",
                position=name.position,
                sqlstate="42P16",
            )
    return FullName(database, schema, partial.item)


def schema_named(catalog: CatalogView, name: Name) -> tuple[str | None, str]:
    """The database and schema that a schema's name (``s`` or ``d.s``) refers to; a system schema has no database.

    Raises:
        UndefinedTable: ``unknown schema 's'``, ``unknown database 'd'``.
    """
    schema, database = name.partial.item, name.partial.schema
    check_database(catalog, database, name.position)
    if catalog.has_schema(None, schema):
        return None, schema
    database = database or catalog.database
    if not catalog.has_schema(database, schema):
        raise unknown_schema(catalog, database, schema, name.position)
    return database, schema


#: Kinds of objects that SHOW lists and that are in no schema.
_WITHOUT_SCHEMA = ("databases", "clusters", "cluster replicas", "roles")


def shown_schema(statement: Show, catalog: CatalogView) -> tuple[str | None, str] | None:
    """The database and schema whose objects SHOW lists.

    It is the named schema, else the first existing one of the search path. For SHOW SCHEMAS it is a database and an
    empty schema name.

    Returns:
        Database and schema; None: all schemas.

    Raises:
        UndefinedTable: the named schema or database does not exist.
        SqlError: none is named, and none of the session's exists.
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
    """The named cluster, or the session's.

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


#: The statement to use instead, by verb, for hints.
_STATEMENTS = {
    "remove": "DROP",
    "show": "SHOW CREATE",
    "comment on": "COMMENT ON",
    "rename": "ALTER",
    "alter": "ALTER",
}


def expect_kind(item: CatalogItem, kind: str, name: Name, verb: str) -> None:
    """Refuse to ``verb`` (remove, alter, …) a system object, or an object of another kind than the statement names.

    Raises:
        SqlError: the object is of the system, or of another kind.
    """
    if item.name.database is None:
        raise _of_system(item.name, name)
    # As in PostgreSQL, DROP TABLE does not drop a view, and so on.
    if item.kind.replace("-", " ") != kind:
        raise wrong_kind(item, kind, name, verb)


def wrong_kind(item: CatalogItem, kind: str, name: Name, verb: str) -> SqlError:
    """The error for a statement that names an object of another kind than it should."""
    found = item.kind.replace("-", " ").upper()
    return SqlError(
        f"{item.name} is not {'an' if kind == 'index' else 'a'} {kind}",
        position=name.position,
        hint=f"Use {_STATEMENTS[verb]} {found} to {verb} {item.described}.",
        sqlstate="42809",
    )
