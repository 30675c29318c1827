"""Where DuckDB's databases are opened, and one in memory for what pyarrow cannot group or sort.

Promise: every database of this package is made by `opened`, so none loads an extension from anywhere, and no time depends on the machine's
zone. Of `connection` each block has one of its own, in which what it registers is seen by nobody else. The database in memory behind
them is one for each process, as opening one costs more than most of what is asked of it; a child of a fork gets its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import duckdb

_lock = threading.Lock()
_databases: dict[int, duckdb.DuckDBPyConnection] = {}


Setting = str | bool | int | float | list[str]


def opened(
    path: str = ":memory:", settings: Mapping[str, Setting] = MappingProxyType({})
) -> duckdb.DuckDBPyConnection:
    """A database of its own, with other settings where they are given. The caller closes it."""
    config: dict[str, Setting] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
    }
    made = duckdb.connect(path, config=config | dict(settings))
    # For its cursors, too.
    made.execute("SET GLOBAL TimeZone = 'UTC'")
    return made


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for the block."""
    with _lock:
        database = _databases.get(os.getpid())
        if database is None:
            # A parent's is left alone: its threads are not here.
            database = _databases[os.getpid()] = opened()
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
