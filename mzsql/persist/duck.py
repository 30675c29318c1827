"""DuckDB for what pyarrow cannot group or sort.

Promise: each block has a connection of its own, in which what it registers is seen by nobody else. The database in memory behind them is
one for each process, as opening one costs more than most of what is asked of it; a child of a fork gets its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

_lock = threading.Lock()
_databases: dict[int, duckdb.DuckDBPyConnection] = {}


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for the block."""
    with _lock:
        database = _databases.get(os.getpid())
        if database is None:
            # A parent's is left alone: its threads are not here.
            database = _databases[os.getpid()] = duckdb.connect()
        own = database.cursor()
    try:
        yield own
    finally:
        own.close()


def _begin_anew() -> None:
    """In the child of a fork: somebody may have held the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
