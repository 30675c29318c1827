"""Relations of few rows whose columns are computed when they are asked for, each once in a run.

Promise: what no later part of a statement asks for is not computed; what is asked of parts without rows is computed of no
rows, once for the types of numbers, or not at all. A relation is made with its statement, and is run over tables of the
same types each time; what a run computes of it is the run's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from sqlglot import expressions as exp

from mzsql.compute.engines.arrays import operations as ops
from mzsql.compute.engines.arrays.scalars import Cell, Run, Scalar, Shared, one_chunk
from mzsql.compute.engines.arrays.vectors import (
    NUMBERS,
    Mask,
    Places,
    Unsupported,
    Vector,
    alike,
    joined,
    of_array,
)

#: No join looks at more pairs of rows.
MOST_PAIRS = 1 << 18
#: What is common to two sides: an expression of each, and whether NULL equals NULL.
Key: TypeAlias = tuple[Scalar, Scalar, bool]
Count: TypeAlias = Callable[[Run], int]


class Relation:
    """Rows.

    Args:
        count: says how many they are.
        make: makes a column, with a value for each row; it raises Unsupported if there is none of that name.
        names: the columns' names in order, where it is known.
    """

    def __init__(
        self, count: Count, make: Callable[[str], Scalar], names: Sequence[str] = ()
    ) -> None:
        self.count = count
        self.names = tuple(names)
        self._make = make
        #: expressions over its columns
        self.shared: dict[exp.Expr, Shared] = {}
        self._cells: dict[str, Scalar] = {}

    def cell(self, name: str) -> Scalar:
        """A column.

        Raises:
            Unsupported: there is none of that name.
        """
        known = self._cells.get(name)
        if known is None:
            known = self._cells[name] = self._make(name)
        return known


def scanned(name: str) -> Relation:
    """A relation that the statement reads."""

    def count(run: Run) -> int:
        return run.table(name).num_rows  # type: ignore[no-any-return]

    def make(column: str) -> Scalar:
        def read(run: Run) -> Vector:
            try:
                array = one_chunk(run.table(name).column(column))
            except KeyError:
                raise Unsupported from None
            return of_array(array, lambda _: run.text(name, column))

        return Cell(read)

    return Relation(count, make)


def projected(base: Relation, items: Mapping[str, Scalar]) -> Relation:
    """Columns computed of the rows of another relation, or columns of it unchanged."""

    def make(name: str) -> Scalar:
        item = items.get(name)
        if item is None:
            raise Unsupported
        # A column of the base has a value for each row.
        return item if type(item) is Cell else Cell(lambda run: item(run).over(base.count(run)))

    return Relation(base.count, make, tuple(items))


def taken(base: Relation, places: Callable[[Run], Places | None]) -> Relation:
    """Rows of a relation by their places, None for all as they are."""
    found = Cell(lambda run: (places(run),))

    def count(run: Run) -> int:
        (some,) = found(run)
        return base.count(run) if some is None else len(some)

    def make(name: str) -> Scalar:
        column = base.cell(name)

        def take(run: Run) -> Vector:
            (some,) = found(run)
            return column(run) if some is None else column(run).take(some)

        return Cell(take)

    return Relation(count, make, base.names)


def filtered(base: Relation, condition: Scalar) -> Relation:
    """The rows for which a condition is true."""
    return taken(base, places_where(base.count, condition))


def places_where(count: Count, condition: Scalar) -> Callable[[Run], Places | None]:
    """The places of the rows for which a condition is true; None for all."""

    def places(run: Run) -> Places | None:
        rows = count(run)
        if not rows:
            return None
        holds = ops.holds(condition(run))
        if holds.all():
            return None
        return np.flatnonzero(np.broadcast_to(holds, rows))

    return places


def repeated(base: Relation, times: int) -> Relation:
    """Each row so often, one after another."""
    return taken(base, lambda run: np.repeat(np.arange(base.count(run)), times))


def united(parts: Sequence[Relation]) -> Relation:
    """UNION ALL: the rows of all, in the columns of the first by their places.

    Raises:
        Unsupported: they do not have as many columns.
    """
    names = parts[0].names
    if any(len(one.names) != len(names) for one in parts):
        raise Unsupported
    at = {name: place for place, name in enumerate(names)}

    def with_rows(run: Run) -> list[int]:
        counts = [one.count(run) for one in parts]
        return [place for place, count in enumerate(counts) if count] or [0]

    some = Cell(with_rows)

    def make(name: str) -> Scalar:
        place = at.get(name)
        if place is None:
            raise Unsupported
        cells = [one.cell(one.names[place]) for one in parts]
        # What type a part's numbers have without any rows; it is the same in all runs.
        types: dict[int, Vector] = {}

        def read(run: Run) -> Vector:
            chosen = some(run)
            made = joined([cells[part](run) for part in chosen])
            if made.kind in NUMBERS and len(chosen) < len(parts):
                # A part without rows has its say in the type: with another scale in it, all would be rounded.
                for part in set(range(len(parts))).difference(chosen):
                    if part not in types:
                        types[part] = cells[part](run).over(0)
                    made, _ = alike((made, types[part]))
            return made

        return Cell(read)

    return Relation(lambda run: sum(parts[part].count(run) for part in some(run)), make, names)


def aliased(base: Relation, alias: str) -> Relation:
    """A relation as one side of a join: its columns have its name before theirs."""
    before = f"{alias}."

    def make(name: str) -> Scalar:
        if not name.startswith(before):
            raise Unsupported
        return base.cell(name.removeprefix(before))

    return Relation(base.count, make)


def paired(left: Relation, right: Relation, keys: Sequence[Key]) -> Relation:
    """Rows of two sides beside each other that have equal keys; without keys all with all."""
    places = Cell(lambda run: _pairs(run, left.count(run), right.count(run), keys))

    def make(name: str) -> Scalar:
        try:
            column, side = right.cell(name), 1
        except Unsupported:
            column, side = left.cell(name), 0
        return Cell(lambda run: column(run).take(places(run)[side]))

    return Relation(lambda run: len(places(run)[0]), make)


def _pairs(run: Run, left: int, right: int, keys: Sequence[Key]) -> tuple[Places, Places]:
    """The places of the rows that have equal keys."""
    if not left or not right:
        return _NO_PLACES, _NO_PLACES
    if left * right > MOST_PAIRS:
        raise Unsupported
    met: Mask = np.ones((left, right), np.bool_)
    for first, second, nulls_equal in keys:
        one, other = alike((first(run).over(left), second(run).over(right)))
        met = met & _equal(one, other, nulls_equal=nulls_equal)
    first_places, second_places = np.nonzero(met)
    return first_places, second_places


_NO_PLACES = np.empty(0, np.int64)


def _equal(one: Vector, other: Vector, *, nulls_equal: bool) -> Mask:
    """Of each of the first with each of the second whether they are equal."""
    equal: Mask = one.values[:, None] == other.values[None, :]
    if equal.dtype != np.bool_:
        equal = equal.astype(np.bool_)
    if one.nulls is not None:
        equal = equal & ~one.nulls[:, None]
    if other.nulls is not None:
        equal = equal & ~other.nulls[None, :]
    if nulls_equal and one.nulls is not None and other.nulls is not None:
        equal = equal | (one.nulls[:, None] & other.nulls[None, :])
    return equal
