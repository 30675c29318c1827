"""Functions of the session or the moment, known only when a statement runs; plans carry them by name
(`Unmaterializable`).

Promise: a name and its type. Whoever runs a statement substitutes the values before a plan is rendered, except for
`mz_now`, which a maintained view turns into validity intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.repr.types import BOOLEAN, INTEGER, INTERVAL, MZ_TIMESTAMP, TEXT, TIMESTAMPTZ, SqlType

#: SQL names with their types. The first three may be written without parentheses.
UNMATERIALIZABLE: Mapping[str, SqlType] = {
    "current_timestamp": TIMESTAMPTZ,
    "current_user": TEXT,
    "session_user": TEXT,
    "now": TIMESTAMPTZ,
    "mz_now": MZ_TIMESTAMP,
    "current_database": TEXT,
    "current_schema": TEXT,
    "mz_environment_id": TEXT,
    "mz_is_superuser": BOOLEAN,
    "mz_version": TEXT,
    "version": TEXT,
    "pg_backend_pid": INTEGER,
    # The start of this process, and how long ago that was.
    "pg_postmaster_start_time": TIMESTAMPTZ,
    "mz_uptime": INTERVAL,
    "mz_version_num": INTEGER,
    # The replica whose introspection relations the session reads.
    "mz_introspected_replica": TEXT,
    # All variables of the session; the schemas searched for names: the implicit ones, and those in the search path.
    "mz_viewable_variables": SqlType("map", element=TEXT),
    "mz_schemas_of_session": SqlType("array", element=TEXT),
    "mz_schemas_of_path": SqlType("array", element=TEXT),
}

_SLEEP = "mz_sleep"


def sleep_key(seconds: float) -> str:
    """The key of a pause of so many seconds: a function of the moment that is true once they are over."""
    return f"{_SLEEP}/{max(0.0, seconds)!r}"


def slept_seconds(key: str) -> float | None:
    """How long such a key's pause is; None of any other key."""
    name, _, seconds = key.partition("/")
    return float(seconds) if name == _SLEEP else None
