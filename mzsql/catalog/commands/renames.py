"""Commands that give things other names: pure functions from a state to a `Change`, the definitions that name them included.

Promise: an object keeps its id, so its contents, its plans and what depends on it go on; only texts change. A text that would mean
something else, or nothing, under the new names is refused before anything is written (`check`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mzsql.catalog.commands.clusters import cluster_named
from mzsql.catalog.commands.items import schema_named
from mzsql.catalog.durable_map import Change
from mzsql.catalog.state import CatalogState, Item, put
from mzsql.frontend.catalog import FullName
from mzsql.frontend.renaming import in_other_cluster, rewritten
from mzsql.repr.errors import DuplicateObject, UndefinedTable
from mzsql.repr.ids import GlobalId

Check = Callable[[Item, Item, CatalogState], None]
"""Raises where a definition (an object before and after, in the catalog after) has changed its meaning."""


def name_of(item: Item) -> FullName:
    """An object's whole name."""
    return FullName(item.database, item.schema, item.name)


def live(state: CatalogState, gid: GlobalId) -> Item:
    """An object that was named before the catalog was looked at again; UndefinedTable where it is gone."""
    found = state.items.get(gid)
    if found is None:
        raise UndefinedTable(f"unknown catalog item '{gid}': it was dropped meanwhile")
    return found


def rename_items(state: CatalogState, names: Mapping[GlobalId, FullName], check: Check) -> Change:
    """Give objects other names, and schemas where those differ; the definitions of what depends on them follow.

    Raises:
        DuplicateObject: a name is taken.
        UndefinedTable: one of the objects, or of the schemas, was dropped meanwhile.
    """
    renamed = {name_of(live(state, gid)): new for gid, new in names.items()}
    after: dict[GlobalId, Item] = {}
    for gid, item in state.items.items():
        new = names.get(gid)
        own = name_of(item)
        depends = any(d in names for d in item.depends_on) or item.on_id in names
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
    then = msgspec.structs.replace(state, items={**state.items, **after})
    for gid, item in after.items():
        check(state.items[gid], item, then)
    return dict([put("item", gid, item) for gid, item in after.items()])


def _refuse_taken(
    state: CatalogState, names: Mapping[GlobalId, FullName], after: Mapping[GlobalId, Item]
) -> None:
    taken = {name_of(item): item for gid, item in state.items.items() if gid not in names}
    for gid in names:
        other = taken.get(name_of(after[gid]))
        if other is not None:
            noun = other.kind.replace("-", " ")
            raise DuplicateObject(f'{noun} "{other.full_name}" already exists', sqlstate="42P07")


def _with_schemas(state: CatalogState, changed: Change) -> CatalogState:
    """The state in which schemas have their new names, for what is checked in it."""
    schemas = dict(state.schemas)
    for entry, value in changed.items():
        key = entry.removeprefix("schema/")
        if value is None:
            schemas.pop(key, None)
        else:
            schemas[key] = msgspec.json.decode(value, type=type(next(iter(state.schemas.values()))))
    return msgspec.structs.replace(state, schemas=schemas)


def rename_schemas(
    state: CatalogState, database: str, names: Mapping[str, str], check: Check
) -> Change:
    """Give schemas of a database other names, each old one to its new one.

    Raises:
        DuplicateObject: a name is taken.
        UndefinedTable: there is no schema of such a name.
    """
    change: dict[str, bytes | None] = {}
    made: dict[str, bytes] = {}
    for old, new in names.items():
        key, schema = schema_named(state, database, old)
        if new not in names and state.schema(database, new) is not None:
            raise DuplicateObject(f"schema '{new}' already exists", sqlstate="42P06")
        change[f"schema/{key}"] = None
        made.update([put("schema", schema.id, msgspec.structs.replace(schema, name=new))])
    change.update(made)
    moved = {
        gid: FullName(database, names[item.schema], item.name)
        for gid, item in state.items.items()
        if item.database == database and item.schema in names
    }
    return {**change, **rename_items(_with_schemas(state, change), moved, check)}


def set_schema(state: CatalogState, gid: GlobalId, to: FullName, check: Check) -> Change:
    """Move an object to another schema, a relation with its indexes."""
    item = live(state, gid)
    schema_named(state, str(to.database), to.schema)
    moved = {gid: FullName(to.database, to.schema, item.name)}
    for index in state.indexes_on(gid):
        if (index.database, index.schema) == (item.database, item.schema):
            moved[index.id] = FullName(to.database, to.schema, index.name)
    return rename_items(state, moved, check)


def rename_clusters(state: CatalogState, names: Mapping[str, str]) -> Change:
    """Give clusters other names, each old one to its new one; the definitions of what is in them follow.

    Raises:
        DuplicateObject: a name is taken.
        UndefinedObject: there is no cluster of such a name.
    """
    change: dict[str, bytes | None] = {}
    for old, new in names.items():
        cluster = cluster_named(state, old)
        if new not in names and state.cluster(new) is not None:
            raise DuplicateObject(f"cluster '{new}' already exists")
        change.update([put("cluster", cluster.id, msgspec.structs.replace(cluster, name=new))])
    for gid, item in state.items.items():
        if item.cluster is not None and item.cluster in names:
            name = names[item.cluster]
            text = in_other_cluster(item.create_sql, name)
            renamed = msgspec.structs.replace(item, cluster=name, create_sql=text)
            change.update([put("item", gid, renamed)])
    return change


def set_cluster(state: CatalogState, gid: GlobalId, cluster: str) -> Change:
    """Have another cluster maintain an object; its plan is made anew, as that cluster has other indexes."""
    item = live(state, gid)
    cluster_named(state, cluster)
    if item.cluster == cluster:
        return {}
    text = in_other_cluster(item.create_sql, cluster)
    moved = msgspec.structs.replace(
        item, cluster=cluster, create_sql=text, version=item.version + 1
    )
    return dict([put("item", gid, moved)])
