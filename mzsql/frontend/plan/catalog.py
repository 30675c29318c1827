"""Plans of statements about databases, schemas, clusters, roles, names and comments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mzsql.frontend.catalog import (
    SYSTEM_CLUSTER,
    SYSTEM_SCHEMAS,
    CatalogView,
    FullName,
    is_temporary,
)
from mzsql.frontend.kinds import KIND
from mzsql.frontend.names.items import (
    check_database,
    check_qualifiers,
    cluster_name,
    item_named,
    schema_named,
    target_item,
)
from mzsql.frontend.names.scope import column_like
from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import catalog_plans as cp
from mzsql.frontend.plan.planners import Planners
from mzsql.frontend.plan.plans import SelectPlan
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.query.show import created_cluster
from mzsql.repr.booleans import boolean_of
from mzsql.repr.errors import (
    InvalidParameter,
    SqlError,
    SqlSyntaxError,
    UndefinedColumn,
    Unsupported,
)
from mzsql.repr.interval_text import parse_interval
from mzsql.repr.refresh import OnRefresh

_ADDRESSES = (
    "COMPUTE ADDRESSES",
    "COMPUTECTL ADDRESSES",
    "STORAGE ADDRESSES",
    "STORAGECTL ADDRESSES",
)
#: Cluster options about Materialize's own infrastructure, accepted and ignored.
_IGNORED = ("DISK", "INTROSPECTION DEBUGGING")
_INTERVAL = "INTROSPECTION INTERVAL"
_MOST_INTERVAL_MS = 86_400_000
#: Role attributes that every role has here anyway.
_NEUTRAL = ("INHERIT",)


# --- names ----------------------------------------------------------------------------------------


def target_of(
    kind: str, name: st.Name, catalog: CatalogView, *, if_exists: bool, verb: str
) -> cp.Target:
    """The object or other thing that a statement is about.

    Raises:
        UndefinedTable: there is no such object.
        SqlError: it is of another kind, or a system object.
    """
    partial = name.partial
    if KIND[kind].in_schema:
        item = target_item(catalog, kind, name, verb, if_exists=if_exists)
        if item is None:
            return cp.Target(kind, (str(name),), None, if_exists)
        return cp.Target(kind, item.name.parts, item, if_exists)
    if kind == "schema":
        return cp.Target(kind, _schema(name, catalog, if_exists=if_exists), None, if_exists)
    parts = (partial.item,) if partial.schema is None else (partial.schema, partial.item)
    return cp.Target(kind, parts, None, if_exists)


def _schema(name: st.Name, catalog: CatalogView, *, if_exists: bool) -> tuple[str, str]:
    """The database and schema of a schema's name, which need not exist with IF EXISTS."""
    partial = name.partial
    within = partial.schema is None or catalog.has_database(partial.schema)
    if within and catalog.has_schema(None, partial.item):
        raise SqlError(
            f"system schema '{partial.item}' cannot be modified",
            position=name.position,
            sqlstate="42501",
        )
    database = partial.schema or catalog.database
    if not if_exists:
        schema_named(catalog, name)
    return database, partial.item


# --- CREATE and DROP ------------------------------------------------------------------------------


def _create_schema(statement: cs.CreateSchema, catalog: CatalogView) -> cp.CreateSchemaPlan:
    partial = statement.name.partial
    database = partial.schema or catalog.database
    check_database(catalog, database, statement.name.position)
    return cp.CreateSchemaPlan(database, partial.item, statement.if_not_exists)


def _create_role(statement: cs.CreateRole, _catalog: CatalogView) -> cp.CreateRolePlan:
    _refuse_attributes(statement.attributes)
    return cp.CreateRolePlan(statement.name.partial.item)


def _refuse_attributes(attributes: Iterable[tuple[str, int]]) -> None:
    seen: set[str] = set()
    for attribute, position in attributes:
        if attribute in seen:
            raise SqlSyntaxError("conflicting or redundant options", position=position)
        seen.add(attribute)
        if attribute == "NOINHERIT":
            raise Unsupported("non inherit roles not yet supported", position=position)
        if attribute not in _NEUTRAL:
            raise Unsupported(
                f"{attribute} attribute is not supported",
                position=position,
                hint="Every role may do everything: who reaches the storage has all of it.",
            )


