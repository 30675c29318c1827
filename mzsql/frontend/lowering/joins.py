"""Lowering joins: correlated or not, inner or outer.

Promise: an outer join becomes the union of the inner join and the rows of the preserved side without a match, padded
with NULLs. Where the condition is equalities between the sides, and filters of one side, unmatched rows are found by
their keys; otherwise by all their columns. Without `Lowering.new_outer_joins` the equalities must be between columns,
and nothing else may be in the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mzsql.expr import scalar as ms
from mzsql.expr.typing import nullable
from mzsql.frontend import hir
from mzsql.frontend.lowering.lowering import Lowering
from mzsql.frontend.lowering.rel import Rel
from mzsql.frontend.lowering.scope import ColumnMap
from mzsql.frontend.lowering.variadic_left import variadic_left
from mzsql.repr.datum import Datum
from mzsql.repr.types import BOOLEAN, SqlType


def lower_join(lowering: Lowering, join: hir.Join, outer: Rel, cols: ColumnMap, depth: int) -> Rel:
    """A join applied to ``outer``: outer's columns, the left side's, the right side's."""
    if lowering.variadic_left_joins and join.kind == "left":
        together = variadic_left(lowering, join, outer, cols, depth)
        if together is not None:
            return together
    left = lowering.relation(join.left, outer, cols, depth)
    # The right side sees the left's columns at level 1.
    if any(level == 1 for level, _ in lowering.reads.of(join.right).columns):
        return lowering.let_in(left, lambda get: _lateral(lowering, join, get, cols, depth))

    def with_left(get_left: Rel) -> Rel:
        right = lowering.relation(join.right, outer, cols.enter_scope(0), depth + 1)
        return lowering.let_in(
            right, lambda get_right: _plain(lowering, join, get_left, get_right, cols, depth)
        )

    return lowering.let_in(left, with_left)


def _lateral(lowering: Lowering, join: hir.Join, left: Rel, cols: ColumnMap, depth: int) -> Rel:
    """The right side evaluated for each row of the left side."""

    def apply(get: Rel, inside: ColumnMap) -> Rel:
        return lowering.relation(join.right, get, inside, depth + 1)

    joined = lowering.branch(left, cols, join.right, depth, apply, distinct_outer=False)
    joined = _on(lowering, joined, join.on, cols, depth)
    if join.kind == "inner":
        return joined
    assert join.kind == "left", "the planner refuses other lateral joins"
    nulls: list[tuple[Datum, SqlType]] = [(None, c.type) for c in joined.typ.columns[left.arity :]]
    return lowering.lookup(left, joined, nulls)


def _on(lowering: Lowering, rel: Rel, on: hir.Scalar, cols: ColumnMap, depth: int) -> Rel:
    if on == ms.Literal(True, BOOLEAN):
        return rel
    arity = rel.arity
    rel, found = lowering.subqueries([on], rel, cols, depth)
    condition, rel = lowering.scalar(on, rel, cols, depth, found)
    rel = rel.filter([condition])
    return rel if rel.arity == arity else rel.project(range(arity))


def _plain(
    lowering: Lowering, join: hir.Join, left: Rel, right: Rel, cols: ColumnMap, depth: int
) -> Rel:
    """A join of two sides that do not read each other, both over the same outer columns."""
    shared = cols.arity
    pairs = [(c, left.arity + c) for c in range(shared)]
    both = left.join(right, pairs)
    both = both.project([*range(left.arity), *range(left.arity + shared, both.arity)])
    joined = _on(lowering, both, join.on, cols, depth)
    if join.kind == "inner":
        return joined
    sides = _Sides(left, right, shared)
    found = _equijoin(join, sides, cols, lowering, depth, both)
    if found is not None:
        return lowering.let_in(joined, lambda get: _by_keys(join.kind, get, sides, *found))
    return lowering.let_in(joined, lambda get: _by_rows(lowering, join.kind, get, sides))


@dataclass(frozen=True)
class _Sides:
    """The sides of a join; both begin with the same `shared` outer columns."""

    left: Rel
    right: Rel
    shared: int

    @property
    def right_start(self) -> int:
        """The position of the right side's own columns in the join's row."""
        return self.left.arity

    @property
    def right_columns(self) -> list[int]:
        """The positions of the right side's row in the join's: outer columns and its own."""
        own = self.right.arity - self.shared
        return [*range(self.shared), *range(self.right_start, self.right_start + own)]


def _by_rows(lowering: Lowering, kind: str, joined: Rel, sides: _Sides) -> Rel:
    """An outer join whose unmatched rows are found by comparing whole rows."""
    result = joined
    shared = sides.shared
    left_own = sides.left.arity - shared
    right_own = sides.right.arity - shared
    if kind in ("left", "full"):
        nulls: list[tuple[Datum, SqlType]] = [
            (None, c.type) for c in sides.right.typ.columns[shared:]
        ]
        missing = lowering.anti_lookup(sides.left, joined, nulls)
        result = Rel.union([missing, result])
    if kind in ("right", "full"):
        nulls = [(None, c.type) for c in sides.left.typ.columns[shared:]]
        matched = joined.project(sides.right_columns)
        missing = lowering.anti_lookup(sides.right, matched, nulls)
        back = [
            *range(shared),
            *range(shared + right_own, shared + right_own + left_own),
            *range(shared, shared + right_own),
        ]
        result = Rel.union([missing.project(back), result])
    return result


# --- equijoins ---------------------------------------------------------------------------------------


@dataclass
class _Side:
    """What a join's condition says about one side, over that side's row: its keys, and the filters that a matching row
    must pass.
    """

    keys: list[ms.Scalar] = field(default_factory=list)
    filters: list[ms.Scalar] = field(default_factory=list)

    def filter(self, predicate: ms.Scalar) -> None:
        """Add a filter, once."""
        if predicate not in self.filters:
            self.filters.append(predicate)


