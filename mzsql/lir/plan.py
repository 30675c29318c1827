"""LIR: the physical plan of a dataflow (reference facts 5; the nodes EXPLAIN PHYSICAL PLAN prints).

Promise: every node carries a `lir_id`, unique within its dataflow, children before parents, from 0. The same ids stand in EXPLAIN, in
the hydration relations, in the names of the CTEs and arrangements that a step is made of, and in Spark's job descriptions. Plans
are immutable, equal by value and serializable: the expression cache holds them as msgpack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import AggregateExpr, ColumnOrder, Scalar
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, RelationType


class ArrangementForm(msgspec.Struct, frozen=True, cache_hash=True):
    """One arrangement of a collection.

    Attributes:
        key: the key's expressions over the collection's columns.
        permutation: for column i its position in key ++ value.
        thinning: the columns kept as value.
    """

    key: tuple[Scalar, ...]
    permutation: tuple[int, ...]
    thinning: tuple[int, ...]


class AvailableCollections(msgspec.Struct, frozen=True, cache_hash=True):
    """The forms in which a node's output is available: as a plain collection (`raw`), and arranged."""

    raw: bool
    arranged: tuple[ArrangementForm, ...] = ()
    types: tuple[ColumnType, ...] | None = None


# --- how a Get reads -----------------------------------------------------------------------------


class PassArrangements(msgspec.Struct, frozen=True, tag="pass", cache_hash=True):
    """Hand on what is there, unchanged."""


class GetArrangement(msgspec.Struct, frozen=True, tag="arrangement", cache_hash=True):
    """Read the arrangement by `key` (where `row` is given: only that key's rows) and apply an MFP."""

    key: tuple[Scalar, ...]
    row: Row | None
    mfp: MapFilterProject


class GetCollection(msgspec.Struct, frozen=True, tag="collection", cache_hash=True):
    """Read the plain collection and apply an MFP."""

    mfp: MapFilterProject


GetPlan = PassArrangements | GetArrangement | GetCollection

# --- joins ---------------------------------------------------------------------------------------


class LinearStage(msgspec.Struct, frozen=True, cache_hash=True):
    """One lookup: the stream, keyed by `stream_key` over its columns, meets input `lookup_relation` by `lookup_key`.

    The row after the lookup is key ++ the stream's `stream_thinning` columns ++ the lookup's thinned value columns; `closure`
    (an MFP over exactly that row) makes the next stream's row.
    """

    lookup_relation: int
    stream_key: tuple[Scalar, ...]
    stream_thinning: tuple[int, ...]
    lookup_key: tuple[Scalar, ...]
    closure: MapFilterProject


class LinearJoin(msgspec.Struct, frozen=True, tag="linear", cache_hash=True):
    """A differential join.

    `source_key` is the arrangement that the source is read from (None: read raw); the first stream's row is the source's row
    in its own column order, then `initial_closure`. `final_closure` is applied at the end.
    """

    source_relation: int
    source_key: tuple[Scalar, ...] | None
    initial_closure: MapFilterProject | None
    stages: tuple[LinearStage, ...]
    final_closure: MapFilterProject | None


class DeltaPath(msgspec.Struct, frozen=True, cache_hash=True):
    """What the changes of one input run through; fields as in `LinearJoin`."""

    source_relation: int
    source_key: tuple[Scalar, ...]
    initial_closure: MapFilterProject | None
    stages: tuple[LinearStage, ...]
    final_closure: MapFilterProject | None


class DeltaJoin(msgspec.Struct, frozen=True, tag="delta", cache_hash=True):
    """A delta join: one path an input, in input order."""

    paths: tuple[DeltaPath, ...]


JoinPlan = LinearJoin | DeltaJoin

# --- reductions ----------------------------------------------------------------------------------


class KeyValPlan(msgspec.Struct, frozen=True, cache_hash=True):
    """How a Reduce makes its key and its values: two MFPs over the input's row; value i feeds aggregate i."""

    key_plan: MapFilterProject
    val_plan: MapFilterProject


class ReduceDistinct(msgspec.Struct, frozen=True, tag="distinct", cache_hash=True):
    """The distinct keys."""


class IndexedAggregate(msgspec.Struct, frozen=True, cache_hash=True):
    """An aggregate, its index among those of its kind, and its index in the output."""

    kind_index: int
    output_index: int
    expr: AggregateExpr


