"""FoldConstants: constant expressions are evaluated, operators over constant relations carried out, empty branches dropped.

Promise: an error found this way stays an error of the result exactly where a row needs it: a constant relation becomes an error only if one
of its rows fails. Constants beyond `LIMIT` rows are left to the dataflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.typing import node_type
from mzsql.repr.datum import Row
from mzsql.repr.types import ColumnType, RelationType, SqlType
from mzsql.transform.context import OptimizerContext
from mzsql.transform.fusion import conjuncts
from mzsql.transform.scalars import TRUE, simplify
from mzsql.transform.visit import filtered, rewrite_typed

#: The most rows a folded constant may have.
LIMIT = 10_000


def fold_constants(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Fold everywhere, bottom-up."""

    def fold(node: mir.Relation, types: Sequence[RelationType]) -> mir.Relation:
        return fold_node(simplify_node(node, types, ctx), types, ctx)

    return rewrite_typed(rel, fold)


def simplify_node(
    rel: mir.Relation, types: Sequence[RelationType], ctx: OptimizerContext
) -> mir.Relation:
    """The node with its own scalars simplified."""
    match rel:
        case mir.Map(scalars=scalars):
            columns = list(node_type(rel, types).columns)
            width = types[0].arity
            done = tuple(
                simplify(scalar, columns[: width + offset], ctx)
                for offset, scalar in enumerate(scalars)
            )
            return mir.Map(rel.input, done)
        case mir.Filter(predicates=predicates):
            columns = list(types[0].columns)
            preds = [simplify(p, columns, ctx) for p in conjuncts(predicates)]
            preds = [p for p in dict.fromkeys(conjuncts(tuple(preds))) if p != TRUE]
            return filtered(rel.input, preds) if preds else rel.input
        case mir.Reduce(group_key=key, aggregates=aggregates):
            columns = list(types[0].columns)
            return msgspec.structs.replace(
                rel,
                group_key=tuple(simplify(e, columns, ctx) for e in key),
                aggregates=tuple(
                    msgspec.structs.replace(a, expr=simplify(a.expr, columns, ctx))
                    for a in aggregates
                ),
            )
        case mir.FlatMap(exprs=exprs):
            columns = list(types[0].columns)
            args = tuple(simplify(e, columns, ctx) for e in exprs)
            return msgspec.structs.replace(rel, exprs=args)
        case mir.TopK(limit=limit) if limit is not None:
            columns = list(types[0].columns)
            return msgspec.structs.replace(rel, limit=simplify(limit, columns, ctx))
        case _:
            return rel


def fold_node(
    rel: mir.Relation, types: Sequence[RelationType], ctx: OptimizerContext
) -> mir.Relation:
    """The node carried out where its inputs are constant."""
    typ = None
    if not isinstance(rel, mir.Let | mir.LetRec | mir.Constant | mir.Get):
        typ = node_type(rel, types) if len(types) == len(mir.inputs(rel)) else None
    if typ is None:
        return rel
    match rel:
        case mir.Union(inputs=inputs):
            return _union(inputs, typ)
        case mir.Join(inputs=inputs):
            return _join(rel, inputs, typ)
        case mir.Filter(predicates=predicates) if any(_is_never(p) for p in predicates):
            return mir.Constant((), typ)
        case _:
            inner = mir.inputs(rel)[0]
            return _unary(rel, inner, typ, ctx) if isinstance(inner, mir.Constant) else rel


def _is_never(pred: sc.Scalar) -> bool:
    """FALSE or NULL."""
    return isinstance(pred, sc.Literal) and pred.value is not True


def _unary(
    rel: mir.Relation, inner: mir.Constant, typ: RelationType, ctx: OptimizerContext
) -> mir.Relation:
    if inner.error is not None:
        return mir.Constant((), typ, inner.error)
    if not inner.rows and not (isinstance(rel, mir.Reduce) and not rel.group_key):
        return mir.Constant((), typ)
    match rel:
        case mir.Project(outputs=outputs):
            return _constant((tuple(row[c] for c in outputs), diff) for row, diff in inner.rows)(
                typ
            )
        case mir.Negate():
            return _constant((row, -diff) for row, diff in inner.rows)(typ)
        case mir.Threshold():
            return _constant((row, diff) for row, diff in inner.rows if diff > 0)(typ)
        case mir.Map(scalars=scalars):
            return _map(rel, inner, scalars, typ, ctx)
        case mir.Filter(predicates=predicates):
            return _filter(rel, inner, predicates, typ, ctx)
        case mir.Reduce(aggregates=()):
            return _distinct(rel, inner, typ, ctx)
        case mir.Reduce() if not inner.rows:
            return mir.Constant((), typ)
        case _:
            return rel


