"""HIR: a query after names and types are resolved, and before its subqueries are decorrelated.

Promise: the operators follow Materialize's `HirRelationExpr` and `HirScalarExpr`. Relations nest inside scalars
(`Exists`, `Select`), and a column may belong to an enclosing query: `Column.level` counts scopes outward, 0 being the
relation that the expression is over. A scope opens at every `Exists` and `Select`, and at the right side of every
`Join`, where the left side's columns have level 1; that is what LATERAL means. ``x op ANY (query)`` is a `Select` of a
`Reduce` by `any`, ALL by `all`, as in Materialize. Nodes are immutable and compare by value, so equal subqueries are
recognized by equality.
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
    """Column number `index` of the relation that is `level` scopes outward (0: the expression's own input)."""

    index: int
    level: int = 0


class Call(msgspec.Struct, frozen=True, tag="call", cache_hash=True):
    """A call of the function with key `func`; the arguments have the types of its overload."""

    func: str
    args: tuple[Scalar, ...]
    typ: SqlType


class CastLiteral(Literal, frozen=True, tag="cast_literal", cache_hash=True, gc=False):
    """A number that a cast makes of a literal, known already; a plan that is shown as it was written shows the cast."""

    shown: Call


class If(msgspec.Struct, frozen=True, tag="if", cache_hash=True):
    """``CASE WHEN condition THEN then ELSE otherwise END``; only the chosen branch is evaluated."""

    condition: Scalar
    then: Scalar
    otherwise: Scalar


class Exists(msgspec.Struct, frozen=True, tag="exists", cache_hash=True):
    """Whether the subquery returns a row."""

    relation: Relation


class Select(msgspec.Struct, frozen=True, tag="select", cache_hash=True):
    """The value of a scalar subquery's single column: NULL for no rows, an error for several."""

    relation: Relation


class Ordering(msgspec.Struct, frozen=True, cache_hash=True):
    """An expression to order by, with its direction."""

    expr: Scalar
    desc: bool = False
    nulls_last: bool = True


class FrameBound(msgspec.Struct, frozen=True, cache_hash=True):
    """A bound of a window frame.

    Attributes:
        kind: ``unbounded preceding``, ``preceding``, ``current row``, ``following`` or ``unbounded following``.
        offset: for ``preceding`` and ``following``: a number of rows or groups, or a distance as a quoted text.
    """

    kind: str
    offset: int | str | None = None


class WindowFrame(msgspec.Struct, frozen=True, cache_hash=True):
    """A window frame; `units` is ``rows``, ``range`` or ``groups``, `exclude` is empty or ``current row``, ``group`` or
    ``ties``.
    """

    units: str
    start: FrameBound
    end: FrameBound
    exclude: str = ""


class Windowing(msgspec.Struct, frozen=True, tag="windowing", cache_hash=True):
    """A window function, with a result for each row of the input.

    Attributes:
        func: ``row_number``, ``rank``, ``lag``, …, or the key of an aggregate.
        kind: ``scalar`` (row_number, rank, …), ``value`` (lag, first_value, …), ``aggregate``, or ``fused``: several
            of the latter two kinds over one window, each with one of `args`, whose results make a record.
        args: the arguments.
        partition_by, order_by: from the OVER clause.
        typ: the type of the result.
        frame: the frame; None: the default one.
        ignore_nulls: whether IGNORE NULLS was given.
        distinct: whether an aggregate has DISTINCT.
        fused: of ``fused`` functions, their names and their kind.
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
    fused: tuple[tuple[str, str], ...] = ()


Scalar = (
    Column | Literal | LiteralError | Unmaterializable | Call | If | Exists | Select | Windowing
)


class Aggregate(msgspec.Struct, frozen=True, tag="aggregate", cache_hash=True):
    """An aggregate over a group; ``count(*)`` counts the literal ``true``. `order_by` is only set where the result
    depends on it.
    """

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
    """A CTE called `name` with the local id `id`, visible in `body`."""

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
    """WITH MUTUALLY RECURSIVE; `limit` is the number of iterations, and whether to return the result then instead of
    failing.
    """

    bindings: tuple[RecursiveBinding, ...]
    limit: tuple[int, bool] | None
    body: Relation


class Project(msgspec.Struct, frozen=True, tag="project", cache_hash=True):
    """Only the columns in `outputs`, in that order."""

    input: Relation
    outputs: tuple[int, ...]


class Map(msgspec.Struct, frozen=True, tag="map", cache_hash=True):
    """Append columns; an expression may read those appended before it."""

    input: Relation
    scalars: tuple[Scalar, ...]


class CallTable(msgspec.Struct, frozen=True, tag="call_table", cache_hash=True):
    """The rows of a table function with key `func`; its arguments `exprs` may only read columns of enclosing scopes."""

    func: str
    exprs: tuple[Scalar, ...]
    output: RelationType


class Filter(msgspec.Struct, frozen=True, tag="filter", cache_hash=True):
    """The rows for which every predicate is true."""

    input: Relation
    predicates: tuple[Scalar, ...]


class Join(msgspec.Struct, frozen=True, tag="join", cache_hash=True):
    """A join; `kind` is ``inner``, ``left``, ``right`` or ``full``. `on` reads left ++ right; `right` is one scope
    deeper than `left`.
    """

    left: Relation
    right: Relation
    on: Scalar
    kind: str


class Reduce(msgspec.Struct, frozen=True, tag="reduce", cache_hash=True):
    """Group by columns and aggregate. Without a group key there is exactly one output row, even for no input."""

    input: Relation
    group_key: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    expected_group_size: int | None = None


class Distinct(msgspec.Struct, frozen=True, tag="distinct", cache_hash=True):
    """Each distinct row once."""

    input: Relation


class TopK(msgspec.Struct, frozen=True, tag="topk", cache_hash=True):
    """In each group, the rows after the first `offset`, at most `limit` of them."""

    input: Relation
    group_key: tuple[int, ...]
    order_key: tuple[ColumnOrder, ...]
    limit: Scalar | None
    offset: int = 0
    expected_group_size: int | None = None


class Negate(msgspec.Struct, frozen=True, tag="negate", cache_hash=True):
    """Every row with its multiplicity negated."""

    input: Relation


class Threshold(msgspec.Struct, frozen=True, tag="threshold", cache_hash=True):
    """Only the rows with a positive multiplicity."""

    input: Relation


class Union(msgspec.Struct, frozen=True, tag="union", cache_hash=True):
    """The multiset sum of inputs with equal column types."""

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
        relation: its rows before `finishing`; no column refers to an outer scope.
        desc: names and types of the result's columns, after `finishing.project`.
        finishing: ORDER BY, LIMIT, OFFSET and projection, applied at the very end. Trivial in a view's query, whose
            LIMIT is a `TopK` and whose ORDER BY is dropped.
        input_types: the types of `relation`'s columns.
    """

    relation: Relation
    desc: RelationDesc
    finishing: RowSetFinishing
    input_types: tuple[ColumnType, ...]


# --- structure -----------------------------------------------------------------------------------


def relation_inputs(rel: Relation) -> tuple[Relation, ...]:
    """The direct input relations, without those inside scalars."""
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


def arity(rel: Relation) -> int:
    """How many columns a relation has."""
    match rel:
        case Constant(typ=typ) | Get(typ=typ) | CallTable(output=typ):
            return len(typ.columns)
        case Project(outputs=outputs):
            return len(outputs)
        case Map(input=below, scalars=scalars):
            return arity(below) + len(scalars)
        case Join(left=left, right=right):
            return arity(left) + arity(right)
        case Reduce(group_key=key, aggregates=aggregates):
            return len(key) + len(aggregates)
        case Union(inputs=inputs):
            return arity(inputs[0])
        case Let(body=body) | LetRec(body=body):
            return arity(body)
        case _:
            return arity(rel.input)


def relation_scalars(rel: Relation) -> tuple[Scalar, ...]:
    """The scalars directly in a relation, without those of its inputs."""
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
    """The direct subexpressions; a subquery's relation is not among them."""
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
    """Every node of a scalar, parents first; subqueries are yielded but not entered."""
    stack: list[Scalar] = [scalar]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(scalar_children(node)))


def walk(rel: Relation) -> Iterator[Relation]:
    """Every relation, parents first, including those inside scalars."""
    stack: list[Relation] = [rel]
    while stack:
        node = stack.pop()
        yield node
        nested: list[Relation] = []
        for scalar in relation_scalars(node):
            nested.extend(n.relation for n in walk_scalar(scalar) if isinstance(n, Exists | Select))
        stack.extend(reversed((*relation_inputs(node), *nested)))


def depends_on(rel: Relation) -> frozenset[GlobalId]:
    """The catalog objects that a relation reads."""
    return frozenset(
        node.id for node in walk(rel) if isinstance(node, Get) and not isinstance(node.id, int)
    )
