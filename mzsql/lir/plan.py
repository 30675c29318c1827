"""LIR: the physical plan of a dataflow (the nodes that EXPLAIN PHYSICAL PLAN prints: docs/explain.md).

Promise: every node carries a `lir_id`, unique within its dataflow, children before parents, from 0. The same ids stand in EXPLAIN, in
the hydration relations, in the names of the CTEs and arrangements that a step is made of, and in Spark's job descriptions. Plans
are immutable, equal by value and serializable: the expression cache holds them as msgpack.

Rows. A collection's *raw* row has its columns in order. An arrangement's row by an `ArrangementForm` is the values of `key`, then the
columns `thinning` of the raw row: key ++ value. An expression or MFP that reads a child *through an arrangement* (`input_key` or `key`
is set: GetArrangement, Mfp, Reduce; a FlatMap's `exprs`; a DeltaPath's `initial_closure`) is written over that key ++ value row, already
permuted: it is evaluated on what is stored. One that reads raw rows is written over raw rows. What a node puts out is `forms_of(plan)` in
`mzsql.lir.forms`:

==============================  ===============================================================================================
node                            puts out
==============================  ===============================================================================================
Constant, Mfp, FlatMap, Join,   raw rows only
TopK, Negate, Union
Get                             PassArrangements: `keys`; else the MFP's result, raw only
Reduce                          only arranged, by its key columns #0 … (raw row: key ++ aggregates, then `mfp_after`, which keeps the
                                key columns where they are); form: key=[#0 …], permutation=id, thinning=(the others)
Threshold                       only arranged, by `ensure_arrangement` (all columns are the key)
ArrangeBy                       `forms`
Let, LetRec                     what the body puts out; a Get of the binding has what the value puts out in `keys`
==============================  ===============================================================================================

A parent that needs raw rows of a child that is only arranged (TopK, Negate, Union, the value of a LetRec) stands over an `ArrangeBy`
with `input_key` set and forms = raw only: the arrangement read back, permuted to raw rows. Whoever wants raw row column i from an
arrangement's row takes position ``form.permutation[i]``.
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
        key: the key's expressions over the collection's columns.
        permutation: for column i its position in key ++ value.
        thinning: the columns kept as value.
    """

    key: tuple[Scalar, ...]
    permutation: tuple[int, ...]
    thinning: tuple[int, ...]


