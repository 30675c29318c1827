"""TopKs of which it does not matter which rows they keep.

Promise: `any_row_will_do` is true only of a TopK that may be replaced by the distinct keys of its groups: it keeps one row
of each group, only columns of the group's key are read above it, and no column that orders the rows can fail, so that no
error is lost.
"""

from __future__ import annotations

from collections.abc import Set

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.transform.scalars import may_error


def any_row_will_do(rel: mir.TopK, wanted: Set[int]) -> bool:
    """Whether a TopK of which some columns are read can be the distinct keys of its groups. One that orders by its key alone
    reads no other column anyway, and stays.
    """
    match rel:
        case mir.TopK(input=below, group_key=group, limit=sc.Literal(value=1), offset=0):
            ordering = {one.column for one in rel.order_key} - set(group)
            return bool(ordering) and wanted <= set(group) and not _may_fail(below, ordering)
        case _:
            return False


def _may_fail(rel: mir.Relation, columns: Set[int]) -> bool:
    """Whether computing some columns of a relation may fail where computing its rows does not; if in doubt, it may."""
    match rel:
        case mir.Get(id=gid):
            return isinstance(gid, int) and bool(columns)
        case mir.Project(input=below, outputs=outputs):
            return _may_fail(below, {outputs[column] for column in columns})
        case mir.Map(input=below, scalars=scalars):
            width = mir.arity(below)
            read = set(columns)
            for offset in range(len(scalars) - 1, -1, -1):
                if width + offset in read:
                    if may_error(scalars[offset]):
                        return True
                    read |= sc.support(scalars[offset])
            return _may_fail(below, {column for column in read if column < width})
        case mir.Filter(input=below) | mir.TopK(input=below) | mir.Negate(input=below):
            return _may_fail(below, columns)
        case mir.Join(inputs=inputs):
            start = 0
            for below in inputs:
                width = mir.arity(below)
                if _may_fail(below, {c - start for c in columns if start <= c < start + width}):
                    return True
                start += width
            return False
        case mir.Union(inputs=inputs):
            return any(_may_fail(below, columns) for below in inputs)
        case mir.Reduce(group_key=key):
            return any(column >= len(key) for column in columns)
        case _:
            return bool(columns) and not isinstance(rel, mir.Constant)
