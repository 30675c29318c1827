"""LIR: the physical plan of a dataflow (the nodes that EXPLAIN PHYSICAL PLAN prints: docs/explain.md).

Promise: every node carries a `lir_id`, unique within its dataflow, numbered from 0 with children before parents. The
same ids appear in EXPLAIN, in the hydration relations, in the names of a step's CTEs and arrangements, and in
Spark's job descriptions. Plans are immutable, equal by value and serializable: the expression cache stores them as
msgpack.

Rows. A collection's *raw* row has its columns in order. An arrangement's row, by an `ArrangementForm`, is the values
of `key`, then the columns `thinning` of the raw row: key ++ value. An expression or MFP that reads a child *through
an arrangement* (`input_key` or `key` is set: GetArrangement, Mfp, Reduce; a FlatMap's `exprs`; a DeltaPath's
`initial_closure`) is written over that key ++ value row, already permuted, so that it is evaluated on the stored
row. One that reads raw rows is written over raw rows. What a node outputs is given by `forms_of(plan)` in
`mzsql.lir.forms`:

==============================
=============================================================================================== node
output ==============================
=============================================================================================== Constant, Mfp,
FlatMap, Join,   raw rows only TopK, Negate, Union Get                             PassArrangements: `keys`; else the
MFP's result, raw only Reduce                          only arranged, by its key columns #0 … (raw row: key ++
aggregates, then `mfp_after`, which keeps the
    key columns where they are); form: key=[#0 …], permutation=id, thinning=(the others)
Threshold                       only arranged, by `ensure_arrangement` (all columns are the key) ArrangeBy
`forms` Let, LetRec                     the body's output; a Get of the binding has the value's forms in `keys`
==============================
===============================================================================================

If a parent needs raw rows (TopK, Negate, Union, the value of a LetRec) and its child is only arranged, an
`ArrangeBy` stands between them with `input_key` set and forms = raw only: it reads the arrangement back, permuted to
raw rows. Raw column i is at position ``form.permutation[i]`` of an arrangement's row.
Source: Materialize's `mz_compute_types::plan::Plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from mzsql.expr import dataflow
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import AggregateExpr, ColumnOrder, Scalar
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, RelationType


class ArrangementForm(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One arrangement of a collection: its rows are key ++ value.

    Attributes:
        key: expressions over the collection's columns.
        permutation: for column i its position in key ++ value.
        thinning: the columns kept as value.
    """

    key: tuple[Scalar, ...]
    permutation: tuple[int, ...]
    thinning: tuple[int, ...]


