"""DuckDB databases that hydrations run in, kept for the next hydration.

Promise: within the block a database is one hydration's alone, and locked. It is kept only where whoever had it says that it holds nothing
of it (`mzsql.compute.engines.databases`). Opening one is a good part of what a view over few rows costs.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import duckdb

from mzsql.compute.engines.databases import DatabasePool, Taken
from mzsql.expr.engines import WIDE_SETTINGS, locked_connection

#: So many idle databases are kept.
_IDLE = 4


def _opened(wide: bool, directory: Path, settings: dict[str, str]) -> duckdb.DuckDBPyConnection:
    del directory  # it is in memory
    return locked_connection(settings={**settings, **WIDE_SETTINGS} if wide else settings)


class HydrationDatabases:
    """Opens databases, and keeps some. Thread-safe."""

    def __init__(self) -> None:
        self._pool = DatabasePool("mzsql-hydrate-", _opened, _IDLE)

    def one(self, *, wide: bool) -> AbstractContextManager[Taken]:
        """A database that nobody else uses within the block; `wide` for statements of so many expressions."""
        return self._pool.one(wide)

    def close(self) -> None:
        """Close what is idle; what is in use is closed after its use. Idempotent."""
        self._pool.close()