def _drop(statement: cs.DropNamed, catalog: CatalogView) -> cp.DropNamedPlan:
    targets = tuple(
        target_of(statement.kind, name, catalog, if_exists=statement.if_exists, verb="remove")
        for name in statement.names
    )
    # As in Materialize and PostgreSQL, DROP DATABASE drops everything in it by default.
    cascade = statement.kind == "database" if statement.cascade is None else statement.cascade
    return cp.DropNamedPlan(statement.kind, targets, cascade)


# --- clusters -------------------------------------------------------------------------------------


def _size(option: cs.Option) -> str:
    value = option.value
    if not isinstance(value, str):
        raise InvalidParameter(
            "invalid SIZE: must provide a string value", position=option.position
        )
    return value


def _flag(option: cs.Option) -> bool:
    value = option.value
    found = boolean_of(str(value)) if isinstance(value, str | int) else None
    if found is None:
        raise InvalidParameter(
            f"invalid {option.name}: cannot use value as boolean", position=option.position
        )
    return found


def _factor(option: cs.Option) -> int:
    value = option.value
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidParameter(
            "invalid REPLICATION FACTOR: cannot use value as number", position=option.position
        )
    if value > 64:
        raise InvalidParameter(
            f"REPLICATION FACTOR {value} is more than the 64 replicas that a cluster may have",
            position=option.position,
        )
    return value


def _without_effect(given: Mapping[str, cs.Option]) -> tuple[str, ...]:
    """The options among these that are accepted and ignored; their values must be booleans all the same."""
    found = tuple(name for name in _IGNORED if name in given)
    for name in found:
        _flag(given[name])
    return found


def _introspection_ms(option: cs.Option) -> int:
    """INTROSPECTION INTERVAL in milliseconds; 0: never."""
    value = option.value
    if value == 0 and not isinstance(value, bool):
        return 0
    if not isinstance(value, str):
        raise InvalidParameter(
            "invalid INTROSPECTION INTERVAL: cannot use value as interval",
            position=option.position,
        )
    interval = parse_interval(value)
    found = interval.days * 86_400_000 + interval.microseconds // 1000
    least = 1 if interval.microseconds else 0
    if interval.months or not least <= found <= _MOST_INTERVAL_MS:
        raise InvalidParameter(
            f"INTROSPECTION INTERVAL '{value}': it must be a millisecond at least, and a day at most, or 0 for never",
            position=option.position,
        )
    return found


def _replica(
    name: str, options: tuple[cs.Option, ...], position: int
) -> tuple[cp.ReplicaPlan, tuple[str, ...]]:
    if not name:
        raise SqlSyntaxError("zero-length delimited identifier", position=position)
    given = {one.name: one for one in options}
    addressed = [n for n in (*_ADDRESSES, "WORKERS") if n in given]
    if addressed and any(n in given for n in ("SIZE", "AVAILABILITY ZONE", "BILLED AS")):
        raise InvalidParameter(
            "invalid mixture of orchestrated and unorchestrated replica options",
            position=given[addressed[0]].position,
        )
    if addressed:
        raise Unsupported(
            "replicas with addresses of their own are not supported",
            position=given[addressed[0]].position,
            hint="Say SIZE: a process that runs the replica, mzsql replica, says itself where it is.",
        )
    for option in ("INTERNAL", "BILLED AS"):
        if option in given:
            raise SqlError(
                "cannot specify INTERNAL or BILLED AS as non-internal user",
                position=given[option].position,
                sqlstate="42501",
            )
    zone = given.get("AVAILABILITY ZONE")
    if zone is not None:
        raise InvalidParameter(
            f"unknown cluster replica availability zone {zone.value}", position=zone.position
        )
    if "SIZE" not in given:
        raise InvalidParameter("SIZE option must be specified", position=position)
    ignored = _without_effect(given)
    every = _introspection_ms(given[_INTERVAL]) if _INTERVAL in given else cp.INTROSPECTION_MS
    return cp.ReplicaPlan(name, _size(given["SIZE"]), every), ignored