def _conjuncts(expr: ms.Scalar) -> list[ms.Scalar]:
    if isinstance(expr, ms.Call) and expr.func == "and":
        return [c for arg in expr.args for c in _conjuncts(arg)]
    return [expr]


def _equijoin(
    join: hir.Join, sides: _Sides, cols: ColumnMap, lowering: Lowering, depth: int, both: Rel
) -> tuple[_Side, _Side] | None:
    """Both sides of a join whose condition is equalities between them and filters of one side (one of neither side
    counts for both); else None.
    """
    if any(isinstance(n, hir.Exists | hir.Select) for n in hir.walk_scalar(join.on)):
        return None
    condition, _ = lowering.scalar(join.on, both, cols, depth, {})
    left, right = _Side(), _Side()
    to_right = {c: i for i, c in enumerate(sides.right_columns)}
    for conjunct in _conjuncts(condition):
        pair = _equality(conjunct, sides)
        if not lowering.new_outer_joins and not _is_of_columns(pair):
            return None
        if pair is not None:
            keys = pair[0], ms.permute(pair[1], to_right)
            for side, key, rel in zip((left, right), keys, (sides.left, sides.right), strict=True):
                side.keys.append(key)
                # A row with a NULL key has no match.
                if lowering.new_outer_joins and nullable(key, rel.typ.columns):
                    side.filter(ms.Call("not", (ms.Call("is_null", (key,), BOOLEAN),), BOOLEAN))
            continue
        reads = _side(conjunct, sides)
        if reads == "both":
            return None
        if reads != "right":
            left.filter(conjunct)
        if reads != "left":
            right.filter(ms.permute(conjunct, to_right))
    return (left, right) if left.keys else None


def _is_of_columns(pair: tuple[ms.Scalar, ms.Scalar] | None) -> bool:
    return pair is not None and all(isinstance(side, ms.Column) for side in pair)


def _side(expr: ms.Scalar, sides: _Sides) -> str:
    """Which side an expression reads: left, right, both or neither."""
    own = {c for c in ms.support(expr) if c >= sides.shared}
    left = any(c < sides.right_start for c in own)
    right = any(c >= sides.right_start for c in own)
    if left and right:
        return "both"
    return "left" if left else "right" if right else "neither"


def _equality(expr: ms.Scalar, sides: _Sides) -> tuple[ms.Scalar, ms.Scalar] | None:
    """The two sides of an equality between the left's columns and the right's; None where it is no such equality."""
    if not isinstance(expr, ms.Call) or not expr.func.startswith("eq_"):
        return None
    a, b = expr.args
    reads = (_side(a, sides), _side(b, sides))
    if reads == ("left", "right"):
        return a, b
    if reads == ("right", "left"):
        return b, a
    return None


def _by_keys(kind: str, joined: Rel, sides: _Sides, left: _Side, right: _Side) -> Rel:
    """An outer join whose unmatched rows are found by their keys, computed from the left's expressions."""
    shared = [ms.Column(c) for c in range(sides.shared)]
    matched = _columns(joined, [*shared, *left.keys]).distinct()
    result = joined
    if kind in ("left", "full"):
        missing = _unmatched(sides.left, [*shared, *left.keys], matched, left.filters)
        nulls = [ms.Literal(None, c.type) for c in sides.right.typ.columns[sides.shared :]]
        result = Rel.union([missing.map(nulls), result])
    if kind in ("right", "full"):
        if _types(left.keys, sides.left) != _types(right.keys, sides.right):
            # Equal values of different scale or length are not identical, so the right side's own values must be kept.
            there = dict(enumerate(sides.right_columns))
            own = [ms.permute(key, there) for key in right.keys]
            matched = _columns(joined, [*shared, *own]).distinct()
        missing = _unmatched(sides.right, [*shared, *right.keys], matched, right.filters)
        nulls = [ms.Literal(None, c.type) for c in sides.left.typ.columns[sides.shared :]]
        padded = missing.map(nulls)
        back = [
            *range(sides.shared),
            *range(sides.right.arity, sides.right.arity + len(nulls)),
            *range(sides.shared, sides.right.arity),
        ]
        result = Rel.union([padded.project(back), result])
    return result


def _types(exprs: Sequence[ms.Scalar], side: Rel) -> list[SqlType]:
    return [ms.scalar_type(expr, side.typ.columns) for expr in exprs]


def _columns(rel: Rel, exprs: Sequence[ms.Scalar]) -> Rel:
    """A relation of only these expressions' values."""
    outputs: list[int] = []
    new: list[ms.Scalar] = []
    for expr in exprs:
        if isinstance(expr, ms.Column):
            outputs.append(expr.index)
        else:
            outputs.append(rel.arity + len(new))
            new.append(expr)
    return rel.map(new).project(outputs)


def _unmatched(
    side: Rel, keys: Sequence[ms.Scalar], matched: Rel, filtered: Sequence[ms.Scalar]
) -> Rel:
    """The rows of a side that fail its filters, or whose key is not among the matched ones."""
    arity = side.arity
    candidates = side.filter(filtered)
    positions: list[int] = []
    new: list[ms.Scalar] = []
    for key in keys:
        if isinstance(key, ms.Column):
            positions.append(key.index)
        else:
            positions.append(arity + len(new))
            new.append(key)
    grown = candidates.map(new)
    pairs = [(p, grown.arity + i) for i, p in enumerate(positions)]
    found = grown.join(matched, pairs).project(range(arity))
    # All rows less those with a match: so equal rows are left as often as there are any.
    return Rel.union([found.negate(), side])
