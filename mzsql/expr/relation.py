"""Relation expressions: MIR, the language of the optimizer.

Promise: immutable trees, equal by value, serializable. Columns are positions. A relation is a multiset in which rows
may have negative multiplicities in between (`Negate`). The frontend has lowered outer joins, subqueries, EXCEPT and
INTERSECT to these nodes. A node's type is derived (`mzsql.expr.typing`); only leaves store theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from mzsql.expr.scalar import AggregateExpr, ColumnOrder, Literal, Scalar
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BIGINT, RelationType


class Constant(msgspec.Struct, frozen=True, tag="constant", cache_hash=True, gc=False):
    """Rows with multiplicities, or an error, with ``rows`` empty."""

    rows: tuple[tuple[Row, int], ...]
    typ: RelationType
    error: str | None = None


class AccessPersist(msgspec.Struct, frozen=True, tag="persist", cache_hash=True, gc=False):
    """Read the collection from its shard."""


class AccessIndex(msgspec.Struct, frozen=True, tag="index", cache_hash=True, gc=False):
    """Read it through indexes: pairs of an index's id and its usage (``full scan``, ``lookup``, …)."""

    uses: tuple[tuple[GlobalId, str], ...]


class AccessLocal(msgspec.Struct, frozen=True, tag="local", cache_hash=True, gc=False):
    """Not decided yet, or an object built in the same dataflow."""


class Get(msgspec.Struct, frozen=True, tag="get", cache_hash=True, gc=False):
    """A catalog object (``id`` is a GlobalId) or a `Let` binding (``id`` is an int, printed ``l0``)."""

    id: GlobalId | int
    typ: RelationType
    access: AccessPersist | AccessIndex | AccessLocal = AccessLocal()


class Let(msgspec.Struct, frozen=True, tag="let", cache_hash=True, gc=False):
    """Bind ``value`` to local id ``id`` within ``body``."""

    id: int
    value: Relation
    body: Relation


class LetRec(msgspec.Struct, frozen=True, tag="letrec", cache_hash=True, gc=False):
    """Mutually recursive bindings, from empty to a fixpoint.

    A limit is a number of iterations, and whether reaching it returns the state instead of failing.
    """

    ids: tuple[int, ...]
    values: tuple[Relation, ...]
    limits: tuple[tuple[int, bool] | None, ...]
    body: Relation


class Project(msgspec.Struct, frozen=True, tag="project", cache_hash=True, gc=False):
    """Output the columns in ``outputs``, in that order; repeats are allowed."""

    input: Relation
    outputs: tuple[int, ...]


class Map(msgspec.Struct, frozen=True, tag="map", cache_hash=True, gc=False):
    """Append columns; an expression may read those appended before it."""

    input: Relation
    scalars: tuple[Scalar, ...]


WRAP = "wrap"
"""The function of a FlatMap in plans that are only shown: it makes rows of its arguments, as for VALUES."""


class FlatMap(msgspec.Struct, frozen=True, tag="flatmap", cache_hash=True, gc=False):
    """Append the columns of each row that the table function with key ``func`` yields for ``exprs``."""

    input: Relation
    func: str
    exprs: tuple[Scalar, ...]
    output: RelationType


class Filter(msgspec.Struct, frozen=True, tag="filter", cache_hash=True, gc=False):
    """Keep the rows for which every predicate is true."""

    input: Relation
    predicates: tuple[Scalar, ...]


