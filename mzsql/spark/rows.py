"""A relation's rows as a task returns them to Spark: contents at a time, or changes with their kind and time.

Promise: each row as often as the relation has it, with exactly the requested columns. Large contents, and changes, come
in slices by a hash of the row, so that tasks share the work and each consolidates its own rows. Columns and filters are
pushed down to the stored files: other columns are not read, nor row groups without matching rows. The trade-off: every
task of a read scans all matching parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from mzsql.adapter.reader import EnvironmentReader, RelationInfo
from mzsql.compute.engines.relations import spark_schema
from mzsql.compute.peek.rows import expand, named
from mzsql.persist import Filters, all_at, consolidate, duck
from mzsql.repr.errors import DatatypeMismatch, UndefinedColumn, Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.tables import repeated
from mzsql.repr.types import RelationDesc, RelationType, arrow_schema
from mzsql.storage import empty_updates

#: A slice, which one task reads, has at most about so many stored updates.
SLICE_ROWS = 2_000_000
#: A slice carries rows that were read when it was planned up to so many bytes; of larger tasks Spark warns.
SENT_BYTES = 512 * 1024
#: Rows per Arrow batch returned to Spark.
BATCH_ROWS = 65_536

#: The columns that describe a change, after the relation's own: ``insert`` or ``delete``; the time in milliseconds; the
#: time as a timestamp.
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
CHANGE_FIELDS = (
    StructField(CHANGE_TYPE, StringType(), True),
    StructField(COMMIT_VERSION, LongType(), True),
    StructField(COMMIT_TIMESTAMP, TimestampType(), True),
)


@dataclass
class Slice(InputPartition):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """The rows whose hash is ``number`` modulo ``count``.

    Attributes:
        number, count: the slice's number, and how many there are.
        as_of: the time of the contents, or the last time of the changes; None: a fresh one, only for a whole relation's
            contents.
        after: for changes: only those at later times; None: the contents instead of changes.
        snapshot: whether it has the contents at ``as_of`` as inserts, and nothing else.
        gid: the id of the relation that was planned for; None: whichever has the name.
        rows: the rows themselves as an Arrow stream, where they were read when the slice was planned (`sent`).
    """

    number: int
    count: int
    as_of: Timestamp | None
    after: Timestamp | None = None
    snapshot: bool = False
    gid: str | None = None
    rows: bytes | None = None


def sent(rows: pa.Table) -> bytes | None:
    """Rows as an Arrow stream that a slice carries; None where that is larger than `SENT_BYTES`."""
    if rows.nbytes > SENT_BYTES:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue()) if sink.tell() <= SENT_BYTES else None


def received(rows: bytes) -> pa.Table:
    """What `sent` made a stream of."""
    with pa.ipc.open_stream(rows) as stream:
        return stream.read_all()


def slices(rows: int) -> int:
    """The number of slices for so many stored updates."""
    return max(1, -(-rows // SLICE_ROWS))


def chosen(relation: RelationInfo, columns: Sequence[str] | None) -> RelationInfo:
    """The relation with only these columns, in their order.

    Raises:
        UndefinedColumn: it has no such column.
    """
    if columns is None:
        return relation
    desc = relation.desc
    for name in columns:
        if name not in desc.names:
            raise UndefinedColumn(
                f'column "{name}" does not exist in {relation.full_name}',
                hint=f"It has the columns {', '.join(desc.names)}.",
            )
    types = tuple(desc.typ.columns[desc.names.index(name)] for name in columns)
    fewer = RelationDesc(tuple(columns), RelationType(types))
    return RelationInfo(
        relation.id, relation.database, relation.schema, relation.name, relation.kind, fewer
    )


def schema_of(relation: RelationInfo, *, changes: bool) -> StructType:
    """The Spark schema of a relation's rows, or of its changes.

    Raises:
        DatatypeMismatch: a column has the name of one that describes a change.
    """
    schema = spark_schema(arrow_schema(relation.desc.typ.columns, relation.desc.names))
    if not changes:
        return schema
    own = {field.name for field in CHANGE_FIELDS} & set(relation.desc.names)
    if own:
        raise DatatypeMismatch(
            f'column "{min(own)}" of {relation.full_name} has the name of a column that tells of changes',
            hint="Read the other columns: option columns.",
        )
    return StructType([*schema.fields, *CHANGE_FIELDS])


def check_schema(relation: RelationInfo, now: StructType, told: StructType) -> None:
    """Check that a relation's columns are still those that Spark was told.

    Raises:
        DatatypeMismatch: they are not.
    """
    if [(f.name, f.dataType) for f in now] != [(f.name, f.dataType) for f in told]:
        raise DatatypeMismatch(
            f"the columns of {relation.full_name} are {now.simpleString()}, "
            f"not {told.simpleString()} as Spark was told",
            hint="The relation was made anew: register the environment's relations again, or read without a schema.",
        )


def contents(
    reader: EnvironmentReader,
    relation: RelationInfo,
    part: Slice,
    columns: Sequence[str] | None,
    filters: Filters,
) -> pa.Table:
    """A relation's rows at a time, in one slice."""
    wanted = chosen(relation, columns)
    if not relation.stored:
        return reader.rows(relation, part.as_of, columns=columns)
    as_of = reader.fresh_timestamp() if part.as_of is None else part.as_of
    pieces = _pieces(reader, relation, part, as_of, columns, filters)
    updates = _added_up(pieces, as_of)
    return named(expand(updates, relation.full_name), wanted.desc)


