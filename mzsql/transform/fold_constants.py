"""FoldConstants: evaluates constant expressions, applies operators to constant relations, drops empty branches.

Promise: an error found this way is an error of the result only if a row needs it: a constant relation becomes an
error only if one of its rows fails. Constants of more than `LIMIT` rows are left to the dataflow.
Source: Materialize's transform `FoldConstants`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import as_stored
from mzsql.expr.evaluate import EvalError, Evaluator, TooLarge, is_foldable
from mzsql.expr.folded_windows import can_fold
from mzsql.expr.functions.aggregate import windows
from mzsql.expr.memo import memo
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.typing import derived_type, nullable
from mzsql.repr.datum import Datum, Row
from mzsql.repr.types import ColumnType, RelationType
from mzsql.transform.conjunctions import (
    reduce_across,
    simplified_apart,
    without_redundant_not_nulls,
)
from mzsql.transform.context import OptimizerContext
from mzsql.transform.scalars import TRUE, may_error, simplify
from mzsql.transform.visit import rewrite, rewrite_typed

#: The most rows a folded constant may have.
LIMIT = 10_000
#: The most rows over which window functions are folded.
WINDOW_LIMIT = 500


#: Nodes that are evaluated if they read constants, and have no scalar expressions to fold.
_WITHOUT_SCALARS = frozenset(
    {
        *(mir.Get, mir.Constant, mir.Let, mir.Project, mir.Join, mir.Union),
        *(mir.Negate, mir.Threshold, mir.ArrangeBy),
    }
)


def fold_constants(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Fold everywhere, bottom-up."""

    def fold(node: mir.Relation, types: Sequence[RelationType]) -> mir.Relation:
        kind = type(node)
        if kind is mir.LetRec:
            return _recursion(node, ctx)  # type: ignore[arg-type]  # the class says it
        if kind is mir.Constant:
            return _consolidated(node)  # type: ignore[arg-type]  # as above
        if kind in _WITHOUT_SCALARS and not _reads_constant(node):
            return node
        simpler = simplify_node(node, types, ctx)
        if any(simpler is part for part in mir.inputs(node)):
            return simpler  # a filter that lets everything pass
        return fold_node(simpler, types, ctx)

    return rewrite_typed(rel, fold, stands_for=_small, name="fold_constants")


def _small(value: mir.Relation) -> mir.Relation | None:
    """A binding that is at most one row, or an error, is substituted where it is read."""
    return value if isinstance(value, mir.Constant) and len(value.rows) <= 1 else None


def _recursion(rel: mir.LetRec, ctx: OptimizerContext) -> mir.Relation:
    """Bindings that return nothing when their bindings are empty stay empty: then there is no recursion."""

    def nothing(node: mir.Relation) -> mir.Relation:
        if isinstance(node, mir.Get) and isinstance(node.id, int) and node.id in rel.ids:
            return mir.Constant((), node.typ)
        return node

    for value in rel.values:
        first = fold_constants(rewrite(value, nothing), ctx)
        if not isinstance(first, mir.Constant) or first.rows or first.error is not None:
            return rel
    return fold_constants(rewrite(rel.body, nothing), ctx)


