"""One-shot queries that are a `MapFilterProject` over one collection, told from their MIR.

Promise: a `Condition` compares a column with literals, for types that are ordered alike everywhere. It cannot fail, so
evaluating it before other predicates hides no error that the query's statement would raise (`mzsql.render.nodes.rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as OneOf

import msgspec

from mzsql.expr import relation as r
from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.mfp import MapFilterProject, compose, extract_mfp
from mzsql.expr.scalar import Call, Column, Literal, Scalar
from mzsql.repr.datum import Datum
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, SqlType
from mzsql.transform.fusion import conjuncts

Op = OneOf["in", "lt", "lte", "gt", "gte"]

_OPS: dict[str, Op] = {"eq": "in", "lt": "lt", "lte": "lte", "gt": "gt", "gte": "gte"}
_TURNED: dict[Op, Op] = {"in": "in", "lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte"}
#: Types that every engine, and Arrow, compares as SQL does.
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


class Condition(msgspec.Struct, frozen=True):
    """A comparison of a column with literals: with any of ``values`` for ``in``, else with the only one."""

    column: int
    op: Op
    values: tuple[Datum, ...]
    typ: SqlType


class RowRead(msgspec.Struct, frozen=True):
    """An MFP over one collection.

    Attributes:
        id: the collection.
        columns: its columns.
        mfp: applied to each row.
        conditions: the MFP's predicates that are comparisons of a column with literals.
        rest: number of other predicates.
    """

    id: GlobalId
    columns: tuple[ColumnType, ...]
    mfp: MapFilterProject
    conditions: tuple[Condition, ...]
    rest: int

    @property
    def is_plain(self) -> bool:
        """Whether it takes no expression to evaluate: all predicates are conditions, all outputs columns or literals."""
        return not self.rest and all(_is_plain(self.mfp, column) for column in self.mfp.projection)


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
    """An MFP over a collection, with its predicates divided into conditions and others."""
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
    """A predicate as a comparison with literals; None if it is no `Condition`."""
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


def _is_plain(mfp: MapFilterProject, column: int) -> bool:
    """Whether an output is a column of the input or a literal."""
    if column < mfp.input_arity:
        return True
    expr = mfp.expressions[column - mfp.input_arity]
    return isinstance(expr, Literal) or (isinstance(expr, Column) and expr.index < mfp.input_arity)
