"""HIR to MIR: the entry points.

Promise: `lower_query` decorrelates a query by the single algorithm of `mzsql.frontend.lowering.lowering` and normalizes
the bindings of the result. Results are cached for equal queries.
"""

from __future__ import annotations

from dataclasses import dataclass

from mzsql.expr import relation as mir
from mzsql.expr.memo import remembering
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.typing import relation_type
from mzsql.frontend import hir
from mzsql.frontend.lowering.joins import lower_join
from mzsql.frontend.lowering.lets import normalize_lets
from mzsql.frontend.lowering.lowering import Lowering
from mzsql.frontend.lowering.rel import Rel, unit
from mzsql.frontend.lowering.scope import ColumnMap
from mzsql.repr.depth import deep
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import RelationDesc, RelationType


@dataclass(frozen=True)
class LoweredQuery:
    """A query as MIR.

    Attributes:
        relation: the relation before `finishing` is applied.
        names: the names of the result's columns.
        finishing: what is done at the end.
    """

    relation: mir.Relation
    names: tuple[str, ...]
    finishing: RowSetFinishing

    @lazy_property
    @remembering()
    def desc(self) -> RelationDesc:
        """Describes the result after `finishing.project`. Derived when it is asked for: most queries are only run."""
        typ = relation_type(self.relation)
        outputs = self.finishing.project
        columns = tuple(typ.columns[c] for c in outputs)
        keys = tuple(
            tuple(sorted(outputs.index(c) for c in key))
            for key in typ.keys
            if all(c in outputs for c in key)
        )
        return RelationDesc(self.names, RelationType(columns, keys))


@remembering()
def lower_query(
    query: hir.Query, *, new_outer_joins: bool = True, variadic_left_joins: bool = False
) -> LoweredQuery:
    """Decorrelate a query.

    Args:
        query: the query.
        new_outer_joins: see `mzsql.frontend.lowering.lowering.Lowering`.
        variadic_left_joins: see there.

    Raises:
        Unsupported: it contains something that cannot be lowered.
    """
    relation = lower_relation(
        query.relation, new_outer_joins=new_outer_joins, variadic_left_joins=variadic_left_joins
    )
    return LoweredQuery(relation, query.desc.names, query.finishing)


def lower_as_written(
    query: hir.Query, *, new_outer_joins: bool = True, variadic_left_joins: bool = False
) -> mir.Relation:
    """Decorrelate a query for EXPLAIN: VALUES stays the call that it was written as."""
    with deep():
        lowering = Lowering(
            lower_join,
            new_outer_joins=new_outer_joins,
            variadic_left_joins=variadic_left_joins,
            calls_values=True,
        )
        done = lowering.relation(query.relation, unit(), ColumnMap({}, 0), 0)
        return normalize_lets(done.mir)


def lower_as_made(
    query: hir.Query, *, new_outer_joins: bool = True, variadic_left_joins: bool = False
) -> mir.Relation:
    """As `lower_as_written`, with the algorithm's own bindings: even the unit relation has a name."""
    with deep():
        lowering = Lowering(
            lower_join,
            binds_constants=True,
            new_outer_joins=new_outer_joins,
            variadic_left_joins=variadic_left_joins,
            calls_values=True,
        )
        start = Rel.constant((((), 1),), RelationType(()))
        one = Rel(start.mir, unit().typ)
        return lowering.let_in(
            one, lambda get: lowering.relation(query.relation, get, ColumnMap({}, 0), 0)
        ).mir


def lower_relation(
    relation: hir.Relation, *, new_outer_joins: bool = True, variadic_left_joins: bool = False
) -> mir.Relation:
    """Decorrelate a relation that reads no outer column."""
    with deep():
        lowering = Lowering(
            lower_join, new_outer_joins=new_outer_joins, variadic_left_joins=variadic_left_joins
        )
        done = lowering.relation(relation, unit(), ColumnMap({}, 0), 0)
        return normalize_lets(done.mir)
