"""COPY t FROM 'file': Parquet and CSV, streamed, all or nothing.

Promise: memory is bounded by a record batch and a part, whatever the file's size; a missing column, a wrong type, a broken row or a value
that does not fit is said with its column and row, and then nothing is loaded. Parquet columns go by name, CSV columns by position.
Text becomes values by the same casts as SQL's (`text` to the column's type), so messages are PostgreSQL's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlglot import expressions as exp

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.session.copy_paths import ANYWHERE, CopyPaths
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.statements.copy_text import BATCH_ROWS, TextRows, text_rows
from mzsql.adapter.statements.dml import Changes, first_null
from mzsql.adapter.statements.result import Result
from mzsql.expr import spell
from mzsql.expr.engines import locked_connection, to_sql
from mzsql.expr.functions import find_cast, scalar
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.scalar import Call, Column, Scalar
from mzsql.frontend.plan import plans as p
from mzsql.persist import Batch
from mzsql.repr.errors import (
    DataError,
    DatatypeMismatch,
    InvalidParameter,
    NotNullViolation,
    UndefinedColumn,
    Unsupported,
)
from mzsql.repr.evaluation import failed
from mzsql.repr.interrupt import Interrupt, current
from mzsql.repr.types import TEXT, ColumnType, RelationDesc, SqlType, arrow_schema, arrow_type
from mzsql.storage import TableShard


class CopyIn:
    """Runs COPY … FROM.

    Args:
        env: the environment.
        changes: commits what was loaded.
    """

    def __init__(self, env: Environment, changes: Changes) -> None:
        self._env = env
        self._changes = changes

    def run(self, session: Session, transaction: Transaction, plan: p.CopyFromPlan) -> Result:
        """Load a file as one write."""
        self._env.require_writable()
        transaction.enter("write")
        table = self._env.collections.table(plan.table.id)
        batch = copy_from(plan, table, session.stdin, session.copy_paths)
        transaction.add(plan.table.id, [batch])
        if transaction.implicit:
            self._changes.commit(session, transaction)
        return Result(f"{plan.tag_text} {batch.rows}", count=batch.rows)


def copy_from(
    plan: p.CopyFromPlan,
    table: TableShard,
    stdin: Path | None = None,
    paths: CopyPaths = ANYWHERE,
) -> Batch:
    """The file's rows as a batch that is not committed yet.

    Args:
        plan: what to copy.
        table: where to.
        stdin: the file of what a client sent for FROM STDIN.
        paths: which files may be read.

    Raises:
        CopyDenied: the file may not be read.
        DataError, DatatypeMismatch, UndefinedColumn, NotNullViolation, InvalidParameter: see the module's promise.
    """
    desc = plan.table.desc
    assert desc is not None
    if plan.path is None and stdin is None:
        raise InvalidParameter(
            "COPY FROM STDIN cannot be used with this method: it needs data",
            hint="Use a cursor's copy(): with cur.copy(sql) as copy: copy.write(data).",
        )
    path = stdin if plan.path is None else paths.source(plan.path)
    assert path is not None
    try:
        there = path.is_file()
    except OSError as failure:
        raise InvalidParameter(
            f'could not open file "{plan.path}" for reading: {failure.strerror}', sqlstate="58030"
        ) from None
    if not there:
        raise InvalidParameter(
            f'could not open file "{plan.path}" for reading: No such file', sqlstate="58P01"
        )
    form = plan.format.lower()
    if form == "parquet":
        rows = _parquet(plan, path, desc)
    elif form in ("csv", "text"):
        rows = _text(plan, path, desc)
    else:
        raise Unsupported(f"COPY FROM does not support the format {plan.format}")
    schema = arrow_schema(desc.typ.columns)
    for name in ("mz_time", "mz_diff"):
        schema = schema.append(pa.field(name, pa.int64()))
    reader = pa.RecordBatchReader.from_batches(schema, _timed(rows, schema, current()))
    return table.batch(reader)


def _timed(
    rows: Iterator[pa.Table], schema: pa.Schema, interrupt: Interrupt
) -> Iterator[pa.RecordBatch]:
    for table in rows:
        # Whatever thread reads this, the statement is the one that began it.
        interrupt.check()
        zeros = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
        ones = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        full = pa.table([*table.columns, zeros, ones], schema=schema)
        yield from full.combine_chunks().to_batches()


def _targets(plan: p.CopyFromPlan, desc: RelationDesc) -> tuple[int, ...]:
    return tuple(range(desc.arity)) if plan.columns is None else plan.columns


def _checked(
    columns: dict[int, pa.ChunkedArray | pa.Array],
    plan: p.CopyFromPlan,
    desc: RelationDesc,
    rows: int,
    where: Callable[[int], str],
) -> pa.Table:
    """All columns of the table, defaults filled in, NOT NULL checked."""
    arrays = []
    schema = arrow_schema(desc.typ.columns)
    for i, (name, column) in enumerate(zip(desc.names, desc.typ.columns, strict=True)):
        array = columns.get(i)
        if array is None:
            array = _default(plan, i, column, rows)
        if not column.nullable and array.null_count:
            at = first_null(pa.table([array], names=["c"]), 0)
            raise NotNullViolation(
                f'null value in column "{name}" violates not-null constraint',
                detail=where(at),
            )
        arrays.append(array)
    return pa.table(arrays, schema=schema)


def _default(plan: p.CopyFromPlan, i: int, column: ColumnType, rows: int) -> pa.Array:
    typ = arrow_type(column.type)
    default = plan.table.defaults[i] if i < len(plan.table.defaults) else None
    if default is None:
        return pa.nulls(rows, typ)
    value = evaluate_constant(default, column.type)
    # Arrow repeats no list so that nothing is left of it.
    return pa.repeat(value, rows) if rows else pa.nulls(0, typ)


def evaluate_constant(expr: Scalar, typ: SqlType) -> pa.Scalar:
    """The value of an expression without columns, of the Arrow type of ``typ``."""
    result = _evaluate(pa.table({"c0": pa.array([0])}), [(expr, typ)])
    return result.column(0)[0].cast(arrow_type(typ))


# --- Parquet --------------------------------------------------------------------------------------


def _parquet(plan: p.CopyFromPlan, path: Path, desc: RelationDesc) -> Iterator[pa.Table]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as broken:
        raise DataError(f'"{plan.path}" is not a Parquet file that can be read: {broken}') from None
    with file:
        present = file.schema_arrow
        targets = _targets(plan, desc)
        for i in targets:
            name = desc.names[i]
            if present.get_field_index(name) < 0:
                raise UndefinedColumn(
                    f'column "{name}" of table "{plan.table.name.item}" is missing in {plan.path}',
                    detail=f"The file has the columns {', '.join(present.names)}.",
                )
            _check_parquet_type(plan, name, present.field(name).type, desc.typ.columns[i].type)
        extra = [n for n in present.names if n not in {desc.names[i] for i in targets}]
        if plan.columns is None and extra:
            raise UndefinedColumn(
                f'table "{plan.table.name.item}" has no column "{extra[0]}", which {plan.path} has',
                hint="Name the columns to load: COPY t (a, b) FROM …",
            )
        row = 1
        wanted = [desc.names[i] for i in targets]
        try:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                arrays: dict[int, pa.ChunkedArray | pa.Array] = {}
                for i in targets:
                    column = batch.column(desc.names[i])
                    where = f'column "{desc.names[i]}" of {plan.path}'
                    arrays[i] = _safe_cast(column, desc.typ.columns[i].type, where, row)
                where_row = partial(_parquet_row, plan, row)
                yield _checked(arrays, plan, desc, batch.num_rows, where_row)
                row += batch.num_rows
        except (pa.ArrowInvalid, OSError) as broken:
            raise DataError(f"{plan.path} cannot be read from row {row} on: {broken}") from None


def _parquet_row(plan: p.CopyFromPlan, first: int, row: int) -> str:
    return f"COPY {plan.table.name.item}, row {first + row} of {plan.path}."


_PARQUET_KINDS: dict[str, Callable[[pa.DataType], bool]] = {
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


def _is_text(typ: pa.DataType) -> bool:
    return bool(pa.types.is_string(typ) or pa.types.is_large_string(typ) or typ == pa.string_view())


def _check_parquet_type(plan: p.CopyFromPlan, name: str, found: pa.DataType, typ: SqlType) -> None:
    if pa.types.is_dictionary(found):
        found = found.value_type
    fits = (
        _is_text(found)
        if typ.kind in _TEXT_KINDS
        else _PARQUET_KINDS[typ.kind](found)
        if typ.kind in _PARQUET_KINDS
        else found == arrow_type(typ)
    )
    if not fits:
        raise DatatypeMismatch(
            f'column "{name}" is of type {typ} but {plan.path} has {found} there',
            hint="Convert the file, or declare the column with the file's type.",
        )


def _safe_cast(column: pa.Array, typ: SqlType, where: str, first_row: int) -> pa.Array:
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


# --- text -----------------------------------------------------------------------------------------


def _text(plan: p.CopyFromPlan, path: Path, desc: RelationDesc) -> Iterator[pa.Table]:
    targets = _targets(plan, desc)
    for rows in text_rows(plan, path, [desc.names[i] for i in targets]):
        yield _of_texts(plan, desc, targets, rows)


def _of_texts(
    plan: p.CopyFromPlan, desc: RelationDesc, targets: tuple[int, ...], rows: TextRows
) -> pa.Table:
    exprs = []
    for n, i in enumerate(targets):
        typ = desc.typ.columns[i].type
        exprs.append((cast_text(Column(n), typ), typ))

    def where(row: int, field: int) -> str:
        return rows.where(row, desc.names[targets[field]], field)

    table = _evaluate(pa.Table.from_batches([rows.texts]), exprs, where)
    arrays: dict[int, pa.ChunkedArray | pa.Array] = {
        i: table.column(n).cast(arrow_type(desc.typ.columns[i].type)) for n, i in enumerate(targets)
    }
    return _checked(arrays, plan, desc, rows.texts.num_rows, rows.where)


def cast_text(expr: Scalar, typ: SqlType) -> Scalar:
    """The expression that makes a value of ``typ`` of a text, as ``CAST`` does; but what is too long for it is an error."""
    keys = find_cast(TEXT, typ, "assignment")
    if keys is None:
        keys = find_cast(TEXT, typ, "explicit")
    if keys is None:
        raise Unsupported(f"COPY FROM text cannot make a value of type {typ}")
    for key in keys:
        result = scalar(key).result
        expr = Call(key, (expr,), typ if key == keys[-1] or callable(result) else result)
    return expr


def _evaluate(
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
