"""Consolidation: equal rows at equal times become one, with the sum of their diffs, and vanish if that is zero.

Promise: engines do it (pyarrow's hash aggregation; DuckDB for nested columns, for sums that may leave their column's
type, and for what exceeds memory). NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Sums that do not fit their
column are an error, never wrapped. Trade-off: rows come back in no particular order unless the shard has a key.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from decimal import Context, Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.acero  # group_by would import it while the first shard is opened
import pyarrow.compute as pc

from mzsql.persist import duck
from mzsql.persist.batch import DIFF_COLUMN, TIME_COLUMN, KeySpec
from mzsql.persist.columns import conform
from mzsql.persist.key_numbers import in_one_number
from mzsql.persist.words import all_distinct, integers_of
from mzsql.repr.errors import DataError


def consolidate(table: pa.Table, key: KeySpec | None = None) -> pa.Table:
    """Return ``table`` (any columns, ``mz_time`` and ``mz_diff``) consolidated, with the same schema.

    Raises:
        DataError: the sums of diffs or of an additive column do not fit their type.
    """
    if table.num_rows == 0:
        return table
    additive = [] if key is None else [c for c in key.additive if c in table.column_names]
    sums = [*additive, DIFF_COLUMN]
    if not additive and table.num_rows <= _FEW_ROWS and _has_one_form(table.schema):
        diffs = integers_of(table[DIFF_COLUMN])
        if diffs.all() and all_distinct(table.drop_columns([DIFF_COLUMN])):
            return table.combine_chunks()
    hashable = all(_hashable(field.type) for field in table.schema if field.name not in sums)
    by_arrow = hashable and all(_sums_fit(table[name]) for name in sums)
    result = _by_arrow(table, sums) if by_arrow else _by_duckdb(table, additive)
    return conform(result, table.schema).combine_chunks()


#: So few rows are mostly all different, which is seen in less time than an aggregation takes to begin.
_FEW_ROWS = 1000


@functools.lru_cache(maxsize=4096)
def _has_one_form(schema: pa.Schema) -> bool:
    """Whether each value of the columns has one form, so that a row that is left as it is has that which consolidation gives it."""
    return not any(
        pa.types.is_floating(typ) or pa.types.is_nested(typ) or pa.types.is_dictionary(typ)
        for typ in schema.types
    )


def _hashable(type_: pa.DataType) -> bool:
    """Whether pyarrow can group by the type."""
    return not pa.types.is_nested(type_) and not pa.types.is_float16(type_)


def _sums_fit(column: pa.ChunkedArray) -> bool:
    """Whether no sum of the column's values can leave its type; beyond it, pyarrow's sum would wrap around."""
    typ = column.type
    if pa.types.is_signed_integer(typ):
        limit = 1 << (typ.bit_width - 1)
    elif pa.types.is_decimal128(typ):
        limit = 10**typ.precision
    else:
        return False
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is None:
        return True
    most = max(-bounds["min"], bounds["max"])
    if isinstance(most, Decimal):
        most = _EXACT.scaleb(most, typ.scale)
    return bool(int(most) * len(column) < limit)


#: With as many digits as any decimal has.
_EXACT = Context(prec=76)


def _by_arrow(table: pa.Table, sums: Sequence[str]) -> pa.Table:
    names = [name for name in table.column_names if name not in sums]
    asked = [(name, "sum") for name in sums]
    grouped = floats_as_bits(table).group_by(names, use_threads=False).aggregate(asked)
    columns, kept = dict[str, pa.ChunkedArray](), None
    for name in sums:
        # A sum of no values at all is NULL.
        column = pc.fill_null(grouped[f"{name}_sum"], 0)
        columns[name] = column
        some = pc.not_equal(column, pa.scalar(0, column.type))
        kept = some if kept is None else pc.or_(kept, some)
    columns |= {name: grouped[name] for name in names}
    made = pa.table({name: columns[name] for name in table.column_names})
    return _bits_as_floats(made.filter(kept).combine_chunks(), table.schema)


_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def floats_as_bits(table: pa.Table) -> pa.Table:
    """Return floats as integers with the same bits, with one zero and one NaN, so that what is equal in SQL has equal
    bits.
    """
    for place, field in enumerate(table.schema):
        bits = _BITS.get(field.type)
        if bits is not None:
            column = pc.add(table[place], pa.scalar(0.0, field.type))  # -0.0 + 0.0 is 0.0
            column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), field.type), column)
            viewed = [chunk.view(bits) for chunk in column.chunks]
            table = table.set_column(place, field.name, pa.chunked_array(viewed, bits))
    return table


def _bits_as_floats(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.type in _BITS:
            viewed = [chunk.view(field.type) for chunk in table[field.name].chunks]
            place = table.schema.get_field_index(field.name)
            table = table.set_column(place, field, pa.chunked_array(viewed, field.type))
    return table


def quote(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def consolidation_sql(
    source: str, names: Sequence[str], additive: Sequence[str], order: Sequence[str] = ()
) -> str:
    """Return DuckDB's SELECT that consolidates the relation ``source`` with the columns ``names``."""
    sums = {*additive, DIFF_COLUMN}
    groups = ", ".join(quote(name) for name in names if name not in sums)
    columns = ", ".join(
        f"coalesce(sum({quote(name)}), 0) AS {quote(name)}" if name in sums else quote(name)
        for name in names
    )
    nonzero = " OR ".join(f"coalesce(sum({quote(name)}), 0) <> 0" for name in names if name in sums)
    grouped = f" GROUP BY {groups}" if groups else ""
    ordered = " ORDER BY " + ", ".join(f"{quote(c)} NULLS LAST" for c in order) if order else ""
    return f"SELECT {columns} FROM {source}{grouped} HAVING {nonzero}{ordered}"


