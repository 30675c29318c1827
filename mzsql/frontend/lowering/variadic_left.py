"""A stack of left joins lowered as one inner join.

Promise: the rows are those of the joins one after another. Each right side is extended to have a row for every key that
is looked up in it: besides its own rows, which a column marks, a row without values for each missing key, and one for
NULL. Then every row on the left has a match, the joins are inner joins whose keys may be NULL, and the columns of a row
without values become NULL afterwards. This needs right sides that read nothing of the left and are joined on columns
that equal columns of a single earlier input; a stack with any other join is lowered join by join. As in Materialize's
variadic outer join lowering.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from mzsql.expr import relation as mir
from mzsql.expr import scalar as ms
from mzsql.frontend import hir
from mzsql.frontend.lowering.lowering import Lowering
from mzsql.frontend.lowering.rel import Rel, constant_row
from mzsql.frontend.lowering.scope import ColumnMap
from mzsql.repr.types import BOOLEAN, ColumnType, RelationType, SqlType

#: Equality functions of types whose equal values are identical.
_EQUAL = frozenset(
    f"eq_{kind}"
    for kind in (
        *("boolean", "smallint", "integer", "bigint", "uint2", "uint4", "uint8", "oid", "text"),
        *("bytea", "date", "time", "timestamp", "timestamptz", "uuid", "mz_timestamp"),
    )
)
_TRUE = ms.Literal(True, BOOLEAN)


@dataclass(frozen=True)
class _Keys:
    """The equalities of a join.

    Attributes:
        source: the input that the left columns belong to.
        left: positions among the columns to its left.
        right: positions among the right side's own columns.
        start: the position of the source's first column.
    """

    source: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    start: int


def variadic_left(
    lowering: Lowering, join: hir.Join, outer: Rel, cols: ColumnMap, depth: int
) -> Rel | None:
    """The stack of left joins that ends with this one, lowered together; None where it must be lowered join by join."""
    if outer.arity:
        return None
    left, stack = _stack(join)
    equalities = [_equalities(one.on) for one in stack]
    if len(stack) < 2 or not all(equalities):
        return None
    if any(lowering.reads.of(one.right).columns for one in stack):
        return None
    arities = [hir.arity(left), *(hir.arity(one.right) for one in stack)]
    starts = [sum(arities[:at]) for at in range(len(arities))]
    keys: list[_Keys] = []
    for pairs, start in zip(equalities, starts[1:], strict=True):
        found = _keys(pairs, start, starts)
        if found is None:
            return None
        keys.append(found)
    inside = cols.enter_scope(0)
    inputs = [lowering.relation(left, outer, cols, depth)]
    # The added column is NULL in the rows that `_lacking` adds, which are told by that.
    inputs += [lowering.relation(one.right, outer, inside, depth + 1).map([_TRUE]) for one in stack]
    return _joined(lowering, inputs, keys)


def _stack(join: hir.Join) -> tuple[hir.Relation, list[hir.Join]]:
    """The relation at the bottom of a stack of left joins, and the joins from the innermost on."""
    stack: list[hir.Join] = []
    rel: hir.Relation = join
    while isinstance(rel, hir.Join) and rel.kind == "left":
        stack.append(rel)
        rel = rel.left
    return rel, stack[::-1]


def _equalities(on: hir.Scalar) -> frozenset[tuple[int, int]]:
    """The column equalities that a condition consists of, the lesser column first; empty where it has anything else."""
    pairs: set[tuple[int, int]] = set()
    pending = [on]
    while pending:
        match pending.pop():
            case ms.Literal(value=True):
                pass
            case hir.Call(func="and", args=args):
                pending.extend(args)
            case hir.Call(func=func, args=(hir.Column(level=0) as a, hir.Column(level=0) as b)) if (
                func in _EQUAL
            ):
                pairs.add((min(a.index, b.index), max(a.index, b.index)))
            case _:
                return frozenset()
    return frozenset(pairs)


def _keys(pairs: frozenset[tuple[int, int]], start: int, starts: Sequence[int]) -> _Keys | None:
    """Equalities as keys; None unless all are between columns of one earlier input and distinct columns of the right
    side.
    """
    ordered = sorted(pairs)
    if any(a >= start or b < start for a, b in ordered):
        return None
    if len({b for _, b in ordered}) < len(ordered):
        return None
    sources = {bisect_right(starts, a) - 1 for a, _ in ordered}
    if len(sources) > 1:
        return None
    (source,) = sources
    return _Keys(
        source, tuple(a for a, _ in ordered), tuple(b - start for _, b in ordered), starts[source]
    )


def _joined(lowering: Lowering, inputs: Sequence[Rel], keys: Sequence[_Keys]) -> Rel:
    """The inner join of the first input with the others, each extended by the missing keys."""
    bindings = [(lowering.fresh(), part) for part in inputs]
    gets = [Rel(mir.Get(local, part.typ), part.typ) for local, part in bindings]
    body = gets[0]
    for one, get in zip(keys, gets[1:], strict=True):
        source = gets[one.source]
        own = [column - one.start for column in one.left]
        # A NULL equals nothing, so a row with one has no match; the NULL of the rows to be added must meet these
        # alone.
        known = get.filter([_is_not_null(key) for key in one.right])
        whole = Rel.union([known, _lacking(source, own, known, one.right, get.typ)])
        typ = RelationType(tuple(ColumnType(c.type, True) for c in get.typ.columns))
        local = lowering.fresh()
        bindings.append((local, whole))
        body = _with(body, Rel(mir.Get(local, typ), typ), one)
    done = body.mir
    for local, part in reversed(bindings):
        done = mir.Let(local, part.mir, done)
    return Rel(done, body.typ)


def _lacking(
    left: Rel, own: Sequence[int], known: Rel, keys: Sequence[int], typ: RelationType
) -> Rel:
    """A row without values for NULL and for each key of the left that the right side lacks."""
    nulls = tuple(ColumnType(c.type, True) for c in left.typ.columns)
    asked = Rel.union([left, constant_row((None,) * left.arity, nulls)]).project(own).distinct()
    rest = Rel.union([known.project(keys).negate(), asked]).threshold()
    width = rest.arity
    places = list(range(width, width + len(typ.columns)))
    for at, key in enumerate(keys):
        places[key] = at
    return rest.map([ms.Literal(None, c.type) for c in typ.columns]).project(places)


def _with(body: Rel, right: Rel, keys: _Keys) -> Rel:
    """The join with an extended right side; its columns are NULL where the matching row was added."""
    width, more = body.arity, right.arity - 1
    product = body.join(right, [])
    columns = product.typ.columns
    joined = product.filter(
        [
            _both(ms.Column(a), ms.Column(width + b), columns[a].type)
            for a, b in zip(keys.left, keys.right, strict=True)
        ]
    )
    lacking = ms.Call("is_null", (ms.Column(width + more),), BOOLEAN)
    shown = [
        ms.If(lacking, ms.Literal(None, columns[width + at].type), ms.Column(width + at))
        for at in range(more)
    ]
    return joined.map(shown).project([*range(width), *range(joined.arity, joined.arity + more)])


def _is_not_null(column: int) -> ms.Scalar:
    null = ms.Call("is_null", (ms.Column(column),), BOOLEAN)
    return ms.Call("not", (null,), BOOLEAN)


def _both(a: ms.Scalar, b: ms.Scalar, typ: SqlType) -> ms.Scalar:
    """IS NOT DISTINCT FROM of two scalars."""
    equal = ms.Call(f"eq_{typ.kind}", (a, b), BOOLEAN)
    nulls = [ms.Call("is_null", (one,), BOOLEAN) for one in (a, b)]
    return ms.Call("or", (equal, ms.Call("and", tuple(nulls), BOOLEAN)), BOOLEAN)
