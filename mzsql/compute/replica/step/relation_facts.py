"""Coarse bounds on the values in a step's relations, so that the step can run a statement without guards
(`mzsql.render.rewrites.lean`).

Promise: what `measured` says of a relation is true of each of its rows. It uses null counts, minima and maxima,
which Arrow finds in microseconds if rows are few; it is meant for such relations.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from fractions import Fraction

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

#: Columns of times. No bounds are given for them, since those of one step would not hold in the next.
_TIMES = frozenset(("mz_time",))


def measured(
    table: pa.Table, columns: Container[str], known: Callable[[str], Fact] | None = None
) -> Relation:
    """What is true of each row of a relation.

    Args:
        table: the relation.
        columns: columns to measure; of the others only the type is said.
        known: says what is true of a column without measuring it, as of rows of which these are some.
    """
    facts = {
        field.name: (
            fact_of(field, table.column(field.name)) if known is None else known(field.name)
        )
        if field.name in columns
        else Fact(kind_of(field.type), fails=False)
        for field in table.schema
    }
    return Relation(facts, coarse_rows(table.num_rows), _same(table, columns))


def kind_of(typ: pa.DataType) -> str | None:
    """The name of the type in DuckDB; None for types of which nothing is said."""
    if pa.types.is_decimal128(typ):
        return decimal_kind(typ.precision, typ.scale)
    return _KINDS.get(typ)


def _same(table: pa.Table, columns: Container[str]) -> dict[str, str]:
    """Columns of counts that are equal in each row, each with the first such column.

    The counts that several aggregates keep of non-null values are mostly equal.
    """
    found: dict[str, str] = {}
    first: list[str] = []
    for field in table.schema:
        if field.type != pa.int64() or field.name not in columns or field.name in _TIMES:
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
    if pa.types.is_integer(typ) and column.num_chunks == 1 and not column.null_count:
        # A third of what Arrow's function and its result cost, which a step pays for each column that it reads.
        values = column.chunk(0).to_numpy()
        return coarse(kind, int(values.min()), int(values.max()), nulls=False)
    ends = pc.min_max(column).as_py()
    return coarse(kind, ends["min"], ends["max"], nulls=plain.nulls)


def _dates(plain: Fact, column: pa.ChunkedArray) -> Fact:
    ends = pc.min_max(column.cast(pa.int32()))
    if ends["min"].as_py() < FIRST_DAY or ends["max"].as_py() > LAST_DAY:
        return plain
    return Fact(
        DATE,
        nulls=plain.nulls,
        low=Fraction(FIRST_DAY),
        high=Fraction(LAST_DAY),
        fails=False,
    )
