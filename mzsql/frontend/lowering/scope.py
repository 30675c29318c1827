"""Where the columns of enclosing scopes are in a relation that is being decorrelated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mzsql.frontend.lowering.rel import Rel
from mzsql.repr.types import RelationType


@dataclass(frozen=True)
class ColumnMap:
    """The positions in `outer` of the columns of enclosing scopes, by level and index; `arity` is outer's number of
    columns.
    """

    positions: Mapping[tuple[int, int], int]
    arity: int

    def get(self, level: int, index: int) -> int:
        """A column's position in a relation lowered over outer."""
        return self.arity + index if level == 0 else self.positions[level, index]

    def enter_scope(self, arity: int) -> ColumnMap:
        """The map inside a scope over a relation with ``arity`` columns of its own, all of which are in outer then."""
        moved = {(level + 1, i): p for (level, i), p in self.positions.items()}
        moved.update({(1, i): self.arity + i for i in range(arity)})
        return ColumnMap(moved, self.arity + arity)


@dataclass(frozen=True)
class CteBinding:
    """A lowered CTE: its value was lowered over `outer`, whose columns are located by `columns`, as seen from scope
    depth `depth`.
    """

    id: int
    typ: RelationType
    outer: Rel
    columns: ColumnMap
    depth: int
