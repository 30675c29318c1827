"""Which rows of a group a step needs: the first ones in an order.

Promise: an order that is handed out here is one that every engine and the traces agree on: it ends before the first column of a type that
any of them compares in a way of its own. Rows that it leaves equal are read together, so a shorter order costs time only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mzsql.expr.scalar import ColumnOrder, Literal
from mzsql.lir import plan as lir
from mzsql.render.rendered import Front
from mzsql.repr.types import ColumnType

#: Types whose values all engines order by their numbers or bytes.
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
    """The order of the rows of a key: as wanted, without what is the same in all of them or said before, as far as all agree on it."""
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
    """Whether values of a column are compared alike everywhere."""
    return column.type.kind in _ORDERED


def front_of(plan: lir.TopKPlan) -> tuple[Front, ...]:
    """The places that a TopK looks at; () where there is no telling."""
    limit = plan.limit
    if not isinstance(limit, Literal) or limit.value is None or int(str(limit.value)) < 0:
        return ()
    return (Front(plan.offset + int(str(limit.value))),)
