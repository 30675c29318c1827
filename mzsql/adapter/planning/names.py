"""Names for ids in plans: explain's `Humanizer` over the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mzsql.catalog.builtin import builtins
from mzsql.catalog.objects import RelationItem
from mzsql.catalog.state import CatalogState
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc


class Describes(Protocol):
    """What knows the columns of relations."""

    def desc(self, gid: GlobalId) -> RelationDesc:
        """The columns of a relation."""


class Names:
    """Names for ids.

    Args:
        state: the catalog.
        descriptions: knows relations' columns.
        own: names of objects that are not in the catalog yet.
    """

    def __init__(
        self,
        state: CatalogState,
        descriptions: Describes,
        own: Mapping[GlobalId, str],
    ) -> None:
        self._state = state
        self._descriptions = descriptions
        self._own = own

    def name(self, gid: GlobalId) -> str:
        """An object's qualified name."""
        if gid in self._own:
            return self._own[gid]
        builtin = builtins().get(gid)
        if builtin is not None:
            return builtin.full_name
        item = self._state.items.get(gid)
        return "[DELETED INDEX]" if item is None else item.full_name

    def column_names(self, gid: GlobalId) -> Sequence[str] | None:
        """The names of an object's columns; None where it has none or does not exist."""
        if gid not in self._state.items and gid not in builtins():
            return None
        item = self._state.items.get(gid)
        if item is not None and not isinstance(item, RelationItem):
            return None
        return self._descriptions.desc(gid).names
