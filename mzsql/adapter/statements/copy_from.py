"""COPY t FROM 'file': Parquet, CSV and text format, streamed, all or nothing.

Promise: memory is bounded by a record batch and a part, whatever the file's size. A missing column, a wrong type, a
malformed row or a value that does not fit is reported with its column and row, and then nothing is loaded. Parquet
columns are matched by name, those of CSV and text by position. Texts become values by SQL's own casts, so error
messages are PostgreSQL's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.session.copy_paths import ANYWHERE, CopyPaths
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.statements.copy_text import BATCH_ROWS, TextRows, text_rows
from mzsql.adapter.statements.dml import Changes
from mzsql.adapter.statements.incoming import cast_text, evaluated, safe_cast, takes, whole_rows
from mzsql.adapter.statements.result import Result
from mzsql.expr.scalar import Column
from mzsql.frontend.plan import dml_plans
from mzsql.persist import Batch
from mzsql.repr.errors import (
    DataError,
    DatatypeMismatch,
    InvalidParameter,
    UndefinedColumn,
    Unsupported,
)
from mzsql.repr.interrupt import Interrupt, current
from mzsql.repr.types import RelationDesc, SqlType, arrow_schema, arrow_type
from mzsql.storage import TableShard


class CopyIn:
    """Carries out COPY … FROM.

    Args:
        env: the environment.
        changes: commits the rows.
    """

    def __init__(self, env: Environment, changes: Changes) -> None:
        self._env = env
        self._changes = changes

    def run(
        self, session: Session, transaction: Transaction, plan: dml_plans.CopyFromPlan
    ) -> Result:
        """Load a file as one write."""
        self._env.require_writable()
        transaction.enter("write")
        table = self._env.collections.table(plan.table.id)
        batch = copy_from(plan, table, session.stdin, session.copy_paths)
        transaction.add(plan.table.id, [batch])
        if transaction.implicit:
            self._changes.commit(session, transaction)
        return Result(plan.counted(batch.rows), count=batch.rows)


def copy_from(
    plan: dml_plans.CopyFromPlan,
    table: TableShard,
    stdin: Path | None = None,
    paths: CopyPaths = ANYWHERE,
) -> Batch:
    """The file's rows as a batch that is not committed yet.

    Args:
        plan: the COPY.
        table: the table's shard.
        stdin: the file with what a client sent, for FROM STDIN.
        paths: which files may be read.

    Raises:
        CopyDenied: the file may not be read.
        DataError, DatatypeMismatch, UndefinedColumn, NotNullViolation, InvalidParameter: the file cannot be loaded; see
            the module.
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
        # Passed in, since this may run on another thread, where the statement's interrupt is not the current one.
        interrupt.check()
        zeros = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
        ones = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        full = pa.table([*table.columns, zeros, ones], schema=schema)
        yield from full.combine_chunks().to_batches()


def _targets(plan: dml_plans.CopyFromPlan, desc: RelationDesc) -> tuple[int, ...]:
    return tuple(range(desc.arity)) if plan.columns is None else plan.columns


# --- Parquet --------------------------------------------------------------------------------------


def _parquet(plan: dml_plans.CopyFromPlan, path: Path, desc: RelationDesc) -> Iterator[pa.Table]:
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
                    arrays[i] = safe_cast(column, desc.typ.columns[i].type, where, row)
                where_row = partial(_parquet_row, plan, row)
                yield whole_rows(arrays, plan.table, batch.num_rows, where_row)
                row += batch.num_rows
        except (pa.ArrowInvalid, OSError) as broken:
            raise DataError(f"{plan.path} cannot be read from row {row} on: {broken}") from None


def _parquet_row(plan: dml_plans.CopyFromPlan, first: int, row: int) -> str:
    return f"COPY {plan.table.name.item}, row {first + row} of {plan.path}."


def _check_parquet_type(
    plan: dml_plans.CopyFromPlan, name: str, found: pa.DataType, typ: SqlType
) -> None:
    if not takes(typ, found):
        raise DatatypeMismatch(
            f'column "{name}" is of type {typ} but {plan.path} has {found} there',
            hint="Convert the file, or declare the column with the file's type.",
        )


# --- text -----------------------------------------------------------------------------------------


def _text(plan: dml_plans.CopyFromPlan, path: Path, desc: RelationDesc) -> Iterator[pa.Table]:
    targets = _targets(plan, desc)
    for rows in text_rows(plan, path, [desc.names[i] for i in targets]):
        yield _of_texts(plan, desc, targets, rows)


def _of_texts(
    plan: dml_plans.CopyFromPlan, desc: RelationDesc, targets: tuple[int, ...], rows: TextRows
) -> pa.Table:
    exprs = []
    for n, i in enumerate(targets):
        typ = desc.typ.columns[i].type
        exprs.append((cast_text(Column(n), typ), typ))

    def where(row: int, field: int) -> str:
        return rows.where(row, desc.names[targets[field]], field)

    table = evaluated(pa.Table.from_batches([rows.texts]), exprs, where)
    arrays: dict[int, pa.ChunkedArray | pa.Array] = {
        i: table.column(n).cast(arrow_type(desc.typ.columns[i].type)) for n, i in enumerate(targets)
    }
    return whole_rows(arrays, plan.table, rows.texts.num_rows, rows.where)