def _replicas(
    option: cs.Option, cluster: str
) -> tuple[tuple[cp.ReplicaPlan, ...], tuple[str, ...]]:
    found: list[cp.ReplicaPlan] = []
    ignored: list[str] = []
    assert isinstance(option.value, tuple)
    for spec in option.value:
        assert isinstance(spec, cs.ReplicaSpec)
        replica, without_effect = _replica(spec.name, spec.options, spec.position)
        if any(one.name == replica.name for one in found):
            raise SqlError(
                f"cannot create multiple replicas named '{replica.name}' on cluster '{cluster}'",
                position=spec.position,
                sqlstate="42710",
            )
        found.append(replica)
        ignored += without_effect
    return tuple(found), tuple(dict.fromkeys(ignored))


def _cluster_options(options: tuple[cs.Option, ...], cluster: str) -> cp.ClusterOptions:
    given = {one.name: one for one in options}
    if "WORKLOAD CLASS" in given:
        raise Unsupported(
            "WORKLOAD CLASS not supported for non-system users",
            position=given["WORKLOAD CLASS"].position,
        )
    zones = given.get("AVAILABILITY ZONES")
    if zones is not None and zones.value:
        first = zones.value[0] if isinstance(zones.value, tuple) else zones.value
        raise InvalidParameter(
            f"unknown cluster replica availability zone {first}", position=zones.position
        )
    schedule = given.get("SCHEDULE")
    scheduled = None if schedule is None else schedule.value
    if schedule is not None and isinstance(scheduled, OnRefresh):
        _check_scheduled(given, schedule.position)
    replicas: tuple[cp.ReplicaPlan, ...] | None = None
    ignored: tuple[str, ...] = ()
    if "REPLICAS" in given:
        replicas, ignored = _replicas(given["REPLICAS"], cluster)
    return cp.ClusterOptions(
        size=_size(given["SIZE"]) if "SIZE" in given else None,
        replication_factor=_factor(given["REPLICATION FACTOR"])
        if "REPLICATION FACTOR" in given
        else None,
        managed=_flag(given["MANAGED"]) if "MANAGED" in given else None,
        replicas=replicas,
        introspection_ms=_introspection_ms(given[_INTERVAL]) if _INTERVAL in given else None,
        schedule=scheduled if isinstance(scheduled, OnRefresh) else None,
        manual=schedule is not None and scheduled is None,
        ignored=tuple(dict.fromkeys((*_without_effect(given), *ignored))),
    )


def _check_scheduled(given: Mapping[str, cs.Option], position: int) -> None:
    """Refuse options that say how many replicas a cluster has that is switched on for refreshes."""
    managed = given.get("MANAGED")
    if "REPLICATION FACTOR" in given:
        raise InvalidParameter(
            "REPLICATION FACTOR cannot be given together with any SCHEDULE other than MANUAL",
            position=position,
        )
    if "REPLICAS" in given or (managed is not None and not _flag(managed)):
        raise InvalidParameter(
            "cluster schedules other than MANUAL are not supported for unmanaged clusters",
            position=position,
        )


def _create_cluster(statement: cs.CreateCluster, _catalog: CatalogView) -> cp.CreateClusterPlan:
    name, position = statement.name.partial.item, statement.name.position
    options = _cluster_options(statement.options, name)
    managed = options.replicas is None if options.managed is None else options.managed
    if managed:
        if options.replicas is not None:
            raise InvalidParameter("REPLICAS not supported for managed clusters", position=position)
        if options.size is None:
            raise InvalidParameter("SIZE must be specified for managed clusters", position=position)
        return cp.CreateClusterPlan(name, options, statement.if_not_exists)
    for option, said in (
        ("SIZE", options.size),
        ("REPLICATION FACTOR", options.replication_factor),
        (_INTERVAL, options.introspection_ms),
    ):
        if said is not None:
            raise InvalidParameter(
                f"{option} not supported for unmanaged clusters", position=position
            )
    if options.replicas is None:
        raise InvalidParameter(
            "REPLICAS must be specified for unmanaged clusters", position=position
        )
    return cp.CreateClusterPlan(name, options, statement.if_not_exists)


