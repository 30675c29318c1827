"""Groups of rows, and windows over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mzsql.compute.engines.arrays.rows import Relation
from mzsql.compute.engines.arrays.scalars import Cell, Run, Scalar
from mzsql.compute.engines.arrays.vectors import (
    WIDE,
    Kind,
    Mask,
    Places,
    Unsupported,
    Vector,
    checked,
    integer,
)

#: An order: the values, whether it falls, whether NULL comes first.
Order: TypeAlias = tuple[Vector, bool, bool]
#: Kinds of which the greatest and the least are known here.
_RANKED = frozenset((Kind.INTEGER, Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP))


def grouped(base: Relation, keys: Sequence[str]) -> Groups:
    """Rows that are equal in their keys, as one row for each set of them.

    Args:
        base: the rows.
        keys: the names of the keys; without any all rows are one group, even if there are none.
    """
    cells = {name: base.cell(name) for name in keys}

    def found(run: Run) -> tuple[Places, Places]:
        order, changes = sorted_by(
            [(one(run), False, False) for one in cells.values()], base.count(run)
        )
        return order, np.flatnonzero(changes) if cells else np.zeros(1, np.int64)

    places = Cell(found)

    def make(name: str) -> Scalar:
        key = cells.get(name)
        if key is None:
            raise Unsupported

        def first(run: Run) -> Vector:
            order, starts = places(run)
            return key(run).take(order[starts])

        return Cell(first)

    return Groups(base, Relation(lambda run: len(places(run)[1]), make), places)


class Groups:
    """Groups of rows.

    Attributes:
        base: the rows that are grouped.
        rows: a row for each group, whose columns are the keys.

    Args:
        base: as above.
        rows: as above.
        places: the places of the rows in the order of the keys, and where in it each group begins.
    """

    def __init__(self, base: Relation, rows: Relation, places: Cell) -> None:
        self.base = base
        self.rows = rows
        self._found = places

    def counted(self, run: Run, value: Scalar | None) -> Vector:
        """How many rows there are, or values that are not NULL."""
        count = self.base.count(run)
        if not count:
            return integer(0, 64)
        ones = np.ones(count, np.int64)
        if value is not None:
            nulls = value(run).over(count).nulls
            ones = ones if nulls is None else (~nulls).astype(np.int64)
        order, starts = self._found(run)
        return Vector(Kind.INTEGER, np.add.reduceat(ones[order], starts), None, count, 64)

    def summed(self, run: Run, value: Scalar) -> Vector:
        """The sum of the values that are not NULL; NULL if there is none.

        Raises:
            Unsupported: they are no numbers, or the sum may be too large.
        """
        one = value(run)
        if one.kind not in (Kind.INTEGER, Kind.DECIMAL):
            raise Unsupported
        size = 128 if one.kind is Kind.INTEGER else one.size
        most = one.most * max(self.base.count(run), 1)
        return self._reduced(run, np.add, one, Vector(one.kind, one.values, None, most, size), 0)

    def extreme(self, run: Run, value: Scalar, *, greatest: bool) -> Vector:
        """The greatest or the least of the values that are not NULL; NULL if there is none.

        Raises:
            Unsupported: they are of another kind than numbers, dates and times.
        """
        one = value(run)
        if one.kind not in _RANKED:
            raise Unsupported
        function = np.maximum if greatest else np.minimum
        return self._reduced(run, function, one, one, -one.most if greatest else one.most)

    def _reduced(
        self, run: Run, function: np.ufunc, value: Vector, as_: Vector, neutral: int
    ) -> Vector:
        count = self.base.count(run)
        order, starts = self._found(run)
        if not count:
            none = len(starts)
            return Vector(as_.kind, np.zeros(none, np.int64), np.ones(none, np.bool_), 0, as_.size)
        full = value.over(count)
        values, nulls = full.values, None
        if as_.most >= WIDE:
            values = values.astype(object)
        if full.nulls is not None:
            values = np.where(full.nulls, neutral, values)
            nulls = np.logical_and.reduceat(full.nulls[order], starts)
            nulls = nulls if nulls.any() else None
        made = function.reduceat(values[order], starts)
        return checked(Vector(as_.kind, made, nulls, as_.most, as_.size))


def sorted_by(order: Sequence[Order], count: int) -> tuple[Places, Mask]:
    """The places of rows in order, and at each place of it whether the row differs from the one before."""
    changes = np.zeros(count, np.bool_)
    changes[:1] = True
    if not order or count < 2:
        return np.arange(count), changes
    keys: list[npt.NDArray[Any]] = []
    for vector, falls, nulls_first in order:
        values = vector.of_words()
        if values.dtype == np.bool_:
            values = values.astype(np.int64)
        if vector.nulls is not None:
            values = np.where(vector.nulls, 0, values)
            keys.append(~vector.nulls if nulls_first else vector.nulls)
        # Inverted bits fall as values rise, even those of the least number, which has no negative.
        keys.append(~values if falls else values)
    places = np.lexsort(keys[::-1]) if len(keys) > 1 else np.argsort(keys[0], kind="stable")
    for one in keys:
        ordered = one[places]
        changes[1:] |= ordered[1:] != ordered[:-1]
    return places, changes


class Windows:
    """Rows in partitions, each in an order.

    Args:
        partition: the partitions' keys.
        order: of the rows of a partition.
        count: how many rows.
    """

    def __init__(self, partition: Sequence[Vector], order: Sequence[Order], count: int) -> None:
        keys: list[Order] = [(one, False, False) for one in partition]
        self._places, _ = sorted_by([*keys, *order], count)
        self._count = count
        begins = np.zeros(count, np.bool_)
        begins[:1] = True
        for one in partition:
            values = one.of_words()[self._places]
            begins[1:] |= values[1:] != values[:-1]
            if one.nulls is not None:
                nulls = one.nulls[self._places]
                begins[1:] |= nulls[1:] != nulls[:-1]
        self._starts = np.flatnonzero(begins)
        #: for each row in order the number of its partition
        self._parts = np.cumsum(begins) - 1

    def _placed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        made = np.empty(self._count, values.dtype)
        made[self._places] = values
        return made

    def running(self, value: Vector) -> Vector:
        """The sum up to each row.

        Raises:
            Unsupported: they are no whole numbers, there is a NULL, or the sum may be too large.
        """
        most = value.most * max(self._count, 1)
        if value.kind is not Kind.INTEGER or value.nulls is not None or most >= WIDE:
            raise Unsupported
        sums = np.cumsum(value.over(self._count).values[self._places])
        if len(self._starts) > 1:
            before = np.concatenate([np.zeros(1, np.int64), sums[self._starts[1:] - 1]])
            sums = sums - before[self._parts]
        return Vector(Kind.INTEGER, self._placed(sums), None, most, 128)

    def whole(self, function: np.ufunc, value: Vector) -> Vector:
        """One value for all rows of a partition.

        Raises:
            Unsupported: they are of another kind than numbers, dates and times, there is a NULL, or it may be too large.
        """
        if value.kind not in _RANKED or value.nulls is not None:
            raise Unsupported
        most, size = value.most, value.size
        if function is np.add:
            if value.kind is not Kind.INTEGER:
                raise Unsupported
            most, size = most * max(self._count, 1), 128
        values = value.over(self._count).of_words()
        if most >= WIDE:
            raise Unsupported
        if not self._count:
            return Vector(value.kind, values, None, most, size)
        of_parts = function.reduceat(values[self._places], self._starts)
        return Vector(value.kind, self._placed(of_parts[self._parts]), None, most, size)
