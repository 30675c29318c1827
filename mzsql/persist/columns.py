"""The columns of a shard: which types they may have, and how updates are checked against them.

Promise: what passes `normalize` has exactly the shard's columns, then ``mz_time`` and ``mz_diff``, neither NULL,
with all times inside the bounds given. Widths of text and binary (``string``, ``large_string``, ``string_view``) are
interchangeable; everything else must have the shard's type.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.persist.batch import DIFF_COLUMN, TIME_COLUMN, KeySpec
from mzsql.persist.errors import CorruptPart, InvalidBounds, SchemaMismatch
from mzsql.persist.words import integers_of
from mzsql.repr.frontier import Frontier, Timestamp, less_equal, show

_UNFIT = (
    pa.types.is_dictionary,
    pa.types.is_null,
    pa.types.is_interval,
    pa.types.is_union,
    pa.types.is_run_end_encoded,
    # The engines that consolidate support none of these; updates with views of text and binary are accepted and cast.
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_float16,
    pa.types.is_decimal256,
)
#: Rows that were read separately are joined into chunks of at most so many rows and bytes; larger chunks are not worth the copy.
_CHUNK_ROWS = 128 * 1024
_CHUNK_BYTES = 16 * 1024 * 1024
_UNORDERED = (pa.types.is_decimal32, pa.types.is_decimal64)


def check_schema(schema: pa.Schema, key: KeySpec | None) -> pa.Schema:
    """Return the schema as shards store it, without metadata.

    Raises:
        SchemaMismatch: a reserved or repeated name, a type a shard cannot hold, or a key that does not fit.
    """
    if not isinstance(schema, pa.Schema):
        raise SchemaMismatch(
            f"a shard's schema must be a pyarrow Schema, not {type(schema).__name__}",
            hint='Write pa.schema([("name", pa.string()), …]).',
        )
    if key is not None and not isinstance(key, KeySpec):
        raise SchemaMismatch(
            f"the key of a shard must be a KeySpec, not {type(key).__name__}",
            hint='Write KeySpec(columns=("name",), workers=1).',
        )
    names = schema.names
    if len(set(names)) != len(names):
        raise SchemaMismatch("a shard's columns must have distinct names")
    for field in schema:
        if field.name in (TIME_COLUMN, DIFF_COLUMN):
            raise SchemaMismatch(f'column "{field.name}" is reserved for the time and diff of rows')
        if _unfit(field.type):
            raise SchemaMismatch(
                f'column "{field.name}" cannot be stored as {field.type}',
                hint=(
                    "Give the shard a plain type: string for string_view, float for float16, decimal128 for decimal256, "
                    "the values' own for a dictionary."
                ),
            )
    if key is not None:
        for column in (*key.columns, *key.additive):
            if column not in names:
                raise SchemaMismatch(f'key column "{column}" is not a column of the shard')
        for column in key.columns:
            type_ = schema.field(column).type
            if any(unordered(type_) for unordered in _UNORDERED):
                raise SchemaMismatch(
                    f'key column "{column}" cannot be of type {type_}, which nothing sorts',
                    hint="Use decimal128.",
                )
        for column in key.additive:
            type_ = schema.field(column).type
            if not (pa.types.is_integer(type_) or pa.types.is_decimal128(type_)):
                raise SchemaMismatch(
                    f'additive column "{column}" must be an integer or a decimal, not {type_}'
                )
    return pa.schema([f.remove_metadata() for f in schema])


def _unfit(type_: pa.DataType) -> bool:
    """Whether a shard cannot hold the type, or one nested in it."""
    within = [type_.field(place).type for place in range(type_.num_fields)]
    extended = isinstance(type_, pa.BaseExtensionType)
    # Parquet has no decimals with a negative scale.
    rounded = pa.types.is_decimal(type_) and type_.scale < 0
    unfit = extended or rounded or any(is_kind(type_) for is_kind in _UNFIT)
    return unfit or any(_unfit(one) for one in within)


def physical(schema: pa.Schema) -> pa.Schema:
    """Return the schema of updates: the row's columns, ``mz_time``, ``mz_diff``."""
    return pa.schema(
        [
            *schema,
            pa.field(TIME_COLUMN, pa.int64(), nullable=False),
            pa.field(DIFF_COLUMN, pa.int64(), nullable=False),
        ]
    )


def encode_schema(schema: pa.Schema) -> bytes:
    """Encode the schema as Arrow IPC bytes."""
    data: bytes = schema.serialize().to_pybytes()
    return data


@functools.lru_cache(maxsize=4096)
def decode_schema(data: bytes) -> pa.Schema:
    """Decode what `encode_schema` encoded.

    Raises:
        CorruptPart: the bytes are not a schema.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as failure:
        raise CorruptPart(f"not a schema: {failure}") from failure


def _width_free(type_: pa.DataType) -> str | None:
    name = str(type_)
    if name in ("string", "large_string", "string_view"):
        return "string"
    if name in ("binary", "large_binary", "binary_view"):
        return "binary"
    return None


def fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of type ``found`` may be cast to ``wanted``; see `fits_as_is` for whether every value can."""
    if found.equals(wanted):
        return True
    width = _width_free(found)
    if width is not None:
        return width == _width_free(wanted)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)
    if pa.types.is_nested(found) and pa.types.is_nested(wanted):
        if found.id != wanted.id or found.num_fields != wanted.num_fields:
            return False
        pairs = [(found.field(i), wanted.field(i)) for i in range(found.num_fields)]
        # A cast matches struct fields by name and fills missing ones with NULL, so require the same names.
        named = not pa.types.is_struct(wanted) or all(f.name == w.name for f, w in pairs)
        return named and all(fits(f.type, w.type) for f, w in pairs)
    return False


