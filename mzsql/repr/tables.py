"""Arrow tables cut into pieces, also those without columns, and rows repeated.

Promise: a piece has as many rows as there are, and `pieces` are bounded in rows and in bytes, but for a row that is larger. Arrow's own
``Table.slice`` gives a table without columns as many rows as are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa


def piece(rows: pa.Table, start: int, count: int | None = None) -> pa.Table:
    """Up to ``count`` rows from ``start`` on; all of the rest without it."""
    if start == 0 and count is None:
        return rows
    left = max(0, rows.num_rows - start)
    return rows.slice(start, left if count is None else min(count, left))


def pieces(rows: pa.Table, count: int, size: int) -> Iterator[pa.Table]:
    """The rows in order, in pieces of at most ``count`` rows and ``size`` bytes, but for a row that is larger."""
    for start in range(0, rows.num_rows, count):
        yield from _halved(piece(rows, start, count), size)


def _halved(rows: pa.Table, size: int) -> Iterator[pa.Table]:
    """Pieces of at most so many bytes, each a half, a quarter … of the rows."""
    if rows.num_rows <= 1 or rows.nbytes <= size:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _halved(piece(rows, 0, half), size)
    yield from _halved(piece(rows, half), size)


def repeated(rows: pa.Table, counts: np.ndarray, at_once: int | None = None) -> Iterator[pa.Table]:
    """Each row as often as its count says, in order, in pieces of ``at_once`` rows; without it in one. There is at least one piece."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        yield rows.slice(0, 0)
        return
    for start in range(0, total, at_once or total):
        stop = min(start + (at_once or total), total)
        # The row that the piece begins in, and the one in which it ends; either may be cut.
        first, last = np.searchsorted(ends, (start, stop - 1), side="right")
        here = np.diff(np.clip(ends[first : last + 1], start, stop), prepend=start)
        yield rows.take(pa.array(np.repeat(np.arange(first, last + 1), here)))
