"""Limits on the number of objects of a kind, set by ALTER SYSTEM (``max_tables``, …).

Promise: a change that would exceed a limit is refused; existing objects stay, also where a limit is set below their
number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mzsql.catalog.change import Change
from mzsql.catalog.objects import MaterializedView, Table
from mzsql.catalog.settings import LIMITS, system_value
from mzsql.catalog.state import CatalogState, applied
from mzsql.repr.errors import SqlError


def check_limits(state: CatalogState, change: Change) -> None:
    """Check that a change exceeds no limit.

    Raises:
        SqlError: it does (53000).
    """
    limits = {
        name: int(system_value(state.settings, name)) for name in LIMITS if name in state.settings
    }
    if not limits:
        return
    then = applied(state, change)
    for name, limit in limits.items():
        before, after = _counts(state, name), _counts(then, name)
        for place, count in after.items():
            if count > max(limit, before.get(place, 0)):
                raise _too_many(name, limit, before.get(place, 0), count)


def _too_many(name: str, limit: int, current: int, desired: int) -> SqlError:
    what = LIMITS[name]
    return SqlError(
        f"creating {what} would violate {name} limit (desired: {desired}, limit: {limit}, current: {current})",
        hint=f"Drop an existing {what}, or raise the limit: ALTER SYSTEM SET {name} = …",
        sqlstate="53000",
    )


def _counts(state: CatalogState, name: str) -> Mapping[object, int]:
    """How many there are of the limited kind, by the place that the limit applies to."""
    match name:
        case "max_tables":
            return {"": len(state.of(Table))}
        case "max_materialized_views":
            return {"": len(state.of(MaterializedView))}
        case "max_databases":
            return {"": len(state.databases)}
        case "max_schemas_per_database":
            lasting = (one for one in state.schemas.values() if one.session is None)
            return Counter(one.database for one in lasting)
        case "max_objects_per_schema":
            # By the schemas' ids, so that a schema keeps its count when it, or its database, is renamed.
            found = Counter((one.database, one.schema) for one in state.items.values())
            return {_schema_id(state, *place): count for place, count in found.items()}
        case "max_clusters":
            return {"": len(state.clusters)}
        case "max_replicas_per_cluster":
            return Counter(one.cluster_id for one in state.replicas.values())
        case _:
            return {"": len(state.roles)}


def _schema_id(state: CatalogState, database: str, name: str) -> str | None:
    found = state.schema(database, name)
    return None if found is None else found[1].id
