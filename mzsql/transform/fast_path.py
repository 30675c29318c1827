"""How a one-shot query is answered: by a constant, a read of an index or a shard (fast paths), or a dataflow that is run
once.

Promise: `plan_peek` decides, indexes included; EXPLAIN prints its result and the executor takes it. The result is data;
nothing is read. The finishing is applied to the answer in any case.
Source: Materialize's `FastPathPlan`. docs/architecture.md, "The way of a SELECT", step 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.dataflow import Export, MirDataflow, MirObject, MirSource, PeekExport
from mzsql.expr.memo import remembering
from mzsql.expr.mfp import MapFilterProject, extract_mfp, to_relation
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import Literal, Scalar, permute, support
from mzsql.expr.typing import column_type, relation_type
from mzsql.repr.datum import Row
from mzsql.repr.garbage import undisturbed
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import ColumnType, RelationType
from mzsql.transform.context import OptimizerContext
from mzsql.transform.dataflow import build_dataflow, optimize_dataflow, optimize_query
from mzsql.transform.features import OptimizerFeatures
from mzsql.transform.literal_constraints import literal_constraints
from mzsql.transform.row_wise import RowRead, over, row_read, source
from mzsql.transform.scalars import simplify
from mzsql.transform.spelled_out import rows_of_lists, spelled_rows
from mzsql.transform.used_indexes import LOOKUP


class ConstantPlan(msgspec.Struct, frozen=True, tag="constant"):
    """The answer itself, or the error that it is."""

    rows: tuple[tuple[Row, int], ...]
    error: str | None
    typ: RelationType
    at_sight: bool = False  # see `DataflowPlan.at_sight`


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
    at_sight: bool = False  # see `DataflowPlan.at_sight`


class DataflowPlan(msgspec.Struct, frozen=True, dict=True, tag="dataflow"):
    """Run the dataflow over the contents of its imports.

    Attributes:
        built: the dataflow, with plain views inlined.
        lookups: for each index that is only looked up by literals, these keys; other indexes are read whole.
        read: the dataflow as a row-wise read of one collection, which takes no dataflow to evaluate; None if it is more.
        optimizer: optimizes `built` when `mir` is asked for; None: it is optimized.
    """

    built: MirDataflow
    lookups: Mapping[GlobalId, tuple[Row, ...]]
    read: RowRead | None
    optimizer: OptimizerContext | None = None

    @property
    def at_sight(self) -> bool:
        """Whether it was found without the optimizer."""
        return self.optimizer is not None

    @lazy_property
    def mir(self) -> MirDataflow:
        """The optimized dataflow; optimized at first use where the row-wise read was plain at sight."""
        return self.built if self.optimizer is None else _optimized(self.built, self.optimizer)


FastPathPlan = ConstantPlan | PeekIndexPlan | PeekPersistPlan
PeekPlan = FastPathPlan | DataflowPlan

#: What a one-shot query's dataflow exports. Nothing is installed under the id, so all queries have the same.
ONE_SHOT = PeekExport(GlobalId("t1"))


class Asked(msgspec.Struct, frozen=True, cache_hash=True):
    """A one-shot query.

    Attributes:
        relation: its MIR before optimization.
        finishing: its ORDER BY, LIMIT, OFFSET and projection, which are applied to the result.
        columns: the types of the relation's columns.
    """

    relation: mir.Relation
    finishing: RowSetFinishing
    columns: tuple[ColumnType, ...]


class Readable(Protocol):
    """The objects that a query may read."""

    def lookup_view(self, gid: GlobalId) -> mir.Relation | None:
        """A plain view's optimized MIR; None for what is read from a shard or an index."""

    def source(self, gid: GlobalId) -> MirSource:
        """An object as a dataflow imports it."""

    def is_stored(self, gid: GlobalId) -> bool:
        """Whether its rows lie in a shard of its own: a table or a materialized view."""


def plan_peek(asked: Asked, readable: Readable, ctx: OptimizerContext) -> PeekPlan:
    """How a one-shot query is answered.

    What can be told from the query at a glance takes no optimizer, which costs more than many a short query does.

    Args:
        asked: the query, with the values of session- and time-dependent functions in it.
        readable: what it reads.
        ctx: the optimizer's context, with the indexes that the query may read.
    """
    found = _at_sight(asked, readable, ctx)
    if found is not None:
        return found
    df = one_shot_dataflow(asked.relation, readable, ctx)
    return peek_plan(df, asked.finishing, ctx.features)


def peek_plan(
    df: MirDataflow, finishing: RowSetFinishing | None, features: OptimizerFeatures
) -> PeekPlan:
    """How an optimized one-shot query is answered."""
    found = _fast_path(df, finishing, features)
    return DataflowPlan(df, _lookups(df), row_read(df)) if found is None else found


@undisturbed()
def one_shot_dataflow(
    relation: mir.Relation, readable: Readable, ctx: OptimizerContext, export: Export = ONE_SHOT
) -> MirDataflow:
    """A one-shot query as an optimized dataflow; arguments as for `plan_peek`."""
    with remembering():
        local = optimize_query(relation, ctx.without_indexes)
        built = build_dataflow(export, local, readable.lookup_view, readable.source, ctx)
        return optimize_dataflow(built, ctx)


