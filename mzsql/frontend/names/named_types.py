"""Types that users created: resolved by name while a statement is planned.

Promise: a name means what the catalog says when the statement is planned. The types that a definition uses are recorded
with their places in the text, so that the stored text can qualify them and the types cannot be dropped while in use. A
created type is a name for its base type: values of both are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from sqlglot import expressions as exp

from mzsql.frontend.catalog import CatalogView, FullName, PartialName
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import SqlType

#: From a node with a name to the type; None where no type has that name.
TypeLookup = Callable[[exp.Expr], SqlType | None]


@dataclass
class NamedTypes:
    """Resolves types in a catalog, and records which were used.

    Attributes:
        catalog: where names are resolved.
        references: the types found, by their place in the text: start, end, full name.
        ids: the ids of the types found.
    """

    catalog: CatalogView
    references: list[tuple[int, int, FullName]] = field(default_factory=list)
    ids: set[GlobalId] = field(default_factory=set)

    def __call__(self, node: exp.Expr) -> SqlType | None:
        """The type that a name refers to, recorded as used; None where there is none."""
        parts = node.meta.get("parts")
        if parts is None or not 1 <= len(parts) <= 3:
            return None
        item = self.catalog.resolve_item(PartialName(*reversed(parts)))
        if item is None or item.typ is None:
            return None
        place = node.meta.get("named")
        if place is not None:
            start, end = place
            self.references.append((start, end, item.name))
        self.ids.add(item.id)
        return msgspec.structs.replace(item.typ, custom_id=str(item.id))

    @property
    def used(self) -> tuple[GlobalId, ...]:
        """The ids of the types found, sorted."""
        return tuple(sorted(self.ids))
