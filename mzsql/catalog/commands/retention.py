"""RETAIN HISTORY: the command that changes it, and what it means for stored collections."""

from __future__ import annotations

import msgspec

from mzsql.catalog.change import Change
from mzsql.catalog.commands.items import live
from mzsql.catalog.objects import Index, Maintained, Stored
from mzsql.catalog.state import CatalogState
from mzsql.repr.errors import InternalError
from mzsql.repr.ids import GlobalId


def alter_retention(
    state: CatalogState, gid: GlobalId, retain_ms: int | None, create_sql: str
) -> Change:
    """Change an object's retained history, and its definition accordingly.

    Raises:
        UndefinedTable: it was dropped meanwhile.
    """
    item = live(state, gid)
    if not isinstance(item, Stored | Maintained):
        raise InternalError(f'{item.noun} "{item.full_name}" has no history')
    altered = msgspec.structs.replace(item, retain_ms=retain_ms, create_sql=create_sql)
    return Change(items={gid: altered})


def retention(state: CatalogState, default_ms: int) -> dict[GlobalId, int]:
    """How many milliseconds of history each stored collection retains: its own setting, or more where an index needs
    it.

    An index with retained history is read together with its relation, so every stored collection below that relation
    retains at least as much.
    """
    found = {
        item.id: default_ms if item.retain_ms is None else item.retain_ms for item in state.stored
    }
    for index in state.of(Index):
        if index.retain_ms is None:
            continue
        pending = [index.on_id]
        while pending:
            gid = pending.pop()
            item = state.items.get(gid)
            if gid in found:
                found[gid] = max(found[gid], index.retain_ms)
            elif item is not None:
                pending += item.depends_on
    return found
