"""The types that users have made: found by name while a statement is planned.

Promise: a name means what the catalog says when the statement is planned; what a definition uses is remembered, with where it stands, so
that its text names it wholly and the type cannot be dropped from under it. A type of one's own is a name for its base: values of both are
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from sqlglot import expressions as exp

from mzsql.frontend.catalog import CatalogView, FullName, PartialName
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import SqlType

#: The type that the name in a node means; None where there is none of that name.
TypeLookup = Callable[[exp.Expr], SqlType | None]


@dataclass
class NamedTypes:
    """Finds types in a catalog.

    Attributes:
        catalog: where names resolve.
        references: the types found, as they stand in the text: start, end, whole name.
        ids: the types found.
    """

    catalog: CatalogView
    references: list[tuple[int, int, FullName]] = field(default_factory=list)
    ids: set[GlobalId] = field(default_factory=set)

    def __call__(self, node: exp.Expr) -> SqlType | None:
        """The type that a name means, remembered; None where there is none of that name."""
        parts = node.meta.get("parts")
        if parts is None or not 1 <= len(parts) <= 3:
            return None
        item = self.catalog.resolve_item(PartialName(*reversed(parts)))
        if item is None or item.typ is None:
            return None
        start, end = node.meta["named"]
        self.references.append((start, end, item.name))
        self.ids.add(item.id)
        return msgspec.structs.replace(item.typ, custom_id=str(item.id))

    @property
    def used(self) -> tuple[GlobalId, ...]:
        """The types found, in order."""
        return tuple(sorted(self.ids))
