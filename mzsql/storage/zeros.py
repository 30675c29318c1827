"""Removes negative zero from stored data: rows from files may have -0.0, which no expression produces
(`mzsql.expr.functions.zeros`).

Promise: what is written to a table has 0.0 for each -0.0, also inside arrays, lists, maps and records; everything
else is unchanged, and columns without floats are not copied.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def with_one_zero(rows: pa.Table) -> pa.Table:
    """The rows with each -0.0 replaced by 0.0."""
    for place, field in enumerate(rows.schema):
        if _has_floats(field.type):
            chunks = [_unsigned(chunk) for chunk in rows.column(place).chunks]
            rows = rows.set_column(place, field, pa.chunked_array(chunks, field.type))
    return rows


def without_signs(updates: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """Updates, as a table or a stream, with each -0.0 replaced by 0.0."""
    if not any(_has_floats(field.type) for field in updates.schema):
        return updates
    if isinstance(updates, pa.Table):
        return with_one_zero(updates)
    batches = (
        part
        for batch in updates
        for part in with_one_zero(pa.Table.from_batches([batch])).to_batches()
    )
    return pa.RecordBatchReader.from_batches(updates.schema, batches)


def _has_floats(typ: pa.DataType) -> bool:
    if pa.types.is_nested(typ):
        return any(_has_floats(typ.field(i).type) for i in range(typ.num_fields))
    return bool(pa.types.is_floating(typ))


def _unsigned(array: pa.Array) -> pa.Array:
    typ = array.type
    if not _has_floats(typ):
        return array
    if pa.types.is_floating(typ):
        return pc.add(array, pa.scalar(0.0, typ))
    # Children of a slice are those of the whole: a copy begins at its own first.
    array = pa.concat_arrays([array, array.slice(0, 0)])
    missing = array.is_null() if array.null_count else None
    if pa.types.is_struct(typ):
        parts = [_unsigned(array.field(i)) for i in range(typ.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(typ), mask=missing)
    if pa.types.is_map(typ):
        keys, items = _unsigned(array.keys), _unsigned(array.items)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=typ, mask=missing)
    kind = pa.LargeListArray if pa.types.is_large_list(typ) else pa.ListArray
    return kind.from_arrays(array.offsets, _unsigned(array.values), type=typ, mask=missing)
