"""Row-wise reads of one collection (`mzsql.transform.row_wise`), evaluated over Arrow without an engine where that is exact.

Promise: rows, order and errors are those of the query's statement in DuckDB; None where this cannot be promised. Error
rows of the collection always pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.peek.rows import decoder
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import Column, Literal
from mzsql.persist import Filters, KeyRange
from mzsql.repr.types import ColumnType, arrow_type
from mzsql.transform.row_wise import PLAIN, Condition, RowRead

_COMPARE = {"lt": pc.less, "lte": pc.less_equal, "gt": pc.greater, "gte": pc.greater_equal}
#: Types that Arrow sorts as SQL does. All numerics of a column have one scale, so they sort alike; a literal may have
#: another scale.
_ORDERED = PLAIN | {"numeric"}
#: Most rows that are sorted here; an engine sorts more.
_SORTED_ROWS = 100_000


def values_of(condition: Condition) -> pa.Array:
    """A condition's literals as Arrow values."""
    decode = decoder(condition.typ)
    return pa.array([decode(value) for value in condition.values], arrow_type(condition.typ))


def filters_of(conditions: Sequence[Condition]) -> Filters:
    """Ranges that every wanted row is in, for persist to skip parts and row groups; other rows may be in them too."""
    found: dict[str, list[KeyRange]] = {}
    for condition in conditions:
        name = f"c{condition.column}"
        if name in found:
            continue  # one condition of a column is enough to leave parts out
        # Arrow's values: Python has no date after the year 9999.
        values = list(values_of(condition))
        match condition.op:
            case "in":
                found[name] = [(value, value) for value in values]
            case "lt" | "lte":
                found[name] = [(None, values[0])]
            case _:
                found[name] = [(values[0], None)]
    return found


def narrowed(rows: pa.Table, conditions: Sequence[Condition]) -> pa.Table:
    """The rows (c0 …, [mz_error], …) for which all conditions hold, and all error rows."""
    if not conditions or not rows.num_rows:
        return rows
    mask = None
    for condition in conditions:
        column = rows.column(f"c{condition.column}")
        values = values_of(condition)
        if condition.op != "in":
            one = _COMPARE[condition.op](column, values[0])
        elif len(values) == 1:
            one = pc.equal(column, values[0])
        else:
            one = pc.is_in(column, value_set=values)
        mask = one if mask is None else pc.and_(mask, one)
    if "mz_error" in rows.column_names and rows.column("mz_error").null_count < rows.num_rows:
        mask = pc.or_kleene(mask, pc.is_valid(rows.column("mz_error")))
    return rows.filter(mask)


def evaluated(rows: pa.Table, read: RowRead) -> pa.Table | None:
    """The MFP's rows (c0 …, [mz_error], mz_diff) over narrowed rows; None if that takes an engine."""
    if not read.is_plain:
        return None
    arity = read.mfp.input_arity
    arrays: list[pa.ChunkedArray | pa.Array] = []
    for column in read.mfp.projection:
        if column < arity:
            arrays.append(rows.column(f"c{column}"))
            continue
        expr = read.mfp.expressions[column - arity]
        if isinstance(expr, Column):
            arrays.append(rows.column(f"c{expr.index}"))
        else:
            assert isinstance(expr, Literal)
            value = None if expr.value is None else decoder(expr.typ)(expr.value)
            one = pa.array([value], arrow_type(expr.typ))
            # Arrow cannot repeat a list zero times.
            arrays.append(pa.repeat(one[0], rows.num_rows) if rows.num_rows else one[:0])
    names = [f"c{i}" for i in range(len(arrays))]
    for name in ("mz_error", "mz_diff"):
        if name in rows.column_names:
            arrays.append(rows.column(name))
            names.append(name)
    return pa.table(arrays, names=names)


def placed(
    rows: pa.Table, finishing: RowSetFinishing, columns: Sequence[ColumnType]
) -> pa.Table | None:
    """Sort rows (c0 …, mz_diff) in the finishing's order, ties broken by the whole row; None if that takes an engine."""
    if rows.num_rows <= 1:
        return rows
    if rows.num_rows > _SORTED_ROWS:
        return None
    keys: list[tuple[str, str]] = []
    for order in finishing.order_by:
        if not order.nulls_last and rows.column(f"c{order.column}").null_count:
            return None
        keys.append((f"c{order.column}", "descending" if order.desc else "ascending"))
    named = {name for name, _ in keys}
    keys += [(f"c{i}", "ascending") for i in range(len(columns)) if f"c{i}" not in named]
    if any(columns[int(name[1:])].type.kind not in _ORDERED for name, _ in keys):
        return None
    return rows.take(pc.sort_indices(rows, sort_keys=keys)) if keys else rows


def projected(rows: pa.Table, finishing: RowSetFinishing) -> pa.Table:
    """Apply the finishing's projection to rows (c0 …)."""
    if finishing.project == tuple(range(rows.num_columns)):
        return rows
    picked = [rows.column(i) for i in finishing.project]
    # Rows without columns are counted by a column that the caller drops.
    return pa.table(picked, names=[f"c{i}" for i in range(len(picked))]) if picked else rows