class _Rows:
    """Rows with multiplicities, equal ones put together, waiting for their type."""

    def __init__(self, rows: Iterable[tuple[Row, int]]) -> None:
        counts: dict[tuple[tuple[type, object], ...], tuple[Row, int]] = {}
        for row, diff in rows:
            # True and 1 are equal to Python, not to SQL.
            key = tuple((type(value), value) for value in row)
            counts[key] = (row, counts[key][1] + diff if key in counts else diff)
        self._rows = tuple((row, diff) for row, diff in counts.values() if diff != 0)

    def __call__(self, typ: RelationType) -> mir.Constant:
        return mir.Constant(self._rows, typ)


def _constant(rows: Iterable[tuple[Row, int]]) -> _Rows:
    return _Rows(rows)


def _evaluate(
    exprs: Sequence[sc.Scalar], row: Row, columns: Sequence[SqlType], ctx: OptimizerContext
) -> Row | str | None:
    """The values over one row, the message of the first that fails, or None where it cannot be known here."""
    literals = [sc.Literal(value, typ) for value, typ in zip(row, columns, strict=True)]
    values: list[sc.Scalar] = []
    for expr in exprs:
        known = [*literals, *values]
        nullable = [ColumnType(sc.scalar_type(e, ()), True) for e in known]
        values.append(simplify(sc.substitute(expr, known), nullable, ctx))
    for value in values:
        if isinstance(value, sc.LiteralError):
            return value.message
    if not all(isinstance(value, sc.Literal) for value in values):
        return None
    return tuple(value.value for value in values if isinstance(value, sc.Literal))


def _map(
    rel: mir.Relation,
    inner: mir.Constant,
    scalars: Sequence[sc.Scalar],
    typ: RelationType,
    ctx: OptimizerContext,
) -> mir.Relation:
    types = [column.type for column in inner.typ.columns]
    rows: list[tuple[Row, int]] = []
    for row, diff in inner.rows:
        values = _evaluate(scalars, row, types, ctx)
        if values is None:
            return rel
        if isinstance(values, str):
            return mir.Constant((), typ, values)
        rows.append(((*row, *values), diff))
    return _constant(rows)(typ)


def _filter(
    rel: mir.Relation,
    inner: mir.Constant,
    predicates: Sequence[sc.Scalar],
    typ: RelationType,
    ctx: OptimizerContext,
) -> mir.Relation:
    types = [column.type for column in inner.typ.columns]
    rows: list[tuple[Row, int]] = []
    for row, diff in inner.rows:
        values: list[Row | str | None] = [_evaluate([p], row, types, ctx) for p in predicates]
        if any(isinstance(v, tuple) and v[0] is not True for v in values):
            continue
        failed = next((v for v in values if isinstance(v, str)), None)
        if failed is not None:
            return mir.Constant((), typ, failed)
        if any(v is None for v in values):
            return rel
        rows.append((row, diff))
    return _constant(rows)(typ)


def _distinct(
    rel: mir.Reduce, inner: mir.Constant, typ: RelationType, ctx: OptimizerContext
) -> mir.Relation:
    if any(diff <= 0 for _, diff in inner.rows):
        return rel
    types = [column.type for column in inner.typ.columns]
    rows: list[tuple[Row, int]] = []
    for row, _ in inner.rows:
        key = _evaluate(rel.group_key, row, types, ctx)
        if key is None:
            return rel
        if isinstance(key, str):
            return mir.Constant((), typ, key)
        rows.append((key, 1))
    merged = _constant(rows)(typ)
    return mir.Constant(tuple((row, 1) for row, _ in merged.rows), typ)


def _union(inputs: Sequence[mir.Relation], typ: RelationType) -> mir.Relation:
    """Constants of a union are put together, empty ones go."""
    constants = [part for part in inputs if isinstance(part, mir.Constant) and part.error is None]
    others = [
        part for part in inputs if not (isinstance(part, mir.Constant) and part.error is None)
    ]
    failed = next((part for part in others if isinstance(part, mir.Constant)), None)
    if failed is not None:
        return mir.Constant((), typ, failed.error)
    rows = _constant(entry for part in constants for entry in part.rows)(typ)
    if not others:
        return rows
    if rows.rows:
        others.append(mir.Constant(rows.rows, constants[0].typ) if len(constants) == 1 else rows)
    return others[0] if len(others) == 1 else mir.Union(tuple(others))


def _join(rel: mir.Join, inputs: Sequence[mir.Relation], typ: RelationType) -> mir.Relation:
    """A join with an empty input is empty; one of small constants without equivalences is carried out."""
    if any(isinstance(p, mir.Constant) and p.error is None and not p.rows for p in inputs):
        return mir.Constant((), typ)
    if rel.equivalences or not all(isinstance(p, mir.Constant) for p in inputs):
        return rel
    rows: list[tuple[Row, int]] = [((), 1)]
    for part in inputs:
        assert isinstance(part, mir.Constant)
        if part.error is not None:
            return mir.Constant((), typ, part.error)
        if len(rows) * len(part.rows) > LIMIT:
            return rel
        rows = [((*left, *right), d * e) for left, d in rows for right, e in part.rows]
    return _constant(rows)(typ)
