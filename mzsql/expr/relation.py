"""Relation expressions: MIR, the language of the optimizer.

Promise: immutable trees, equal by value, serializable; columns are positions; every relation is a multiset in which a row may
have a negative multiplicity in between (`Negate`). Outer joins, subqueries, EXCEPT and INTERSECT have been lowered to these by
the frontend. The type of a node is derived (`mzsql.expr.typing`), never stored but at the leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from mzsql.expr.scalar import AggregateExpr, ColumnOrder, Scalar
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationType


class Constant(msgspec.Struct, frozen=True, tag="constant", cache_hash=True, gc=False):
    """Rows with multiplicities, or an error (then `rows` is empty)."""

    rows: tuple[tuple[Row, int], ...]
    typ: RelationType
    error: str | None = None


class AccessPersist(msgspec.Struct, frozen=True, tag="persist", cache_hash=True, gc=False):
    """Read the collection from its shard."""


class AccessIndex(msgspec.Struct, frozen=True, tag="index", cache_hash=True, gc=False):
    """Read it through indexes: pairs of the index's id and how it is used (``full scan``, ``lookup``, …)."""

    uses: tuple[tuple[GlobalId, str], ...]


class AccessLocal(msgspec.Struct, frozen=True, tag="local", cache_hash=True, gc=False):
    """Unknown yet, or an object built in the same dataflow."""


class Get(msgspec.Struct, frozen=True, tag="get", cache_hash=True, gc=False):
    """A catalog object (`id` is a GlobalId) or a `Let` binding (`id` is an int, printed ``l0``)."""

    id: GlobalId | int
    typ: RelationType
    access: AccessPersist | AccessIndex | AccessLocal = AccessLocal()


class Let(msgspec.Struct, frozen=True, tag="let", cache_hash=True, gc=False):
    """Bind `value` to local id `id` within `body`."""

    id: int
    value: Relation
    body: Relation


class LetRec(msgspec.Struct, frozen=True, tag="letrec", cache_hash=True, gc=False):
    """Mutually recursive bindings, from empty to a fixpoint; a limit is (iterations, whether to return instead of failing)."""

    ids: tuple[int, ...]
    values: tuple[Relation, ...]
    limits: tuple[tuple[int, bool] | None, ...]
    body: Relation


class Project(msgspec.Struct, frozen=True, tag="project", cache_hash=True, gc=False):
    """Put out the columns `outputs` names, in that order, repeats allowed."""

    input: Relation
    outputs: tuple[int, ...]


class Map(msgspec.Struct, frozen=True, tag="map", cache_hash=True, gc=False):
    """Append columns; an expression may read those appended before it."""

    input: Relation
    scalars: tuple[Scalar, ...]


WRAP = "wrap"
"""The function of a FlatMap in plans that are shown alone: it makes rows of its arguments, as VALUES is understood."""


class FlatMap(msgspec.Struct, frozen=True, tag="flatmap", cache_hash=True, gc=False):
    """Append the columns of each row that table function `func` (a key of the table) yields for `exprs`."""

    input: Relation
    func: str
    exprs: tuple[Scalar, ...]
    output: RelationType


class Filter(msgspec.Struct, frozen=True, tag="filter", cache_hash=True, gc=False):
    """Keep the rows for which every predicate is true."""

    input: Relation
    predicates: tuple[Scalar, ...]


