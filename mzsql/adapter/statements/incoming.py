"""Rows that come from outside, made rows of a table: what COPY loads and what Spark appends.

Promise: a value either fits its column or is refused with a sentence that names column, type and row; nothing is cut short to make it fit,
nor rounded, but for doubles in a column of type real, which has fewer digits. Texts become values by the same casts as SQL's. Everything
is vectorised in Arrow and DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from mzsql.adapter.statements.casting import cast_by
from mzsql.adapter.statements.dml import first_null
from mzsql.expr import spell
from mzsql.expr.engines import locked_connection, to_sql
from mzsql.expr.functions import find_cast
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.scalar import Scalar
from mzsql.frontend.catalog import CatalogItem
from mzsql.repr.errors import DataError, NotNullViolation, Unsupported
from mzsql.repr.evaluation import failed
from mzsql.repr.types import TEXT, ColumnType, SqlType, arrow_schema, arrow_type


def whole_rows(
    columns: Mapping[int, pa.ChunkedArray | pa.Array],
    table: CatalogItem,
    rows: int,
    where: Callable[[int], str],
) -> pa.Table:
    """All columns of the table, c0 …, defaults filled in.

    Args:
        columns: those that are given, by position, of the columns' Arrow types.
        table: the table.
        rows: how many there are.
        where: says which row it is, of its number among them, from 0 on.

    Raises:
        NotNullViolation: there is a NULL where none may be.
    """
    desc = table.desc
    assert desc is not None
    arrays = []
    schema = arrow_schema(desc.typ.columns)
    for i, (name, column) in enumerate(zip(desc.names, desc.typ.columns, strict=True)):
        array = columns.get(i)
        if array is None:
            array = _default(table, i, column, rows)
        if not column.nullable and array.null_count:
            at = first_null(pa.table([array], names=["c"]), 0)
            raise NotNullViolation(
                f'null value in column "{name}" violates not-null constraint',
                detail=where(at),
            )
        arrays.append(array)
    return pa.table(arrays, schema=schema)


def _default(table: CatalogItem, i: int, column: ColumnType, rows: int) -> pa.Array:
    typ = arrow_type(column.type)
    default = table.defaults[i] if i < len(table.defaults) else None
    if default is None:
        return pa.nulls(rows, typ)
    value = evaluate_constant(default, column.type)
    # Arrow repeats no list so that nothing is left of it.
    return pa.repeat(value, rows) if rows else pa.nulls(0, typ)


def evaluate_constant(expr: Scalar, typ: SqlType) -> pa.Scalar:
    """The value of an expression without columns, of the Arrow type of ``typ``."""
    result = evaluated(pa.table({"c0": pa.array([0])}), [(expr, typ)])
    return result.column(0)[0].cast(arrow_type(typ))


_KINDS: dict[str, Callable[[pa.DataType], bool]] = {
    "boolean": pa.types.is_boolean,
    "smallint": pa.types.is_integer,
    "integer": pa.types.is_integer,
    "bigint": pa.types.is_integer,
    "uint2": pa.types.is_integer,
    "uint4": pa.types.is_integer,
    "oid": pa.types.is_integer,
    "uint8": lambda t: pa.types.is_integer(t) or pa.types.is_decimal(t),
    "mz_timestamp": pa.types.is_integer,
    "real": lambda t: pa.types.is_floating(t) or pa.types.is_integer(t),
    "double": lambda t: pa.types.is_floating(t) or pa.types.is_integer(t),
    "numeric": lambda t: pa.types.is_decimal(t) or pa.types.is_integer(t),
    "date": pa.types.is_date,
    "timestamp": lambda t: pa.types.is_timestamp(t) and t.tz is None,
    "timestamptz": lambda t: pa.types.is_timestamp(t) and t.tz is not None,
    "bytea": lambda t: (
        pa.types.is_binary(t) or pa.types.is_large_binary(t) or t == pa.binary_view()
    ),
}
_TEXT_KINDS = ("text", "varchar", "char")


def is_text(typ: pa.DataType) -> bool:
    """Whether an Arrow type is one of texts."""
    return bool(pa.types.is_string(typ) or pa.types.is_large_string(typ) or typ == pa.string_view())


def takes(typ: SqlType, found: pa.DataType) -> bool:
    """Whether a column takes values of an Arrow type, those that fit it."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if typ.kind in _TEXT_KINDS:
        return is_text(found)
    if typ.kind in _KINDS:
        return _KINDS[typ.kind](found)
    return bool(found == arrow_type(typ))


