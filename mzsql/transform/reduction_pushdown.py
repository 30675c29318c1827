"""ReductionPushdown: a Reduce over a join whose sides are only connected by the group key becomes a join of Reduces.

Promise: a Reduce moves only if all its aggregates are DISTINCT, so that multiplicities do not matter, and each part
of its key and each aggregate reads one side only. MIN and MAX do not depend on multiplicities either, but stay:
joined with the wanted keys first, they read only these.
Source: Materialize's transform `ReductionPushdown`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.memo import memo
from mzsql.expr.parts import kinds_of
from mzsql.transform.fusion import merge_classes
from mzsql.transform.visit import project, rewrite

_WHERE = kinds_of(mir.Reduce)


def reduction_pushdown(rel: mir.Relation) -> mir.Relation:
    """Push Reduces into joins everywhere, bottom-up."""
    return rewrite(rel, _push, memo("reduction_pushdown"), where=_WHERE)


def _push(rel: mir.Relation) -> mir.Relation:
    if not isinstance(rel, mir.Reduce):
        return rel
    inner = rel.input
    if isinstance(inner, mir.Project):
        columns = [sc.Column(c) for c in inner.outputs]
        key = tuple(sc.substitute(e, columns) for e in rel.group_key)
        aggregates = tuple(
            msgspec.structs.replace(a, expr=sc.substitute(a.expr, columns)) for a in rel.aggregates
        )
        inner = inner.input
    else:
        key, aggregates = rel.group_key, rel.aggregates
    if not isinstance(inner, mir.Join) or not isinstance(inner.implementation, mir.Unplanned):
        return rel
    # The join repeats rows of one side for each row of another: only an aggregate that counts a value once is the same over its side
    # alone.
    if not all(aggregate.distinct for aggregate in aggregates):
        return rel
    pushed = _Sides(inner, key).join_of_reduces(key, aggregates)
    return rel if pushed is None else pushed


class _Sides:
    """The inputs of a join, grouped where a class connects them that is not implied by the group key."""

    def __init__(self, join: mir.Join, key: Sequence[sc.Scalar]) -> None:
        self._join = join
        self._starts = list(
            itertools.accumulate((mir.arity(part) for part in join.inputs), initial=0)
        )
        owner = [i for i, part in enumerate(join.inputs) for _ in range(mir.arity(part))]
        self._outer = [cls for cls in join.equivalences if any(e in key for e in cls)]
        self._inner = [cls for cls in join.equivalences if not any(e in key for e in cls)]
        side = list(range(len(join.inputs)))
        for cls in self._inner:
            met = {side[owner[c]] for e in cls for c in sc.support(e)}
            side = [min(met) if s in met else s for s in side]
        self._of_column = [side[i] for i in owner]
        self._members = {s: [i for i, of in enumerate(side) if of == s] for s in sorted(set(side))}

    def _side(self, expr: sc.Scalar) -> int | None:
        """The one side that an expression reads; None if it reads several."""
        found = {self._of_column[c] for c in sc.support(expr)}
        return found.pop() if len(found) == 1 else None

    def join_of_reduces(
        self, key: Sequence[sc.Scalar], aggregates: Sequence[sc.AggregateExpr]
    ) -> mir.Relation | None:
        """The join of a Reduce of each side; None if something reads several sides."""
        if len(self._members) < 2:
            return None
        wanted: dict[int, dict[sc.Scalar, None]] = {side: {} for side in self._members}
        for expr in (*key, *(e for cls in self._outer for e in cls)):
            side = self._side(expr)
            if side is None:
                return None
            wanted[side][expr] = None
        of_aggregate = [self._side(aggregate.expr) for aggregate in aggregates]
        if None in of_aggregate:
            return None
        place: dict[sc.Scalar, int] = {}
        found: dict[int, int] = {}
        reduces: list[mir.Relation] = []
        start = 0
        for side, exprs in wanted.items():
            own = [n for n, of in enumerate(of_aggregate) if of == side]
            reduces.append(self._reduce(side, list(exprs), [aggregates[n] for n in own]))
            place.update((expr, start + n) for n, expr in enumerate(exprs))
            found.update((n, start + len(exprs) + i) for i, n in enumerate(own))
            start += len(exprs) + len(own)
        classes = merge_classes([tuple(sc.Column(place[e]) for e in cls) for cls in self._outer])
        outputs = [place[e] for e in key] + [found[n] for n in range(len(aggregates))]
        return project(mir.Join(tuple(reduces), classes), outputs)

    def _reduce(
        self, side: int, key: Sequence[sc.Scalar], aggregates: Sequence[sc.AggregateExpr]
    ) -> mir.Relation:
        """One side grouped by what is wanted of it."""
        shift: dict[int, int] = {}
        inputs: list[mir.Relation] = []
        for i in self._members[side]:
            for column in range(self._starts[i], self._starts[i + 1]):
                shift[column] = len(shift)
            inputs.append(self._join.inputs[i])
        classes = [
            tuple(sc.permute(e, shift) for e in cls)
            for cls in self._inner
            if all(c in shift for e in cls for c in sc.support(e))
        ]
        below = inputs[0]
        if len(inputs) > 1 or classes:
            below = mir.Join(tuple(inputs), merge_classes(classes))
        reduce = mir.Reduce(
            below,
            tuple(sc.permute(e, shift) for e in key),
            tuple(msgspec.structs.replace(a, expr=sc.permute(a.expr, shift)) for a in aggregates),
        )
        return _push(reduce)
