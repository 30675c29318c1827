"""The orders by which a step reads only the first rows of a group.

Promise: an order from here means the same to every engine and to traces: it ends before the first column of a type
that one of them compares differently. Rows that it leaves equal are read together, so a shorter order only costs
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mzsql.expr.scalar import ColumnOrder, Literal
from mzsql.lir import plan as lir
from mzsql.render.rendered import Front
from mzsql.repr.types import ColumnType

#: Types that all engines order alike, by number or by bytes.
_ORDERED = frozenset(
    (
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "uint2",
        "uint4",
        "uint8",
        "oid",
        "real",
        "double",
        "numeric",
        "text",
        "varchar",
        "bytea",
        "date",
        "time",
        "timestamp",
        "timestamptz",
    )
)


def order_of(
    wanted: Iterable[ColumnOrder], columns: Sequence[ColumnType], key_arity: int
) -> tuple[ColumnOrder, ...]:
    """The order of a key's rows: the wanted one, without columns that are in the key or were named before, up to the
    first that is not `comparable`.
    """
    made: list[ColumnOrder] = []
    seen = set(range(key_arity))
    for one in wanted:
        if one.column in seen:
            continue
        if not comparable(columns[one.column]):
            break
        seen.add(one.column)
        made.append(one)
    return tuple(made)


def comparable(column: ColumnType) -> bool:
    """Whether a column's values are compared alike everywhere."""
    return column.type.kind in _ORDERED


def front_of(plan: lir.TopKPlan) -> tuple[Front, ...]:
    """The rows that a TopK needs of a group; () if that is not known."""
    limit = plan.limit
    if not isinstance(limit, Literal) or limit.value is None or int(str(limit.value)) < 0:
        return ()
    return (Front(plan.offset + int(str(limit.value))),)
