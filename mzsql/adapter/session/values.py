"""What functions such as ``current_schemas`` and ``current_setting`` read of a session.

Promise: values as literals of a plan carry them; a schema that does not exist is none of a session's. A replica that the session names is
one of its cluster, or an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from mzsql.adapter.session.session import Session
from mzsql.catalog.objects import Replica
from mzsql.catalog.state import CatalogState
from mzsql.frontend.catalog import SYSTEM_SCHEMAS
from mzsql.repr.datum import Datum
from mzsql.repr.errors import SqlError, UndefinedObject, alike

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


def targeted_replica(session: Session, state: CatalogState) -> Replica | None:
    """The replica that ``SET cluster_replica`` names; None where it names none.

    Raises:
        UndefinedObject: the session's cluster has none of that name.
    """
    name = session.get("cluster_replica")
    if not name:
        return None
    cluster = session.get("cluster")
    replicas = _replicas(cluster, state)
    found = next((one for one in replicas if one.name == name), None)
    if found is None:
        names = [one.name for one in replicas]
        raise UndefinedObject(
            f"unknown cluster replica '{cluster}.{name}'",
            hint=alike(name, names)
            or "SET cluster_replica to one of the session's cluster, or RESET cluster_replica.",
        )
    return found


def introspected_replica(session: Session, state: CatalogState) -> str:
    """The id of the replica whose introspection a session reads: the one that it names, or the only one of its cluster.

    Raises:
        UndefinedObject: the session's cluster has none of the name.
        SqlError: it has none, or several.
    """
    named = targeted_replica(session, state)
    cluster = session.get("cluster")
    replicas = [named] if named is not None else _replicas(cluster, state)
    if not replicas:
        raise SqlError(
            f'CLUSTER "{cluster}" has no replicas available to service request',
            hint="You can create cluster replicas using CREATE CLUSTER REPLICA",
            sqlstate="57014",
        )
    if len(replicas) > 1:
        raise SqlError(
            "log source reads must target a replica",
            detail=f"Replicas of cluster {cluster}: {', '.join(one.name for one in replicas)}.",
            hint="Use `SET cluster_replica = <replica-name>` to target a specific replica in the active cluster. Note that"
            " subsequent queries will only be answered by the selected replica. To undo, use `RESET cluster_replica`.",
            sqlstate="0A000",
        )
    return replicas[0].id


def _replicas(name: str, state: CatalogState) -> list[Replica]:
    cluster = state.cluster(name)
    return [] if cluster is None else state.replicas_of(cluster.id)
