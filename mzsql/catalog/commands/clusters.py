"""Commands on clusters and their replicas: pure functions from a state to a `Change`.

Promise: a managed cluster has as many replicas of its size as its replication factor says, named r1, r2, …; an
unmanaged one has those that were created. A cluster with objects in it is dropped only with CASCADE.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.commands.items import drop_items, fresh_ids
from mzsql.catalog.objects import CATALOG_CLUSTER, SIZES, Cluster, Replica
from mzsql.catalog.settings import CLUSTER_SCHEDULES, system_value
from mzsql.catalog.state import CatalogState
from mzsql.frontend.plan.catalog_plans import INTROSPECTION_MS, ClusterOptions, ReplicaPlan
from mzsql.repr.errors import (
    DependentObjects,
    DuplicateObject,
    InvalidParameter,
    SqlError,
    UndefinedObject,
    Unsupported,
    alike,
)


def changes_system_cluster(name: str) -> SqlError:
    """The error of any attempt to change the system's cluster."""
    return SqlError(f"system cluster '{name}' cannot be modified", sqlstate="42501")


def cluster_named(state: CatalogState, name: str) -> Cluster:
    """The cluster with this name.

    Raises:
        UndefinedObject: there is none.
    """
    if name == CATALOG_CLUSTER.name:
        raise changes_system_cluster(name)
    found = state.cluster(name)
    if found is None:
        names = [one.name for one in state.clusters.values()]
        raise UndefinedObject(f"unknown cluster '{name}'", hint=alike(name, names))
    return found


def replica_named(state: CatalogState, cluster: str, name: str) -> Replica:
    """The replica with this cluster and name.

    Raises:
        UndefinedObject: there is no such cluster or replica.
    """
    of = cluster_named(state, cluster)
    for one in state.replicas_of(of.id):
        if one.name == name:
            return one
    names = [one.name for one in state.replicas_of(of.id)]
    raise UndefinedObject(
        f'CLUSTER {cluster} has no CLUSTER REPLICA named "{name}"', hint=alike(name, names)
    )


def _workers(size: str) -> int:
    found = SIZES.get(size)
    if found is None:
        raise InvalidParameter(
            f"unknown cluster replica size {size}", hint=f"Sizes: {', '.join(SIZES)}."
        )
    return found.total


def _new_replicas(state: CatalogState, cluster_id: str, wanted: Collection[ReplicaPlan]) -> Change:
    if not wanted:
        return NOTHING
    ids, counted = fresh_ids(state, "replica", state.replicas, len(wanted))
    made = {
        gid: Replica(
            gid,
            one.name,
            cluster_id,
            one.size,
            _workers(one.size),
            introspection_ms=one.introspection_ms,
        )
        for gid, one in zip(ids, wanted, strict=True)
    }
    return counted | Change(replicas=made)


def _of_size(size: str, factor: int, introspection_ms: int) -> list[ReplicaPlan]:
    return [ReplicaPlan(f"r{n}", size, introspection_ms) for n in range(1, factor + 1)]


def _check_available(state: CatalogState, options: ClusterOptions) -> None:
    if options.schedule is not None and system_value(state.settings, CLUSTER_SCHEDULES) == "off":
        raise Unsupported("`SCHEDULE = ON REFRESH` cluster option is not available")


def create_cluster(state: CatalogState, name: str, options: ClusterOptions) -> Change:
    """Create a cluster with its replicas.

    Raises:
        DuplicateObject: its name is taken.
        Unsupported: it has a schedule, and `CLUSTER_SCHEDULES` is off.
    """
    _check_available(state, options)
    if state.cluster(name) is not None:
        raise DuplicateObject(f"cluster '{name}' already exists")
    (gid,), counted = fresh_ids(state, "cluster", state.clusters, 1)
    if options.replicas is not None:
        replicas, cluster = list(options.replicas), Cluster(gid, name, managed=False)
    else:
        assert options.size is not None
        factor = 1 if options.replication_factor is None else options.replication_factor
        if options.schedule is not None:
            factor = 0  # the leader switches it on where a view is to be refreshed
        every = options.introspection_ms
        every = INTROSPECTION_MS if every is None else every
        replicas = _of_size(options.size, factor, every)
        cluster = Cluster(gid, name, True, options.size, factor, introspection_ms=every)
        cluster = msgspec.structs.replace(cluster, schedule=options.schedule)
        # Checked also where there is no replica to be made: REPLICATION FACTOR 0 keeps the size for later.
        _workers(options.size)
    return counted | _new_replicas(state, gid, replicas) | Change(clusters={gid: cluster})


