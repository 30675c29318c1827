"""Planned queries, before and after their ORDER BY and LIMIT are applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mzsql.expr.scalar import ColumnOrder
from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed
from mzsql.repr.types import ColumnType


@dataclass(frozen=True)
class Planned:
    """A relation with its columns, and no order or limit left to apply."""

    relation: hir.Relation
    types: tuple[ColumnType, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Pending:
    """A query whose `order`, `limit`, `offset` and then `project` are still to be applied to `relation`."""

    relation: hir.Relation
    types: tuple[ColumnType, ...]
    names: tuple[str, ...]
    order: tuple[ColumnOrder, ...]
    limit: Typed | None
    offset: int
    project: tuple[int, ...]
    group_size: int | None = None

    def finish(self) -> Planned:
        """The query as a relation: a limit becomes a TopK; an order without limit is dropped."""
        relation = self.relation
        if self.limit is not None or self.offset:
            limit = None if self.limit is None else self.limit.expr
            relation = hir.TopK(relation, (), self.order, limit, self.offset, self.group_size)
        types = tuple(self.types[c] for c in self.project)
        return Planned(project(relation, self.project, len(self.types)), types, self.names)


@dataclass(frozen=True)
class Cte:
    """A CTE in scope."""

    id: int
    names: tuple[str, ...]
    types: tuple[ColumnType, ...]


def project(relation: hir.Relation, outputs: Sequence[int], arity: int) -> hir.Relation:
    """A projection, omitted where it changes nothing and merged with one below."""
    if tuple(outputs) == tuple(range(arity)):
        return relation
    if isinstance(relation, hir.Project):
        return hir.Project(relation.input, tuple(relation.outputs[c] for c in outputs))
    return hir.Project(relation, tuple(outputs))


def limit_inside(pending: Pending) -> Pending:
    """A limit that is not a literal is applied by a TopK; the order is kept for the finishing."""
    assert pending.limit is not None
    relation = hir.TopK(
        pending.relation, (), pending.order, pending.limit.expr, pending.offset, pending.group_size
    )
    return Pending(relation, pending.types, pending.names, pending.order, None, 0, pending.project)
