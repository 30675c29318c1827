"""What a transform may know besides the plan: feature switches, indexes, statistics, and an evaluator for constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Scalar
from mzsql.repr.ids import GlobalId
from mzsql.transform.cardinality import Statistics, no_statistics
from mzsql.transform.features import OptimizerFeatures


class IndexDesc(msgspec.Struct, frozen=True, cache_hash=True):
    """An index that the dataflow's cluster maintains on `on_id`, by `key` over its columns."""

    id: GlobalId
    on_id: GlobalId
    key: tuple[Scalar, ...]


def _no_indexes(_gid: GlobalId) -> tuple[IndexDesc, ...]:
    return ()


@dataclass(frozen=True)
class OptimizerContext:
    """Passed to every transform.

    Attributes:
        evaluator: evaluates constant expressions; None: nothing that needs evaluation is folded.
        indexes: the indexes on an object, in order of creation; none in local optimization.
        features: the switches.
        check: called with every plan that a transform has made, and its name (tests typecheck it); None to call
            nothing.
        statistics: how many rows an object has, where known; asked only if `enable_cardinality_estimates`.
    """

    evaluator: Evaluator | None = None
    indexes: Callable[[GlobalId], tuple[IndexDesc, ...]] = _no_indexes
    features: OptimizerFeatures = field(default_factory=OptimizerFeatures)
    check: Callable[[str, mir.Relation], None] | None = None
    statistics: Statistics = no_statistics

    @property
    def without_indexes(self) -> OptimizerContext:
        """The same, knowing of no index: for local optimization, and for what outlives the catalog's present state."""
        return replace(self, indexes=_no_indexes)