def size_of(state: CatalogState, cluster: Cluster) -> str | None:
    """The size of a managed cluster's replicas."""
    if cluster.size is not None or not cluster.managed:
        return cluster.size
    return next((one.size for one in state.replicas_of(cluster.id)), None)


def factor_of(state: CatalogState, cluster: Cluster) -> int | None:
    """The replication factor of a managed cluster; None for an unmanaged one."""
    if cluster.replication_factor is not None or not cluster.managed:
        return cluster.replication_factor
    return len(state.replicas_of(cluster.id))


def alter_cluster(state: CatalogState, name: str, options: ClusterOptions) -> Change:
    """Change a cluster's size, replication factor, schedule or set of replicas, or whether it is managed.

    Raises:
        UndefinedObject: there is no such cluster.
        InvalidParameter: an option does not fit a cluster that is managed, or is not; the cluster would have
            no size.
        Unsupported: it gets a schedule, and `CLUSTER_SCHEDULES` is off.
    """
    _check_available(state, options)
    cluster = cluster_named(state, name)
    managed = cluster.managed if options.managed is None else options.managed
    if not managed:
        return _unmanaged(state, cluster, options)
    if options.replicas is not None:
        raise InvalidParameter("REPLICAS not supported for managed clusters")
    replicas = state.replicas_of(cluster.id)
    if not cluster.managed:
        sizes = {one.size for one in replicas}
        if options.size is None and len(sizes) > 1:
            raise InvalidParameter(
                "Cluster replicas do not have the same size, cannot change to managed"
            )
        # SET (MANAGED) alone keeps the present size and number of replicas.
        cluster = msgspec.structs.replace(
            cluster,
            managed=True,
            size=next(iter(sizes), None),
            replication_factor=len(replicas),
            introspection_ms=_common_interval(replicas),
        )
    size = size_of(state, cluster) if options.size is None else options.size
    if size is None:
        raise InvalidParameter("SIZE must be specified for managed clusters")
    schedule = None if options.manual else options.schedule or cluster.schedule
    if schedule is not None and options.replication_factor is not None:
        raise InvalidParameter(
            "REPLICATION FACTOR cannot be set if the cluster SCHEDULE is anything other than MANUAL"
        )
    factor = options.replication_factor
    factor = (factor_of(state, cluster) or 0) if factor is None else factor
    every = options.introspection_ms
    altered = msgspec.structs.replace(
        cluster,
        managed=True,
        size=size,
        replication_factor=factor,
        introspection_ms=cluster.introspection_ms if every is None else every,
        schedule=schedule,
    )
    _workers(size)
    return _with_replicas(state, altered, size, factor)


def switch_cluster(state: CatalogState, cluster_id: str, *, on: bool) -> Change:
    """Give a cluster that is switched on for refreshes its replica, or take it away; nothing where it is so already, or is such a
    cluster no more.
    """
    cluster, factor = state.clusters.get(cluster_id), int(on)
    if cluster is None or cluster.schedule is None or cluster.replication_factor == factor:
        return NOTHING
    size = size_of(state, cluster)
    assert size is not None, "a managed cluster has a size"
    altered = msgspec.structs.replace(cluster, size=size, replication_factor=factor)
    return _with_replicas(state, altered, size, factor)


def _with_replicas(state: CatalogState, cluster: Cluster, size: str, factor: int) -> Change:
    """The change that makes a managed cluster be as it is here, with so many replicas of this size."""
    replicas, every = state.replicas_of(cluster.id), cluster.introspection_ms
    wanted_names = {f"r{n}" for n in range(1, factor + 1)}
    kept = [one for one in replicas if one.size == size and one.name in wanted_names]
    names = {one.name for one in kept}
    wanted = [one for one in _of_size(size, factor, every) if one.name not in names]
    told = {
        one.id: msgspec.structs.replace(one, introspection_ms=every)
        for one in kept
        if one.introspection_ms != every
    }
    gone = Change(replicas=dict.fromkeys(one.id for one in replicas if one not in kept))
    gone |= Change(replicas=told)
    return gone | _new_replicas(state, cluster.id, wanted) | Change(clusters={cluster.id: cluster})


def _common_interval(replicas: Collection[Replica]) -> int:
    """The introspection interval of all replicas where they agree, else the default."""
    found = {one.introspection_ms for one in replicas}
    return found.pop() if len(found) == 1 else INTROSPECTION_MS


