"""How a planned query is answered: by a constant, a read of an index or a shard (fast paths), or a dataflow that is run
once.

Promise: `peek_plan` decides, both for EXPLAIN, which prints its result, and for execution. Its result is data;
nothing is read. The finishing is applied to the result in any case.
Source: Materialize's `FastPathPlan`. docs/architecture.md, "The way of a SELECT", step 3.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.mfp import MapFilterProject, extract_mfp, to_relation
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import Literal, Scalar, permute, support
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationType
from mzsql.transform.context import OptimizerContext
from mzsql.transform.features import OptimizerFeatures
from mzsql.transform.literal_constraints import literal_constraints
from mzsql.transform.scalars import simplify
from mzsql.transform.used_indexes import LOOKUP


class ConstantPlan(msgspec.Struct, frozen=True, tag="constant"):
    """The answer itself, or the error that it is."""

    rows: tuple[tuple[Row, int], ...]
    error: str | None
    typ: RelationType


class PeekIndexPlan(msgspec.Struct, frozen=True, tag="peek_index"):
    """Read an index, all of it or (`rows`) by some keys, and apply an MFP over the columns of `on_id`."""

    on_id: GlobalId
    index_id: GlobalId
    key: tuple[Scalar, ...]
    rows: tuple[Row, ...] | None
    mfp: MapFilterProject
    typ: RelationType  # of `on_id`


class PeekPersistPlan(msgspec.Struct, frozen=True, tag="peek_persist"):
    """Read a collection's shard and apply an MFP."""

    id: GlobalId
    mfp: MapFilterProject
    typ: RelationType


class DataflowPlan(msgspec.Struct, frozen=True, tag="dataflow"):
    """Run the dataflow over the contents of its imports.

    Attributes:
        lookups: for each index that is only looked up by literals, these keys; other indexes are read whole.
    """

    lookups: Mapping[GlobalId, tuple[Row, ...]]


FastPathPlan = ConstantPlan | PeekIndexPlan | PeekPersistPlan
PeekPlan = FastPathPlan | DataflowPlan


def peek_plan(
    df: MirDataflow, finishing: RowSetFinishing | None, features: OptimizerFeatures
) -> PeekPlan:
    """How an optimized one-shot query is answered."""
    found = _fast_path(df, finishing, features)
    return DataflowPlan(_lookups(df)) if found is None else found


def _lookups(df: MirDataflow) -> dict[GlobalId, tuple[Row, ...]]:
    """The literal keys by which indexes are looked up that are used for nothing else."""
    keys: dict[GlobalId, list[Row]] = {i.id: [] for i in df.index_imports if i.usages == (LOOKUP,)}
    for built in df.objects:
        for rel in mir.walk(built.plan):
            if isinstance(rel, mir.Join) and isinstance(rel.implementation, mir.IndexedFilter):
                found = rel.implementation
                if found.index in keys:
                    keys[found.index] += found.rows
    return {gid: tuple(dict.fromkeys(rows)) for gid, rows in keys.items()}


def _fast_path(
    df: MirDataflow, finishing: RowSetFinishing | None, features: OptimizerFeatures
) -> FastPathPlan | None:
    """The fast path of an optimized one-shot query; None if it has none."""
    if not df.is_single_time or len(df.objects) != 1:
        return None
    mfp, below = extract_mfp(_without_limit(df.objects[0].plan, finishing))
    mfp = mfp.optimize()
    match below:
        case mir.Constant(rows=rows, error=error, typ=typ) if mfp.is_identity:
            return ConstantPlan(rows, error, typ)
        case mir.Get(id=gid, typ=typ, access=mir.AccessIndex(uses=((index_id, _),))):
            assert not isinstance(gid, int)
            key = next(i.key for i in df.index_imports if i.id == index_id)
            return PeekIndexPlan(gid, index_id, key, None, mfp, typ)
        case mir.Join(implementation=mir.IndexedFilter() as plan, inputs=inputs):
            return _lookup(plan, inputs[0], mfp)
        case mir.Get(id=gid, typ=typ, access=mir.AccessPersist()):
            assert not isinstance(gid, int)
            found = persist_plan(gid, typ, mfp, finishing, features)
            return found if isinstance(found, PeekPersistPlan) else None
        case _:
            return None


