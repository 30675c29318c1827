"""Queries that are a `MapFilterProject` over one collection, evaluated over Arrow without an engine where that is
exact.

Promise: rows, order and errors are those of the query's statement in DuckDB; None where this cannot be promised.
Only comparisons of a column with literals are evaluated here, for types that are ordered alike everywhere. They
cannot fail, so evaluating them first hides no error that the statement would raise (`mzsql.render.nodes.rows`). Error rows
of the collection always pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as OneOf

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.peek.rows import decoder
from mzsql.expr import relation as r
from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.mfp import MapFilterProject, compose, extract_mfp
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import Call, Column, Literal, Scalar
from mzsql.persist import Filters, KeyRange
from mzsql.repr.datum import Datum
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, SqlType, arrow_type
from mzsql.transform.fusion import conjuncts

Op = OneOf["in", "lt", "lte", "gt", "gte"]

_OPS: dict[str, Op] = {"eq": "in", "lt": "lt", "lte": "lte", "gt": "gt", "gte": "gte"}
_TURNED: dict[Op, Op] = {"in": "in", "lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte"}
_COMPARE = {"lt": pc.less, "lte": pc.less_equal, "gt": pc.greater, "gte": pc.greater_equal}
#: Types that Arrow compares as SQL does.
PLAIN = frozenset(
    {
        "smallint",
        "integer",
        "bigint",
        "uint2",
        "uint4",
        "oid",
        "text",
        "boolean",
        "date",
        "timestamp",
        "timestamptz",
    }
)
#: Types that Arrow sorts as SQL does. All numerics of a column have one scale, so they sort alike; a literal may have
#: another scale.
_ORDERED = PLAIN | {"numeric"}
#: Most rows that are sorted here; an engine sorts more.
_SORTED_ROWS = 100_000


class Condition(msgspec.Struct, frozen=True):
    """A comparison of a column with literals: with any of ``values`` for ``in``, else with the only one."""

    column: int
    op: Op
    values: tuple[Datum, ...]
    typ: SqlType

    def array(self) -> pa.Array:
        """The literals as Arrow values."""
        decode = decoder(self.typ)
        return pa.array([decode(value) for value in self.values], arrow_type(self.typ))


class RowRead(msgspec.Struct, frozen=True):
    """An MFP over one collection.

    Attributes:
        id: the collection.
        columns: its columns.
        mfp: applied to each row.
        conditions: the MFP's predicates that are evaluated here.
        rest: number of other predicates.
    """

    id: GlobalId
    columns: tuple[ColumnType, ...]
    mfp: MapFilterProject
    conditions: tuple[Condition, ...]
    rest: int

    @property
    def filters(self) -> Filters:
        """Ranges that every wanted row is in, for persist to skip parts and row groups; other rows may be in them too."""
        found: dict[str, list[KeyRange]] = {}
        for condition in self.conditions:
            name = f"c{condition.column}"
            if name in found:
                continue  # one condition of a column is enough to leave parts out
            # Arrow's values: Python has no date after the year 9999.
            values = list(condition.array())
            match condition.op:
                case "in":
                    found[name] = [(value, value) for value in values]
                case "lt" | "lte":
                    found[name] = [(None, values[0])]
                case _:
                    found[name] = [(values[0], None)]
        return found


def source(relation: r.Relation) -> tuple[MapFilterProject, r.Relation]:
    """A query's row-wise work as one MFP, and the relation below it, without the single row of no columns that a FROM
    begins with.
    """
    mfp, below = extract_mfp(relation)
    while True:
        other = _beside_a_row(below)
        if other is None:
            return mfp, below
        first, below = extract_mfp(other)
        mfp = compose(first, mfp)


def _beside_a_row(relation: r.Relation) -> r.Relation | None:
    """What a join joins with one row of no columns; None for other relations."""
    if not isinstance(relation, r.Join) or relation.equivalences:
        return None
    others = [one for one in relation.inputs if not _is_a_row(one)]
    return others[0] if len(others) == 1 else None


def _is_a_row(relation: r.Relation) -> bool:
    return isinstance(relation, r.Constant) and relation.rows == (((), 1),) and not relation.error


def row_read(mir: MirDataflow) -> RowRead | None:
    """The one-shot dataflow as an MFP over one catalog object; None if it is more."""
    if len(mir.objects) != 1 or mir.index_imports:
        return None
    mfp, below = extract_mfp(mir.objects[0].plan)
    if not isinstance(below, r.Get) or isinstance(below.id, int):
        return None
    return over(below.id, below.typ.columns, mfp.optimize())


def over(gid: GlobalId, columns: tuple[ColumnType, ...], mfp: MapFilterProject) -> RowRead:
    """An MFP over a collection, with its predicates divided into those evaluated here and others."""
    conditions: list[Condition] = []
    rest = 0
    for predicate in conjuncts(tuple(predicate for _, predicate in mfp.predicates)):
        condition = condition_of(predicate, columns)
        if condition is None:
            rest += 1
        else:
            conditions.append(condition)
    return RowRead(gid, columns, mfp, tuple(conditions), rest)


def condition_of(predicate: Scalar, columns: Sequence[ColumnType]) -> Condition | None:
    """A predicate as a comparison with literals; None if it is not one that is evaluated here."""
    if not isinstance(predicate, Call):
        return None
    if predicate.func == "or":
        parts = [condition_of(arg, columns) for arg in predicate.args]
        first = parts[0]
        if first is None or any(
            part is None or part.op != "in" or part.column != first.column for part in parts
        ):
            return None
        values = tuple(value for part in parts if part is not None for value in part.values)
        return Condition(first.column, "in", values, first.typ)
    name, _, kind = predicate.func.rpartition("_")
    op = _OPS.get(name)
    if op is None or kind not in PLAIN:
        return None
    left, right = predicate.args
    if isinstance(left, Literal):
        left, right, op = right, left, _TURNED[op]
    if not isinstance(left, Column) or not isinstance(right, Literal) or right.value is None:
        return None
    if left.index >= len(columns) or columns[left.index].type != right.typ:
        return None
    return Condition(left.index, op, (right.value,), right.typ)


def needs_no_engine(read: RowRead) -> bool:
    """Whether `evaluated` returns the rows of a read."""
    return not read.rest and all(_is_plain(read.mfp, column) for column in read.mfp.projection)


def _is_plain(mfp: MapFilterProject, column: int) -> bool:
    """Whether an output is a column of the input or a literal."""
    if column < mfp.input_arity:
        return True
    expr = mfp.expressions[column - mfp.input_arity]
    return isinstance(expr, Literal) or (isinstance(expr, Column) and expr.index < mfp.input_arity)


def narrowed(rows: pa.Table, conditions: Sequence[Condition]) -> pa.Table:
    """The rows (c0 …, [mz_error], …) for which all conditions hold, and all error rows."""
    if not conditions or not rows.num_rows:
        return rows
    mask = None
    for condition in conditions:
        column = rows.column(f"c{condition.column}")
        values = condition.array()
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
    if not needs_no_engine(read):
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
    picked = [rows.column(i) for i in finishing.project]
    # Rows without columns are counted by a column that the caller drops.
    return pa.table(picked, names=[f"c{i}" for i in range(len(picked))]) if picked else rows
