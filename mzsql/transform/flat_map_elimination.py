"""FlatMapElimination: a table function of constants that returns one row becomes a Map; one that returns none empties
the relation.

Promise: the function is evaluated once, by the evaluator that also answers fast-path reads. One that fails, returns
several rows, or could return very many, is left to run.
Source: Materialize's transform `FlatMapElimination`.
"""

from __future__ import annotations

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.evaluate import EvalError
from mzsql.expr.memo import memo
from mzsql.expr.parts import kinds_of
from mzsql.expr.typing import relation_type
from mzsql.transform.context import OptimizerContext
from mzsql.transform.fold_constants import series_length
from mzsql.transform.visit import mapped, rewrite

_WHERE = kinds_of(mir.FlatMap)
#: Functions that never yield more rows than their argument has elements.
_BOUNDED = ("unnest", "jsonb_array_elements", "jsonb_object_keys", "regexp_split_to_table")


def flat_map_elimination(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Evaluate the table functions of constants."""

    def evaluated(node: mir.Relation) -> mir.Relation:
        return _evaluated(node, ctx) if isinstance(node, mir.FlatMap) else node

    return rewrite(rel, evaluated, memo("flat_map_elimination"), where=_WHERE)


def _evaluated(node: mir.FlatMap, ctx: OptimizerContext) -> mir.Relation:
    values = [e.value for e in node.exprs if isinstance(e, sc.Literal)]
    if len(values) < len(node.exprs) or node.output.arity != 1 or ctx.evaluator is None:
        return node
    expected = series_length(node.func, values)
    if expected is None and functions.table_func(node.func).name not in _BOUNDED:
        return node
    if expected is not None and expected > 1:
        return node
    rows = ctx.evaluator.table_rows(node.func, node.exprs, (), ())
    if isinstance(rows, EvalError) or len(rows) > 1:
        return node
    if not rows:
        return mir.Constant((), relation_type(node))
    (row,) = rows
    literals = [
        sc.Literal(value, c.type) for value, c in zip(row, node.output.columns, strict=True)
    ]
    return mapped(node.input, literals)
