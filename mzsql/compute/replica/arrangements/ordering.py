"""Sorts rows in the order of a SQL ``ORDER BY``, without an engine.

Promise: the order is that of ``ORDER BY`` on every engine, column by column, with NULLs as the order says: texts and
bytes by their bytes, NaN above all numbers, -0.0 equal to 0.0. Rows equal in all columns of the order are equal.
Types that this module cannot order must not occur in orders (`mzsql.render.nodes.fronts` leaves them out).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.expr.scalar import ColumnOrder
from mzsql.persist.consolidate import floats_as_bits
from mzsql.persist.words import words_of

_Column: TypeAlias = "pa.Array | pa.ChunkedArray"


class Ordering:
    """An order over columns given by position."""

    def __init__(self, columns: Sequence[ColumnOrder]) -> None:
        assert columns
        self._columns = tuple(columns)

    def sorted(
        self, rows: pa.RecordBatch, first: npt.NDArray[np.uint64] | None
    ) -> npt.NDArray[np.int64]:
        """The positions of rows in sorted order; sorted by `first` before all columns, if it is given. Stable."""
        names, arrays = ([], []) if first is None else (["first"], [pa.array(first)])
        keys = [(name, "ascending") for name in names]
        self._add(pa.Table.from_batches([rows]), names, arrays, keys)
        return _places(pa.table(arrays, names), keys)

    def ranks(self, rows: pa.Table, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """A rank for each row within its key: smaller than those of the rows after it, equal for equal rows."""
        names, arrays = ["first"], [pa.array(keys)]
        sort_keys = [("first", "ascending")]
        self._add(rows, names, arrays, sort_keys)
        table = pa.table(arrays, names)
        places = _places(table, sort_keys)
        ordered = table.take(pa.array(places))
        new = np.zeros(rows.num_rows, np.bool_)
        for column in ordered.columns:
            new[1:] |= differs(column)
        made = np.empty(rows.num_rows, np.int64)
        made[places] = np.cumsum(new)
        return made

    def _add(
        self, rows: pa.Table, names: list[str], arrays: list[_Column], keys: list[tuple[str, str]]
    ) -> None:
        for number, one in enumerate(self._columns):
            column = rows.column(one.column)
            if column.null_count:
                names.append(f"n{number}")
                arrays.append(pc.is_null(column).cast(pa.int8()))
                keys.append((f"n{number}", "ascending" if one.nulls_last else "descending"))
            names.append(f"v{number}")
            arrays.append(_comparable(column))
            keys.append((f"v{number}", "descending" if one.desc else "ascending"))


def _places(table: pa.Table, keys: list[tuple[str, str]]) -> npt.NDArray[np.int64]:
    """The positions of a table's rows in sorted order. A single integer column without NULL is sorted by NumPy, which
    is faster.
    """
    if len(keys) == 1 and keys[0][1] == "ascending" and not table.column(0).null_count:
        only = table.column(0)
        if pa.types.is_integer(only.type):
            return np.argsort(only.to_numpy(), kind="stable")
    found: npt.NDArray[np.int64] = (
        pc.sort_indices(table, sort_keys=keys).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return found


def _comparable(column: _Column) -> _Column:
    """The column in a type that Arrow orders as SQL orders the original one. NULL stays NULL."""
    if pa.types.is_boolean(column.type):
        return column.cast(pa.int8())
    if not pa.types.is_floating(column.type):
        return column
    wide = column.cast(pa.float64())
    bits = floats_as_bits(pa.table({"v": wide})).column("v")
    values = bits.fill_null(0).to_numpy()
    # The bit patterns of negative floats, read as integers, grow as the numbers fall.
    mapped = np.where(values < 0, values ^ np.int64(0x7FFFFFFFFFFFFFFF), values)
    return pa.chunked_array([pa.array(mapped, mask=bits.is_null().to_numpy())])


def differs(column: _Column) -> npt.NDArray[np.bool_]:
    """For each value except the first whether it differs from the one before; NULL equals NULL."""
    array = column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if len(array) < 2:
        return np.zeros(max(0, len(array) - 1), np.bool_)
    words = words_of(array)
    if words is not None:
        changes = np.zeros(len(array) - 1, np.bool_)
        for word in words:
            changes |= word[1:] != word[:-1]
        return changes
    here, before = array[1:], array[:-1]
    unequal = pc.fill_null(pc.not_equal(here, before), False)
    nulls = pc.not_equal(pc.is_null(here), pc.is_null(before))
    found: npt.NDArray[np.bool_] = pc.or_(unequal, nulls).to_numpy(zero_copy_only=False)
    return found
