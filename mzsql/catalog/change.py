"""A change of the catalog: new values of entries, typed, by kind.

Promise: a change is immutable data: commands return it, a transaction stages it, `mzsql.catalog.durable` writes it.
``first | then`` is the change that has the effect of both, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mzsql.catalog.objects import (
    AuditEvent,
    Cluster,
    Database,
    Deployment,
    Item,
    Lease,
    Meta,
    Object,
    Replica,
    Role,
    Schema,
    Standby,
)
from mzsql.repr.ids import GlobalId

Owned = Item | Schema | Database | Cluster
"""Things with an owner and privileges."""
Holder = Owned | Replica | Role
"""Things that a statement may name."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """New entries by key; None where an entry is removed. A change without entries changes nothing and is false.

    Attributes:
        meta, lease, deployment: the single entry of its kind; None: unchanged.
        items, clusters, replicas, databases, roles: by id.
        schemas: by entry key, which is the id, or the name where an older version created the schema.
        comments: by what they are on: ``table/u1``, or ``table/u1/2`` for its second column.
        counters: the numbers allocated last, by counter.
        managed: shards of storage-managed collections, by name.
        arrangements: shards of arrangements, by ``replica/fingerprint``.
        settings: system variables, by name.
        standbys: processes that wait to lead, by token.
        audits: events of the audit log, by number.
    """

    meta: Meta | None = None
    lease: Lease | None = None
    deployment: Deployment | None = None
    items: Mapping[GlobalId, Item | None] = {}
    clusters: Mapping[str, Cluster | None] = {}
    replicas: Mapping[str, Replica | None] = {}
    schemas: Mapping[str, Schema | None] = {}
    databases: Mapping[str, Database | None] = {}
    roles: Mapping[str, Role | None] = {}
    comments: Mapping[str, str | None] = {}
    counters: Mapping[str, int] = {}
    managed: Mapping[str, str] = {}
    arrangements: Mapping[str, str | None] = {}
    settings: Mapping[str, str | None] = {}
    standbys: Mapping[str, Standby | None] = {}
    audits: Mapping[str, AuditEvent | None] = {}

    def __or__(self, then: Change) -> Change:
        """Both changes, one after the other."""
        return Change(
            **{field: _both(getattr(self, field), getattr(then, field)) for field in FIELDS}
        )

    def __bool__(self) -> bool:
        return self != NOTHING


FIELDS = Change.__struct_fields__
SINGLE = ("meta", "lease", "deployment")
"""The fields with at most one entry."""
NOTHING = Change()


def _both(first: Any, then: Any) -> Any:
    if isinstance(first, Mapping):
        return {**first, **then} if then else first
    return first if then is None else then


def entry(key: str, one: Holder) -> Change:
    """The change that sets one entry."""
    match one:
        case Schema():
            return Change(schemas={key: one})
        case Database():
            return Change(databases={key: one})
        case Cluster():
            return Change(clusters={key: one})
        case Replica():
            return Change(replicas={key: one})
        case Role():
            return Change(roles={key: one})
        case Object():
            return Change(items={one.id: one})
