"""Commands on objects, and id allocation: pure functions from a state to a `Change`.

Promise: ids come from counters in the catalog and are never reused. Nothing that other objects need is dropped without
CASCADE. A dropped object's comments are removed with it, and its shard is recorded so that it can be retired.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mzsql.catalog.change import Change
from mzsql.catalog.commands.comments import without_comments
from mzsql.catalog.objects import CATALOG_CLUSTER, Index, Item, Maintained, Object, Stored, number
from mzsql.catalog.state import CatalogState, removed
from mzsql.repr.errors import (
    DependentObjects,
    DuplicateObject,
    InvalidParameter,
    SqlError,
    UndefinedObject,
    UndefinedTable,
)
from mzsql.repr.ids import GlobalId, sort_key

RETIRED = "retired"
"""Takes a replica's place in the keys of arrangements, for shards of dropped objects that are yet to be retired."""


def allocate(state: CatalogState, counter: str, n: int = 1) -> tuple[int, Change]:
    """The first of ``n`` fresh numbers of a counter, which starts at 1, and the change that allocates them."""
    first = state.counters.get(counter, 0) + 1
    return first, Change(counters={counter: first + n - 1})


def fresh_ids(
    state: CatalogState, counter: str, taken: Collection[str], n: int
) -> tuple[list[str], Change]:
    """``n`` unused ids; ``taken`` includes those allocated before there was a counter."""
    first = max([state.counters.get(counter, 0), *(number(gid) for gid in taken)]) + 1
    return [f"u{first + i}" for i in range(n)], Change(counters={counter: first + n - 1})


def name_taken(item: Item) -> DuplicateObject:
    """The error for a name that an object already has."""
    return DuplicateObject(f'{item.noun} "{item.full_name}" already exists', sqlstate="42P07")


def create_item(state: CatalogState, item: Item) -> Change:
    """Add an object.

    Raises:
        DuplicateObject: its name is taken.
        UndefinedTable: an object that it depends on was dropped meanwhile.
        UndefinedObject: its schema or cluster does not exist.
        InvalidParameter: it depends on a temporary object, and is none.
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
    refuse_temporary(state, item)
    return Change(items={item.id: item})


def refuse_temporary(state: CatalogState, item: Object) -> None:
    """Check that an object that stays depends on none that goes with a session.

    Raises:
        InvalidParameter: it does (42P16).
    """
    if item.temporary and not isinstance(item, Index):
        return  # an index is in its relation's schema, and maintained for everybody
    for gid in item.depends_on:
        found = state.items.get(gid)
        if found is not None and found.temporary:
            raise InvalidParameter(
                f"non-temporary items cannot depend on temporary item '{found.full_name}'",
                sqlstate="42P16",
            )


def live(state: CatalogState, gid: GlobalId) -> Item:
    """The object with an id that was resolved in an older state.

    Raises:
        UndefinedTable: it was dropped meanwhile.
    """
    found = state.items.get(gid)
    if found is None:
        raise UndefinedTable(f"unknown catalog item '{gid}': it was dropped meanwhile")
    return found


def drop_items(state: CatalogState, ids: Iterable[GlobalId], *, cascade: bool) -> Change:
    """Remove objects; with ``cascade`` also all that depend on them. Indexes are always dropped with their relation.

    Raises:
        DependentObjects: another object depends on one of them.
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
    """The change, extended to remove comments on what it removes and to record the shards to retire (`RETIRED`)."""
    shards = [item.shard for item in removed(state, change) if isinstance(item, Stored)]
    noted = Change(arrangements={f"{RETIRED}/{shard}": shard for shard in shards})
    return change | noted | without_comments(state, change)
