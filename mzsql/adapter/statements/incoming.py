"""Rows from outside (a COPY, an append by Spark) turned into rows of a table.

Promise: a value either fits its column or is refused with an error that names column, type and row. Nothing is
truncated or rounded to fit, except that a double becomes the nearest real in a column of type real. Texts become values
by SQL's own casts. All work is vectorised in Arrow and DuckDB.
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
    """All columns of the table as c0, c1, …, with defaults for those not given.

    Args:
        columns: the given columns by position, in the columns' Arrow types.
        table: the table.
        rows: the number of rows.
        where: describes a row for an error message, by its number from 0 on.

    Raises:
        NotNullViolation: a NOT NULL column has a NULL.
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
    # pa.repeat cannot make zero copies of a list value.
    return pa.repeat(value, rows) if rows else pa.nulls(0, typ)


def evaluate_constant(expr: Scalar, typ: SqlType) -> pa.Scalar:
    """The value of a column-free expression, as a scalar of the Arrow type of ``typ``."""
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
    """Whether an Arrow type is a string type."""
    return bool(pa.types.is_string(typ) or pa.types.is_large_string(typ) or typ == pa.string_view())


def takes(typ: SqlType, found: pa.DataType) -> bool:
    """Whether a column of type ``typ`` accepts values of an Arrow type, where each value fits."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if typ.kind in _TEXT_KINDS:
        return is_text(found)
    if typ.kind in _KINDS:
        return _KINDS[typ.kind](found)
    return bool(found == arrow_type(typ))


def safe_cast(column: pa.Array, typ: SqlType, where: str, first_row: int) -> pa.Array:
    """A column's values in the Arrow type of ``typ``, which must accept them (`takes`).

    Args:
        column: the values.
        typ: the target type.
        where: names the column in messages.
        first_row: the number of its first row, for messages.

    Raises:
        DataError: a value does not fit; the message says which.
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
    """The position of the first value on which ``attempt`` fails, by binary search."""
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
    """The expression that casts a text to ``typ``, as an assignment: a text too long for the type is an error, not
    truncated.

    Raises:
        Unsupported: no text can be made a value of the type.
    """
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
    """Evaluate expressions over rows of texts, vectorised in DuckDB.

    Args:
        rows: the texts, in columns c0, c1, ….
        exprs: the expressions with their types.
        where: describes a row and an expression in an error's detail.

    Returns:
        A column for each expression: v0, v1, ….

    Raises:
        DataError: an expression fails; the first failure by row, then by column, is raised.
    """
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
