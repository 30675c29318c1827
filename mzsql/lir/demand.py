"""Which columns of its inputs a dataflow reads.

Promise: the values of columns that are not listed have no influence on the result.
"""

from __future__ import annotations

from mzsql.lir.plan import DataflowDescription, Get, GetCollection, walk
from mzsql.lir.rows import demand
from mzsql.repr.ids import GlobalId


def columns_read(desc: DataflowDescription) -> dict[GlobalId, frozenset[int]]:
    """For each source import the positions of the columns that the plan reads."""
    read: dict[GlobalId, frozenset[int]] = {}
    whole = {}
    for source in desc.source_imports:
        if source.mfp is not None and not source.mfp.is_identity:
            read[source.id] = demand(source.mfp)
        else:
            read[source.id] = frozenset()
            whole[source.id] = frozenset(range(len(source.typ.columns)))
    for node in (node for built in desc.objects for node in walk(built.plan)):
        if isinstance(node, Get) and not isinstance(node.id, int) and node.id in whole:
            by = node.plan
            looked_at = demand(by.mfp) if isinstance(by, GetCollection) else whole[node.id]
            read[node.id] |= looked_at
    return read
