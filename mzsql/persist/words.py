"""Values of a fixed width as words.

Promise: the words of two values of a column are equal where, and only where, the values are. What looks at few rows uses them instead
of functions of Arrow, whose code comes from memory after a pause, some tenths of a millisecond for each of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[Any]

_SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def words_of(array: pa.Array, *, nulls: bool = False) -> tuple[Words, ...] | None:
    """The words of each value, the lowest first; None where there is a NULL, or for a type whose values have no fixed width or may be
    written in several ways, as floats are. With `nulls` anything may stand where NULL does.
    """
    typ = array.type
    decimal = pa.types.is_decimal128(typ)
    fixed = (
        decimal
        or pa.types.is_integer(typ)
        or (pa.types.is_temporal(typ) and not pa.types.is_interval(typ))
    )
    if not fixed or (array.null_count and not nulls):
        return None
    data = array.buffers()[1]
    widths = _UNSIGNED if pa.types.is_unsigned_integer(typ) else _SIGNED
    width = np.int64 if decimal else widths.get(typ.bit_width)
    if data is None or width is None:
        return None
    # What a buffer has behind the values is anybody's.
    end = array.offset + len(array)
    if not decimal:
        return (np.frombuffer(data, width, count=end)[array.offset :],)
    halves = np.frombuffer(data, width, count=2 * end).reshape(-1, 2)[array.offset :]
    return halves[:, 0], halves[:, 1]


def integers_of(column: pa.ChunkedArray) -> Words:
    """A column of integers without NULL as NumPy has them, not copied where it is one piece.

    As `to_numpy`, which over few rows takes many times as long after a pause.
    """
    words = words_of(column.chunk(0)) if column.num_chunks == 1 else None
    return column.to_numpy() if words is None else words[0]


def all_distinct(table: pa.Table) -> bool:
    """Whether some of the table's columns show that no two of its rows are equal. False proves nothing."""
    rows = table.num_rows
    if rows < 2:
        return True
    made = np.zeros(rows, np.uint64)
    for column in table.columns:
        words = words_of(column.chunk(0)) if column.num_chunks == 1 else None
        for word in words or ():
            made = (made ^ word.astype(np.uint64)) * _ODD
            made ^= made >> _HALF
    made.sort()
    return bool((made[1:] != made[:-1]).all())


#: Multiplied by it, modulo 2^64, different numbers stay different; it spreads bits (Knuth's multiplicative hashing, with the golden ratio).
_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
