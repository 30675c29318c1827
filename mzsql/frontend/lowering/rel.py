"""MIR under construction, each relation with its type.

Promise: the builders keep the type in step, so lowering never derives it twice; adjacent projections are fused, as in
Materialize.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as ms
from mzsql.expr.key_values import as_key
from mzsql.expr.relation import Relation as Node
from mzsql.expr.typing import node_type
from mzsql.repr.datum import Row
from mzsql.repr.types import ColumnType, RelationType


class Rel(msgspec.Struct, frozen=True):
    """A MIR relation and its type."""

    mir: Node
    typ: RelationType

    @property
    def arity(self) -> int:
        """The number of columns."""
        return len(self.typ.columns)

    @property
    def is_unit(self) -> bool:
        """Whether it is the constant relation of one row without columns."""
        return isinstance(self.mir, mir.Constant) and self.mir.rows == (((), 1),)

    @staticmethod
    def constant(rows: tuple[tuple[Row, int], ...], typ: RelationType) -> Rel:
        """Literal rows with multiplicities."""
        return Rel(mir.Constant(rows, typ), typ)

    def _over(self, node: Node) -> Rel:
        return Rel(node, node_type(node, [self.typ]))

    def project(self, outputs: Iterable[int]) -> Rel:
        """The columns at these positions; fused with a projection below."""
        chosen = tuple(outputs)
        if isinstance(self.mir, mir.Project):
            inner = tuple(self.mir.outputs[c] for c in chosen)
            columns = tuple(self.typ.columns[c] for c in chosen)
            typ = node_type(mir.Project(self.mir, chosen), [self.typ])
            return Rel(mir.Project(self.mir.input, inner), RelationType(columns, typ.keys))
        return self._over(mir.Project(self.mir, chosen))

    def map(self, scalars: Sequence[ms.Scalar]) -> Rel:
        """Append columns."""
        return self._over(mir.Map(self.mir, tuple(scalars))) if scalars else self

    def filter(self, predicates: Sequence[ms.Scalar]) -> Rel:
        """The rows for which all predicates are true."""
        return self._over(mir.Filter(self.mir, tuple(predicates))) if predicates else self

    def flat_map(self, func: str, exprs: Sequence[ms.Scalar], output: RelationType) -> Rel:
        """Each row combined with each row of a table function."""
        return self._over(mir.FlatMap(self.mir, func, tuple(exprs), output))

    def reduce(
        self,
        key: Sequence[int],
        aggregates: Sequence[ms.AggregateExpr],
        size: int | None,
    ) -> Rel:
        """Group by columns and aggregate."""
        columns = tuple(ms.Column(k) for k in key)
        return self._over(
            mir.Reduce(self.mir, columns, tuple(aggregates), expected_group_size=size)
        )

    def distinct_by(self, columns: Iterable[int]) -> Rel:
        """The distinct values of some columns."""
        return self.reduce(list(columns), (), None)

    def distinct(self) -> Rel:
        """Each distinct row once."""
        return self.distinct_by(range(self.arity))

    def topk(
        self,
        group: Sequence[int],
        order: tuple[ms.ColumnOrder, ...],
        limit: ms.Scalar | None,
        offset: int,
        size: int | None,
    ) -> Rel:
        """The first rows of each group."""
        node = mir.TopK(self.mir, tuple(group), order, limit, offset, expected_group_size=size)
        return self._over(node)

    def negate(self) -> Rel:
        """Multiplicities negated."""
        return self._over(mir.Negate(self.mir))

    def threshold(self) -> Rel:
        """Rows of positive multiplicity."""
        return self._over(mir.Threshold(self.mir))

    def product(self, right: Rel, *, keep: bool = False) -> Rel:
        """The cross product. A product with the unit relation changes nothing, and is omitted unless ``keep``."""
        if not keep and right.is_unit:
            return self
        if not keep and self.is_unit and isinstance(right.mir, mir.Constant):
            return right
        return self.join(right, [])

    def join(self, right: Rel, equalities: Sequence[tuple[int, int]]) -> Rel:
        """An equijoin; ``equalities`` are positions in the concatenated row, and NULLs are equal."""
        return Rel.join_all([self, right], [list(pair) for pair in equalities])

    @staticmethod
    def join_all(inputs: Sequence[Rel], classes: Sequence[Sequence[int]]) -> Rel:
        """A join of several inputs on classes of equal columns."""
        columns = [column for part in inputs for column in part.typ.columns]
        equivalences = tuple(
            tuple(as_key(ms.Column(c), columns) for c in members) for members in classes
        )
        node = mir.Join(tuple(i.mir for i in inputs), equivalences)
        return Rel(node, node_type(node, [i.typ for i in inputs]))

    @staticmethod
    def union(inputs: Sequence[Rel]) -> Rel:
        """The multiset sum of the inputs."""
        if len(inputs) == 1:
            return inputs[0]
        node = mir.Union(tuple(i.mir for i in inputs))
        return Rel(node, node_type(node, [i.typ for i in inputs]))


def unit() -> Rel:
    """One row of no columns."""
    return Rel.constant((((), 1),), RelationType((), ((),)))


def constant_row(values: Row, types: tuple[ColumnType, ...]) -> Rel:
    """One row."""
    return Rel.constant(((values, 1),), RelationType(types))