def persist_plan(
    gid: GlobalId,
    typ: RelationType,
    mfp: MapFilterProject,
    finishing: RowSetFinishing | None,
    features: OptimizerFeatures,
) -> PeekPersistPlan | DataflowPlan:
    """How a query is answered that is row-wise work over one collection and reads no index."""
    if _is_small(mfp, finishing, features):
        return PeekPersistPlan(gid, mfp, typ)
    return DataflowPlan({})


def _without_limit(rel: mir.Relation, finishing: RowSetFinishing | None) -> mir.Relation:
    """The input of a TopK, if the finishing takes fewer rows in the same order anyway."""
    match rel:
        case mir.TopK(input=inner, group_key=(), order_key=order, limit=limit, offset=0):
            pass
        case _:
            return rel
    if finishing is None or order != finishing.order_by:
        return rel
    if limit is None:
        return inner
    if not isinstance(limit, Literal) or not isinstance(limit.value, int):
        return rel
    taken = finishing.limit
    return inner if taken is not None and taken + finishing.offset <= limit.value else rel


def index_lookup(rel: mir.Relation, ctx: OptimizerContext) -> PeekIndexPlan | None:
    """Row-wise work over one Get as an index lookup; None if it is none. Finds what the whole pipeline would find,
    without running it.
    """
    mfp, below = extract_mfp(rel)
    if not isinstance(below, mir.Get) or isinstance(below.id, int) or not ctx.indexes(below.id):
        return None
    columns = below.typ.columns
    predicates = tuple((at, simplify(pred, columns, ctx)) for at, pred in mfp.predicates)
    mfp = msgspec.structs.replace(mfp, predicates=predicates).optimize()
    mfp, below = extract_mfp(literal_constraints(to_relation(mfp, below), ctx))
    if isinstance(below, mir.Join) and isinstance(below.implementation, mir.IndexedFilter):
        return _lookup(below.implementation, below.inputs[0], mfp.optimize())
    return None


def _lookup(
    plan: mir.IndexedFilter, coll: mir.Relation, mfp: MapFilterProject
) -> PeekIndexPlan | None:
    """An indexed filter as a PeekIndexPlan; None if its MFP reads columns of the constant with the keys, which equal
    the key's.
    """
    while isinstance(coll, mir.ArrangeBy):
        coll = coll.input
    if not isinstance(coll, mir.Get):
        return None
    arity = coll.typ.arity
    read = set(mfp.projection).union(
        *(support(e) for e in mfp.expressions), *(support(p) for _, p in mfp.predicates)
    )
    if any(arity <= column < mfp.input_arity for column in read):
        return None
    narrow = MapFilterProject.identity(arity)
    place = {c: c for c in range(arity)}
    exprs: list[Scalar] = []
    for offset, expr in enumerate(mfp.expressions):
        place[mfp.input_arity + offset] = arity + offset
        exprs.append(permute(expr, place))
    narrow = narrow.map(exprs).filter(permute(p, place) for _, p in mfp.predicates)
    narrow = narrow.project(place[column] for column in mfp.projection)
    return PeekIndexPlan(plan.coll, plan.index, plan.key, plan.rows, narrow, coll.typ)


def _is_small(
    mfp: MapFilterProject, finishing: RowSetFinishing | None, features: OptimizerFeatures
) -> bool:
    """Whether a few rows of the shard suffice: no filter, no order, a small limit."""
    if mfp.predicates or finishing is None or finishing.order_by or finishing.limit is None:
        return False
    return finishing.limit + finishing.offset < features.persist_fast_path_limit
