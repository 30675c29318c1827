"""Set operations and VALUES as relations.

Promise: EXCEPT and INTERSECT are built of union, negation and threshold, which are incremental without an operator of
their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed, as_common, cast, unify
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.planned_queries import Planned
from mzsql.repr import types as t
from mzsql.repr.errors import SqlSyntaxError
from mzsql.repr.types import ColumnType, RelationType, SqlType


def cell(ctx: ExprContext, node: exp.Expr, column: int, defaults: Sequence[Typed | None]) -> Typed:
    """A cell of VALUES; DEFAULT is the column's default in an INSERT.

    Raises:
        SqlSyntaxError: DEFAULT stands beyond the table's last column.
    """
    if isinstance(node, exp.Var) and node.name.upper() == "DEFAULT" and defaults:
        if column >= len(defaults):
            raise SqlSyntaxError(
                "INSERT has more expressions than target columns", position=position_of(node)
            )
        return defaults[column] or Typed(Literal(None, t.UNKNOWN), t.UNKNOWN, True)
    return ctx.plan(node)


def column_values(cells: list[Typed], want: SqlType | None, position: int | None) -> list[Typed]:
    """A column's cells cast to the wanted type, where all of them can be; else to their common type."""
    if want is None:
        done, _ = unify(cells, "VALUES", position)
        return done
    out: list[Typed] = []
    for cell in cells:
        value = cast(cell, want, "assignment")
        if value is None:
            return unify(cells, "VALUES", position)[0]
        out.append(value)
    if want.kind == "numeric" and len({value.typ.effective_scale for value in out}) > 1:
        # All rows of a relation have one type: that of the target column, with a scale that keeps every value's digits.
        return [as_common(value, want) or value for value in out]
    return out


def rows_relation(rows: list[tuple[Typed, ...]], types: tuple[ColumnType, ...]) -> hir.Relation:
    """Literal rows as one constant; other rows each as a Map over the empty row."""
    unit = hir.Constant(((),), RelationType(()))
    if rows and all(isinstance(v.expr, Literal) for row in rows for v in row):
        data = tuple(
            tuple(v.expr.value for v in row if isinstance(v.expr, Literal)) for row in rows
        )
        return hir.Constant(data, RelationType(types))
    parts: list[hir.Relation] = [hir.Map(unit, tuple(v.expr for v in row)) for row in rows]
    return parts[0] if len(parts) == 1 else hir.Union(tuple(parts))


#: A left side of INTERSECT with more relations than this becomes a Let, since its plan would be there twice.
_REPEATED = 100


def set_relation(
    name: str, left: Planned, right: Planned, distinct: bool, fresh: int
) -> hir.Relation:
    """UNION, EXCEPT and INTERSECT by union, negation and threshold; ``fresh`` is a local id that no CTE in scope has."""
    a, b = left.relation, right.relation
    if name == "UNION":
        parts = (*(_union_parts(a)), *(_union_parts(b)))
        return hir.Distinct(hir.Union(parts)) if distinct else hir.Union(parts)
    if name == "EXCEPT":
        if distinct:
            a, b = hir.Distinct(a), hir.Distinct(b)
        return hir.Threshold(hir.Union((a, hir.Negate(b))))
    if distinct:
        a, b = hir.Distinct(a), hir.Distinct(b)
    if any(True for _ in itertools.islice(hir.walk(a), _REPEATED, None)):
        get = hir.Get(fresh, RelationType(left.types))
        return hir.Let("intersect", fresh, a, _intersect(get, b))
    return _intersect(a, b)


def _intersect(a: hir.Relation, b: hir.Relation) -> hir.Relation:
    """The rows in both: the left side minus those that only the left side has."""
    only_left = hir.Threshold(hir.Union((a, hir.Negate(b))))
    return hir.Union((a, hir.Negate(only_left)))


def _union_parts(rel: hir.Relation) -> tuple[hir.Relation, ...]:
    return rel.inputs if isinstance(rel, hir.Union) and not _has_negation(rel) else (rel,)


def _has_negation(rel: hir.Union) -> bool:
    return any(isinstance(i, hir.Negate) for i in rel.inputs)
