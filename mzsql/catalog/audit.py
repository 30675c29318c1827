"""The audit log: what statements have made, changed and dropped, written with what they change.

Promise: the events of a change are a pure function of the catalog before it and of it, and stand in the same append: an event is there
exactly where the change is. About as many as `MOST_EVENTS` are kept, the latest. Trade-off: they are entries of the catalog, which every
process reads when it opens, so they are few; who wants all of them for good copies them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mzsql.catalog.change import Change
from mzsql.catalog.objects import AuditEvent, Cluster, Database, Object, Replica, Role, Schema
from mzsql.catalog.state import CatalogState, applied
from mzsql.repr.ids import sort_key

#: So many events are kept.
MOST_EVENTS = 1000

_COUNTER = "audit"
#: What has owners and names beside objects, by the fields of a change.
_FIELDS = ("clusters", "replicas", "schemas", "databases", "roles")
#: What of an entry is no change that a statement asks for.
_UNTOLD = frozenset({"version", "as_of", "process", "created_at"})

_Event = tuple[str, str, dict[str, Any]]


def audited(state: CatalogState, change: Change, user: str, now_ms: int) -> Change:
    """A change with the events that tell of it.

    Args:
        state: the catalog before it.
        change: what a statement makes of it.
        user: the role whose statement that is.
        now_ms: when, in milliseconds since the epoch.
    """
    events = list(_events(state, change))
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
        # A comment that goes with what it is on is no statement's.
        if text != state.comments.get(key) and gid not in gone:
            on: dict[str, Any] = {"id": gid}
            if column:
                on["column"] = int(column[0])
            yield "comment", "cluster-replica" if kind == "replica" else kind, on
    for name, value in change.settings.items():
        if value != state.settings.get(name):
            yield "alter", "system", {"name": name, "value": value}


def _entry(state: CatalogState, after: CatalogState, old: Any, new: Any) -> Iterator[_Event]:
    """The event of an entry that was made, changed or removed."""
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
            return "cluster-replica"
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
    """What tells an entry from others, in a catalog that has it."""
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