class JoinInputOrder(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A step of a join order: look up ``input`` by ``key``, expressions over the columns of that input."""

    input: int
    key: tuple[Scalar, ...]
    characteristics: str = ""


class Unplanned(msgspec.Struct, frozen=True, tag="unimplemented", cache_hash=True, gc=False):
    """No implementation chosen yet."""


class Differential(msgspec.Struct, frozen=True, tag="differential", cache_hash=True, gc=False):
    """A linear join: begin with ``start``, arranged by ``start_key`` (None: streamed), then look up in ``order``."""

    start: int
    start_key: tuple[Scalar, ...] | None
    start_characteristics: str
    order: tuple[JoinInputOrder, ...]


class DeltaQuery(msgspec.Struct, frozen=True, tag="delta", cache_hash=True, gc=False):
    """A delta join: for each input, in input order, the lookups made for its changes."""

    orders: tuple[tuple[JoinInputOrder, ...], ...]


class IndexedFilter(msgspec.Struct, frozen=True, tag="indexed_filter", cache_hash=True, gc=False):
    """A lookup of literal keys in an index: ``coll`` joined by ``key`` with the constant ``rows`` (input 1)."""

    coll: GlobalId
    index: GlobalId
    key: tuple[Scalar, ...]
    rows: tuple[Row, ...]


Implementation = Unplanned | Differential | DeltaQuery | IndexedFilter


class Join(msgspec.Struct, frozen=True, tag="join", cache_hash=True, gc=False):
    """The concatenation of the inputs' rows for which the expressions of each equivalence class, over the columns of
    all inputs, are equal.

    Equality is Materialize's equality of values: NULL equals NULL. Decorrelation relies on it, when it joins a
    subquery's result back on the outer columns, NULLs included. For an equivalence from SQL's ``a = b``, predicate
    pushdown also adds an ``IS NOT NULL`` filter on one member of the class; it is the filter that EXPLAIN shows on
    sources.
    """

    inputs: tuple[Relation, ...]
    equivalences: tuple[tuple[Scalar, ...], ...]
    implementation: Implementation = Unplanned()


class Reduce(msgspec.Struct, frozen=True, tag="reduce", cache_hash=True, gc=False):
    """Group by expressions; output the key, then the aggregates. Without aggregates: the distinct keys."""

    input: Relation
    group_key: tuple[Scalar, ...]
    aggregates: tuple[AggregateExpr, ...]
    monotonic: bool = False
    expected_group_size: int | None = None


class TopK(msgspec.Struct, frozen=True, tag="topk", cache_hash=True, gc=False):
    """The rows ``offset`` … ``offset + limit`` of each group by ``order_key``; ties are broken by the whole row."""

    input: Relation
    group_key: tuple[int, ...]
    order_key: tuple[ColumnOrder, ...]
    limit: Scalar | None
    offset: int = 0
    monotonic: bool = False
    expected_group_size: int | None = None


class Negate(msgspec.Struct, frozen=True, tag="negate", cache_hash=True, gc=False):
    """Negate all multiplicities."""

    input: Relation


class Threshold(msgspec.Struct, frozen=True, tag="threshold", cache_hash=True, gc=False):
    """Keep the rows with positive multiplicities."""

    input: Relation


class Union(msgspec.Struct, frozen=True, tag="union", cache_hash=True, gc=False):
    """Add the multiplicities of the inputs: at least one, all with the same types."""

    inputs: tuple[Relation, ...]


class ArrangeBy(msgspec.Struct, frozen=True, tag="arrange_by", cache_hash=True, gc=False):
    """The input, arranged by each of ``keys``."""

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
    """The last steps of a query: order, limit, offset, projection."""

    order_by: tuple[ColumnOrder, ...]
    limit: int | None
    offset: int
    project: tuple[int, ...]

    def is_trivial(self, arity: int) -> bool:
        """Whether nothing remains to be done for a result with ``arity`` columns."""
        return (
            not self.order_by
            and self.limit is None
            and self.offset == 0
            and self.project == tuple(range(arity))
        )

    def folded(self, relation: Relation) -> Relation:
        """A relation with these steps as part of it: a TopK, then a projection. Without a limit the order is dropped, as rows have none."""
        if self.limit is not None or self.offset:
            limit = None if self.limit is None else Literal(self.limit, BIGINT)
            relation = TopK(relation, (), self.order_by, limit, self.offset)
        return Project(relation, self.project)


#: Node kinds with one input, with none, and with any number.
ONE_INPUT = frozenset({Project, Map, FlatMap, Filter, Reduce, TopK, Negate, Threshold, ArrangeBy})
_NONE = frozenset({Constant, Get})
_MANY = frozenset({Join, Union})


def inputs(rel: Relation) -> tuple[Relation, ...]:
    """The direct children in order of evaluation; for a `Let`, value then body."""
    # Called for every node all the time: dispatch by class is faster than patterns tried in turn.
    kind = type(rel)
    if kind in ONE_INPUT:
        return (rel.input,)  # type: ignore[union-attr]  # the class says it
    if kind in _NONE:
        return ()
    if kind in _MANY:
        return rel.inputs  # type: ignore[union-attr]  # as above
    if type(rel) is Let:
        return (rel.value, rel.body)
    assert isinstance(rel, LetRec)
    return (*rel.values, rel.body)


def with_inputs(rel: Relation, new: Sequence[Relation]) -> Relation:
    """The same node over other children, as many as `inputs` returns."""
    kind = type(rel)  # as in `inputs`
    if kind in ONE_INPUT:
        (only,) = new
        return msgspec.structs.replace(rel, input=only)
    if kind in _MANY:
        return msgspec.structs.replace(rel, inputs=tuple(new))
    match rel:
        case Let(id=lid):
            value, body = new
            return Let(lid, value, body)
        case LetRec(ids=ids, limits=limits):
            return LetRec(ids, tuple(new[:-1]), limits, new[-1])
        case _:
            assert not new
            return rel


def walk(rel: Relation) -> Iterator[Relation]:
    """Every node, parents before children, without recursion."""
    stack: list[Relation] = [rel]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(inputs(node)))


def reads_local(rel: Relation, local: int) -> bool:
    """Whether a relation reads what is bound to a local id."""
    return any(isinstance(node, Get) and node.id == local for node in walk(rel))


#: Node kinds with as many columns as their input.
_AS_WIDE = frozenset({Filter, TopK, Negate, Threshold, ArrangeBy})


def arity(rel: Relation) -> int:
    """The number of columns."""
    # Called for every node all the time, as `inputs` is.
    extra = 0
    while True:
        kind = type(rel)
        if kind in _AS_WIDE:
            rel = rel.input  # type: ignore[union-attr]  # the class says it
        elif kind is Project:
            return extra + len(rel.outputs)  # type: ignore[union-attr]  # as above
        elif kind is Get or kind is Constant:
            return extra + len(rel.typ.columns)  # type: ignore[union-attr]  # as above
        elif kind is Map:
            extra += len(rel.scalars)  # type: ignore[union-attr]  # as above
            rel = rel.input  # type: ignore[union-attr]  # as above
        elif type(rel) is Join:
            return extra + sum(map(arity, rel.inputs))
        elif type(rel) is Reduce:
            return extra + len(rel.group_key) + len(rel.aggregates)
        elif type(rel) is Union:
            rel = rel.inputs[0]
        elif type(rel) is FlatMap:
            extra += len(rel.output.columns)
            rel = rel.input
        else:
            assert isinstance(rel, Let | LetRec)
            rel = rel.body