def peek_dataflow(plan: PeekPlan) -> MirDataflow:
    """What an engine runs for a plan, where one is needed: of a fast path the work over the rows that it reads."""
    match plan:
        case DataflowPlan(mir=df):
            return df
        case ConstantPlan(rows=rows, error=error, typ=typ):
            return _over((), mir.Constant(rows, typ, error), typ)
        case PeekIndexPlan(on_id=gid, typ=typ, mfp=mfp) | PeekPersistPlan(id=gid, typ=typ, mfp=mfp):
            rel = to_relation(mfp, mir.Get(gid, typ, mir.AccessPersist()))
            return _over((MirSource(gid, typ),), rel, relation_type(rel))


def _over(sources: tuple[MirSource, ...], relation: mir.Relation, typ: RelationType) -> MirDataflow:
    return MirDataflow(sources, (), (MirObject(ONE_SHOT.id, relation, typ),), ONE_SHOT)


@undisturbed()
def _optimized(df: MirDataflow, ctx: OptimizerContext) -> MirDataflow:
    """A dataflow of one object that reads no view."""
    (built,) = df.objects
    with remembering():
        local = optimize_query(built.plan, ctx)
        built = msgspec.structs.replace(built, plan=local, typ=relation_type(local))
        return optimize_dataflow(msgspec.structs.replace(df, objects=(built,)), ctx)


def _at_sight(asked: Asked, readable: Readable, ctx: OptimizerContext) -> PeekPlan | None:
    """The plan of a query that spells its rows out, looks a stored relation up by an index, or is a row-wise read of
    one that has none; None where it takes the optimizer.
    """
    mfp, below = source(asked.relation)
    if isinstance(below, mir.Constant | mir.Union):
        alone = isinstance(below, mir.Constant)
        rows = rows_of_lists([(mfp, below)], ctx) if alone else spelled_rows(asked.relation, ctx)
        if rows is None:
            return None
        one_row = isinstance(below, mir.Constant) and () in below.typ.keys
        typ = RelationType(asked.columns, ((),) if one_row else ())
        return ConstantPlan(rows, None, typ, at_sight=True)
    if not isinstance(below, mir.Get) or isinstance(below.id, int):
        return None
    if ctx.indexes(below.id):
        return _index_lookup(to_relation(mfp, below), ctx)
    if not readable.is_stored(below.id):
        return None
    mfp = mfp.optimize()
    read = over(below.id, below.typ.columns, mfp)
    compared = [condition.column for condition in read.conditions]
    if not read.is_plain or len(set(compared)) < len(compared):
        # With several conditions on one column the optimizer may find that they contradict each other.
        return None
    if _is_small(mfp, asked.finishing, ctx.features):
        return PeekPersistPlan(below.id, mfp, below.typ, at_sight=True)
    df = _over((readable.source(below.id),), asked.relation, RelationType(asked.columns))
    return DataflowPlan(df, {}, read, ctx.without_indexes)


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
            small = _is_small(mfp, finishing, features)
            return PeekPersistPlan(gid, mfp, typ) if small else None
        case _:
            return None


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


def _index_lookup(rel: mir.Relation, ctx: OptimizerContext) -> PeekIndexPlan | None:
    """Row-wise work over a Get that has indexes as an index lookup; None if it is none. Finds what the whole pipeline
    would find, without running it.
    """
    mfp, below = extract_mfp(rel)
    assert isinstance(below, mir.Get)
    columns = list(below.typ.columns)
    for (
        expr
    ) in mfp.expressions:  # which a predicate reads where it would become too large with them
        columns.append(column_type(expr, columns))
    predicates = tuple((at, simplify(pred, columns, ctx)) for at, pred in mfp.predicates)
    mfp = msgspec.structs.replace(mfp, predicates=predicates).optimize()
    mfp, below = extract_mfp(literal_constraints(to_relation(mfp, below), ctx))
    if not isinstance(below, mir.Join) or not isinstance(below.implementation, mir.IndexedFilter):
        return None
    found = _lookup(below.implementation, below.inputs[0], mfp.optimize())
    return found if found is not None and _is_settled(found, ctx) else None


def _is_settled(plan: PeekIndexPlan, ctx: OptimizerContext) -> bool:
    """Whether the optimizer has nothing to conclude for a lookup's row-wise work: it says nothing more of a column of which
    the key or a predicate says something already, and its expressions are as simple as they can be.
    """
    known = {column for expr in plan.key for column in support(expr)}
    for _, predicate in plan.mfp.predicates:
        read = support(predicate)
        if not known.isdisjoint(read):
            return False
        known |= read
    columns = list(plan.typ.columns)
    exprs = plan.mfp.expressions
    if all(isinstance(expr, Literal) for expr in exprs):
        return True
    for expr in exprs:
        # The optimizer lifts literals over what is computed.
        if isinstance(expr, Literal) or not known.isdisjoint(support(expr)):
            return False
        if simplify(expr, columns, ctx) != expr:
            return False
        columns.append(column_type(expr, columns))
    return True


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