def _create_replica(statement: cs.CreateReplica, _catalog: CatalogView) -> cp.CreateReplicaPlan:
    partial = statement.name.partial
    assert partial.schema is not None
    replica, ignored = _replica(partial.item, statement.options, statement.name.position)
    return cp.CreateReplicaPlan(partial.schema, replica, statement.if_not_exists, ignored)


def _alter_cluster(statement: cs.AlterCluster, _catalog: CatalogView) -> cp.AlterClusterPlan:
    name = statement.name.partial.item
    if not statement.reset:
        options = _cluster_options(statement.options, name)
        return cp.AlterClusterPlan(name, options, statement.if_exists)
    values: dict[str, Any] = {}
    for option in statement.options:
        match option.name:
            case "REPLICATION FACTOR":
                values["replication_factor"] = 1
            case "MANAGED":
                values["managed"] = True
            case "REPLICAS":
                values["replicas"] = ()
            case "INTROSPECTION INTERVAL":
                values["introspection_ms"] = cp.INTROSPECTION_MS
            case "SCHEDULE":
                values["manual"] = True
            case "SIZE":
                raise InvalidParameter("cannot unset SIZE of a cluster", position=option.position)
            case "WORKLOAD CLASS":
                raise Unsupported(
                    "WORKLOAD CLASS not supported for non-system users", position=option.position
                )
            case _:
                values["ignored"] = (*values.get("ignored", ()), option.name)
    return cp.AlterClusterPlan(name, cp.ClusterOptions(**values), statement.if_exists)


# --- ALTER, COMMENT -------------------------------------------------------------------------------


def _rename(statement: cs.Rename, catalog: CatalogView) -> cp.RenamePlan:
    target = _altered(statement, catalog)
    return cp.RenamePlan(target, statement.to)


def _altered(
    statement: cs.Rename | cs.Swap | cs.SetSchema | cs.SetCluster | cs.SetOwner,
    catalog: CatalogView,
) -> cp.Target:
    verb = "rename" if isinstance(statement, cs.Rename) else "alter"
    return target_of(
        statement.kind, statement.name, catalog, if_exists=statement.if_exists, verb=verb
    )


def _swap(statement: cs.Swap, catalog: CatalogView) -> cp.SwapPlan:
    target = _altered(statement, catalog)
    other = target_of(statement.kind, statement.other, catalog, if_exists=False, verb="alter")
    if target.kind == "schema" and target.name[0] != other.name[0]:
        raise SqlError(
            "cannot swap schemas that are in the ambient database",
            position=statement.other.position,
            detail="Only schemas of one database can be swapped.",
            sqlstate="0A000",
        )
    return cp.SwapPlan(target, other)


def _set_schema(statement: cs.SetSchema, catalog: CatalogView) -> cp.SetSchemaPlan:
    target = _altered(statement, catalog)
    database, schema = schema_named(catalog, statement.schema)
    if database is None or schema in SYSTEM_SCHEMAS:
        raise SqlError(
            f"system schema '{schema}' cannot be modified",
            position=statement.schema.position,
            sqlstate="42501",
        )
    if target.item is None:
        return cp.SetSchemaPlan(target, None)
    if is_temporary(target.item.name.schema):
        raise Unsupported(
            "moving a temporary object to another schema is not supported",
            position=statement.schema.position,
        )
    if target.item.name.database != database:
        raise Unsupported(
            "moving an object to another database is not supported",
            position=statement.schema.position,
        )
    return cp.SetSchemaPlan(target, FullName(database, schema, target.item.name.item))


