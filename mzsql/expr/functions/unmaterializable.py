"""Functions of the session or the moment: known only when a statement runs, so plans carry them by name (`Unmaterializable`).

Promise: a name and its type; whoever runs a statement puts the value in before a plan is rendered, but for `mz_now`, which a
maintained view turns into validity intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.repr.types import BOOLEAN, INTEGER, MZ_TIMESTAMP, TEXT, TIMESTAMPTZ, SqlType

#: SQL name to type. The first three may also be written without parentheses.
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
}
