"""mzsql: incrementally maintained, strictly serializable SQL views on Apache Spark.

``mzsql.connect("./env")`` opens an environment; the module is a PEP 249 module. Its public names come from `mzsql.dbapi` and are
imported when first used, so that a lower room can be used without loading Spark. Importing it names this Python to Spark, in
the environment variable ``PYSPARK_DRIVER_PYTHON``, where no Python is named (`mzsql.worker_python`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mzsql.repr.version import VERSION
from mzsql.worker_python import name_driver_python

if TYPE_CHECKING:
    from mzsql.dbapi import *  # noqa: F403

__version__ = VERSION

# Spark may be started as soon as this is imported, and reads it once.
name_driver_python(os.environ)

apilevel = "2.0"
threadsafety = 2
paramstyle = "pyformat"

_PUBLIC = frozenset(
    {
        "BINARY",
        "DATETIME",
        "NUMBER",
        "ROWID",
        "STRING",
        "Binary",
        "Connection",
        "Cursor",
        "DataError",
        "DatabaseError",
        "Date",
        "DateFromTicks",
        "Error",
        "IntegrityError",
        "InterfaceError",
        "InternalError",
        "Interval",
        "Jsonb",
        "NotSupportedError",
        "OperationalError",
        "ProgrammingError",
        "Range",
        "Time",
        "TimeFromTicks",
        "Timestamp",
        "TimestampFromTicks",
        "Warning",
        "connect",
    }
)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        from mzsql import dbapi  # noqa: PLC0415  see the module's text

        return getattr(dbapi, name)
    msg = f"module 'mzsql' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(_PUBLIC | {"__version__", "apilevel", "paramstyle", "threadsafety"})
