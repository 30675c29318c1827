"""How many objects there may be of a kind, where ALTER SYSTEM has set a limit (``max_tables``, …).

Promise: a change of the catalog is refused that makes more of something than its limit allows; what there is already stays, also where
a limit is set below that.
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
    """See that a change makes no more of anything than there may be.

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
    """How many there are, in each place where there may be so many."""
    match name:
        case "max_tables":
            return {"": len(state.of(Table))}
        case "max_materialized_views":
            return {"": len(state.of(MaterializedView))}
        case "max_databases":
            return {"": len(state.databases)}
        case "max_schemas_per_database":
            return Counter(one.database for one in state.schemas.values())
        case "max_objects_per_schema":
            # By the schemas themselves: one that is renamed, or whose database is, has what it had.
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
