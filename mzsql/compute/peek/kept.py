"""DuckDB databases for queries over files, kept for later queries that can use the same one.

Promise: within the block a database belongs to one query. It was opened for exactly the files, the memory and the
settings asked for, and is locked. It is kept only if its query ended well or not all its rows were wanted, and then
holds nothing of the query, because everything a query creates is temporary and goes with its connection
(`mzsql.compute.engines.databases`). A collection that was written to has other files, and so needs another database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import msgspec

from mzsql.compute.engines.databases import DatabasePool
from mzsql.expr.engines import WIDE_SETTINGS, locked_connection

#: How many idle databases are kept, the most recently used ones.
_IDLE = 4


class Kind(msgspec.Struct, frozen=True):
    """What a database is opened for.

    Attributes:
        files: the paths that it may read.
        mebibytes: its memory limit.
        wide: whether its statement is a wide one.
        on_disk: whether rows are copied into it; it then lies in a file and is not kept.
    """

    files: tuple[str, ...]
    mebibytes: int
    wide: bool = False
    on_disk: bool = False


def _opened(kind: Kind, directory: Path, settings: dict[str, str]) -> duckdb.DuckDBPyConnection:
    settings = {"memory_limit": f"{kind.mebibytes}MiB", **settings}
    if kind.wide:
        settings |= WIDE_SETTINGS
    place = str(directory / "inputs.duckdb") if kind.on_disk else ":memory:"
    return locked_connection(place, settings, kind.files)


class Databases:
    """Opens databases, and keeps some of them. Thread-safe."""

    def __init__(self) -> None:
        self._pool = DatabasePool("mzsql-query-", _opened, _IDLE)

    @contextmanager
    def connection(self, kind: Kind) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to a database of a kind, which no other query uses within the block."""
        with self._pool.one(kind) as taken:
            # Everything that a query creates is temporary, unless rows are copied.
            taken.clean = not kind.on_disk
            yield taken.connection

    def close(self) -> None:
        """Close what is idle; what is in use is closed after its use. Idempotent."""
        self._pool.close()
