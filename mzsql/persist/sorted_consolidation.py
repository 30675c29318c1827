"""Consolidation of sorted rows: equal rows are adjacent, so comparing each row with the one before it is enough.

Promise: as `mzsql.persist.consolidate.consolidate`, exact, in memory bounded by a piece, and in the order of the
rows. Trade-off: the rows must be sorted by every column, which compaction does anyway for shards without a key; in
exchange nothing is hashed, which for rows of many columns costs more than the sort, in memory as on disk.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.persist.batch import DIFF_COLUMN
from mzsql.persist.consolidate import floats_as_bits
from mzsql.repr.errors import DataError

_INT64 = np.iinfo(np.int64)


def has_comparable_rows(schema: pa.Schema) -> bool:
    """Whether `consolidate_sorted` can compare rows of the schema."""
    return all(_compares(field.type) for field in schema)


@functools.cache
def _compares(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_) or pa.types.is_float16(type_):
        return False
    with contextlib.suppress(pa.ArrowException):
        pc.not_equal(pa.nulls(1, type_), pa.nulls(1, type_))
        return True
    return False


def consolidate_sorted(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the consolidated rows of all ``pieces``, which have ``mz_diff`` as int64 and are sorted by their other
    columns.

    Raises:
        DataError: a sum of diffs does not fit int64.
    """
    # The last row seen, which the next piece may continue, and the sum of its diffs so far.
    held: pa.Table | None = None
    sum_ = 0
    for piece in pieces:
        if piece.num_rows == 0:
            continue
        table = piece if held is None else pa.concat_tables([held, piece])
        table = table.combine_chunks()
        firsts = np.flatnonzero(_begins(table))
        sums = _sums(table[DIFF_COLUMN], firsts, sum_, goes_on=held is not None)
        last = int(firsts[-1])
        held, sum_ = table.slice(last, 1), int(sums[-1])
        if len(firsts) > 1:
            whole = table.slice(0, last)
            if len(firsts) <= last:
                whole = whole.take(pa.array(firsts[:-1]))
            yield _with_sums(whole, sums[:-1])
    if held is not None:
        yield _with_sums(held, np.array([sum_], dtype=object))


def _begins(table: pa.Table) -> np.ndarray:
    """Return for each row whether it differs from the one before in any column except the diff."""
    begins = np.zeros(table.num_rows, dtype=bool)
    begins[0] = True
    for name, column in zip(table.column_names, floats_as_bits(table).columns, strict=True):
        if name == DIFF_COLUMN:
            continue
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        differs = pc.not_equal(before, after)
        if column.null_count:
            differs = pc.coalesce(differs, pc.xor(before.is_valid(), after.is_valid()))
        begins[1:] |= differs.to_numpy()
    return begins


def _sums(diffs: pa.ChunkedArray, firsts: np.ndarray, before: int, *, goes_on: bool) -> np.ndarray:
    """Return the sum of diffs of each run of equal rows; if the first row was held over, its sum so far is ``before``."""
    values: np.ndarray = diffs.to_numpy()
    most = max(abs(int(values.min())), abs(int(values.max())), abs(before))
    if most * (len(values) + 1) > _INT64.max:
        values = values.astype(object)  # Python's integers, which do not overflow
    elif len(firsts) == len(values) and not goes_on:
        return values
    values = values.copy()
    if goes_on:
        values[0] = before
    summed: np.ndarray = np.add.reduceat(values, firsts)
    return summed


def _with_sums(table: pa.Table, sums: np.ndarray) -> pa.Table:
    """Return the rows whose sums are not zero, with their sums."""
    if sums.dtype == object:
        if max(sums) > _INT64.max or min(sums) < _INT64.min:
            raise DataError("sums of diffs do not fit")
        sums = sums.astype(np.int64)
    place = table.schema.get_field_index(DIFF_COLUMN)
    table = table.set_column(place, table.schema.field(place), pa.array(sums, pa.int64()))
    return table if sums.all() else table.filter(pa.array(sums != 0))
