"""What functions such as ``current_schemas`` and ``current_setting`` read of a session.

Promise: values as literals of a plan carry them; a schema that does not exist is none of a session's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from mzsql.adapter.session.session import Session
from mzsql.catalog.state import CatalogState
from mzsql.frontend.catalog import SYSTEM_SCHEMAS
from mzsql.repr.datum import Datum

#: The schemas that PostgreSQL's users expect before the path, without being named there.
_FIRST = ("mz_catalog", "pg_catalog")


def session_values(session: Session, state: CatalogState, build: str) -> Mapping[str, Datum]:
    """The values of the functions that look at a session's variables."""
    database = session.get("database")
    path = [s for s in session.search_path if s in SYSTEM_SCHEMAS or state.schema(database, s)]
    implicit = [s for s in _FIRST if s not in path]
    major, minor, patch = (int(n) for n in (re.findall(r"\d+", build) + ["0"] * 3)[:3])
    return {
        "current_schema": next(iter(path), None),
        "mz_schemas_of_path": json.dumps(path),
        "mz_schemas_of_session": json.dumps(implicit),
        "mz_viewable_variables": json.dumps({name: session.get(name) for name in session.names()}),
        "mz_version_num": major * 100_000 + minor * 100 + patch,
    }
