"""Collecting the aggregates of one grouping while the expressions around them are planned.

Promise: an aggregate leaves a marker in its place: a column of level `MARKER` with its index in the collector, which
the query planner replaces by a column of the `Reduce`. Equal aggregates are collected once, but those that others are
computed from (an average's sum) apart from those written in the query.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed

#: The level of a marker column; its index is the aggregate's in the collector.
MARKER = -1


@dataclass
class Collector:
    """The aggregates of one grouping, each once.

    Attributes:
        found: the aggregates.
        parts: for each, whether others are computed from it.
        order: the ORDER BY of the rows aggregated, where there is one.
    """

    found: list[hir.Aggregate] = field(default_factory=list)
    parts: list[bool] = field(default_factory=list)
    order: tuple[exp.Expr, ...] = ()

    def add(self, aggregate: hir.Aggregate, *, part: bool = False) -> Typed:
        """Collect an aggregate; its marker. ``part`` says that another aggregate is computed from it."""
        known = list(zip(self.found, self.parts, strict=True))
        if (aggregate, part) not in known:
            known.append((aggregate, part))
            self.found.append(aggregate)
            self.parts.append(part)
        marker = hir.Column(known.index((aggregate, part)), MARKER)
        return Typed(marker, aggregate.typ, aggregate.nullable)