class JoinInputOrder(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One step of a join order: look up `input` by `key` (expressions over that input's own columns)."""

    input: int
    key: tuple[Scalar, ...]
    characteristics: str = ""


class Unplanned(msgspec.Struct, frozen=True, tag="unimplemented", cache_hash=True, gc=False):
    """No implementation chosen yet."""


class Differential(msgspec.Struct, frozen=True, tag="differential", cache_hash=True, gc=False):
    """A linear join: start from `start` (arranged by `start_key`, None: streamed), then look up in `order`."""

    start: int
    start_key: tuple[Scalar, ...] | None
    start_characteristics: str
    order: tuple[JoinInputOrder, ...]


class DeltaQuery(msgspec.Struct, frozen=True, tag="delta", cache_hash=True, gc=False):
    """A delta join: for each input, in input order, the lookups that its changes make."""

    orders: tuple[tuple[JoinInputOrder, ...], ...]


class IndexedFilter(msgspec.Struct, frozen=True, tag="indexed_filter", cache_hash=True, gc=False):
    """A lookup of literal keys in an index: `coll` joined with the constant `rows` (input 1) by `key`."""

    coll: GlobalId
    index: GlobalId
    key: tuple[Scalar, ...]
    rows: tuple[Row, ...]


Implementation = Unplanned | Differential | DeltaQuery | IndexedFilter


class Join(msgspec.Struct, frozen=True, tag="join", cache_hash=True, gc=False):
    """The inputs' rows side by side where the expressions of each class (over all inputs' columns) are pairwise equal.

    Equality here is that of values, as in Materialize: NULL equals NULL. Decorrelation relies on it (a subquery's result is joined
    back on the outer columns, NULLs included). Where an equivalence comes from SQL's ``a = b``, whoever makes it (predicate
    push-down) also puts an ``IS NOT NULL`` filter on one member of the class; that is the filter EXPLAIN shows on sources.
    """

    inputs: tuple[Relation, ...]
    equivalences: tuple[tuple[Scalar, ...], ...]
    implementation: Implementation = Unplanned()


class Reduce(msgspec.Struct, frozen=True, tag="reduce", cache_hash=True, gc=False):
    """Group by expressions; put out the key's columns, then the aggregates. No aggregates: the distinct keys."""

    input: Relation
    group_key: tuple[Scalar, ...]
    aggregates: tuple[AggregateExpr, ...]
    monotonic: bool = False
    expected_group_size: int | None = None


class TopK(msgspec.Struct, frozen=True, tag="topk", cache_hash=True, gc=False):
    """Of each group the rows `offset` … `offset + limit` by `order_key`, ties broken by the whole row."""

    input: Relation
    group_key: tuple[int, ...]
    order_key: tuple[ColumnOrder, ...]
    limit: Scalar | None
    offset: int = 0
    monotonic: bool = False
    expected_group_size: int | None = None


class Negate(msgspec.Struct, frozen=True, tag="negate", cache_hash=True, gc=False):
    """Every multiplicity with the other sign."""

    input: Relation


class Threshold(msgspec.Struct, frozen=True, tag="threshold", cache_hash=True, gc=False):
    """Only the rows with a positive multiplicity."""

    input: Relation


class Union(msgspec.Struct, frozen=True, tag="union", cache_hash=True, gc=False):
    """The sum of the inputs' multiplicities; at least one input, all of the same types."""

    inputs: tuple[Relation, ...]


class ArrangeBy(msgspec.Struct, frozen=True, tag="arrange_by", cache_hash=True, gc=False):
    """The input, arranged by each of `keys`."""

    input: Relation
    keys: tuple[tuple[Scalar, ...], ...]


Relation = (
    Constant
    | Get
    | Let
    | LetRec
    | Project
    | Map
    | FlatMap
    | Filter
    | Join
    | Reduce
    | TopK
    | Negate
    | Threshold
    | Union
    | ArrangeBy
)


class RowSetFinishing(msgspec.Struct, frozen=True, tag="finishing", cache_hash=True, gc=False):
    """What is done to a query's result at the very end: order, limit, offset, projection."""

    order_by: tuple[ColumnOrder, ...]
    limit: int | None
    offset: int
    project: tuple[int, ...]

    def is_trivial(self, arity: int) -> bool:
        """Whether nothing is left to do for a result of `arity` columns."""
        return (
            not self.order_by
            and self.limit is None
            and self.offset == 0
            and self.project == tuple(range(arity))
        )


#: Relations with one input, with none, and with any number.
_ONE = frozenset({Project, Map, FlatMap, Filter, Reduce, TopK, Negate, Threshold, ArrangeBy})
_NONE = frozenset({Constant, Get})
_MANY = frozenset({Join, Union})


def inputs(rel: Relation) -> tuple[Relation, ...]:
    """The direct children, in evaluation order (for a `Let`: value, then body)."""
    # Asked of every node all the time: by the class itself, not by patterns one after another.
    kind = type(rel)
    if kind in _ONE:
        return (rel.input,)  # type: ignore[union-attr]  # the class says it
    if kind in _NONE:
        return ()
    if kind in _MANY:
        return rel.inputs  # type: ignore[union-attr]  # as above
    if isinstance(rel, Let):
        return (rel.value, rel.body)
    assert isinstance(rel, LetRec)
    return (*rel.values, rel.body)


def with_inputs(rel: Relation, new: Sequence[Relation]) -> Relation:
    """The same node over other children (as many as `inputs` gives)."""
    match rel:
        case Constant() | Get():
            assert not new
            return rel
        case Let(id=lid):
            value, body = new
            return Let(lid, value, body)
        case LetRec(ids=ids, limits=limits):
            return LetRec(ids, tuple(new[:-1]), limits, new[-1])
        case Join() | Union():
            return msgspec.structs.replace(rel, inputs=tuple(new))
        case _:
            (only,) = new
            return msgspec.structs.replace(rel, input=only)


def walk(rel: Relation) -> Iterator[Relation]:
    """Every node, parents before children, without recursion."""
    stack: list[Relation] = [rel]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(inputs(node)))


#: Relations as wide as their input.
_AS_WIDE = frozenset({Filter, TopK, Negate, Threshold, ArrangeBy})


def arity(rel: Relation) -> int:
    """The number of columns."""
    extra = 0
    while True:
        if type(rel) in _AS_WIDE:
            rel = rel.input  # type: ignore[union-attr]  # the class says it
        elif isinstance(rel, Project):
            return extra + len(rel.outputs)
        elif isinstance(rel, Get):
            return extra + len(rel.typ.columns)
        elif isinstance(rel, Map):
            extra += len(rel.scalars)
            rel = rel.input
        elif isinstance(rel, Join):
            return extra + sum(map(arity, rel.inputs))
        elif isinstance(rel, Reduce):
            return extra + len(rel.group_key) + len(rel.aggregates)
        elif isinstance(rel, Union):
            rel = rel.inputs[0]
        elif isinstance(rel, Constant):
            return extra + len(rel.typ.columns)
        elif isinstance(rel, FlatMap):
            extra += len(rel.output.columns)
            rel = rel.input
        else:
            assert isinstance(rel, Let | LetRec)
            rel = rel.body