class ReduceAccumulable(msgspec.Struct, frozen=True, tag="accumulable", cache_hash=True):
    """Aggregates kept as additive partial sums; those over distinct values apart."""

    full: tuple[AggregateExpr, ...]
    simple: tuple[IndexedAggregate, ...]
    distinct: tuple[IndexedAggregate, ...]


class ReduceHierarchical(msgspec.Struct, frozen=True, tag="hierarchical", cache_hash=True):
    """MIN and MAX. `buckets` descending (None: monotonic)."""

    aggregates: tuple[AggregateExpr, ...]
    skips: tuple[int, ...]
    buckets: tuple[int, ...] | None
    must_consolidate: bool = False


class ReduceBasic(msgspec.Struct, frozen=True, tag="basic", cache_hash=True):
    """Aggregates that read all rows of a group again. Pairs of (index in the output, aggregate)."""

    aggregates: tuple[tuple[int, AggregateExpr], ...]
    fused_unnest_list: bool = False


class ReduceCollation(msgspec.Struct, frozen=True, tag="collation", cache_hash=True):
    """Aggregates of several kinds; `aggregate_types` says for each output which: ``a``, ``h`` or ``b``."""

    aggregate_types: tuple[str, ...]
    accumulable: ReduceAccumulable | None
    hierarchical: ReduceHierarchical | None
    basic: ReduceBasic | None


ReducePlan = ReduceDistinct | ReduceAccumulable | ReduceHierarchical | ReduceBasic | ReduceCollation


class TopKPlan(msgspec.Struct, frozen=True, cache_hash=True):
    """`kind` is ``Basic``, ``MonotonicTopK`` or ``MonotonicTop1``; `arity` is the input's number of columns."""

    kind: str
    group_key: tuple[int, ...]
    order_key: tuple[ColumnOrder, ...]
    limit: Scalar | None
    offset: int
    arity: int
    must_consolidate: bool = False
    buckets: tuple[int, ...] = ()


# --- nodes ---------------------------------------------------------------------------------------


class Constant(msgspec.Struct, frozen=True, tag="Constant", cache_hash=True):
    """Rows with multiplicities, valid from the beginning of time, or an error."""

    lir_id: int
    rows: tuple[tuple[Row, int], ...]
    error: str | None
    columns: tuple[ColumnType, ...]


class Get(msgspec.Struct, frozen=True, tag="Get", cache_hash=True):
    """An imported or built object (GlobalId) or a Let binding (int)."""

    lir_id: int
    id: GlobalId | int
    keys: AvailableCollections
    plan: GetPlan
    columns: tuple[ColumnType, ...]  # the columns that `id` has, before the plan's MFP


class Let(msgspec.Struct, frozen=True, tag="Let", cache_hash=True):
    """Bind `value` to local id `id` in `body`."""

    lir_id: int
    id: int
    value: Plan
    body: Plan


class LetRec(msgspec.Struct, frozen=True, tag="LetRec", cache_hash=True):
    """Recursive bindings."""

    lir_id: int
    ids: tuple[int, ...]
    values: tuple[Plan, ...]
    limits: tuple[tuple[int, bool] | None, ...]
    body: Plan


class Mfp(msgspec.Struct, frozen=True, tag="Mfp", cache_hash=True):
    """Map, filter, project; `input_key` names the input's arrangement that is read (None: raw)."""

    lir_id: int
    input: Plan
    mfp: MapFilterProject
    input_key: tuple[Scalar, ...] | None = None
    input_row: Row | None = None


class FlatMap(msgspec.Struct, frozen=True, tag="FlatMap", cache_hash=True):
    """A table function for each row, then an MFP over the input's row ++ the function's columns."""

    lir_id: int
    input: Plan
    input_key: tuple[Scalar, ...] | None
    exprs: tuple[Scalar, ...]
    func: str
    output: RelationType
    mfp_after: MapFilterProject


class Join(msgspec.Struct, frozen=True, tag="Join", cache_hash=True):
    """A join of two or more inputs."""

    lir_id: int
    inputs: tuple[Plan, ...]
    plan: JoinPlan


class Reduce(msgspec.Struct, frozen=True, tag="Reduce", cache_hash=True):
    """Group and aggregate; the output's row is key ++ aggregates, then `mfp_after`."""

    lir_id: int
    input: Plan
    input_key: tuple[Scalar, ...] | None
    key_val: KeyValPlan
    plan: ReducePlan
    mfp_after: MapFilterProject


class TopK(msgspec.Struct, frozen=True, tag="TopK", cache_hash=True):
    """The first rows of each group."""

    lir_id: int
    input: Plan
    plan: TopKPlan


