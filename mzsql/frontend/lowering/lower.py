"""HIR to MIR: the entry.

Promise: `lower_query` decorrelates a query by the one algorithm of `mzsql.frontend.lowering.lowering`, and puts the bindings of what
comes out in order. The same query is lowered once as long as it is remembered.
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
from mzsql.frontend.lowering.rel import unit
from mzsql.frontend.lowering.scope import ColumnMap
from mzsql.repr.depth import deep
from mzsql.repr.types import RelationDesc, RelationType


@dataclass(frozen=True)
class LoweredQuery:
    """A query as MIR: `relation` before `finishing`; `desc` describes the result after `finishing.project`."""

    relation: mir.Relation
    desc: RelationDesc
    finishing: RowSetFinishing


@remembering()
def lower_query(query: hir.Query) -> LoweredQuery:
    """Decorrelate a query.

    Raises:
        Unsupported: it has something that is not lowered yet.
    """
    relation = lower_relation(query.relation)
    typ = relation_type(relation)
    outputs = query.finishing.project
    columns = tuple(typ.columns[c] for c in outputs)
    keys = tuple(
        tuple(sorted(outputs.index(c) for c in key))
        for key in typ.keys
        if all(c in outputs for c in key)
    )
    desc = RelationDesc(query.desc.names, RelationType(columns, keys))
    return LoweredQuery(relation, desc, query.finishing)


def lower_relation(relation: hir.Relation) -> mir.Relation:
    """Decorrelate a relation that reads no outer column."""
    with deep():
        done = Lowering(lower_join).relation(relation, unit(), ColumnMap({}, 0), 0)
        return normalize_lets(done.mir)
