"""Commands on databases and schemas: pure functions from a state to a `Change`.

Promise: names are resolved here, inside the compare-and-append. Nothing is dropped with objects in it without CASCADE,
except a database, whose contents go with it unless RESTRICT is given, as in PostgreSQL and Materialize.
"""

from __future__ import annotations

from collections.abc import Collection

from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.commands.items import drop_items, fresh_ids
from mzsql.catalog.objects import DEFAULT_SCHEMA, Database, Schema
from mzsql.catalog.state import CatalogState
from mzsql.repr.errors import DependentObjects, DuplicateObject, UndefinedTable, alike
from mzsql.repr.ids import GlobalId


def create_database(state: CatalogState, name: str) -> Change:
    """Create a database with a schema ``public``.

    Raises:
        DuplicateObject: its name is taken.
    """
    if state.database(name) is not None:
        raise DuplicateObject(f"database '{name}' already exists", sqlstate="42P04")
    (gid,), counted = fresh_ids(state, "database", state.databases, 1)
    return (
        counted
        | Change(databases={gid: Database(gid, name)})
        | _new_schema(state, gid, DEFAULT_SCHEMA)
    )


def create_schema(state: CatalogState, database: str, name: str) -> Change:
    """Create a schema.

    Raises:
        DuplicateObject: its name is taken.
        UndefinedTable: there is no such database.
    """
    of = database_named(state, database)
    if state.schema(database, name) is not None:
        raise DuplicateObject(f"schema '{name}' already exists", sqlstate="42P06")
    return _new_schema(state, of.id, name)


def create_temporary_schema(
    state: CatalogState, place: tuple[str, str], session: tuple[str, str]
) -> Change:
    """Create a session's schema of temporary objects, unless it is there.

    Args:
        state: the catalog.
        place: the names of its database and of the schema.
        session: who keeps it alive (`Schema.session`).

    Raises:
        UndefinedTable: there is no such database.
    """
    database, name = place
    of = database_named(state, database)
    if name in state.temporary:
        return NOTHING
    (gid,), counted = fresh_ids(state, "schema", [s.id for s in state.schemas.values()], 1)
    return counted | Change(schemas={gid: Schema(gid, name, of.id, session=session)})


def drop_temporary_schemas(state: CatalogState, names: Collection[str]) -> Change:
    """Remove schemas of temporary objects, by name, with all that is in them; those that are gone already stay gone."""
    places = [(state.temporary[name][0], name) for name in names if name in state.temporary]
    return drop_schemas(state, places, cascade=True)


def _new_schema(state: CatalogState, database_id: str, name: str) -> Change:
    (gid,), counted = fresh_ids(state, "schema", [s.id for s in state.schemas.values()], 1)
    return counted | Change(schemas={gid: Schema(gid, name, database_id)})


def database_named(state: CatalogState, name: str) -> Database:
    """The database with this name.

    Raises:
        UndefinedTable: there is none.
    """
    found = state.database(name)
    if found is None:
        names = [one.name for one in state.databases.values()]
        raise UndefinedTable(
            f"unknown database '{name}'", hint=alike(name, names), sqlstate="3D000"
        )
    return found


def schema_named(state: CatalogState, database: str, name: str) -> tuple[str, Schema]:
    """The schema with this name, with its entry's key.

    Raises:
        UndefinedTable: there is none.
    """
    database_named(state, database)
    found = state.schema(database, name)
    if found is None:
        names = [one.name for one in state.schemas.values()]
        raise UndefinedTable(f"unknown schema '{name}'", hint=alike(name, names), sqlstate="3F000")
    return found


def _in_schemas(state: CatalogState, schemas: Collection[tuple[str, str]]) -> list[GlobalId]:
    return [gid for gid, item in state.items.items() if (item.database, item.schema) in schemas]


def drop_schemas(
    state: CatalogState, names: Collection[tuple[str, str]], *, cascade: bool
) -> Change:
    """Remove schemas; with ``cascade`` also what is in them.

    Raises:
        DependentObjects: a schema is not empty, and CASCADE was not given.
    """
    keys = []
    for database, name in names:
        key, _ = schema_named(state, database, name)
        if not cascade and _in_schemas(state, [(database, name)]):
            raise DependentObjects(
                f"schema '{database}.{name}' cannot be dropped without CASCADE while it contains objects",
                hint="Use DROP SCHEMA … CASCADE to drop them too.",
            )
        keys.append(key)
    inside = drop_items(state, _in_schemas(state, names), cascade=True)
    return Change(schemas=dict.fromkeys(keys)) | inside


def drop_database(state: CatalogState, name: str, *, cascade: bool) -> Change:
    """Remove a database with everything in it.

    Raises:
        DependentObjects: it has schemas, and RESTRICT was given.
    """
    one = database_named(state, name)
    names = [(name, s.name) for s in state.schemas.values() if s.database == one.id]
    if names and not cascade:
        raise DependentObjects(
            f"database '{name}' cannot be dropped with RESTRICT while it contains schemas"
        )
    return drop_schemas(state, names, cascade=True) | Change(databases={one.id: None})
