"""Coarse bounds on the values in a step's relations, so that the step can run a statement without guards
(`mzsql.render.rewrites.lean`).

Promise: what `measured` says of a relation is true of each of its rows. It uses null counts, minima and maxima,
which Arrow finds in microseconds if rows are few; it is meant for such relations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Set
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.render.facts import (
    BIGINT,
    BOOLEAN,
    DATE,
    FIRST_DAY,
    LAST_DAY,
    Fact,
    coarse,
    coarse_rows,
    decimal_kind,
    null,
)
from mzsql.render.rewrites.lean import Relation

_KINDS = {
    pa.bool_(): BOOLEAN,
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): BIGINT,
    pa.float64(): "DOUBLE",
    pa.string(): "TEXT",
    pa.date32(): DATE,
    pa.timestamp("us"): "TIMESTAMP",
}

_INT64 = pa.int64()

#: Columns of times. No bounds are given for them, since those of one step would not hold in the next.
_TIMES = frozenset(("mz_time",))


def measured(
    table: pa.Table, columns: Set[str], known: Callable[[str], Fact] | None = None
) -> Relation:
    """What is true of each row of a relation.

    Args:
        table: the relation.
        columns: columns to measure; of the others only the type is said.
        known: says what is true of a column without measuring it, as of rows of which these are some.
    """
    if not table.num_rows:
        return _of_no_rows(table.schema, frozenset(columns))
    facts = {
        field.name: (
            fact_of(field, table.column(field.name)) if known is None else known(field.name)
        )
        if field.name in columns
        else Fact(kind_of(field.type), fails=False)
        for field in table.schema
    }
    return Relation(facts, coarse_rows(table.num_rows), _same(table, columns))


@functools.lru_cache(maxsize=4096)
def _of_no_rows(schema: pa.Schema, columns: frozenset[str]) -> Relation:
    """What is true of a relation without rows. Cached: most relations of most steps have none."""
    facts = {
        field.name: (
            null(kind_of(field.type))
            if field.name in columns
            else Fact(kind_of(field.type), fails=False)
        )
        for field in schema
    }
    return Relation(facts, 0, _same(schema.empty_table(), columns))


def kind_of(typ: pa.DataType) -> str | None:
    """The name of the type in DuckDB; None for types of which nothing is said."""
    if pa.types.is_decimal128(typ):
        return decimal_kind(typ.precision, typ.scale)
    return _KINDS.get(typ)


def _same(table: pa.Table, columns: Set[str]) -> dict[str, str]:
    """Columns of counts that are equal in each row, each with the first such column.

    The counts that several aggregates keep of non-null values are mostly equal.
    """
    found: dict[str, str] = {}
    first: list[str] = []
    for field in table.schema:
        if field.name not in columns or field.name in _TIMES or field.type != _INT64:
            continue
        column = table.column(field.name)
        for other in first:
            if column.null_count == 0 and column.equals(table.column(other)):
                found[field.name] = other
                break
        else:
            first.append(field.name)
    return found


def fact_of(field: pa.Field, column: pa.ChunkedArray) -> Fact:
    """What is true of each value of a relation's column."""
    typ = field.type
    kind = kind_of(typ)
    if column.null_count == len(column):
        return null(kind)
    plain = Fact(kind, nulls=column.null_count > 0, fails=False)
    if field.name in _TIMES or kind is None:
        return plain
    if kind == DATE:
        return _dates(plain, column)
    if not (pa.types.is_integer(typ) or pa.types.is_decimal(typ)):
        return plain
    ends = _ends(typ, column)
    if ends is not None:
        return coarse(kind, *ends, nulls=False)
    found = pc.min_max(column).as_py()
    return coarse(kind, found["min"], found["max"], nulls=plain.nulls)


def _ends(typ: pa.DataType, column: pa.ChunkedArray) -> tuple[int, int] | None:
    """Whole numbers between which the values of a column are, as near as they can be; None where Arrow has to find them.

    Numpy takes a third of what Arrow's function and its result cost, which a step pays for each column that it reads.
    """
    if column.num_chunks != 1 or column.null_count:
        return None
    chunk = column.chunk(0)
    if not pa.types.is_decimal128(typ):
        values = chunk.to_numpy()
        return int(values.min()), int(values.max())
    halves = np.frombuffer(chunk.buffers()[1], np.int64).reshape(-1, 2)
    low, high = halves[chunk.offset : chunk.offset + len(chunk)].T
    if not (low >> 63 == high).all():
        return None  # more digits than an integer has
    one = 10**typ.scale
    return int(low.min()) // one, -(-int(low.max()) // one)


def _dates(plain: Fact, column: pa.ChunkedArray) -> Fact:
    days = pc.drop_null(column) if column.null_count else column
    values = days.combine_chunks().view(pa.int32()).to_numpy()
    if values.min() < FIRST_DAY or values.max() > LAST_DAY:
        return plain
    return Fact(
        DATE,
        nulls=plain.nulls,
        low=Fraction(FIRST_DAY),
        high=Fraction(LAST_DAY),
        fails=False,
    )
