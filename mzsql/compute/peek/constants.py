"""Queries whose answer is a constant known when they are planned.

Promise: the rows are those that an engine would return, in its order. Numerics that no column can hold (more than 38
digits, NaN) are returned in full as texts in their column (`mzsql.compute.peek.rows.constant_table`). Only results
with such values are sorted here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from mzsql.compute.peek.row_reads import projected
from mzsql.compute.peek.rows import constant_table
from mzsql.expr.numeric_folding import is_held
from mzsql.expr.order import in_order
from mzsql.expr.relation import RowSetFinishing
from mzsql.repr.datum import Datum, Row
from mzsql.repr.evaluation import failed
from mzsql.repr.tables import piece
from mzsql.repr.types import ColumnType
from mzsql.transform.fast_path import ConstantPlan


def answered(constant: ConstantPlan, finishing: RowSetFinishing) -> pa.Table | None:
    """The answer, with columns c0 …; None if an engine has to sort the rows.

    Raises:
        DataError: the constant is an error.
    """
    as_they_are = not finishing.order_by and finishing.limit is None
    if constant.error is not None:
        if as_they_are:
            raise failed(constant.error)
        return None
    rows = constant.rows
    if not as_they_are:
        if all(_is_held(row, constant.typ.columns) for row, _ in rows):
            return None
        rows = _ordered(rows, finishing, constant.typ.columns)
    made = constant_table(rows, constant.typ.columns, spelled=True)
    return projected(piece(made, finishing.offset, finishing.limit), finishing)


def _is_held(row: Row, columns: Sequence[ColumnType]) -> bool:
    return all(is_held(value, column.type) for value, column in zip(row, columns, strict=True))


def _ordered(
    rows: Sequence[tuple[Row, int]], finishing: RowSetFinishing, columns: Sequence[ColumnType]
) -> tuple[tuple[Row, int], ...]:
    """Sort rows in the finishing's order, ties broken by the whole row."""
    asked = [(order.column, order.desc, order.nulls_last) for order in finishing.order_by]
    asked += [(i, False, True) for i in range(len(columns))]
    keys = [(_taking(i), columns[i].type, desc, last) for i, desc, last in asked]
    return tuple(in_order(rows, keys))


def _taking(column: int) -> Callable[[tuple[Row, int]], Datum]:
    return lambda entry: entry[0][column]
