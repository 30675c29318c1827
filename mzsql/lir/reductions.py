"""Plans of Reduce and TopK: how each aggregate is maintained.

Promise: pure functions from MIR's aggregates to plans. The kind of each aggregate comes from the table of functions.
Source: Materialize's `mz_compute_types::plan::reduce` and `top_k`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.functions.aggregate import windows
from mzsql.expr.key_values import as_key
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.typing import relation_type
from mzsql.lir import plan as lir
from mzsql.lir import rows

#: Assumed number of rows of a group if no hint says it; Materialize's default.
DEFAULT_GROUP_SIZE = 4_000_000_000
_CODES = {"accumulable": "a", "hierarchical": "h", "basic": "b"}


def buckets(expected_group_size: int | None) -> tuple[int, ...]:
    """Sizes of the layers of a hierarchical reduction, descending: the powers of 16 below the expected group size."""
    expected = DEFAULT_GROUP_SIZE if expected_group_size is None else expected_group_size
    sizes: list[int] = []
    size = 16
    while size < expected:
        sizes.append(size)
        size *= 16
    return tuple(reversed(sizes))


def reduce_plan(reduce: mir.Reduce) -> lir.ReducePlan:
    """How a Reduce's aggregates are maintained; if they are of several kinds, a collation of these."""
    if not reduce.aggregates:
        return lir.ReduceDistinct()
    kinds = tuple(_CODES[functions.aggregate(a.func).kind] for a in reduce.aggregates)
    by_kind = {
        code: [(i, a) for i, a in enumerate(reduce.aggregates) if kinds[i] == code]
        for code in "ahb"
    }
    accumulable = _accumulable(by_kind["a"])
    hierarchical = _hierarchical(by_kind["h"], reduce)
    basic = lir.ReduceBasic(tuple(by_kind["b"])) if by_kind["b"] else None
    present = [plan for plan in (accumulable, hierarchical, basic) if plan is not None]
    if len(present) == 1:
        return present[0]
    return lir.ReduceCollation(kinds, accumulable, hierarchical, basic)


def _accumulable(
    aggregates: Sequence[tuple[int, sc.AggregateExpr]],
) -> lir.ReduceAccumulable | None:
    if not aggregates:
        return None
    indexed = [lir.IndexedAggregate(k, i, expr) for k, (i, expr) in enumerate(aggregates)]
    return lir.ReduceAccumulable(
        full=tuple(expr for _, expr in aggregates),
        simple=tuple(a for a in indexed if not a.expr.distinct),
        distinct=tuple(a for a in indexed if a.expr.distinct),
    )


def _hierarchical(
    aggregates: Sequence[tuple[int, sc.AggregateExpr]], reduce: mir.Reduce
) -> lir.ReduceHierarchical | None:
    if not aggregates:
        return None
    skips: list[int] = []
    following = 0
    for position, _ in aggregates:
        skips.append(position - following)
        following = position + 1
    return lir.ReduceHierarchical(
        aggregates=tuple(expr for _, expr in aggregates),
        skips=tuple(skips),
        buckets=None if reduce.monotonic else buckets(reduce.expected_group_size),
    )


def key_val_plan(
    reduce: mir.Reduce, input_arity: int, form: lir.ArrangementForm | None
) -> lir.KeyValPlan:
    """The MFPs that compute key and values; `form` is the arrangement through which the input is read."""

    def make(exprs: Sequence[sc.Scalar]) -> MapFilterProject:
        mfp = MapFilterProject.identity(input_arity).map(exprs)
        mfp = mfp.project(range(input_arity, input_arity + len(exprs)))
        if form is not None:
            mfp = rows.over_arrangement(mfp, form)
        return mfp.optimize()

    columns = relation_type(reduce.input).columns
    keys, values = (
        [as_key(expr, columns) for expr in exprs]
        for exprs in (reduce.group_key, [a.expr for a in reduce.aggregates])
    )
    return lir.KeyValPlan(make(keys), make(values))


def mfp_after(
    mfp: MapFilterProject, key_arity: int
) -> tuple[MapFilterProject, MapFilterProject | None]:
    """Split an MFP over a Reduce's output into the part that the Reduce absorbs and the rest (None: nothing).

    All of it is absorbed if the key columns stay first, it outputs no computed column and the row gets no wider;
    otherwise the filters are, with the maps that they read.
    """
    prefix = tuple(range(key_arity))
    plain = all(column < mfp.input_arity for column in mfp.projection)
    if plain and mfp.projection[:key_arity] == prefix and mfp.output_arity <= mfp.input_arity:
        return mfp, None
    if not mfp.predicates:
        return MapFilterProject.identity(mfp.input_arity), mfp
    filters = MapFilterProject(
        mfp.input_arity, mfp.expressions, mfp.predicates, tuple(range(mfp.input_arity))
    ).optimize()
    rest = MapFilterProject(mfp.input_arity, mfp.expressions, (), mfp.projection).optimize()
    return filters, None if rest.is_identity else rest


def unnested_window(
    rel: mir.FlatMap, mfp: MapFilterProject
) -> tuple[mir.Reduce, MapFilterProject] | None:
    """A window function's Reduce under an unnesting of its lists, and `mfp` over its key and an element; None for
    anything else.

    The list itself must not be read, nor anything else of the group.
    """
    below: mir.Relation = rel.input
    column = 0
    if isinstance(rel.input, mir.Project) and len(rel.input.outputs) == 1:
        below, column = rel.input.input, rel.input.outputs[0]
    if rel.func != "unnest_list" or not isinstance(below, mir.Reduce):
        return None
    if len(below.group_key) != column or len(below.aggregates) != 1:
        return None
    if windows.parse(below.aggregates[0].func) is None or rel.exprs != (sc.Column(0),):
        return None
    read = [*mfp.expressions, *(p for _, p in mfp.predicates)]
    if 0 in mfp.projection or any(0 in sc.support(e) for e in read):
        return None
    # From positions over (list, element) to positions over (key …, element).
    place = {1 + i: column + i for i in range(mfp.input_arity - 1 + len(mfp.expressions))}
    return below, MapFilterProject(
        column + 1,
        tuple(sc.permute(e, place) for e in mfp.expressions),
        tuple((at - 1 + column, sc.permute(p, place)) for at, p in mfp.predicates),
        tuple(place[c] for c in mfp.projection),
    )


def top_k_plan(topk: mir.TopK, arity: int) -> lir.TopKPlan:
    """The plan of a TopK; its kind depends on limit, offset, and whether its input only grows."""
    kind = top_k_kind(topk.monotonic, topk.limit, topk.offset)
    return lir.TopKPlan(
        kind=kind,
        group_key=tuple(dict.fromkeys(topk.group_key)),
        order_key=topk.order_key,
        limit=topk.limit,
        offset=topk.offset,
        arity=arity,
        buckets=buckets(topk.expected_group_size) if kind == "Basic" else (),
    )


def top_k_kind(monotonic: bool, limit: sc.Scalar | None, offset: int) -> str:
    """``Basic``, ``MonotonicTopK`` or ``MonotonicTop1``."""
    if not monotonic or offset != 0:
        return "Basic"
    if isinstance(limit, sc.Literal) and limit.value == 1:
        return "MonotonicTop1"
    return "MonotonicTopK"