def safe_cast(column: pa.Array, typ: SqlType, where: str, first_row: int) -> pa.Array:
    """A column's values as a type that takes them (`takes`); ``where`` names the column, ``first_row`` its first row.

    Raises:
        DataError: one does not fit; says which.
    """
    target = arrow_type(typ)
    try:
        result = column if column.type == target else column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        at = _first_failure(column, lambda part: part.cast(target))
        raise DataError(
            f"a value of {where} does not fit type {typ}, in row {first_row + at}: {column[at]}",
            detail=str(failure).splitlines()[0],
            sqlstate="22003",
        ) from None
    if pa.types.is_float32(target) and pa.types.is_float64(column.type):
        beyond = pc.and_(pc.is_inf(result), pc.is_finite(column))
        if pc.any(beyond).as_py():
            at = pc.index(beyond, value=True).as_py()
            raise DataError(
                f"a value of {where} does not fit type {typ}, in row {first_row + at}: {column[at]}",
                sqlstate="22003",
            )
    if typ.length is not None:
        long = pc.greater(pc.utf8_length(result), typ.length)
        if pc.any(long).as_py():
            at = pc.index(long, value=True).as_py()
            raise DataError(
                f"value too long for type {typ}, in row {first_row + at} of {where}",
                sqlstate="22001",
            )
    return result


def _first_failure(column: pa.Array, attempt: Callable[[pa.Array], object]) -> int:
    """The position of the first value that an attempt fails on, by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(column.slice(low, middle - low))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
        else:
            low = middle
    return low


def cast_text(expr: Scalar, typ: SqlType) -> Scalar:
    """The expression that makes a value of ``typ`` of a text, as ``CAST`` does; but what is too long for it is an error."""
    keys = find_cast(TEXT, typ, "assignment")
    if keys is None:
        keys = find_cast(TEXT, typ, "explicit")
    if keys is None:
        raise Unsupported(f"no text can be made a value of type {typ}")
    return cast_by(keys, expr, typ)


def evaluated(
    rows: pa.Table,
    exprs: list[tuple[Scalar, SqlType]],
    where: Callable[[int, int], str] | None = None,
) -> pa.Table:
    """Expressions over rows of text, vectorised in DuckDB; what fails first, by row and then by column, is the error."""
    columns = [Sql(exp.column(f"c{n}", quoted=True), TEXT) for n in range(rows.num_columns)]
    values, failures = [], []
    for n, (expr, _) in enumerate(exprs):
        value = spell.value(expr, columns, Engine.DUCKDB)
        values.append(exp.alias_(value, f"v{n}", quoted=True))
        failure = spell.error(expr, columns, Engine.DUCKDB)
        if failure is not None:
            failures.append((n, exp.alias_(failure, f"e{n}", quoted=True)))
    query = exp.select(*values, *(ast for _, ast in failures)).from_(
        exp.to_table("texts", quoted=True)
    )
    connection = locked_connection()
    try:
        connection.register("texts", rows)
        result: pa.Table = connection.sql(to_sql(query, Engine.DUCKDB)).to_arrow_table()
    finally:
        connection.close()
    broken = [
        (pc.index(pc.is_valid(result.column(f"e{n}")), value=True).as_py(), n)
        for n, _ in failures
        if result.column(f"e{n}").null_count < result.num_rows
    ]
    if broken:
        at, n = min(broken)
        detail = None if where is None else where(at, n)
        raise failed(result.column(f"e{n}")[at].as_py(), detail=detail, otherwise="22P02")
    return result.select([f"v{n}" for n in range(len(exprs))])
