"""Conditions on rows that are evaluated without DuckDB (`mzsql.compute.engines.arrays`).

Promise: `evaluated` says of each row whether a condition, in DuckDB's SQL, is true, as DuckDB does; NULL is not true. It
returns None for what it does not know. Over few rows most of what a statement costs is reading and planning it, and
after a pause the code that this takes comes from memory.
"""

from __future__ import annotations

import functools

import pyarrow as pa

from mzsql.compute.engines.arrays.program import Program, program_of
from mzsql.compute.engines.arrays.vectors import Mask, Unsupported

#: A longer condition, in characters, is not looked at.
LONGEST = 4_000
#: Over more rows DuckDB takes less.
MOST_ROWS = 20_000


def is_known(condition: str) -> bool:
    """Whether a condition is evaluated here where its columns have suitable types and values."""
    return _read(condition) is not None


def evaluated(condition: str, table: pa.Table) -> Mask | None:
    """For each row of a table whether the condition is true; None where DuckDB must tell."""
    known = _read(condition)
    if known is None or table.num_rows > MOST_ROWS:
        return None
    try:
        return known.run({"delta": table}, {}).truth("passed")
    except Unsupported:
        return None


@functools.lru_cache(maxsize=4096)
def _read(condition: str) -> Program | None:
    if len(condition) > LONGEST:
        return None
    return program_of(f'SELECT {condition} AS "passed" FROM "delta"')
