"""Commands on databases, schemas, roles and comments: pure functions from a state to a `Change`, as those of `mzsql.catalog.state`.

Promise: what a name means is decided here, inside the compare-and-append; nothing is dropped with objects in it unless CASCADE was said
(or, of a database, RESTRICT was not, as in PostgreSQL and Materialize, where a database goes with what is in it).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mzsql.catalog.durable_map import Change
from mzsql.catalog.objects import DEFAULT_SCHEMA, Database, Role, Schema, number
from mzsql.catalog.state import RETIRED, CatalogState, Item, drop_items, put
from mzsql.repr.errors import DependentObjects, DuplicateObject, UndefinedObject, UndefinedTable
from mzsql.repr.ids import GlobalId


def fresh_ids(
    state: CatalogState, counter: str, taken: Collection[str], n: int
) -> tuple[list[str], Change]:
    """``n`` ids that were never used; those that were given out before there was a counter are among `taken`."""
    first = max([state.counters.get(counter, 0), *(number(gid) for gid in taken)]) + 1
    return [f"u{first + i}" for i in range(n)], dict([put("counter", counter, first + n - 1)])


# --- databases and schemas ------------------------------------------------------------------------


def create_database(state: CatalogState, name: str) -> Change:
    """A database with a schema ``public``; DuplicateObject where its name is taken."""
    if state.database(name) is not None:
        raise DuplicateObject(f"database '{name}' already exists", sqlstate="42P04")
    (gid,), change = fresh_ids(state, "database", state.databases, 1)
    (schema,), counted = fresh_ids(state, "schema", [s.id for s in state.schemas.values()], 1)
    made = [put("database", gid, Database(gid, name))]
    made.append(put("schema", schema, Schema(schema, DEFAULT_SCHEMA, gid)))
    return {**change, **counted, **dict(made)}


def create_schema(state: CatalogState, database: str, name: str) -> Change:
    """A schema; DuplicateObject where its name is taken, UndefinedTable where there is no such database."""
    of = database_named(state, database)
    if state.schema(database, name) is not None:
        raise DuplicateObject(f"schema '{name}' already exists", sqlstate="42P06")
    (gid,), change = fresh_ids(state, "schema", [s.id for s in state.schemas.values()], 1)
    return {**change, **dict([put("schema", gid, Schema(gid, name, of.id))])}


def database_named(state: CatalogState, name: str) -> Database:
    """The database of a name; UndefinedTable where there is none."""
    found = state.database(name)
    if found is None:
        raise UndefinedTable(f"unknown database '{name}'", sqlstate="3D000")
    return found


def schema_named(state: CatalogState, database: str, name: str) -> tuple[str, Schema]:
    """The schema of a name, with its entry's key; UndefinedTable where there is none."""
    database_named(state, database)
    found = state.schema(database, name)
    if found is None:
        raise UndefinedTable(f"unknown schema '{name}'", sqlstate="3F000")
    return found


def _in_schemas(state: CatalogState, schemas: Collection[tuple[str, str]]) -> list[GlobalId]:
    return [gid for gid, item in state.items.items() if (item.database, item.schema) in schemas]


def drop_schemas(
    state: CatalogState, names: Collection[tuple[str, str]], *, cascade: bool
) -> Change:
    """Remove schemas, with `cascade` what is in them too; DependentObjects where that was not said and something is."""
    change: dict[str, bytes | None] = {}
    for database, name in names:
        key, _ = schema_named(state, database, name)
        if not cascade and _in_schemas(state, [(database, name)]):
            raise DependentObjects(
                f"schema '{database}.{name}' cannot be dropped without CASCADE while it contains objects",
                hint="Use DROP SCHEMA … CASCADE to drop them too.",
            )
        change[f"schema/{key}"] = None
    return {**change, **drop_items(state, _in_schemas(state, names), cascade=True)}


def drop_database(state: CatalogState, name: str, *, cascade: bool) -> Change:
    """Remove a database and all that is in it; DependentObjects where it has schemas and RESTRICT was said."""
    one = database_named(state, name)
    names = [(name, s.name) for s in state.schemas.values() if s.database == one.id]
    if names and not cascade:
        raise DependentObjects(
            f"database '{name}' cannot be dropped with RESTRICT while it contains schemas"
        )
    gone: dict[str, bytes | None] = dict(drop_schemas(state, names, cascade=True))
    # The first database is there until an entry says that it is not.
    entry = put("database", one.id, None) if one.id == "u1" else (f"database/{one.id}", None)
    return {**gone, entry[0]: entry[1]}


