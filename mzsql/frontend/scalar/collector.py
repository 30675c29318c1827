"""The aggregates of one grouping, collected while the expressions around them are planned.

Promise: an aggregate leaves a marker where it stood, a column of level `MARKER` by its place in the collector, which the query planner
turns into a column of the `Reduce`; equal aggregates are one, those that others are made of (an average's sum) apart from those that are
written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed

#: Marker level of a column that stands for an aggregate, by its index in the collector.
MARKER = -1


@dataclass
class Collector:
    """The aggregates of one grouping, each once.

    Attributes:
        found: the aggregates.
        parts: which of them others are made of.
        order: the order of the rows that they are over, as it is written, where there is one.
    """

    found: list[hir.Aggregate] = field(default_factory=list)
    parts: list[bool] = field(default_factory=list)
    order: tuple[exp.Expr, ...] = ()

    def add(self, aggregate: hir.Aggregate, *, part: bool = False) -> Typed:
        """The marker of an aggregate; `part` says that another one is made of it."""
        known = list(zip(self.found, self.parts, strict=True))
        if (aggregate, part) not in known:
            known.append((aggregate, part))
            self.found.append(aggregate)
            self.parts.append(part)
        marker = hir.Column(known.index((aggregate, part)), MARKER)
        return Typed(marker, aggregate.typ, aggregate.nullable)