class AvailableCollections(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The forms in which a node's output is available: as a plain collection (`raw`), and arranged."""

    raw: bool
    arranged: tuple[ArrangementForm, ...] = ()
    types: tuple[ColumnType, ...] | None = None


# --- how a Get reads -----------------------------------------------------------------------------


class PassArrangements(msgspec.Struct, frozen=True, tag="pass", cache_hash=True, gc=False):
    """Hand on what is there, unchanged."""


class GetArrangement(msgspec.Struct, frozen=True, tag="arrangement", cache_hash=True, gc=False):
    """Read the arrangement by `key` (where `row` is given: only that key's rows) and apply an MFP over its key ++ value rows."""

    key: tuple[Scalar, ...]
    row: Row | None
    mfp: MapFilterProject


class GetCollection(msgspec.Struct, frozen=True, tag="collection", cache_hash=True, gc=False):
    """Read the plain collection and apply an MFP."""

    mfp: MapFilterProject


GetPlan = PassArrangements | GetArrangement | GetCollection

# --- joins ---------------------------------------------------------------------------------------


class LinearStage(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One lookup: the stream, keyed by `stream_key`, meets input `lookup_relation`, arranged by `lookup_key`, where the keys are equal.

    Equal means null-safe: NULL meets NULL. An empty key is a cross join.

    Attributes:
        lookup_relation: position of the input among the join's inputs.
        stream_key: expressions over the stream's row; as many as `lookup_key`, of the same types.
        stream_thinning: the positions of the stream's row that are kept beside the key.
        lookup_key: expressions over the input's raw row: the key of one of the forms that the input puts out
            (`mzsql.lir.forms.form_by_key`).
        closure: over the row after the lookup, which is

            values of stream_key ++ stream columns `stream_thinning` ++ the input's columns `thinning` of that form;

            its output is the next stage's stream row (after the last stage: the row that `final_closure` reads).
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
        stages: at least one, unless the join has a single input. The first one streams the source's *raw* rows, whatever `source_key` is;
            where its `stream_key` equals `source_key`, the source's arrangement is itself what the stage needs of the stream. So nothing
            is done to the source's rows before: it would have to be arranged anew.
        final_closure: over the row that the last stage's closure puts out; None: identity. Its output is the join's raw row.
    """

    source_relation: int
    source_key: tuple[Scalar, ...] | None
    stages: tuple[LinearStage, ...]
    final_closure: MapFilterProject | None


class DeltaPath(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """What the changes of one input run through.

    Fields as in `LinearJoin`, but `source_key` is always an arrangement of the source, and what the first stage streams is the output of
    `initial_closure` over that arrangement's key ++ value row. Without one it is key ++ value (then the arrangement's permutation is the
    identity).
    """

    source_relation: int
    source_key: tuple[Scalar, ...]
    initial_closure: MapFilterProject | None
    stages: tuple[LinearStage, ...]
    final_closure: MapFilterProject | None


class DeltaJoin(msgspec.Struct, frozen=True, tag="delta", cache_hash=True, gc=False):
    """A delta join: one path an input, in input order. Every path puts out the same columns: the join's raw row."""

    paths: tuple[DeltaPath, ...]


JoinPlan = LinearJoin | DeltaJoin

# --- reductions ----------------------------------------------------------------------------------


class KeyValPlan(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """How a Reduce makes its key and its values: two MFPs over the row that it reads; value i feeds aggregate i.

    Neither filters. `key_plan` puts out the group key's columns, `val_plan` one column an aggregate (none: a distinct).
    """

    key_plan: MapFilterProject
    val_plan: MapFilterProject


class ReduceDistinct(msgspec.Struct, frozen=True, tag="distinct", cache_hash=True, gc=False):
    """The distinct keys."""


class IndexedAggregate(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """An aggregate, its index among those of its kind, and its index among all aggregates (and so in `val_plan`'s output).

    `expr.expr` is the argument over the Reduce's input in raw order, as EXPLAIN prints it; what is run is `val_plan`.
    """

    kind_index: int
    output_index: int
    expr: AggregateExpr


class ReduceAccumulable(msgspec.Struct, frozen=True, tag="accumulable", cache_hash=True, gc=False):
    """Aggregates kept as additive partial sums; those over distinct values apart."""

    full: tuple[AggregateExpr, ...]
    simple: tuple[IndexedAggregate, ...]
    distinct: tuple[IndexedAggregate, ...]


class ReduceHierarchical(
    msgspec.Struct, frozen=True, tag="hierarchical", cache_hash=True, gc=False
):
    """MIN and MAX. `buckets` descending (None: monotonic).

    `skips[i]`: how many of all aggregates stand between the hierarchical one before the i-th (or the start) and it.
    `must_consolidate`: the input may hold retractions that cancel out within the one time that is computed.
    """

    aggregates: tuple[AggregateExpr, ...]
    skips: tuple[int, ...]
    buckets: tuple[int, ...] | None
    must_consolidate: bool = False


class ReduceBasic(msgspec.Struct, frozen=True, tag="basic", cache_hash=True, gc=False):
    """Aggregates that read all rows of a group again. Pairs of (index in the output, aggregate)."""

    aggregates: tuple[tuple[int, AggregateExpr], ...]
    fused_unnest_list: bool = False


class ReduceCollation(msgspec.Struct, frozen=True, tag="collation", cache_hash=True, gc=False):
    """Aggregates of several kinds; `aggregate_types` says for each output which: ``a``, ``h`` or ``b``."""

    aggregate_types: tuple[str, ...]
    accumulable: ReduceAccumulable | None
    hierarchical: ReduceHierarchical | None
    basic: ReduceBasic | None


ReducePlan = ReduceDistinct | ReduceAccumulable | ReduceHierarchical | ReduceBasic | ReduceCollation


class TopKPlan(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """`kind` is ``Basic``, ``MonotonicTopK`` or ``MonotonicTop1``; `arity` is the input's number of columns.

    `group_key` and `order_key` are over the input's raw row, which is also the output's. Rows that tie in `order_key` are ordered by all
    columns, ascending, NULLs last. `limit` (a bigint; None: no limit) may read the group key's columns.
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
    """Rows with multiplicities, valid from the beginning of time, or an error."""

    lir_id: int
    rows: tuple[tuple[Row, int], ...]
    error: str | None
    columns: tuple[ColumnType, ...]


class Get(msgspec.Struct, frozen=True, tag="Get", cache_hash=True, gc=False):
    """An imported or built object (GlobalId) or a Let binding (int)."""

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
    """Map, filter, project; `input_key` names the input's arrangement that is read (None: raw), `mfp` is over the row read."""

    lir_id: int
    input: Plan
    mfp: MapFilterProject
    input_key: tuple[Scalar, ...] | None = None
    input_row: Row | None = None


class FlatMap(msgspec.Struct, frozen=True, tag="FlatMap", cache_hash=True, gc=False):
    """A table function for each row, then an MFP over the input's raw row ++ the function's columns.

    With `input_key` `exprs` are over that arrangement's key ++ value row; `mfp_after` is over raw columns in any case.
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
    """Group and aggregate; the output's row is key ++ aggregates, then `mfp_after`.

    `key_val` is over the raw row of the input or, with `input_key`, over the key ++ value row of that arrangement. A group exists
    while it has rows; without key columns there is no row for an empty input (the plan adds the default by a Union).
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
    """Multiplicities negated."""

    lir_id: int
    input: Plan


class Threshold(msgspec.Struct, frozen=True, tag="Threshold", cache_hash=True, gc=False):
    """Rows with positive multiplicity, over the arrangement `ensure_arrangement` (by all columns)."""

    lir_id: int
    input: Plan
    ensure_arrangement: ArrangementForm


class Union(msgspec.Struct, frozen=True, tag="Union", cache_hash=True, gc=False):
    """The sum of the inputs."""

    lir_id: int
    inputs: tuple[Plan, ...]
    consolidate_output: bool = False


class ArrangeBy(msgspec.Struct, frozen=True, tag="ArrangeBy", cache_hash=True, gc=False):
    """The input in the given forms (those it has already included).

    `input_key` names the input's arrangement that new forms are made from (None: from its raw rows). With `forms` raw only: that
    arrangement read back as a plain collection.
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


class SourceImport(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A collection read from its shard. `mfp` was pushed into the read: Gets of `id` see rows after it; None is the identity.

    (An explicit identity says that several readers want different parts and have nothing in common: EXPLAIN omits the source then.)
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
    """An object that the dataflow builds. The last one is what it exports; those before are views that several Gets share."""

    id: GlobalId
    plan: Plan
    typ: RelationType


class DataflowDescription(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A whole dataflow: what it reads, what it builds (dependencies first), what it exports."""

    source_imports: tuple[SourceImport, ...]
    index_imports: tuple[IndexImport, ...]
    objects: tuple[BuildDesc, ...]
    export: Export

    @property
    def root(self) -> BuildDesc:
        """The object that is exported."""
        return self.objects[-1]
