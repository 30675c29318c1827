"""Attributes: properties derived for every relation of a plan, in one place.

Promise: for each node, with bindings and recursions taken into account: types and nullability, unique keys, whether
multiplicities are never negative, whether rows are never retracted, and an upper bound on the number of rows. Each
claims only what is certain. The cardinality is an estimate. EXPLAIN … WITH (types, keys, non negative, cardinality)
shows them; transforms use them.
Source: Materialize's module `mz_transform::analysis`.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.scalar import Literal
from mzsql.expr.typing import recursive_types, relation_type
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationType
from mzsql.transform.cardinality import Estimate, Statistics, cardinality, no_statistics
from mzsql.transform.monotonic import is_monotonic, recursive_growth
from mzsql.transform.non_negative import non_negative, recursive_signs


class Attributes(msgspec.Struct, frozen=True):
    """What is known of a relation.

    Attributes:
        typ: its columns, with nullability, and its unique keys.
        non_negative: no row has a negative multiplicity.
        monotonic: rows are added and never retracted, as far as this holds for the sources said to be monotonic.
        at_most: upper bound on its number of rows; None if none is known.
        cardinality: estimated number of rows; None if unknown.
    """

    typ: RelationType
    non_negative: bool
    monotonic: bool
    at_most: int | None
    cardinality: Estimate


class Derivation:
    """Derives attributes. It must be told the bindings around a relation before it is asked about the relation."""

    def __init__(
        self,
        monotonic_sources: Collection[GlobalId] = (),
        statistics: Statistics = no_statistics,
    ) -> None:
        self._sources = monotonic_sources
        self._statistics = statistics
        self.estimates: dict[int, Estimate] = {}
        self.types: dict[int, RelationType] = {}
        self.signs: dict[int, bool] = {}
        self.growth: dict[int, bool] = {}

    def bind(self, rel: mir.Let | mir.LetRec) -> None:
        """Record what a node binds."""
        if isinstance(rel, mir.Let):
            self.estimates[rel.id] = self.cardinality(rel.value)
            self.types[rel.id] = relation_type(rel.value, self.types)
            self.signs[rel.id] = non_negative(rel.value, self.signs)
            self.growth[rel.id] = is_monotonic(rel.value, self._sources, self.growth)
            return
        self.types.update(recursive_types(rel.ids, rel.values, self.types))
        self.signs.update(recursive_signs(rel, self.signs))
        self.growth.update(recursive_growth(rel, self._sources, self.growth))

    def cardinality(self, rel: mir.Relation) -> Estimate:
        """The estimated number of rows of a relation."""
        return cardinality(rel, self._statistics, self.estimates, self.types)

    def of(self, rel: mir.Relation) -> Attributes:
        """The attributes of a relation."""
        typ = relation_type(rel, self.types)
        return Attributes(
            typ,
            non_negative(rel, self.signs),
            is_monotonic(rel, self._sources, self.growth),
            1 if () in typ.keys and non_negative(rel, self.signs) else rows_at_most(rel),
            self.cardinality(rel),
        )


def rows_at_most(rel: mir.Relation) -> int | None:
    """Upper bound on a relation's number of rows that follows from its shape alone; None if there is none."""
    match rel:
        case mir.Constant(rows=rows):
            return sum(max(diff, 0) for _, diff in rows)
        case mir.TopK(input=inner, group_key=(), limit=Literal(value=int() as limit)):
            below = rows_at_most(inner)
            return limit if below is None else min(limit, below)
        case mir.Reduce(input=inner, group_key=key):
            below = rows_at_most(inner)
            return 1 if not key else below
        case mir.Map() | mir.Project() | mir.Filter() | mir.TopK() | mir.ArrangeBy():
            return rows_at_most(rel.input)
        case mir.Threshold():
            return rows_at_most(rel.input)
        case mir.Union(inputs=inputs):
            bounds = [rows_at_most(part) for part in inputs]
            return None if None in bounds else sum(bound or 0 for bound in bounds)
        case mir.Join(inputs=inputs):
            product = 1
            for part in inputs:
                bound = rows_at_most(part)
                if bound is None:
                    return None
                product *= bound
            return product
        case _:
            return None
