"""Coarse bounds on the values in a step's relations, so that the step can run a statement without guards
(`mzsql.render.rewrites.lean`).

Promise: what `measured` says of a relation is true of each of its rows. It uses null counts, minima and maxima,
which Arrow finds in microseconds if rows are few; it is meant for such relations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.persist.words import words_of
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
    facts = dict(_unmeasured(table.schema))
    for name in columns:
        if name in facts:
            facts[name] = (
                fact_of(table.schema.field(name), table.column(name))
                if known is None
                else known(name)
            )
    return Relation(facts, coarse_rows(table.num_rows), _same(table, columns))


@functools.lru_cache(maxsize=4096)
def _unmeasured(schema: pa.Schema) -> Mapping[str, Fact]:
    """What the types of a relation's columns say."""
    return {field.name: _of_kind(kind_of(field.type)) for field in schema}


@functools.lru_cache(maxsize=4096)
def _of_kind(kind: str | None, nulls: bool = True) -> Fact:
    """What is true of a value of a type. The same object each time, as those of bounds, so that it is compared once."""
    return Fact(kind, nulls=nulls, fails=False)


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
    plain = _of_kind(kind, column.null_count > 0)
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

    Words take a fraction of what Arrow's function and its result cost, which a step pays for each column that it reads.
    """
    decimals = pa.types.is_decimal128(typ)
    if decimals and typ.scale < 0:
        return None
    least, most = 0, 0
    for number, chunk in enumerate(chunk for chunk in column.chunks if len(chunk)):
        words = words_of(chunk)
        if words is None:
            return None
        values, *rest = words
        # With more than one word it has more digits than an integer.
        if rest and not (values >> 63 == rest[0]).all():
            return None
        low, high = int(np.minimum.reduce(values)), int(np.maximum.reduce(values))
        least = min(least, low) if number else low
        most = max(most, high) if number else high
    one = 10**typ.scale if decimals else 1
    return least // one, -(-most // one)


def _dates(plain: Fact, column: pa.ChunkedArray) -> Fact:
    words = words_of(column.chunk(0)) if column.num_chunks == 1 else None
    if words is None:
        days = pc.drop_null(column) if column.null_count else column
        values = days.combine_chunks().view(pa.int32()).to_numpy()
    else:
        (values,) = words
    if np.minimum.reduce(values) < FIRST_DAY or np.maximum.reduce(values) > LAST_DAY:
        return plain
    return _any_day(plain.nulls)


@functools.lru_cache(maxsize=2)
def _any_day(nulls: bool) -> Fact:
    low, high = Fraction(FIRST_DAY), Fraction(LAST_DAY)
    return Fact(DATE, nulls=nulls, low=low, high=high, fails=False)
