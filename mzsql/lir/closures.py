"""Spreads the row-wise part of a join over its stages: every map, filter and remaining equality runs as early as its
columns exist.

Promise: the closures of a `ClosureBuilder`, run one after another over the stages' rows, compute the join's MFP and
check the equivalences that the lookups do not check. Columns are carried only while something later reads them, in
the order of the join's columns; where nothing is left to compute, in the order of the output. A builder serves one
path: it is made, asked for its closures in order, and discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mzsql.expr import scalar as sc
from mzsql.expr.mfp import MapFilterProject
from mzsql.lir import rows
from mzsql.repr.types import BOOLEAN, ColumnType


def null_safe_equal(left: sc.Scalar, right: sc.Scalar, columns: Sequence[ColumnType]) -> sc.Scalar:
    """Equality of values in which NULL equals NULL, as in join equivalences; `columns` are the types that the
    expressions read.
    """
    kind = sc.scalar_type(left, columns).kind
    equal = sc.Call(f"eq_{kind}", (left, right), BOOLEAN)
    both_null = sc.Call(
        "and",
        (sc.Call("is_null", (left,), BOOLEAN), sc.Call("is_null", (right,), BOOLEAN)),
        BOOLEAN,
    )
    return sc.Call("or", (equal, both_null), BOOLEAN)


class ClosureBuilder:
    """The part of a join's row-wise work that is still to do, and the positions of columns in the stream's row."""

    def __init__(
        self,
        source_columns: Sequence[int],
        equivalences: Sequence[Sequence[sc.Scalar]],
        mfp: MapFilterProject,
        columns: Sequence[ColumnType],
    ) -> None:
        """Start with the source's columns, in order; `columns` are the types of all columns of the join."""
        self._place = {column: position for position, column in enumerate(source_columns)}
        self._classes = [list(cls) for cls in equivalences]
        self._mfp = mfp
        self._types = list(columns)

    @property
    def width(self) -> int:
        """The number of columns of the stream's row."""
        return len(self._place)

    def bound_key(self, exprs: Sequence[sc.Scalar]) -> tuple[sc.Scalar, ...]:
        """For each expression over the join's columns an equivalent one over the stream's row."""
        return tuple(self._bound(expr) for expr in exprs)

    def _bound(self, expr: sc.Scalar) -> sc.Scalar:
        candidates = next((cls for cls in self._classes if expr in cls), [expr])
        for candidate in candidates:
            if all(column in self._place for column in sc.support(candidate)):
                return sc.permute(candidate, self._place)
        msg = f"no expression equal to {expr} is bound yet"
        raise AssertionError(msg)

    def start(self, permutation: Mapping[int, int], width: int) -> MapFilterProject:
        """The closure over the source's rows of `width` columns, with column i at ``permutation[i]``."""
        return self._close(permutation, width)

    def add(
        self,
        new_columns: Sequence[int],
        matched: Sequence[sc.Scalar],
        permutation: Mapping[int, int],
        width: int,
    ) -> MapFilterProject:
        """The closure over the rows after a lookup.

        Args:
            new_columns: the join's columns that the lookup adds.
            matched: its key, over the join's columns; the lookup has checked that these are equal.
            permutation: for position i of the stream's row ++ the looked-up input's raw row, the position in the row
                after the lookup.
            width: the width of that row.
        """
        for column in new_columns:
            self._place[column] = len(self._place)
        done = set(matched)
        self._classes = [[e for e in cls if e not in done] for cls in self._classes]
        self._classes = [cls for cls in self._classes if len(cls) > 1]
        return self._close(permutation, width)

    def finish(self) -> MapFilterProject:
        """The rest of the work, over the last stage's output; for a join without lookups also the equalities within its
        only input.
        """
        checks = self._ready_equivalences()
        assert not self._classes, "an equivalence was never bound"
        left = rows.permuted(self._mfp, self._place, self.width)
        predicates = (*(rows.placed(check) for check in checks), *left.predicates)
        return msgspec.structs.replace(left, predicates=predicates)

    def _close(self, permutation: Mapping[int, int], width: int) -> MapFilterProject:
        self._place = {column: permutation[at] for column, at in self._place.items()}
        checks = self._ready_equivalences()
        before, self._mfp = rows.split(self._mfp, self._place, width)
        for offset in range(len(before.expressions)):
            column = self._mfp.input_arity - len(before.expressions) + offset
            self._place[column] = width + offset
        wanted = set(rows.demand(self._mfp))
        for cls in self._classes:
            wanted.update(*(sc.support(expr) for expr in cls))
        kept = sorted(column for column in self._place if column in wanted)
        last = self._mfp.projection
        if not self._mfp.expressions and not self._mfp.predicates and sorted(last) == kept:
            # Nothing is left but their order, which they get here.
            kept = list(last)
        projection = tuple(self._place[column] for column in kept)
        self._place = {column: position for position, column in enumerate(kept)}
        predicates = (*(rows.placed(check) for check in checks), *before.predicates)
        return msgspec.structs.replace(before, predicates=predicates, projection=projection)

    def _ready_equivalences(self) -> list[sc.Scalar]:
        """Equalities among expressions that are bound by now; one bound expression of each class is kept."""
        checks: list[sc.Scalar] = []
        classes: list[list[sc.Scalar]] = []
        for cls in self._classes:
            bound = [e for e in cls if all(column in self._place for column in sc.support(e))]
            for other in bound[1:]:
                check = null_safe_equal(bound[0], other, self._types)
                checks.append(sc.permute(check, self._place))
            rest = [e for e in cls if e not in bound[1:]]
            if len(rest) > 1:
                classes.append(rest)
        self._classes = classes
        return checks