def _by_duckdb(table: pa.Table, additive: Sequence[str]) -> pa.Table:
    positions = positional(table.schema)
    names = positions.names
    with duck.connection() as connection:
        connection.register("updates", renamed(table.combine_chunks(), positions))
        sums = [names[table.schema.get_field_index(name)] for name in additive]
        sql = consolidation_sql("updates", names, sums)
        try:
            result = duck.table_of(connection, sql)
            return cast_sums(result, positions).rename_columns(table.column_names)
        except (duckdb.Error, pa.ArrowInvalid) as failure:
            raise DataError(f"sums of diffs or additive columns do not fit: {failure}") from failure


def positional(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` for DuckDB: columns named by position, because ``a`` and ``A`` are one name to it, and
    durations as integers.

    DuckDB would read durations as intervals, which count months and days.
    """
    kept = (TIME_COLUMN, DIFF_COLUMN)
    fields = [
        field.with_name(field.name if field.name in kept else f"c{place}").with_type(
            _without_durations(field.type)
        )
        for place, field in enumerate(schema)
    ]
    return pa.schema(fields)


@functools.cache
def _without_durations(type_: pa.DataType) -> pa.DataType:
    """Return the type with int64 in place of durations at any depth."""
    if pa.types.is_duration(type_):
        return pa.int64()
    within = [
        type_.field(place).with_type(_without_durations(type_.field(place).type))
        for place in range(type_.num_fields)
    ]
    if pa.types.is_struct(type_):
        return pa.struct(within)
    if pa.types.is_map(type_):
        return pa.map_(
            type_.key_field.with_type(_without_durations(type_.key_type)),
            type_.item_field.with_type(_without_durations(type_.item_type)),
        )
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(within[0], type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(within[0])
    return pa.list_(within[0]) if pa.types.is_list(type_) else type_


def renamed(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return ``table`` with the names and types that `positional` gave its columns."""
    table = table.rename_columns(columns.names)
    return table if table.schema.equals(columns) else table.cast(columns)


def cast_sums(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``table`` with the types of ``schema``.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit.
    """
    return table.select(schema.names).cast(schema)


def sort_by_key(table: pa.Table, key: KeySpec | None) -> pa.Table:
    """Return ``table`` in the order of a keyed shard's parts: by key, NULLs last; rows with equal keys keep their order."""
    if key is None or not key.columns or table.num_rows < 2:
        return table
    keys = table.select(key.columns)
    if any(pa.types.is_nested(field.type) for field in keys.schema):
        return table.take(_order_by_duckdb(keys))
    numbers = in_one_number(keys)
    if numbers is None:
        order = [(column, "ascending") for column in key.columns]
        return table.take(pc.sort_indices(table, sort_keys=order))
    if bool(np.all(numbers[1:] >= numbers[:-1])):
        return table
    # What comes in stretches in order, as rows of a table mostly do, is hardly more than merged.
    return table.take(pa.array(np.argsort(numbers, kind="stable")))


def _order_by_duckdb(keys: pa.Table) -> pa.ChunkedArray:
    """Return the row numbers of ``keys`` in sorted order, for types that pyarrow cannot sort by."""
    names = [f"c{place}" for place in range(keys.num_columns)]
    ones = pa.repeat(pa.scalar(1, pa.int64()), keys.num_rows)
    places = pc.subtract(pc.cumulative_sum(ones), 1)
    with duck.connection() as connection:
        connection.register("keys", keys.rename_columns(names).append_column("place", places))
        order = ", ".join(f"{quote(name)} NULLS LAST" for name in names)
        sql = f"SELECT place FROM keys ORDER BY {order}, place"
        return duck.table_of(connection, sql)["place"]
