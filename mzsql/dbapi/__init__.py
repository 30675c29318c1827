"""PEP 249 for mzsql: `connect`, connections, cursors, values and exceptions.

The paramstyle is pyformat, as in psycopg: ``%s`` or ``%(name)s``; without parameters a ``%`` is literal.
"""

from __future__ import annotations

from mzsql.dbapi.connection import Connection, connect
from mzsql.dbapi.cursor import Cursor
from mzsql.dbapi.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,  # noqa: A004  PEP 249's name
)
from mzsql.dbapi.values import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Interval,
    Jsonb,
    Range,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
#: PEP 249: threads may share the module and connections.
threadsafety = 2
paramstyle = "pyformat"

__all__ = [
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
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