def fits_as_is(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a column whose type `fits` is a value of ``wanted``: finer timestamps, or NULLs in nested
    fields, may not be.
    """
    return bool(found.equals(wanted)) or _width_free(found) is not None


@functools.lru_cache(maxsize=4096)
def check_columns(found: pa.Schema, schema: pa.Schema, what: str) -> None:
    """Check that ``found`` has the columns of updates of ``schema``.

    Raises:
        SchemaMismatch: one is missing, is one too many, occurs twice, or has another type.
    """
    wanted = physical(schema)
    for field in wanted:
        places = found.get_all_field_indices(field.name)
        if not places:
            raise SchemaMismatch(f'{what} lacks the column "{field.name}"')
        if len(places) > 1:
            raise SchemaMismatch(f'{what} has the column "{field.name}" twice')
        type_ = found.field(places[0]).type
        if not fits(type_, field.type):
            raise SchemaMismatch(
                f'{what}: column "{field.name}" is of type {type_} but the shard has {field.type}'
            )
    for name in found.names:
        if name not in wanted.names:
            raise SchemaMismatch(f'{what} has a column "{name}" that the shard lacks')


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``table``, whose columns `fits`, with exactly the columns, order and types of ``schema``."""
    if table.schema.equals(schema):
        return table
    table = table.select(schema.names)
    if table.schema.equals(schema):
        return table
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def normalize(
    table: pa.Table, schema: pa.Schema, lower: Timestamp, upper: Frontier, what: str = "the batch"
) -> pa.Table:
    """Check updates and return them with the physical schema.

    Raises:
        SchemaMismatch: the columns do not fit, or a column without NULLs has one, or a value is not of the shard's
            type.
        InvalidBounds: a time is outside of ``[lower, upper)``.
    """
    wanted = physical(schema)
    if not table.schema.equals(wanted):
        check_columns(table.schema, schema, what)
        try:
            table = conform(table, wanted)
        except pa.ArrowInvalid as failure:
            raise SchemaMismatch(
                f"{what} has values that do not fit the shard: {failure}"
            ) from failure
    for field in table.schema:
        if not field.nullable and table[field.name].null_count:
            raise SchemaMismatch(f'{what} has a NULL in column "{field.name}", which takes none')
    if table.num_rows:
        check_times(*time_bounds(table), lower, upper, what)
    return table


def time_bounds(table: pa.Table) -> tuple[Timestamp, Timestamp]:
    """Return the least and greatest ``mz_time`` of a table with rows."""
    column = table[TIME_COLUMN]
    if column.num_chunks == 1 and not column.null_count:
        # Small updates are checked all the time, with pauses between them, after which the code of each function of Arrow's
        # comes from memory. NumPy's loop is short.
        times = integers_of(column)
        return int(np.minimum.reduce(times)), int(np.maximum.reduce(times))
    bounds = pc.min_max(column).as_py()
    return bounds["min"], bounds["max"]


def check_times(
    least: Timestamp, greatest: Timestamp, lower: Timestamp, upper: Frontier, what: str
) -> None:
    """Check least and greatest times against ``[lower, upper)``.

    Raises:
        InvalidBounds: they lie outside.
    """
    if least < lower or less_equal(upper, greatest):
        raise InvalidBounds(
            f"{what} has updates with times from {least} to {greatest}, "
            f"outside of [{lower}, {'∞' if upper is None else upper})",
            detail=f"lower is {show(lower)}, upper is {show(upper)}.",
        )


def with_times(table: pa.Table, times: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return ``table`` with other times."""
    place = table.schema.get_field_index(TIME_COLUMN)
    return table.set_column(place, table.schema.field(place), times)


def advance_times(table: pa.Table, floor: Timestamp) -> pa.Table:
    """Return ``table`` with times below ``floor`` advanced to it."""
    if floor <= 0 or not table.num_rows:
        return table
    # NULL, which only damage can bring here, gets the floor as well.
    if not table[TIME_COLUMN].null_count and time_bounds(table)[0] >= floor:
        return table
    times = pc.max_element_wise(table[TIME_COLUMN], pa.scalar(floor, pa.int64()))
    return with_times(table, times)


def joined(schema: pa.Schema, pieces: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of all ``pieces``, each with ``schema``: adjacent small pieces as one chunk, larger ones (of many rows, or of a few
    long ones) as they are, no empty chunk.

    A single chunk would copy everything, which would take most of the time of a large read.
    """
    runs: list[list[pa.Table]] = []
    rows = size = 0
    some = [piece for piece in pieces if piece.num_rows]
    if len(some) == 1:
        return some[0].combine_chunks()
    for piece in some:
        rows, size = rows + piece.num_rows, size + piece.nbytes
        if not runs or rows > _CHUNK_ROWS or size > _CHUNK_BYTES:
            runs.append([])
            rows, size = piece.num_rows, piece.nbytes
        runs[-1].append(piece)
    chunks = [pa.concat_tables(run).combine_chunks() for run in runs]
    return pa.concat_tables(chunks) if chunks else schema.empty_table()


def all_at(table: pa.Table, time: Timestamp) -> pa.Table:
    """Return ``table`` with every time set to ``time``."""
    return with_times(table, pa.repeat(pa.scalar(time, pa.int64()), table.num_rows))
