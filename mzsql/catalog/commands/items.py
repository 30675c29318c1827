"""Commands on objects, and fresh ids: pure functions from a state to a `Change`.

Promise: ids come from counters in the catalog itself and are never used twice. Nothing is dropped that something else needs unless CASCADE
was said; what is dropped takes its comments along, and its shard is noted, to be ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mzsql.catalog.change import Change
from mzsql.catalog.commands.comments import without_comments
from mzsql.catalog.objects import CATALOG_CLUSTER, Index, Item, Maintained, Stored, number
from mzsql.catalog.state import CatalogState, removed
from mzsql.repr.errors import (
    DependentObjects,
    DuplicateObject,
    SqlError,
    UndefinedObject,
    UndefinedTable,
)
from mzsql.repr.ids import GlobalId, sort_key

RETIRED = "retired"
"""Among the arrangements by their replicas: what no replica has, shards of dropped objects that are yet to end."""


def allocate(state: CatalogState, counter: str, n: int = 1) -> tuple[int, Change]:
    """The first of ``n`` fresh numbers of a counter, counting from 1."""
    first = state.counters.get(counter, 0) + 1
    return first, Change(counters={counter: first + n - 1})


def fresh_ids(
    state: CatalogState, counter: str, taken: Collection[str], n: int
) -> tuple[list[str], Change]:
    """``n`` ids that were never used; those that were given out before there was a counter are among `taken`."""
    first = max([state.counters.get(counter, 0), *(number(gid) for gid in taken)]) + 1
    return [f"u{first + i}" for i in range(n)], Change(counters={counter: first + n - 1})


def name_taken(item: Item) -> DuplicateObject:
    """The error of whatever would have the name of an object."""
    return DuplicateObject(f'{item.noun} "{item.full_name}" already exists', sqlstate="42P07")


def create_item(state: CatalogState, item: Item) -> Change:
    """Add an object.

    Raises:
        DuplicateObject: its name is taken.
        UndefinedTable: something that it depends on was dropped meanwhile.
        UndefinedObject: its schema or cluster does not exist.
    """
    if state.schema(item.database, item.schema) is None:
        raise UndefinedObject(f"unknown schema '{item.schema}'", sqlstate="3F000")
    taken = state.by_name(item.schema, item.name, item.database)
    if taken is not None:
        raise name_taken(taken)
    if isinstance(item, Maintained):
        if item.cluster == CATALOG_CLUSTER.name:
            raise SqlError(f"system cluster '{item.cluster}' cannot be modified", sqlstate="42501")
        if state.cluster(item.cluster) is None:
            raise UndefinedObject(f"unknown cluster '{item.cluster}'")
    for gid in item.depends_on:
        if gid.startswith("u") and gid not in state.items:
            raise UndefinedTable(f"an object that {item.name} depends on was dropped meanwhile")
    return Change(items={item.id: item})


def live(state: CatalogState, gid: GlobalId) -> Item:
    """An object that was named before the catalog was looked at again; UndefinedTable where it is gone."""
    found = state.items.get(gid)
    if found is None:
        raise UndefinedTable(f"unknown catalog item '{gid}': it was dropped meanwhile")
    return found


def drop_items(state: CatalogState, ids: Iterable[GlobalId], *, cascade: bool) -> Change:
    """Remove objects, with ``cascade`` also all that depend on them. Indexes always go with what they are on.

    Raises:
        DependentObjects: something else depends on one of them.
    """
    doomed = {gid for gid in ids if gid in state.items}
    for gid in tuple(doomed):
        for dependent in state.transitive_dependents(gid):
            if cascade or isinstance(dependent, Index):
                doomed.add(dependent.id)
    for gid in sorted(doomed, key=sort_key):
        item = state.items[gid]
        others = [d for d in state.dependents(gid) if d.id not in doomed]
        if others:
            by = ", ".join(f'{d.noun} "{d.name}"' for d in others)
            raise DependentObjects(
                f'cannot drop {item.noun} "{item.name}": still depended upon by {by}',
                hint="Use DROP … CASCADE to drop the dependent objects too.",
            )
    return Change(items=dict.fromkeys(doomed))


def without_orphans(state: CatalogState, change: Change) -> Change:
    """The change, and with it the comments on whatever it removes; shards of what it removes are noted, to be ended (`RETIRED`)."""
    shards = [item.shard for item in removed(state, change) if isinstance(item, Stored)]
    noted = Change(arrangements={f"{RETIRED}/{shard}": shard for shard in shards})
    return change | noted | without_comments(state, change)
