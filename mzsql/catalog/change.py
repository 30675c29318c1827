"""A change of the catalog: what becomes of its entries, typed, by their kinds.

Promise: immutable, and nothing but data: what commands return, what a transaction stages, what `mzsql.catalog.durable` writes. Of two
changes in a row, ``first | then`` is the one that does both.
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
"""What has an owner and privileges."""
Holder = Owned | Replica | Role
"""What a statement may be about by its name."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """New entries by their keys; None where one is removed. Nothing changes where there are none, and then this is false.

    Attributes:
        meta, lease, deployment: the one entry of its kind; None: as it was.
        items, clusters, replicas, databases, roles: by their ids.
        schemas: by the keys of their entries, which are their ids, or their names where older versions made them.
        comments: by what they are on: ``table/u1``, ``table/u1/2`` for its second column.
        counters: the numbers that were given out last, by what they count.
        managed: shards of storage-managed collections, by their names.
        arrangements: shards of arrangements, by replica and fingerprint.
        settings: of the system, by their names.
        standbys: who waits to lead, by their tokens.
        audits: events of the audit log, by their numbers.
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
"""The fields of which there is one entry at most."""
NOTHING = Change()


def _both(first: Any, then: Any) -> Any:
    if isinstance(first, Mapping):
        return {**first, **then} if then else first
    return first if then is None else then


def entry(key: str, one: Holder) -> Change:
    """The change that puts an entry, whatever it is of."""
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