def simplify_node(
    rel: mir.Relation, types: Sequence[RelationType], ctx: OptimizerContext
) -> mir.Relation:
    """The node with its own scalar expressions simplified."""
    match rel:
        case mir.Map(scalars=scalars):
            columns = list(derived_type(rel, types).columns)
            width = types[0].arity
            done = tuple(
                simplify(scalar, columns[: width + offset], ctx)
                for offset, scalar in enumerate(scalars)
            )
            return mir.Map(rel.input, done)
        case mir.Filter(predicates=predicates):
            columns = list(types[0].columns)
            # Simplify each predicate as it was written, as a whole, before its conjuncts are separated.
            found = [part for p in predicates for part in simplified_apart(p, columns, ctx)]
            preds = [part for part in dict.fromkeys(found) if part != TRUE]
            preds = without_redundant_not_nulls(reduce_across(preds, columns, ctx))
            return mir.Filter(rel.input, tuple(preds)) if preds else rel.input
        case mir.Reduce(group_key=key, aggregates=aggregates):
            columns = list(types[0].columns)
            return msgspec.structs.replace(
                rel,
                group_key=tuple(simplify(e, columns, ctx) for e in key),
                aggregates=tuple(_aggregate(a, columns, ctx) for a in aggregates),
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


def _aggregate(
    aggregate: sc.AggregateExpr, columns: Sequence[ColumnType], ctx: OptimizerContext
) -> sc.AggregateExpr:
    """An aggregate with its argument simplified; counting what is never NULL counts rows."""
    expr = simplify(aggregate.expr, columns, ctx)
    rows_only = aggregate.func == "count" and not aggregate.distinct
    if rows_only and not nullable(expr, columns) and not may_error(expr):
        expr = TRUE
    return msgspec.structs.replace(aggregate, expr=expr)


#: Nodes that are not evaluated by what is below them.
_LEFT = frozenset({mir.Let, mir.LetRec, mir.Constant, mir.Get})


def fold_node(
    rel: mir.Relation, types: Sequence[RelationType], ctx: OptimizerContext
) -> mir.Relation:
    """The result of a node whose inputs are constant; else the node."""
    if type(rel) in _LEFT:
        return rel
    if len(types) != len(mir.inputs(rel)):
        return rel
    match rel:
        case mir.Filter(predicates=predicates) if any(_is_never(p) for p in predicates):
            return mir.Constant((), derived_type(rel, types))
        case mir.TopK(limit=sc.Literal(value=0)):
            return mir.Constant((), derived_type(rel, types))
        case _ if not _reads_constant(rel):
            return rel
        case mir.Union(inputs=inputs):
            return _union(inputs, derived_type(rel, types))
        case mir.Join(inputs=inputs):
            return _join(rel, inputs, derived_type(rel, types))
        case _:
            (inner,) = mir.inputs(rel)
            assert isinstance(inner, mir.Constant)
            return _unary(rel, inner, derived_type(rel, types), ctx)


def _reads_constant(rel: mir.Relation) -> bool:
    return mir.Constant in [type(part) for part in mir.inputs(rel)]


def _is_never(pred: sc.Scalar) -> bool:
    """Whether a predicate is FALSE or NULL."""
    return isinstance(pred, sc.Literal) and pred.value is not True


def _unary(
    rel: mir.Relation, inner: mir.Constant, typ: RelationType, ctx: OptimizerContext
) -> mir.Relation:
    if inner.error is not None:
        return mir.Constant((), typ, inner.error)
    match rel:
        case mir.Reduce() | mir.TopK() | mir.FlatMap() if not inner.rows:
            return mir.Constant((), typ)
        case mir.Project(outputs=outputs):
            rows = ((tuple(row[c] for c in outputs), diff) for row, diff in inner.rows)
            return constant(rows, typ)
        case mir.Negate():
            return constant(((row, -diff) for row, diff in inner.rows), typ)
        case mir.Threshold():
            return constant(((row, diff) for row, diff in inner.rows if diff > 0), typ)
    if ctx.evaluator is None or _reads_session(rel):
        return rel
    if not _is_small(inner.rows, inner.typ):
        return rel
    match rel:
        case mir.Map() | mir.Filter():
            return _row_wise(rel, inner, typ, ctx.evaluator)
        case mir.Reduce():
            return _reduce(rel, inner, typ, ctx.evaluator)
        case mir.FlatMap():
            return _flat_map(rel, inner, typ, ctx.evaluator)
        case _:
            return rel


def constant(rows: Iterable[tuple[Row, int]], typ: RelationType) -> mir.Constant:
    """A constant relation with equal rows added up."""
    counts: dict[tuple[tuple[type, object], ...], tuple[Row, int]] = {}
    for row, diff in rows:
        # The type is part of the key because True and 1 are equal in Python, but not in SQL.
        key = tuple((type(value), value) for value in row)
        counts[key] = (row, counts[key][1] + diff if key in counts else diff)
    return mir.Constant(tuple((row, diff) for row, diff in counts.values() if diff != 0), typ)


def _consolidated(rel: mir.Constant) -> mir.Constant:
    """The constant with equal rows added up; itself if no two are equal."""
    if len({row for row, _ in rel.rows}) == len(rel.rows):
        return rel
    return msgspec.structs.replace(constant(rel.rows, rel.typ), error=rel.error)


def _is_small(rows: Iterable[tuple[Row, int]], typ: RelationType) -> bool:
    types = [column.type for column in typ.columns]
    return is_foldable(cell for row, _ in rows for cell in zip(row, types, strict=True))


def _reads_session(rel: mir.Relation) -> bool:
    """Whether a node's expressions depend on the session or the current time."""
    exprs: list[sc.Scalar] = []
    match rel:
        case mir.Map(scalars=scalars):
            exprs.extend(scalars)
        case mir.Filter(predicates=predicates):
            exprs.extend(predicates)
        case mir.Reduce(group_key=key, aggregates=aggregates):
            exprs.extend((*key, *(a.expr for a in aggregates)))
        case mir.FlatMap(exprs=args):
            exprs.extend(args)
        case _:
            pass
    return any(isinstance(node, sc.Unmaterializable) for e in exprs for node in sc.walk(e))


def _row_wise(
    rel: mir.Map | mir.Filter, inner: mir.Constant, typ: RelationType, evaluator: Evaluator
) -> mir.Relation:
    identity = MapFilterProject.identity(inner.typ.arity)
    mfp = identity.map(rel.scalars) if isinstance(rel, mir.Map) else identity.filter(rel.predicates)
    large = memo("too large to fold")
    if rel in large:
        return rel
    try:
        rows = evaluator.evaluate_mfp(mfp, inner.rows, inner.typ.columns)
    except TooLarge:
        large[rel] = True
        return rel
    if isinstance(rows, EvalError):
        return mir.Constant((), typ, rows.message)
    return constant(rows, typ)


def _reduce(
    rel: mir.Reduce, inner: mir.Constant, typ: RelationType, evaluator: Evaluator
) -> mir.Relation:
    if any(diff <= 0 for _, diff in inner.rows) or sum(diff for _, diff in inner.rows) > LIMIT:
        return rel
    found = [w for a in rel.aggregates if (w := windows.parse(a.func)) is not None]
    many = sum(diff for _, diff in inner.rows) > WINDOW_LIMIT
    if found and (many or not all(can_fold(window) for window in found)):
        return rel  # left to the dataflow
    rows = evaluator.aggregate_rows(rel.group_key, rel.aggregates, inner.rows, inner.typ.columns)
    if isinstance(rows, EvalError):
        return mir.Constant((), typ, rows.message)
    return constant(((row, 1) for row in rows), typ)


def _flat_map(
    rel: mir.FlatMap, inner: mir.Constant, typ: RelationType, evaluator: Evaluator
) -> mir.Relation:
    """Apply a table function to a few constant rows, unless it would return very many."""
    output: list[tuple[Row, int]] = []
    for row, diff in inner.rows:
        values = evaluator.evaluate(rel.exprs, row, inner.typ.columns)
        expected = series_length(rel.func, values)
        if rel.output.arity != 1 or expected is None or len(output) + expected > LIMIT:
            return rel
        rows = evaluator.table_rows(rel.func, rel.exprs, row, inner.typ.columns)
        if isinstance(rows, EvalError):
            return mir.Constant((), typ, rows.message)
        output.extend(((*row, *more), diff) for more in rows)
    return constant(output, typ)


def series_length(func: str, values: Sequence[Datum | EvalError]) -> int | None:
    """How many rows a series of integers, or the elements of a container, has (few, if an argument is an error or
    NULL); None for other functions.
    """
    if func in ("unnest_array", "unnest_list"):
        return len(json.loads(values[0])) if isinstance(values[0], str) else 0
    if not func.startswith("generate_series_"):
        return None
    if not all(isinstance(v, int) for v in values):
        return 0 if any(v is None or isinstance(v, EvalError) for v in values) else None
    numbers = [v for v in values if isinstance(v, int)]
    start, stop = numbers[0], numbers[1]
    step = numbers[2] if len(numbers) > 2 else 1
    return 0 if step == 0 else max(0, (stop - start) // step + 1)


def _union(inputs: Sequence[mir.Relation], typ: RelationType) -> mir.Relation:
    """Merge the constants of a union, and drop empty ones."""
    constants = [part for part in inputs if isinstance(part, mir.Constant) and part.error is None]
    others = [
        part for part in inputs if not (isinstance(part, mir.Constant) and part.error is None)
    ]
    failed = next((part for part in others if isinstance(part, mir.Constant)), None)
    if failed is not None:
        return mir.Constant((), typ, failed.error)
    rows = constant((entry for part in constants for entry in part.rows), typ)
    if len(constants) > 1:
        rows = mir.Constant(tuple(as_stored(rows.rows, typ.columns)), typ)
    if not others:
        return rows
    if rows.rows:
        others.append(mir.Constant(rows.rows, constants[0].typ) if len(constants) == 1 else rows)
    return others[0] if len(others) == 1 else mir.Union(tuple(others))


def _join(rel: mir.Join, inputs: Sequence[mir.Relation], typ: RelationType) -> mir.Relation:
    """A join with an empty input is empty; one of small constants without equivalences is computed."""
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
    return constant(rows, typ)
