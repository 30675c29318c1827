"""Opens DuckDB's databases, and one in memory for what pyarrow cannot group or sort.

Promise: every database of this package is opened by `opened`, so none loads extensions, and no time depends on the
machine's zone. Each block of `connection` has a connection of its own, and nobody else sees what it registers. They
share one database in memory per process, because opening a database costs more than most queries; a forked child
gets its own.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import duckdb
import pyarrow as pa
from duckdb import _seam

from mzsql.threads import plainly

# The copy that this warns of is worth less than the second binding of the relation that it recommends.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result", module=r"mzsql\.")

_lock = threading.Lock()
_databases: dict[int, duckdb.DuckDBPyConnection] = {}


Setting = str | bool | int | float | list[str]


def opened(
    path: str = ":memory:", settings: Mapping[str, Setting] = MappingProxyType({})
) -> duckdb.DuckDBPyConnection:
    """Open a database of its own, with additional settings. The caller closes it."""
    config: dict[str, Setting] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
    }
    made = duckdb.connect(path, config=config | dict(settings))
    # GLOBAL, so that it holds for cursors too.
    made.execute("SET GLOBAL TimeZone = 'UTC'")
    return made


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection for the block."""
    with _lock:
        database = _databases.get(os.getpid())
        if database is None:
            # A parent's database is not used: its threads do not exist in the child.
            database = _databases[os.getpid()] = plainly(opened)
        own = database.cursor()
    try:
        yield own
    finally:
        own.close()


def table_of(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, int] | None = None
) -> pa.Table:
    """Return a query's result, bound and run once.

    Of what DuckDB documents, `execute` keeps the rows in a form of its own and has a second statement read them as Arrow,
    which over few rows takes a seventh of the whole, or half of a simple query; and a relation object is bound twice. This
    is what the latter runs when it is fetched. It may change with DuckDB, whose release is fixed.

    Args:
        connection: runs the query.
        sql: the query.
        values: of its parameters, by name.

    Raises:
        duckdb.Error: the query failed.
    """
    given = None if values is None else dict(values)
    table: pa.Table = _seam.submit(connection, sql, given, "arrow").arrow_table()
    return table


def _begin_anew() -> None:
    """Replace the lock in a forked child: a thread of the parent may have held it."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