def _unmanaged(state: CatalogState, cluster: Cluster, options: ClusterOptions) -> Change:
    for option, said in (
        ("SIZE", options.size),
        ("REPLICATION FACTOR", options.replication_factor),
        ("INTROSPECTION INTERVAL", options.introspection_ms),
    ):
        if said is not None:
            raise InvalidParameter(f"{option} not supported for unmanaged clusters")
    if options.schedule is not None:
        raise InvalidParameter(
            "cluster schedules other than MANUAL are not supported for unmanaged clusters"
        )
    if cluster.schedule is not None and not options.manual:
        raise InvalidParameter(
            "when switching a cluster to unmanaged, if the managed cluster's SCHEDULE is anything other than MANUAL, "
            "you have to explicitly set the SCHEDULE to MANUAL"
        )
    altered = msgspec.structs.replace(
        cluster, managed=False, size=None, replication_factor=None, schedule=None
    )
    change = Change(clusters={cluster.id: altered})
    if options.replicas is None:
        return change
    return (
        change | _no_replicas(state, cluster) | _new_replicas(state, cluster.id, options.replicas)
    )


def _no_replicas(state: CatalogState, cluster: Cluster) -> Change:
    return Change(replicas=dict.fromkeys(one.id for one in state.replicas_of(cluster.id)))


def drop_clusters(state: CatalogState, names: Iterable[str], *, cascade: bool) -> Change:
    """Remove clusters with their replicas; with ``cascade`` also the objects in them.

    Raises:
        DependentObjects: a cluster has objects, and CASCADE was not given.
    """
    change = NOTHING
    inside = []
    for name in names:
        cluster = cluster_named(state, name)
        items = [item for item in state.maintained if item.cluster == name]
        if items and not cascade:
            raise DependentObjects(
                f'cannot drop cluster "{name}" because other objects depend on it',
                detail="\n".join(f'{i.noun} "{i.full_name}" is in it' for i in items),
                hint="Use DROP CLUSTER … CASCADE to drop them too, or ALTER … SET CLUSTER to move them.",
            )
        inside += [item.id for item in items]
        change |= Change(clusters={cluster.id: None}) | _no_replicas(state, cluster)
    return change | drop_items(state, inside, cascade=True)


def create_replica(state: CatalogState, cluster: str, replica: ReplicaPlan) -> Change:
    """Create a replica in an unmanaged cluster.

    Raises:
        DuplicateObject: its name is taken.
    """
    of = cluster_named(state, cluster)
    if of.managed:
        raise InvalidParameter(
            f"cannot modify managed cluster {cluster}",
            hint="ALTER CLUSTER … SET (REPLICATION FACTOR …) adds replicas, SET (MANAGED = false) hands them to you.",
        )
    if any(one.name == replica.name for one in state.replicas_of(of.id)):
        raise DuplicateObject(
            f"cannot create multiple replicas named '{replica.name}' on cluster '{cluster}'"
        )
    return _new_replicas(state, of.id, [replica])


def drop_replicas(state: CatalogState, names: Iterable[tuple[str, str]]) -> Change:
    """Remove replicas of unmanaged clusters.

    Raises:
        UndefinedObject: there is no such cluster or replica.
        InvalidParameter: the cluster is managed, so its replication factor says which replicas it has.
    """
    gone = []
    for cluster, name in names:
        replica = replica_named(state, cluster, name)
        if cluster_named(state, cluster).managed:
            raise InvalidParameter(
                "cannot drop replica of managed cluster",
                hint="ALTER CLUSTER … SET (REPLICATION FACTOR …) says how many it has.",
            )
        gone.append(replica.id)
    return Change(replicas=dict.fromkeys(gone))


def rename_replica(state: CatalogState, cluster: str, name: str, to: str) -> Change:
    """Rename a replica of an unmanaged cluster.

    Raises:
        UndefinedObject: there is no such cluster or replica.
        InvalidParameter: the cluster is managed.
        DuplicateObject: another replica of the cluster has that name.
    """
    replica = replica_named(state, cluster, name)
    if cluster_named(state, cluster).managed:
        raise InvalidParameter(f"cannot modify managed cluster {cluster}")
    if any(one.name == to for one in state.replicas_of(replica.cluster_id)):
        raise DuplicateObject(f"cluster replica '{cluster}.{to}' already exists")
    return Change(replicas={replica.id: msgspec.structs.replace(replica, name=to)})