# --- roles ----------------------------------------------------------------------------------------


def create_role(state: CatalogState, name: str) -> Change:
    """A role; DuplicateObject where its name is taken."""
    if state.role(name) is not None:
        raise DuplicateObject(f"role '{name}' already exists")
    (gid,), change = fresh_ids(state, "role", state.roles, 1)
    return {**change, **dict([put("role", gid, Role(gid, name))])}


def role_named(state: CatalogState, name: str) -> Role:
    """The role of a name; UndefinedObject where there is none."""
    found = state.role(name)
    if found is None:
        raise UndefinedObject(f"unknown role '{name}'")
    return found


def drop_role(
    state: CatalogState, name: str, current: str, granted: Collection[str] = ()
) -> Change:
    """Remove a role that owns nothing, was granted nothing and that nobody speaks as."""
    role = role_named(state, name)
    if name == current:
        raise DependentObjects("current role cannot be dropped", sqlstate="55006")
    owned = [
        *(
            f'{i.kind.replace("-", " ")} "{i.full_name}"'
            for i in state.items.values()
            if i.owner == role.id
        ),
        *(f'cluster "{c.name}"' for c in state.clusters.values() if c.owner == role.id),
        *(f'schema "{s.name}"' for s in state.schemas.values() if s.owner == role.id),
        *(f'database "{d.name}"' for d in state.databases.values() if d.owner == role.id),
    ]
    if owned or granted:
        raise DependentObjects(
            f'role "{name}" cannot be dropped because some objects depend on it',
            detail="\n".join([*(f"owner of {one}" for one in owned), *granted]),
            hint="Give them another owner: ALTER … OWNER TO …, and REVOKE what was granted.",
        )
    gone: dict[str, bytes | None] = {f"role/{role.id}": None}
    for other in state.roles.values():
        if role.id in other.member_of:
            left = tuple(r for r in other.member_of if r != role.id)
            gone.update([put("role", other.id, msgspec.structs.replace(other, member_of=left))])
    return gone


def grant(state: CatalogState, role: str, member: str, *, revoke: bool) -> Change:
    """Make a role a member of another, or no more; a circle is refused."""
    group, one = role_named(state, role), role_named(state, member)
    rest = tuple(r for r in one.member_of if r != group.id)
    if not revoke:
        if one.id in _memberships(state, group):
            raise DuplicateObject(
                f'role "{role}" is a member of role "{member}"',
                hint="Memberships cannot be circular.",
                sqlstate="0LP01",
            )
        rest = (*rest, group.id)
    return dict([put("role", one.id, msgspec.structs.replace(one, member_of=rest))])


def _memberships(state: CatalogState, role: Role) -> set[str]:
    """The role itself and all that it is a member of, by itself or through others."""
    found: set[str] = set()
    pending = [role.id]
    while pending:
        gid = pending.pop()
        if gid not in found and gid in state.roles:
            found.add(gid)
            pending += state.roles[gid].member_of
    return found


# --- comments -------------------------------------------------------------------------------------


def comment(state: CatalogState, key: str, text: str | None) -> Change:
    """Remember a comment under a key such as ``table/u1`` or ``table/u1/2``; None takes it away."""
    if text is None:
        return {f"comment/{key}": None} if key in state.comments else {}
    return dict([put("comment", key, text)])


def item_comment_key(item: Item, column: int | None = None) -> str:
    """The key of the comment on an object, or on a column of it, counting from 1."""
    return f"{item.kind}/{item.id}" + ("" if column is None else f"/{column}")


def without_orphans(state: CatalogState, change: Change) -> Change:
    """The change, and with it the comments on whatever it removes; shards of what it removes are noted, to be ended (`RETIRED`)."""
    gone: dict[str, bytes | None] = {}
    for entry, value in change.items():
        kind, _, name = entry.partition("/")
        if value is not None or kind not in (
            "item",
            "schema",
            "database",
            "cluster",
            "replica",
            "role",
        ):
            continue
        label, gid = kind, name
        if kind == "item":
            label = state.items[GlobalId(name)].kind
            shard = state.items[GlobalId(name)].shard
            if shard is not None:
                gone.update([put("arrangement", f"{RETIRED}/{shard}", shard)])
        elif kind == "schema":
            gid = state.schemas[name].id
        for key in state.comments:
            if key == f"{label}/{gid}" or key.startswith(f"{label}/{gid}/"):
                gone[f"comment/{key}"] = None
    return {**change, **gone}