def _set_cluster(statement: cs.SetCluster, catalog: CatalogView) -> cp.SetClusterPlan:
    target = _altered(statement, catalog)
    if statement.kind == "index":
        raise Unsupported(
            "ALTER INDEX … SET CLUSTER is not supported",
            position=statement.name.position,
            hint="Create an index in the other cluster, then drop this one.",
        )
    return cp.SetClusterPlan(target, cluster_name(catalog, statement.cluster))


def _set_owner(statement: cs.SetOwner, catalog: CatalogView) -> cp.SetOwnerPlan:
    if statement.kind in ("cluster replica", "role"):
        raise Unsupported(
            f"ALTER {statement.kind.upper()} … OWNER TO is not supported",
            position=statement.name.position,
        )
    return cp.SetOwnerPlan(_altered(statement, catalog), statement.role)


def _alter_role(statement: cs.AlterRole, catalog: CatalogView) -> cp.AlterRolePlan:
    _refuse_attributes(statement.attributes)
    target = target_of("role", statement.name, catalog, if_exists=False, verb="alter")
    return cp.AlterRolePlan(target)


def _alter_role_variable(
    statement: cs.AlterRoleVariable, catalog: CatalogView
) -> cp.AlterRoleVariablePlan:
    target = target_of("role", statement.name, catalog, if_exists=False, verb="alter")
    return cp.AlterRoleVariablePlan(target, statement.variable.lower(), statement.values)


def _membership(statement: cs.Membership, _catalog: CatalogView) -> cp.MembershipPlan:
    return cp.MembershipPlan(
        tuple(name.partial.item for name in statement.roles),
        tuple(name.partial.item for name in statement.members),
        statement.revoke,
    )


def _owned(statement: cs.Owned, _catalog: CatalogView) -> cp.OwnedPlan:
    roles = tuple(name.partial.item for name in statement.roles)
    to = None if statement.to is None else statement.to.partial.item
    return cp.OwnedPlan(roles, to, statement.cascade)


def _comment(statement: cs.Comment, catalog: CatalogView) -> cp.CommentPlan:
    kind, name = statement.kind, statement.name
    if kind != "column":
        target = target_of(kind, name, catalog, if_exists=False, verb="comment on")
        return cp.CommentPlan(target, None, statement.text)
    check_qualifiers(catalog, name.partial, name.position)
    item = item_named(catalog, name)
    target = target_of(
        item.kind.replace("-", " "), name, catalog, if_exists=False, verb="comment on"
    )
    names = () if item.desc is None else item.desc.names
    assert statement.column is not None
    if statement.column not in names:
        raise UndefinedColumn(
            f'column "{name}.{statement.column}" does not exist',
            position=name.position,
            hint=column_like(statement.column, names),
        )
    return cp.CommentPlan(target, names.index(statement.column) + 1, statement.text)


def _show_create(statement: cs.ShowCreateCluster, catalog: CatalogView) -> SelectPlan:
    name = cluster_name(catalog, statement.name)
    if name == SYSTEM_CLUSTER:
        raise Unsupported(f"SHOW CREATE of the system cluster '{name}' is not supported")
    return SelectPlan(QueryPlanner(catalog).top_level(created_cluster(name)), shows=True)


#: The planners of this family.
PLANNERS: Planners = {
    cs.CreateSchema: _create_schema,
    cs.CreateDatabase: lambda s, _c: cp.CreateDatabasePlan(s.name.partial.item, s.if_not_exists),
    cs.CreateRole: _create_role,
    cs.CreateCluster: _create_cluster,
    cs.CreateReplica: _create_replica,
    cs.DropNamed: _drop,
    cs.Rename: _rename,
    cs.Swap: _swap,
    cs.SetSchema: _set_schema,
    cs.SetCluster: _set_cluster,
    cs.SetOwner: _set_owner,
    cs.AlterCluster: _alter_cluster,
    cs.AlterRole: _alter_role,
    cs.AlterRoleVariable: _alter_role_variable,
    cs.Membership: _membership,
    cs.Owned: _owned,
    cs.Comment: _comment,
    cs.ShowCreateCluster: _show_create,
}
