"""What a statement is about, as the catalog has it."""

from __future__ import annotations

from collections.abc import Callable

from mzsql.catalog.change import Holder
from mzsql.catalog.commands import clusters, roles, schemas
from mzsql.catalog.commands.items import live
from mzsql.catalog.state import CatalogState
from mzsql.frontend.plan import catalog_plans as cp


def holder(state: CatalogState, target: cp.Target) -> tuple[str, Holder]:
    """The catalog entry that a statement is about: its key and its value.

    Raises:
        UndefinedObject, UndefinedTable: it no longer exists.
    """
    if target.item is not None:
        return target.item.id, live(state, target.item.id)
    return _PLACES[target.kind](state, target)


def _schema(state: CatalogState, target: cp.Target) -> tuple[str, Holder]:
    return schemas.schema_named(state, *target.name)


def _database(state: CatalogState, target: cp.Target) -> tuple[str, Holder]:
    database = schemas.database_named(state, target.name[-1])
    return database.id, database


def _cluster(state: CatalogState, target: cp.Target) -> tuple[str, Holder]:
    cluster = clusters.cluster_named(state, target.name[-1])
    return cluster.id, cluster


def _replica(state: CatalogState, target: cp.Target) -> tuple[str, Holder]:
    replica = clusters.replica_named(state, *target.name)
    return replica.id, replica


def _role(state: CatalogState, target: cp.Target) -> tuple[str, Holder]:
    role = roles.role_named(state, target.name[-1])
    return role.id, role


#: What is in no schema, by its kind.
_PLACES: dict[str, Callable[[CatalogState, cp.Target], tuple[str, Holder]]] = {
    "schema": _schema,
    "database": _database,
    "cluster": _cluster,
    "cluster replica": _replica,
    "role": _role,
}
