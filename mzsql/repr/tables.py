"""Arrow tables cut into pieces, also those without columns.

Promise: a piece has as many rows as there are. Arrow's own ``Table.slice`` gives a table without columns as many rows as are asked for.
"""

from __future__ import annotations

import pyarrow as pa


def piece(rows: pa.Table, start: int, count: int | None = None) -> pa.Table:
    """Up to ``count`` rows from ``start`` on; all of the rest without it."""
    left = max(0, rows.num_rows - start)
    return rows.slice(start, left if count is None else min(count, left))
