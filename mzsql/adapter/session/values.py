"""The values of session- and time-dependent functions, such as ``now``, ``current_schemas`` and ``current_setting``.

Promise: values have the form of a plan's literals. A schema in the search path that does not exist is left out, as in
PostgreSQL.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.session.session import Session
from mzsql.catalog.objects import Replica
from mzsql.catalog.state import CatalogState
from mzsql.expr.functions.unmaterializable import slept_seconds
from mzsql.frontend.catalog import SYSTEM_SCHEMAS, TEMPORARY_SCHEMA
from mzsql.repr.datum import Datum
from mzsql.repr.errors import SqlError, UndefinedObject, Unsupported, alike
from mzsql.repr.frontier import Timestamp
from mzsql.repr.interrupt import current
from mzsql.repr.types import SqlType

#: System schemas that are searched before the path without being named in it.
_FIRST = ("mz_catalog", "pg_catalog")
#: When this process started, in microseconds since the epoch.
_BEGUN_US = time.time_ns() // 1000


def moment_values(
    session: Session, env: Environment, ts: Timestamp | None, now_us: int, number: int
) -> Callable[[str, SqlType], Datum]:
    """The values of session- and time-dependent functions for one statement.

    Args:
        session: gives user and variables.
        env: the environment.
        ts: the timestamp read at; None where nothing with times is read.
        now_us: when the statement began, in microseconds since the epoch.
        number: the session's number among those of this process (``pg_backend_pid``).

    Returns:
        From a function's name and type to its value. A name of no such function is Unsupported.
    """
    state = env.catalog.state
    fixed: Mapping[str, Datum] = {
        "mz_now": ts,
        "now": now_us,
        "current_timestamp": now_us,
        "localtimestamp": now_us,
        "transaction_timestamp": now_us,
        "statement_timestamp": now_us,
        "current_user": session.user,
        "session_user": session.user,
        "user": session.user,
        "current_role": session.user,
        "current_database": session.get("database"),
        "current_catalog": session.get("database"),
        **session_values(session, state, str(env.build)),
        "mz_version": f"v{env.build}",
        "mz_environment_id": env.id,
        "version": f"PostgreSQL {session.get('server_version')} on mzsql {env.build}",
        "pg_backend_pid": number,
        "pg_postmaster_start_time": _BEGUN_US,
        "mz_uptime": f"0 0 {max(0, time.time_ns() // 1000 - _BEGUN_US)}",
        "mz_is_superuser": True,
    }

    slept: set[str] = set()

    def value(func: str, _: SqlType) -> Datum:
        seconds = slept_seconds(func)
        if seconds is not None:
            if func not in slept:
                # Once for a statement, however often it is planned.
                slept.add(func)
                current().sleep(seconds)
            return True
        if func == "mz_introspected_replica":
            # Evaluated only where it is called, since it may be an error.
            return introspected_replica(session, state)
        if func not in fixed:
            raise Unsupported(f"the function {func} is not supported")
        return fixed[func]

    return value


def session_values(session: Session, state: CatalogState, build: str) -> Mapping[str, Datum]:
    """The values of the functions that depend on the session's variables."""
    database = session.get("database")
    path = [s for s in session.search_path if s in SYSTEM_SCHEMAS or state.schema(database, s)]
    implicit = [s for s in _FIRST if s not in path]
    if session.temporary in state.temporary:
        implicit.insert(0, TEMPORARY_SCHEMA)
    major, minor, patch = (int(n) for n in (re.findall(r"\d+", build) + ["0"] * 3)[:3])
    return {
        "current_schema": next(iter(path), None),
        "mz_schemas_of_path": json.dumps(path),
        "mz_schemas_of_session": json.dumps(implicit),
        "mz_viewable_variables": json.dumps({name: session.get(name) for name in session.names()}),
        "mz_version_num": major * 100_000 + minor * 100 + patch,
    }


def targeted_replica(
    session: Session, state: CatalogState, of: str | None = None
) -> Replica | None:
    """The replica that the variable ``cluster_replica`` names; None where it is empty.

    Args:
        session: the session.
        state: the catalog.
        of: the cluster that it must be one of; None: the session's.

    Raises:
        UndefinedObject: the cluster has no replica of that name.
    """
    name = session.get("cluster_replica")
    if not name:
        return None
    cluster = of or session.get("cluster")
    whose = "the session's" if of is None else "its"
    replicas = _replicas(cluster, state)
    found = next((one for one in replicas if one.name == name), None)
    if found is None:
        names = [one.name for one in replicas]
        raise UndefinedObject(
            f"unknown cluster replica '{cluster}.{name}'",
            hint=alike(name, names)
            or f"SET cluster_replica to one of {whose} cluster, or RESET cluster_replica.",
        )
    return found


def introspected_replica(session: Session, state: CatalogState) -> str:
    """The id of the replica whose introspection a session reads: the one that ``cluster_replica`` names, or the only
    one of its cluster.

    Raises:
        UndefinedObject: the session's cluster has no replica of that name.
        SqlError: the cluster has no replica, or several.
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
