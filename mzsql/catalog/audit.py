"""The audit log: what statements created, changed and dropped, written together with the change.

Promise: a change's events are a pure function of the catalog before it and of the change, and are in the same append,
so an event exists exactly where the change does. About the latest `MOST_EVENTS` are kept. The trade-off: events are
catalog entries, which every process reads when it opens, so they are few; to keep them for good, copy them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mzsql.catalog.change import Change
from mzsql.catalog.objects import AuditEvent, Cluster, Database, Object, Replica, Role, Schema
from mzsql.catalog.state import CatalogState, applied
from mzsql.repr.ids import GlobalId, sort_key

#: About so many events are kept.
MOST_EVENTS = 1000

_COUNTER = "audit"
REPLICA = "cluster-replica"
"""The type of a replica in events."""
_WITH_REASON = frozenset({("create", REPLICA), ("drop", REPLICA)})
"""Events that say why they happened: by a statement, or by what policy."""
#: The fields of a change whose entries have names and owners, besides objects.
_FIELDS = ("clusters", "replicas", "schemas", "databases", "roles")
#: Fields of an entry whose change is not a statement's doing.
_UNTOLD = frozenset({"version", "as_of", "process", "created_at"})

_Event = tuple[str, str, dict[str, Any]]


def audited(
    state: CatalogState,
    change: Change,
    user: str,
    now_ms: int,
    policies: Mapping[str, Any] | None = None,
) -> Change:
    """A change with the events about it.

    Args:
        state: the catalog before it.
        change: the statement's change.
        user: the role that runs the statement.
        now_ms: the time in milliseconds since the epoch.
        policies: by what policy the replicas of clusters come and go; None: by a statement.
    """
    events = [
        (event, of, details | _reason(policies) if (event, of) in _WITH_REASON else details)
        for event, of, details in _events(state, change)
    ]
    if not events:
        return change
    last = state.counters.get(_COUNTER, 0)
    made: dict[str, AuditEvent | None] = {
        str(last + n): AuditEvent(event, of, msgspec.json.encode(details).decode(), user, now_ms)
        for n, (event, of, details) in enumerate(events, start=1)
    }
    oldest = sorted(state.audits, key=int)[: max(0, len(state.audits) + len(made) - MOST_EVENTS)]
    counted = Change(counters={_COUNTER: last + len(events)})
    return change | counted | Change(audits={**dict.fromkeys(oldest), **made})


def _reason(policies: Mapping[str, Any] | None) -> dict[str, Any]:
    if policies is None:
        return {"reason": "manual"}
    return {"reason": "schedule", "scheduling_policies": policies}


def _events(state: CatalogState, change: Change) -> Iterator[_Event]:
    after = applied(state, change)
    for one in sorted(change.items, key=sort_key):
        yield from _entry(state, after, state.items.get(one), change.items[one])
    for field in _FIELDS:
        before: Mapping[str, Any] = getattr(state, field)
        for key, new in getattr(change, field).items():
            yield from _entry(state, after, before.get(key), new)
    entries = (getattr(change, field) for field in ("items", *_FIELDS))
    gone = {key for some in entries for key, new in some.items() if new is None}
    for key, text in change.comments.items():
        kind, gid, *column = key.split("/")
        # A comment removed with its object was not removed by a statement of its own.
        passing = _is_temporary(after.items.get(GlobalId(gid)))
        if text != state.comments.get(key) and gid not in gone and not passing:
            on: dict[str, Any] = {"id": gid}
            if column:
                on["column"] = int(column[0])
            yield "comment", REPLICA if kind == "replica" else kind, on
    for name, value in change.settings.items():
        if value != state.settings.get(name):
            yield "alter", "system", {"name": name, "value": value}


def _entry(state: CatalogState, after: CatalogState, old: Any, new: Any) -> Iterator[_Event]:
    """The event of an entry that was created, changed or removed; what is temporary makes none."""
    if any(_is_temporary(one) for one in (old, new)):
        return
    if old is None and new is not None:
        yield "create", _type(new), _details(after, new)
    elif old is not None and new is None:
        yield "drop", _type(old), _details(state, old)
    elif old is not None and new is not None:
        changed = [
            name
            for name in new.__struct_fields__
            if name not in _UNTOLD and getattr(old, name, None) != getattr(new, name)
        ]
        if changed == ["privileges"]:
            yield _granted(old, new), _type(new), _details(after, new)
        elif changed:
            details = _details(after, new) | {"changed": changed}
            if old.name != new.name:
                details["old_name"] = old.name
            yield "alter", _type(new), details


def _is_temporary(one: object) -> bool:
    match one:
        case Schema():
            return one.session is not None
        case Object():
            return one.temporary
    return False


def _granted(old: Any, new: Any) -> str:
    """Whether privileges were granted or revoked."""
    before, now = old.privileges, new.privileges
    if now is None:
        return "revoke"
    return "grant" if set(now) - set(before or ()) else "revoke"


def _type(one: object) -> str:
    match one:
        case Cluster():
            return "cluster"
        case Replica():
            return REPLICA
        case Schema():
            return "schema"
        case Database():
            return "database"
        case Role():
            return "role"
        case Object():
            return one.kind
    raise AssertionError(one)


def _details(state: CatalogState, one: Any) -> dict[str, Any]:
    """What identifies an entry, in a catalog that has it."""
    match one:
        case Replica():
            cluster = state.clusters.get(one.cluster_id)
            return {
                "cluster_id": one.cluster_id,
                "cluster_name": None if cluster is None else cluster.name,
                "replica_id": one.id,
                "replica_name": one.name,
                "logical_size": one.size,
            }
        case Schema():
            database = state.databases.get(one.database)
            return {
                "id": one.id,
                "database_name": None if database is None else database.name,
                "name": one.name,
            }
        case Cluster() | Database() | Role():
            return {"id": one.id, "name": one.name}
    return {"id": one.id, "database": one.database, "schema": one.schema, "item": one.name}
