"""HIR: a query after names and types are resolved, before its subqueries are decorrelated.

Promise: the operators follow Materialize's `HirRelationExpr` and `HirScalarExpr`. Relations nest inside scalars (`Exists`, `Select`) and
columns may belong to an enclosing query: `Column.level` counts the scopes outward, 0 being the relation the expression stands
over. A scope opens at every `Exists` and `Select`, and at the right side of every `Join` (whose left columns are level 1 there, which is
what LATERAL means). ``x op ANY (query)`` is a `Select` of a `Reduce` by `any`, ALL by `all`, as in Materialize. Everything is immutable and
compares by value, so equal subqueries are found by equality.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import ColumnOrder, Literal, LiteralError, Unmaterializable
from mzsql.repr.datum import Row
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, RelationDesc, RelationType, SqlType

# --- scalars -------------------------------------------------------------------------------------


class Column(msgspec.Struct, frozen=True, tag="column", cache_hash=True):
    """Column `index` of the relation `level` scopes outward (0: the expression's own input)."""

    index: int
    level: int = 0


class Call(msgspec.Struct, frozen=True, tag="call", cache_hash=True):
    """The function with key `func` applied to arguments of its overload's types."""

    func: str
    args: tuple[Scalar, ...]
    typ: SqlType


class If(msgspec.Struct, frozen=True, tag="if", cache_hash=True):
    """``case when condition then … else … end``; only the branch taken is evaluated."""

    condition: Scalar
    then: Scalar
    otherwise: Scalar


class Exists(msgspec.Struct, frozen=True, tag="exists", cache_hash=True):
    """Whether the subquery yields a row."""

    relation: Relation


class Select(msgspec.Struct, frozen=True, tag="select", cache_hash=True):
    """The value of a scalar subquery: its single column's single value, NULL of no rows, an error of several."""

    relation: Relation


class Ordering(msgspec.Struct, frozen=True, cache_hash=True):
    """An expression to order by."""

    expr: Scalar
    desc: bool = False
    nulls_last: bool = True


class FrameBound(msgspec.Struct, frozen=True, cache_hash=True):
    """``kind``: unbounded preceding, preceding, current row, following, unbounded following; `offset` for the two with one.

    A count, or a distance as a text in quotes.
    """

    kind: str
    offset: int | str | None = None


class WindowFrame(msgspec.Struct, frozen=True, cache_hash=True):
    """A frame; `units` is rows, range or groups, `exclude` empty or current row, group, ties."""

    units: str
    start: FrameBound
    end: FrameBound
    exclude: str = ""


class Windowing(msgspec.Struct, frozen=True, tag="windowing", cache_hash=True):
    """A window function: its result for each row of the input.

    Attributes:
        func: ``row_number``, ``rank``, ``lag``, …, or the key of an aggregate.
        kind: ``scalar`` (row_number, rank, …), ``value`` (lag, first_value, …) or ``aggregate``.
        args: the arguments.
        partition_by, order_by: of the OVER clause.
        frame: None is the default frame.
        ignore_nulls: whether IGNORE NULLS was said.
        distinct: of an aggregate.
        typ: the type of the result.
    """

    func: str
    kind: str
    args: tuple[Scalar, ...]
    partition_by: tuple[Scalar, ...]
    order_by: tuple[Ordering, ...]
    typ: SqlType
    frame: WindowFrame | None = None
    ignore_nulls: bool = False
    distinct: bool = False


Scalar = (
    Column | Literal | LiteralError | Unmaterializable | Call | If | Exists | Select | Windowing
)


class Aggregate(msgspec.Struct, frozen=True, tag="aggregate", cache_hash=True):
    """An aggregate over a group; ``count(*)`` counts the literal ``true``. `order_by` only where the order matters."""

    func: str
    expr: Scalar
    distinct: bool
    typ: SqlType
    nullable: bool = True
    order_by: tuple[Ordering, ...] = ()


# --- relations -----------------------------------------------------------------------------------


class Constant(msgspec.Struct, frozen=True, tag="constant", cache_hash=True):
    """Literal rows."""

    rows: tuple[Row, ...]
    typ: RelationType


class Get(msgspec.Struct, frozen=True, tag="get", cache_hash=True):
    """A catalog object (GlobalId) or a CTE (int, printed ``l0``)."""

    id: GlobalId | int
    typ: RelationType


class Let(msgspec.Struct, frozen=True, tag="let", cache_hash=True):
    """A CTE named `name`, as local `id`, in scope of `body`."""

    name: str
    id: int
    value: Relation
    body: Relation


class RecursiveBinding(msgspec.Struct, frozen=True, cache_hash=True):
    """One binding of WITH MUTUALLY RECURSIVE."""

    name: str
    id: int
    value: Relation
    typ: RelationType


class LetRec(msgspec.Struct, frozen=True, tag="letrec", cache_hash=True):
    """WITH MUTUALLY RECURSIVE; `limit` is (iterations, whether to return instead of failing)."""

    bindings: tuple[RecursiveBinding, ...]
    limit: tuple[int, bool] | None
    body: Relation


class Project(msgspec.Struct, frozen=True, tag="project", cache_hash=True):
    """The columns `outputs` names."""

    input: Relation
    outputs: tuple[int, ...]


class Map(msgspec.Struct, frozen=True, tag="map", cache_hash=True):
    """Append columns; an expression may read those appended before it."""

    input: Relation
    scalars: tuple[Scalar, ...]


class CallTable(msgspec.Struct, frozen=True, tag="call_table", cache_hash=True):
    """The rows of table function `func` (a key of the table of functions) for `exprs`, which may read outer columns only."""

    func: str
    exprs: tuple[Scalar, ...]
    output: RelationType


class Filter(msgspec.Struct, frozen=True, tag="filter", cache_hash=True):
    """The rows for which every predicate is true."""

    input: Relation
    predicates: tuple[Scalar, ...]


class Join(msgspec.Struct, frozen=True, tag="join", cache_hash=True):
    """A join; `kind` is inner, left, right or full. `on` reads left ++ right; `right` stands one scope deeper than `left`."""

    left: Relation
    right: Relation
    on: Scalar
    kind: str


class Reduce(msgspec.Struct, frozen=True, tag="reduce", cache_hash=True):
    """Group by columns and aggregate. Without a key there is exactly one row."""

    input: Relation
    group_key: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    expected_group_size: int | None = None


class Distinct(msgspec.Struct, frozen=True, tag="distinct", cache_hash=True):
    """Each row once."""

    input: Relation


class TopK(msgspec.Struct, frozen=True, tag="topk", cache_hash=True):
    """Of each group the first rows after `offset`, as many as `limit` says."""

    input: Relation
    group_key: tuple[int, ...]
    order_key: tuple[ColumnOrder, ...]
    limit: Scalar | None
    offset: int = 0
    expected_group_size: int | None = None


class Negate(msgspec.Struct, frozen=True, tag="negate", cache_hash=True):
    """Every multiplicity with the other sign."""

    input: Relation


class Threshold(msgspec.Struct, frozen=True, tag="threshold", cache_hash=True):
    """Only rows with a positive multiplicity."""

    input: Relation


class Union(msgspec.Struct, frozen=True, tag="union", cache_hash=True):
    """The sum of the inputs, all of the same types."""

    inputs: tuple[Relation, ...]


Relation = (
    Constant
    | Get
    | Let
    | LetRec
    | Project
    | Map
    | CallTable
    | Filter
    | Join
    | Reduce
    | Distinct
    | TopK
    | Negate
    | Threshold
    | Union
)


class Query(msgspec.Struct, frozen=True, tag="query", cache_hash=True):
    """A whole query.

    Attributes:
        relation: its rows, before `finishing`; no column reaches outside.
        desc: names and types of the result, after `finishing.project`.
        finishing: order, limit, offset and projection, done at the very end. Trivial in the query of a view, whose LIMIT is a
            `TopK` and whose ORDER BY is dropped.
        input_types: the types of `relation`'s columns.
    """

    relation: Relation
    desc: RelationDesc
    finishing: RowSetFinishing
    input_types: tuple[ColumnType, ...]


# --- structure -----------------------------------------------------------------------------------


def relation_inputs(rel: Relation) -> tuple[Relation, ...]:
    """The direct child relations (not those inside scalars)."""
    match rel:
        case Constant() | Get() | CallTable():
            return ()
        case Let(value=value, body=body):
            return (value, body)
        case LetRec(bindings=bindings, body=body):
            return (*(b.value for b in bindings), body)
        case Join(left=left, right=right):
            return (left, right)
        case Union(inputs=inputs):
            return inputs
        case _:
            return (rel.input,)


def relation_scalars(rel: Relation) -> tuple[Scalar, ...]:
    """The scalars that stand directly in a relation."""
    match rel:
        case Map(scalars=scalars):
            return scalars
        case CallTable(exprs=exprs):
            return exprs
        case Filter(predicates=predicates):
            return predicates
        case Join(on=on):
            return (on,)
        case Reduce(aggregates=aggregates):
            return tuple(
                scalar for a in aggregates for scalar in (a.expr, *(o.expr for o in a.order_by))
            )
        case TopK(limit=limit) if limit is not None:
            return (limit,)
        case _:
            return ()


def scalar_children(scalar: Scalar) -> tuple[Scalar, ...]:
    """The direct subexpressions (a subquery's relation is not among them)."""
    match scalar:
        case Call(args=args):
            return args
        case If(condition=c, then=t, otherwise=o):
            return (c, t, o)
        case Windowing(args=args, partition_by=partition, order_by=order):
            return (*args, *partition, *(o.expr for o in order))
        case _:
            return ()


def walk_scalar(scalar: Scalar) -> Iterator[Scalar]:
    """Every node of a scalar, parents first; subqueries are yielded and not entered."""
    stack: list[Scalar] = [scalar]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(scalar_children(node)))


def walk(rel: Relation) -> Iterator[Relation]:
    """Every relation, parents first, those inside scalars included."""
    stack: list[Relation] = [rel]
    while stack:
        node = stack.pop()
        yield node
        nested: list[Relation] = []
        for scalar in relation_scalars(node):
            nested.extend(n.relation for n in walk_scalar(scalar) if isinstance(n, Exists | Select))
        stack.extend(reversed((*relation_inputs(node), *nested)))


def depends_on(rel: Relation) -> frozenset[GlobalId]:
    """The catalog objects that are read."""
    return frozenset(
        node.id for node in walk(rel) if isinstance(node, Get) and not isinstance(node.id, int)
    )