class AvailableCollections(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The forms in which a node's output is available: as a plain collection (`raw`) and arranged. `types` are its
    columns' types, where known.
    """

    raw: bool
    arranged: tuple[ArrangementForm, ...] = ()
    types: tuple[ColumnType, ...] | None = None


# --- how a Get reads -----------------------------------------------------------------------------


class PassArrangements(msgspec.Struct, frozen=True, tag="pass", cache_hash=True, gc=False):
    """Pass on everything that is available, unchanged."""


class GetArrangement(msgspec.Struct, frozen=True, tag="arrangement", cache_hash=True, gc=False):
    """Read the arrangement by `key` (only the rows of the key `row`, if given) and apply an MFP over its key ++ value
    rows.
    """

    key: tuple[Scalar, ...]
    row: Row | None
    mfp: MapFilterProject


class GetCollection(msgspec.Struct, frozen=True, tag="collection", cache_hash=True, gc=False):
    """Read the plain collection and apply an MFP."""

    mfp: MapFilterProject


GetPlan = PassArrangements | GetArrangement | GetCollection

# --- joins ---------------------------------------------------------------------------------------


class LinearStage(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One lookup: the stream, keyed by `stream_key`, is joined with input `lookup_relation`, arranged by `lookup_key`,
    on equal keys.

    Keys are compared null-safe: NULL equals NULL. An empty key is a cross join.

    Attributes:
        lookup_relation: position of the input among the join's inputs.
        stream_key: expressions over the stream's row; as many as `lookup_key`, of the same types.
        stream_thinning: positions of the stream's row that are kept besides the key.
        lookup_key: expressions over the input's raw row: the key of one of the input's forms
            (`mzsql.lir.forms.form_by_key`).
        closure: an MFP over the row after the lookup, which is: values of stream_key ++ stream columns
            `stream_thinning` ++ the input's columns `thinning` of that form. Its output is the next stage's stream
            row (after the last stage: the row that `final_closure` reads).
    """

    lookup_relation: int
    stream_key: tuple[Scalar, ...]
    stream_thinning: tuple[int, ...]
    lookup_key: tuple[Scalar, ...]
    closure: MapFilterProject


class LinearJoin(msgspec.Struct, frozen=True, tag="linear", cache_hash=True, gc=False):
    """A differential join: the source streams through the stages, in order.

    Attributes:
        source_relation: position of the input that is streamed.
        source_key: the key of the arrangement that the source is read from (None: read its raw rows).
        stages: at least one, unless the join has a single input. The first one streams the source's *raw* rows,
            whatever `source_key` is; if its `stream_key` equals `source_key`, the source's arrangement serves as the
            arranged stream. Therefore nothing is applied to the source's rows before the first lookup: the result
            would have to be arranged anew.
        final_closure: over the output of the last stage's closure; None: identity. Its output is the join's raw row.
    """

    source_relation: int
    source_key: tuple[Scalar, ...] | None
    stages: tuple[LinearStage, ...]
    final_closure: MapFilterProject | None


class DeltaPath(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The path that the updates of one input take through the other inputs.

    Fields as in `LinearJoin`, except that `source_key` is always an arrangement of the source, and the first stage
    streams the output of `initial_closure` over that arrangement's key ++ value row. Without an initial closure it
    is key ++ value (then the arrangement's permutation is the identity).
    """

    source_relation: int
    source_key: tuple[Scalar, ...]
    initial_closure: MapFilterProject | None
    stages: tuple[LinearStage, ...]
    final_closure: MapFilterProject | None


class DeltaJoin(msgspec.Struct, frozen=True, tag="delta", cache_hash=True, gc=False):
    """A delta join: one path for each input, in input order. Every path outputs the same columns: the join's raw row."""

    paths: tuple[DeltaPath, ...]


JoinPlan = LinearJoin | DeltaJoin

# --- reductions ----------------------------------------------------------------------------------


class KeyValPlan(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """How a Reduce computes its key and its values: two MFPs over the row that it reads; value i is the argument of
    aggregate i.

    Neither filters. `key_plan` outputs the group key's columns, `val_plan` one column for each aggregate (none for a
    DISTINCT).
    """

    key_plan: MapFilterProject
    val_plan: MapFilterProject


class ReduceDistinct(msgspec.Struct, frozen=True, tag="distinct", cache_hash=True, gc=False):
    """The distinct keys."""


class IndexedAggregate(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """An aggregate, its index among those of its kind, and its index among all aggregates (and so in `val_plan`'s
    output).

    `expr.expr` is the argument over the Reduce's input in raw order, as EXPLAIN prints it; what runs is `val_plan`.
    """

    kind_index: int
    output_index: int
    expr: AggregateExpr


class ReduceAccumulable(msgspec.Struct, frozen=True, tag="accumulable", cache_hash=True, gc=False):
    """Aggregates kept as additive partial sums; DISTINCT ones are listed apart."""

    full: tuple[AggregateExpr, ...]
    simple: tuple[IndexedAggregate, ...]
    distinct: tuple[IndexedAggregate, ...]


class ReduceHierarchical(
    msgspec.Struct, frozen=True, tag="hierarchical", cache_hash=True, gc=False
):
    """MIN and MAX. `buckets` are in descending order (None: monotonic).

    `skips[i]`: how many of all aggregates are between the previous hierarchical one (or the start) and the i-th one.
    `must_consolidate`: the input may contain retractions that cancel within the single time that is computed.
    """

    aggregates: tuple[AggregateExpr, ...]
    skips: tuple[int, ...]
    buckets: tuple[int, ...] | None
    must_consolidate: bool = False


class ReduceBasic(msgspec.Struct, frozen=True, tag="basic", cache_hash=True, gc=False):
    """Aggregates that read all rows of a group again, as pairs (index in the output, aggregate)."""

    aggregates: tuple[tuple[int, AggregateExpr], ...]
    fused_unnest_list: bool = False


class ReduceCollation(msgspec.Struct, frozen=True, tag="collation", cache_hash=True, gc=False):
    """Aggregates of several kinds; `aggregate_types` gives the kind of each output: ``a``, ``h`` or ``b``."""

    aggregate_types: tuple[str, ...]
    accumulable: ReduceAccumulable | None
    hierarchical: ReduceHierarchical | None
    basic: ReduceBasic | None


ReducePlan = ReduceDistinct | ReduceAccumulable | ReduceHierarchical | ReduceBasic | ReduceCollation


class TopKPlan(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """`kind` is ``Basic``, ``MonotonicTopK`` or ``MonotonicTop1``; `arity` is the input's number of columns.

    `group_key` and `order_key` are over the input's raw row, which is also the output's. Rows that tie in
    `order_key` are ordered by all columns, ascending, NULLs last. `limit` (a bigint; None: no limit) may read the
    group key's columns.
    """

    kind: str
    group_key: tuple[int, ...]
    order_key: tuple[ColumnOrder, ...]
    limit: Scalar | None
    offset: int
    arity: int
    must_consolidate: bool = False
    buckets: tuple[int, ...] = ()


# --- nodes ---------------------------------------------------------------------------------------


class Constant(msgspec.Struct, frozen=True, tag="Constant", cache_hash=True, gc=False):
    """Rows with multiplicities, which exist from the beginning of time; or an error."""

    lir_id: int
    rows: tuple[tuple[Row, int], ...]
    error: str | None
    columns: tuple[ColumnType, ...]


class Get(msgspec.Struct, frozen=True, tag="Get", cache_hash=True, gc=False):
    """Read an imported or built object (GlobalId) or a Let binding (int)."""

    lir_id: int
    id: GlobalId | int
    keys: AvailableCollections
    plan: GetPlan
    columns: tuple[ColumnType, ...]  # the columns that `id` has, before the plan's MFP


class Let(msgspec.Struct, frozen=True, tag="Let", cache_hash=True, gc=False):
    """Bind `value` to local id `id` in `body`."""

    lir_id: int
    id: int
    value: Plan
    body: Plan


class LetRec(msgspec.Struct, frozen=True, tag="LetRec", cache_hash=True, gc=False):
    """Recursive bindings."""

    lir_id: int
    ids: tuple[int, ...]
    values: tuple[Plan, ...]
    limits: tuple[tuple[int, bool] | None, ...]
    body: Plan


class Mfp(msgspec.Struct, frozen=True, tag="Mfp", cache_hash=True, gc=False):
    """Map, filter, project. `input_key` names the input's arrangement that is read (None: raw rows); `mfp` is over the
    rows read.
    """

    lir_id: int
    input: Plan
    mfp: MapFilterProject
    input_key: tuple[Scalar, ...] | None = None
    input_row: Row | None = None


class FlatMap(msgspec.Struct, frozen=True, tag="FlatMap", cache_hash=True, gc=False):
    """Apply a table function to each row, then an MFP over the input's raw row ++ the function's columns.

    With `input_key`, `exprs` are over that arrangement's key ++ value row; `mfp_after` is over raw columns in any
    case.
    """

    lir_id: int
    input: Plan
    input_key: tuple[Scalar, ...] | None
    exprs: tuple[Scalar, ...]
    func: str
    output: RelationType
    mfp_after: MapFilterProject


class Join(msgspec.Struct, frozen=True, tag="Join", cache_hash=True, gc=False):
    """A join of two or more inputs."""

    lir_id: int
    inputs: tuple[Plan, ...]
    plan: JoinPlan


class Reduce(msgspec.Struct, frozen=True, tag="Reduce", cache_hash=True, gc=False):
    """Group and aggregate; the output row is key ++ aggregates, then `mfp_after`.

    `key_val` is over the raw row of the input or, with `input_key`, over the key ++ value row of that arrangement. A
    group exists while it has rows. Without key columns an empty input gives no row; the plan adds SQL's default row
    by a Union.
    """

    lir_id: int
    input: Plan
    input_key: tuple[Scalar, ...] | None
    key_val: KeyValPlan
    plan: ReducePlan
    mfp_after: MapFilterProject


class TopK(msgspec.Struct, frozen=True, tag="TopK", cache_hash=True, gc=False):
    """The first rows of each group."""

    lir_id: int
    input: Plan
    plan: TopKPlan


class Negate(msgspec.Struct, frozen=True, tag="Negate", cache_hash=True, gc=False):
    """Negate multiplicities."""

    lir_id: int
    input: Plan


class Threshold(msgspec.Struct, frozen=True, tag="Threshold", cache_hash=True, gc=False):
    """Rows with positive multiplicity, over the arrangement `ensure_arrangement` (by all columns)."""

    lir_id: int
    input: Plan
    ensure_arrangement: ArrangementForm


class Union(msgspec.Struct, frozen=True, tag="Union", cache_hash=True, gc=False):
    """Add the inputs' multiplicities."""

    lir_id: int
    inputs: tuple[Plan, ...]
    consolidate_output: bool = False


class ArrangeBy(msgspec.Struct, frozen=True, tag="ArrangeBy", cache_hash=True, gc=False):
    """Provide the input in the given forms, which include those it already has.

    `input_key` names the input's arrangement from which new forms are made (None: from its raw rows). If `forms` is
    raw only, that arrangement is read back as a plain collection.
    """

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
    """The direct children, in the order of their ids."""
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
    """The same node with other children, as many as `children` returns."""
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
    """Every node, parents before children. Iterative, because a plan may be deeper than Python's stack."""
    stack: list[Plan] = [plan]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


# --- dataflows -----------------------------------------------------------------------------------


class SourceImport(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A collection read from its shard. `mfp` is pushed into the read: Gets of `id` see rows after it; None is the
    identity.

    (An explicit identity means that several readers need different parts and share nothing: EXPLAIN then omits the
    source.)
    """

    id: GlobalId
    typ: RelationType
    mfp: MapFilterProject | None = None
    monotonic: bool = False


IndexImport = dataflow.IndexImport
IndexExport = dataflow.IndexExport
MaterializedViewExport = dataflow.MaterializedViewExport
PeekExport = dataflow.PeekExport
Export = dataflow.Export


class BuildDesc(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """An object that the dataflow builds. The last one is exported; earlier ones are views that several Gets share."""

    id: GlobalId
    plan: Plan
    typ: RelationType


class DataflowDescription(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A whole dataflow: its imports, the objects that it builds (dependencies first), and its export."""

    source_imports: tuple[SourceImport, ...]
    index_imports: tuple[IndexImport, ...]
    objects: tuple[BuildDesc, ...]
    export: Export

    @property
    def root(self) -> BuildDesc:
        """The object that is exported."""
        return self.objects[-1]
