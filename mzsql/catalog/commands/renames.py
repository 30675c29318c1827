"""Commands that rename or move things, rewriting the definitions that use their names: pure functions from a state to a
`Change`.

Promise: an object keeps its id, so its contents, plans and dependents are not affected; only texts change. A definition
that would change its meaning, or lose it, under the new names is refused before anything is written (`check`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.commands.clusters import cluster_named
from mzsql.catalog.commands.items import live, name_taken
from mzsql.catalog.commands.schemas import schema_named
from mzsql.catalog.objects import Index, Item, Maintained, Schema
from mzsql.catalog.state import CatalogState, applied
from mzsql.frontend.catalog import FullName
from mzsql.frontend.definitions.renaming import in_other_cluster, rewritten
from mzsql.repr.errors import DuplicateObject, InternalError
from mzsql.repr.ids import GlobalId

Check = Callable[[Item, Item, CatalogState], None]
"""Called with an object before and after, and the catalog after; raises where its definition changes its meaning."""


def name_of(item: Item) -> FullName:
    """An object's full name."""
    return FullName(item.database, item.schema, item.name)


def rename_items(state: CatalogState, names: Mapping[GlobalId, FullName], check: Check) -> Change:
    """Rename objects, and move them to other schemas where those differ; definitions that depend on them follow.

    Raises:
        DuplicateObject: a name is taken.
        UndefinedTable: one of the objects or schemas was dropped meanwhile.
    """
    renamed = {name_of(live(state, gid)): new for gid, new in names.items()}
    after: dict[GlobalId, Item] = {}
    for gid, item in state.items.items():
        new = names.get(gid)
        own = name_of(item)
        depends = any(d in names for d in item.depends_on)
        depends = depends or (isinstance(item, Index) and item.on_id in names)
        if new is None and not depends:
            continue
        text = rewritten(item.create_sql, own, renamed)
        to = own if new is None else new
        after[gid] = msgspec.structs.replace(
            item,
            name=to.item,
            schema=to.schema,
            database=to.database or item.database,
            create_sql=text,
        )
    _refuse_taken(state, names, after)
    change = Change(items=after)
    then = applied(state, change)
    for gid, item in after.items():
        check(state.items[gid], item, then)
    return change


def _refuse_taken(
    state: CatalogState, names: Mapping[GlobalId, FullName], after: Mapping[GlobalId, Item]
) -> None:
    taken = {name_of(item): item for gid, item in state.items.items() if gid not in names}
    for gid in names:
        other = taken.get(name_of(after[gid]))
        if other is not None:
            raise name_taken(other)


def rename_schemas(
    state: CatalogState, database: str, names: Mapping[str, str], check: Check
) -> Change:
    """Rename schemas of a database, from old to new names.

    Raises:
        DuplicateObject: a name is taken.
        UndefinedTable: there is no schema with such a name.
    """
    gone: list[str] = []
    made: dict[str, Schema] = {}
    for old, new in names.items():
        key, schema = schema_named(state, database, old)
        if new not in names and state.schema(database, new) is not None:
            raise DuplicateObject(f"schema '{new}' already exists", sqlstate="42P06")
        gone.append(key)
        made[schema.id] = msgspec.structs.replace(schema, name=new)
    change = Change(schemas={**dict.fromkeys(gone), **made})
    moved = {
        gid: FullName(database, names[item.schema], item.name)
        for gid, item in state.items.items()
        if item.database == database and item.schema in names
    }
    return change | rename_items(applied(state, change), moved, check)


def set_schema(state: CatalogState, gid: GlobalId, to: FullName, check: Check) -> Change:
    """Move an object to another schema; a relation with its indexes."""
    item = live(state, gid)
    schema_named(state, str(to.database), to.schema)
    moved = {gid: FullName(to.database, to.schema, item.name)}
    for index in state.indexes_on(gid):
        if (index.database, index.schema) == (item.database, item.schema):
            moved[index.id] = FullName(to.database, to.schema, index.name)
    return rename_items(state, moved, check)


def rename_clusters(state: CatalogState, names: Mapping[str, str]) -> Change:
    """Rename clusters, from old to new names; the definitions of objects in them follow.

    Raises:
        DuplicateObject: a name is taken.
        UndefinedObject: there is no cluster with such a name.
    """
    change = NOTHING
    for old, new in names.items():
        cluster = cluster_named(state, old)
        if new not in names and state.cluster(new) is not None:
            raise DuplicateObject(f"cluster '{new}' already exists")
        change |= Change(clusters={cluster.id: msgspec.structs.replace(cluster, name=new)})
    moved: dict[GlobalId, Item] = {}
    for item in state.maintained:
        name = names.get(item.cluster)
        if name is not None:
            text = in_other_cluster(item.create_sql, name)
            moved[item.id] = msgspec.structs.replace(item, cluster=name, create_sql=text)
    return change | Change(items=moved)


def set_cluster(state: CatalogState, gid: GlobalId, cluster: str) -> Change:
    """Move an object to another cluster; its version grows, so it is planned again, since that cluster has other
    indexes.

    Raises:
        UndefinedObject: there is no such cluster.
        InternalError: the object is of a kind that is in no cluster; planning refuses it before.
    """
    item = live(state, gid)
    cluster_named(state, cluster)
    if not isinstance(item, Maintained):
        raise InternalError(f'{item.noun} "{item.full_name}" is in no cluster')
    if item.cluster == cluster:
        return NOTHING
    text = in_other_cluster(item.create_sql, cluster)
    moved = msgspec.structs.replace(
        item, cluster=cluster, create_sql=text, version=item.version + 1
    )
    return Change(items={gid: moved})