class Negate(msgspec.Struct, frozen=True, tag="Negate", cache_hash=True):
    """Multiplicities negated."""

    lir_id: int
    input: Plan


class Threshold(msgspec.Struct, frozen=True, tag="Threshold", cache_hash=True):
    """Rows with positive multiplicity, over the arrangement `ensure_arrangement` (by all columns)."""

    lir_id: int
    input: Plan
    ensure_arrangement: ArrangementForm


class Union(msgspec.Struct, frozen=True, tag="Union", cache_hash=True):
    """The sum of the inputs."""

    lir_id: int
    inputs: tuple[Plan, ...]
    consolidate_output: bool = False


class ArrangeBy(msgspec.Struct, frozen=True, tag="ArrangeBy", cache_hash=True):
    """The input in the given forms; with `input_key` and only `raw`: an arrangement read back as a plain collection."""

    lir_id: int
    input: Plan
    input_key: tuple[Scalar, ...] | None
    forms: AvailableCollections


Plan = (
    Constant
    | Get
    | Let
    | LetRec
    | Mfp
    | FlatMap
    | Join
    | Reduce
    | TopK
    | Negate
    | Threshold
    | Union
    | ArrangeBy
)


def children(plan: Plan) -> tuple[Plan, ...]:
    """The direct children, in the order in which they were numbered."""
    match plan:
        case Constant() | Get():
            return ()
        case Let(value=value, body=body):
            return (value, body)
        case LetRec(values=values, body=body):
            return (*values, body)
        case Join(inputs=many) | Union(inputs=many):
            return many
        case _:
            return (plan.input,)


def with_children(plan: Plan, new: Sequence[Plan]) -> Plan:
    """The same node over other children (as many as `children` gives)."""
    match plan:
        case Constant() | Get():
            assert not new
            return plan
        case Let():
            value, body = new
            return msgspec.structs.replace(plan, value=value, body=body)
        case LetRec():
            return msgspec.structs.replace(plan, values=tuple(new[:-1]), body=new[-1])
        case Join() | Union():
            return msgspec.structs.replace(plan, inputs=tuple(new))
        case _:
            (only,) = new
            return msgspec.structs.replace(plan, input=only)


def walk(plan: Plan) -> Iterator[Plan]:
    """Every node, parents before children, without recursion."""
    stack: list[Plan] = [plan]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


# --- dataflows -----------------------------------------------------------------------------------


class SourceImport(msgspec.Struct, frozen=True, cache_hash=True):
    """A collection read from its shard. `mfp` was pushed into the read: Gets of `id` see rows after it; None is the identity."""

    id: GlobalId
    typ: RelationType
    mfp: MapFilterProject | None = None
    monotonic: bool = False


class IndexImport(msgspec.Struct, frozen=True, cache_hash=True):
    """An index that is read instead of the collection it is on; `usages` as EXPLAIN prints them (``lookup``, …)."""

    id: GlobalId
    on_id: GlobalId
    key: tuple[Scalar, ...]
    typ: RelationType
    usages: tuple[str, ...] = ()


class BuildDesc(msgspec.Struct, frozen=True, cache_hash=True):
    """An object that the dataflow builds. The last one is what it exports; those before are views that several Gets share."""

    id: GlobalId
    plan: Plan
    typ: RelationType


class IndexExport(msgspec.Struct, frozen=True, tag="index", cache_hash=True):
    """The dataflow maintains index `id` on `on_id` by `key`."""

    id: GlobalId
    on_id: GlobalId
    key: tuple[Scalar, ...]


class MaterializedViewExport(msgspec.Struct, frozen=True, tag="materialized_view", cache_hash=True):
    """The dataflow writes materialized view `id`."""

    id: GlobalId


class PeekExport(msgspec.Struct, frozen=True, tag="peek", cache_hash=True):
    """The dataflow answers a one-shot query."""

    id: GlobalId


Export = IndexExport | MaterializedViewExport | PeekExport


class DataflowDescription(msgspec.Struct, frozen=True, cache_hash=True):
    """A whole dataflow: what it reads, what it builds (dependencies first), what it exports."""

    source_imports: tuple[SourceImport, ...]
    index_imports: tuple[IndexImport, ...]
    objects: tuple[BuildDesc, ...]
    export: Export

    @property
    def root(self) -> BuildDesc:
        """The object that is exported."""
        return self.objects[-1]
