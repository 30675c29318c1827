"""`MapFilterProject`: the row-wise part of a plan in one normal form (reference facts 5.2).

Promise: over rows of `input_arity` columns, append `expressions` one after another (the i-th may read the columns before
it, at position ``input_arity + i``), keep the rows for which every predicate is true, and put out the columns `projection` names.
A predicate carries the earliest position at which it can be evaluated: the number of columns that must exist.
"""

from __future__ import annotations

import msgspec

from mzsql.expr.scalar import Scalar


class MapFilterProject(msgspec.Struct, frozen=True, tag="mfp", cache_hash=True):
    """A map, a filter and a projection over rows of `input_arity` columns."""

    input_arity: int
    expressions: tuple[Scalar, ...] = ()
    predicates: tuple[tuple[int, Scalar], ...] = ()
    projection: tuple[int, ...] = ()

    @staticmethod
    def identity(arity: int) -> MapFilterProject:
        """The one that changes nothing."""
        return MapFilterProject(arity, (), (), tuple(range(arity)))

    @property
    def is_identity(self) -> bool:
        """Whether rows pass unchanged."""
        return (
            not self.expressions
            and not self.predicates
            and self.projection == tuple(range(self.input_arity))
        )

    @property
    def output_arity(self) -> int:
        """The number of columns put out."""
        return len(self.projection)