def changes(
    reader: EnvironmentReader,
    relation: RelationInfo,
    part: Slice,
    columns: Sequence[str] | None,
    *,
    told: bool = True,
) -> pa.Table:
    """A relation's changes in one slice, by time; deletions precede insertions of the same time.

    Args:
        reader: reads the environment.
        relation: the relation.
        part: the slice.
        columns: the columns wanted; all by default.
        told: whether rows have the columns that describe the change; without them only insertions are allowed.

    Raises:
        Unsupported: a row is deleted, and ``told`` is False.
    """
    assert part.as_of is not None
    wanted = chosen(relation, columns)
    pieces = _pieces(reader, relation, part, part.as_of, columns, {})
    updates = _added_up(pieces, part.as_of if part.snapshot else None)
    updates = updates.sort_by([("mz_time", "ascending"), ("mz_diff", "ascending")])
    diffs = updates.column("mz_diff").to_numpy()
    (updates,) = repeated(updates, np.abs(diffs))
    rows = named(updates.select(range(wanted.desc.arity)), wanted.desc)
    if not told:
        if len(diffs) and diffs.min() < 0:
            raise Unsupported(
                f"rows of {relation.full_name} were deleted or updated, and a stream of rows alone takes insertions only",
                hint='Set option("changes", "true"): then each row says what happened to it.',
            )
        return rows
    inserted = pc.greater(updates.column("mz_diff"), 0)
    rows = rows.append_column(CHANGE_TYPE, pc.if_else(inserted, "insert", "delete"))
    times = updates.column("mz_time")
    rows = rows.append_column(COMMIT_VERSION, times)
    return rows.append_column(COMMIT_TIMESTAMP, times.cast(pa.timestamp("ms", "UTC")))


def batches(rows: pa.Table, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches with Spark's column types."""
    yield from rows.cast(wanted).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _pieces(
    reader: EnvironmentReader,
    relation: RelationInfo,
    part: Slice,
    as_of: Timestamp,
    columns: Sequence[str] | None,
    filters: Filters,
) -> Iterator[pa.Table]:
    """The stored updates in a slice, one stored part at a time: columns by position, mz_time, mz_diff."""
    names = relation.desc.names
    positions = range(len(names)) if columns is None else [names.index(name) for name in columns]
    after = -1 if part.snapshot or part.after is None else part.after
    types = tuple(relation.desc.typ.columns[i] for i in positions)
    yield empty_updates(arrow_schema(types, [f"c{i}" for i in positions]))
    for updates in reader.pieces(relation, as_of, after=after, columns=positions, filters=filters):
        yield updates if part.count == 1 else _hashed(updates, part)


def _hashed(updates: pa.Table, part: Slice) -> pa.Table:
    row = updates.column_names[:-2]
    number = duckdb.FunctionExpression("hash", *(duckdb.ColumnExpression(c) for c in row))
    count, own = duckdb.ConstantExpression(part.count), duckdb.ConstantExpression(part.number)
    with duck.connection() as engine:
        return engine.from_arrow(updates).filter(number % count == own).to_arrow_table()


def _added_up(pieces: Iterator[pa.Table], as_of: Timestamp | None) -> pa.Table:
    """Updates consolidated, all at one time if it is given: columns, mz_time, mz_diff."""
    updates = pa.concat_tables(list(pieces), promote_options="default")
    return consolidate(updates if as_of is None else all_at(updates, as_of))
