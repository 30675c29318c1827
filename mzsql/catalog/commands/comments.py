"""Commands on comments: pure functions from a state to a `Change`."""

from __future__ import annotations

from collections.abc import Iterator

from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.objects import Item
from mzsql.catalog.state import CatalogState, removed


def comment(state: CatalogState, key: str, text: str | None) -> Change:
    """Set the comment under a key such as ``table/u1`` or ``table/u1/2``; None removes it."""
    if text is None and key not in state.comments:
        return NOTHING
    return Change(comments={key: text})


def item_comment_key(item: Item, column: int | None = None) -> str:
    """The key of the comment on an object, or on its column number ``column``, counting from 1."""
    return f"{item.kind}/{item.id}" + ("" if column is None else f"/{column}")


def without_comments(state: CatalogState, change: Change) -> Change:
    """The change that removes the comments on everything that ``change`` removes."""
    gone = set(_keys_of_removed(state, change))
    orphans = [key for key in state.comments if "/".join(key.split("/")[:2]) in gone]
    return Change(comments=dict.fromkeys(orphans))


def _keys_of_removed(state: CatalogState, change: Change) -> Iterator[str]:
    for item in removed(state, change):
        yield item_comment_key(item)
    for key, schema in change.schemas.items():
        if schema is None:
            yield f"schema/{state.schemas[key].id}"
    for kind, entries in (
        ("database", change.databases),
        ("cluster", change.clusters),
        ("replica", change.replicas),
        ("role", change.roles),
    ):
        yield from (f"{kind}/{key}" for key, one in entries.items() if one is None)
