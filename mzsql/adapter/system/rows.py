"""The rows of builtin sources that are computed when they are read: the catalog's relations, frontiers, threads.

Promise: each relation has one function from the environment to rows, in the column order of its ``.sql`` file. Rows are metadata, one per
object, never users' data. A source without a function here is a storage-managed collection. A value that is expensive, such as a definition
that must be parsed and printed, is a function (`Later`), called only where a statement reads that column. No lease is taken.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from mzsql.adapter.replicas.places import about_each
from mzsql.adapter.system import objects, time_zones
from mzsql.adapter.system.described import key_texts
from mzsql.adapter.system.existing import StateOf, states_ahead
from mzsql.adapter.system.functions import aggregate_rows, function_rows, operator_rows, type_id
from mzsql.adapter.system.introspection import (
    INTROSPECTION,
    INTROSPECTION_DEFINED,
    arranged_indexes,
)
from mzsql.adapter.system.objects import SchemaIds, cluster_ids, schedules, system_schema_id
from mzsql.adapter.system.reached import made_of, reached, roots
from mzsql.adapter.system.source import Rows, Source
from mzsql.catalog.builtin import builtins
from mzsql.catalog.commands.clusters import factor_of, size_of
from mzsql.catalog.commands.default_privileges import default_rows, named_default_privileges
from mzsql.catalog.commands.privileges import (
    READABLE,
    USABLE,
    acl,
    acl_text,
    shown,
    system_privileges,
)
from mzsql.catalog.objects import (
    CATALOG_CLUSTER,
    FIRST_ID,
    SIZES,
    SYSTEM_OWNER,
    SYSTEM_ROLES,
    Index,
    Item,
    MaterializedView,
    RelationItem,
    Table,
    Type,
    View,
)
from mzsql.catalog.settings import VARIABLES, spelled
from mzsql.expr.scalar import Column
from mzsql.frontend.catalog import SYSTEM_SCHEMAS
from mzsql.frontend.definitions.shown_sql import (
    redacted_sql,
    shown_query,
    shown_sql,
)
from mzsql.frontend.grammar.keywords import keywords
from mzsql.repr.frontier import Frontier
from mzsql.repr.ids import GlobalId, oid, sort_key
from mzsql.repr.type_oids import (
    ARRAY_OIDS,
    PSEUDO_OIDS,
    RANGE_OIDS,
    SHORT_TEXT_OIDS,
    TYPE_OIDS,
    type_oid,
)
from mzsql.storage import Reach
from mzsql.threads import PROCESS

#: A value computed only where its column is read.
Later = Callable[[], Any]


class _Pair:
    """Two values that are computed together, when either is first asked for."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], tuple[Any, Any]]) -> None:
        self._make = make
        self._made: tuple[Any, Any] | None = None

    def first(self) -> Any:
        """The first value."""
        return self._both()[0]

    def second(self) -> Any:
        """The second value."""
        return self._both()[1]

    def _both(self) -> tuple[Any, Any]:
        if self._made is None:
            self._made = self._make()
        return self._made


def _texts(item: Item) -> tuple[Later, Later]:
    """An object's definition, and its definition without literals."""
    return partial(shown_sql, item.create_sql), partial(redacted_sql, item.create_sql)


def _tables(source: Source) -> Rows:
    schemas = SchemaIds(source.state)
    for i in source.state.of(Table):
        text, redacted = _texts(i)
        yield i.id, oid(i.id), schemas[i], i.name, i.owner, partial(acl, i), text, redacted, None


def _views(source: Source) -> Rows:
    schemas = SchemaIds(source.state)
    for b in builtins().values():
        if b.kind == "view":
            schema = system_schema_id(b.schema)
            yield b.id, oid(b.id), schema, b.name, b.query, SYSTEM_OWNER, READABLE, b.sql, b.sql
    for i in source.state.of(View):
        definition = partial(shown_query, i.create_sql)
        text = _texts(i)
        yield i.id, oid(i.id), schemas[i], i.name, definition, i.owner, partial(acl, i), *text


def _materialized_views(source: Source) -> Rows:
    schemas, clusters = SchemaIds(source.state), cluster_ids(source.state)
    for i in source.state.of(MaterializedView):
        yield (
            i.id,
            oid(i.id),
            schemas[i],
            i.name,
            clusters.get(i.cluster),
            partial(shown_query, i.create_sql),
            i.owner,
            partial(acl, i),
            *_texts(i),
        )


def _sources(_: Source) -> Rows:
    for b in builtins().values():
        if b.kind == "source":
            own = b.id, oid(b.id), system_schema_id(b.schema), b.name, "system"
            yield *own, *[None] * 6, SYSTEM_OWNER, READABLE, b.sql, b.sql


def _indexes(source: Source) -> Rows:
    clusters = cluster_ids(source.state)
    for i in source.state.of(Index):
        yield (
            i.id,
            oid(i.id),
            i.name,
            i.on_id,
            clusters.get(i.cluster),
            i.owner,
            *_texts(i),
        )


def _index_columns(source: Source) -> Rows:
    state = source.state
    for index in state.of(Index):
        on = state.items.get(index.on_id)
        texts = functools.cache(partial(key_texts, index, state))
        for position, key in enumerate(index.key, start=1):
            if isinstance(key, Column):
                nullable = True
                if isinstance(on, RelationItem):
                    nullable = on.desc.typ.columns[key.index].nullable
                yield index.id, position, key.index + 1, None, nullable
            else:
                yield index.id, position, None, partial(_nth, texts, position - 1), True


def _nth(texts: Callable[[], Sequence[str]], place: int) -> str:
    return texts()[place]


_CATEGORIES = {
    "boolean": ("boolean",),
    "numeric": (
        *("bigint", "smallint", "integer", "real", "double", "numeric"),
        *("uint2", "uint4", "uint8", "oid", "regclass", "regproc", "regtype"),
    ),
    "string": ("text", "char", "varchar"),
    "date-time": ("date", "time", "timestamp", "timestamptz"),
    "timespan": ("interval",),
    "array": ("array",),
    "list": ("list",),
    "map": ("map",),
    "pseudo": ("record",),
}
#: Kinds that are families of types.
_FAMILIES = ("array", "list", "map", "record")
#: Types that PostgreSQL has too.
_OF_POSTGRESQL = frozenset(TYPE_OIDS) - {"mz_timestamp", "uint2", "uint4", "uint8", "list", "map"}
#: PostgreSQL's names of types, where they differ from ours.
_PG_NAMES = {
    "boolean": "bool",
    "bigint": "int8",
    "smallint": "int2",
    "integer": "int4",
    "real": "float4",
    "double": "float8",
    "char": "bpchar",
    "array": "anyarray",
}


def _system_types(_: Source) -> Rows:
    categories = {kind: name for name, kinds in _CATEGORIES.items() for kind in kinds}
    for kind, number in sorted(TYPE_OIDS.items(), key=lambda one: one[1]):
        schema = system_schema_id("pg_catalog" if kind in _OF_POSTGRESQL else "mz_catalog")
        category = categories.get(kind, "user-defined")
        yield (
            type_id(number),
            number,
            schema,
            _PG_NAMES.get(kind, kind),
            category,
            SYSTEM_OWNER,
            USABLE,
        )
    for kind, number in ARRAY_OIDS.items():
        schema = system_schema_id("pg_catalog" if kind in _OF_POSTGRESQL else "mz_catalog")
        yield (
            type_id(number),
            number,
            schema,
            f"_{_PG_NAMES.get(kind, kind)}",
            "array",
            SYSTEM_OWNER,
            USABLE,
        )
    schema = system_schema_id("pg_catalog")
    for typ, (plain, of_array) in SHORT_TEXT_OIDS.items():
        name = str(typ).strip('"')
        yield type_id(plain), plain, schema, name, "string", SYSTEM_OWNER, USABLE
        yield type_id(of_array), of_array, schema, f"_{name}", "array", SYSTEM_OWNER, USABLE
    for name, number in RANGE_OIDS.items():
        yield type_id(number), number, schema, name, "range", SYSTEM_OWNER, USABLE
    for name, number in PSEUDO_OIDS.items():
        yield type_id(number), number, schema, name, "pseudo", SYSTEM_OWNER, USABLE


def _system_type_objects(source: Source) -> Rows:
    for gid, number, schema, name, _, owner, privileges in _system_types(source):
        yield gid, number, schema, name, Type.kind, owner, None, privileges


def _types(source: Source) -> Rows:
    yield from ((*one, None, None) for one in _system_types(source))
    schemas = SchemaIds(source.state)
    for i in source.state.of(Type):
        category = "composite" if i.typ.kind == "record" else i.typ.kind
        yield i.id, oid(i.id), schemas[i], i.name, category, i.owner, acl(i), *_texts(i)


def _array_types(_: Source) -> Rows:
    for kind, number in ARRAY_OIDS.items():
        yield type_id(number), type_id(TYPE_OIDS[kind])
    for number, of_array in SHORT_TEXT_OIDS.values():
        yield type_id(of_array), type_id(number)


def _pseudo_types(_: Source) -> Rows:
    for number in (*(TYPE_OIDS[kind] for kind in _FAMILIES), *PSEUDO_OIDS.values()):
        yield (type_id(number),)


def _functions(_: Source) -> Rows:
    return function_rows(system_schema_id, SYSTEM_OWNER)


def _base_types(_: Source) -> Rows:
    for kind, number in TYPE_OIDS.items():
        if kind not in _FAMILIES:
            yield (type_id(number),)
    for number in (*RANGE_OIDS.values(), *(number for number, _ in SHORT_TEXT_OIDS.values())):
        yield (type_id(number),)


def _held_types(source: Source, kind: str) -> Iterator[tuple[GlobalId, str]]:
    """Users' list or map types, each with the id of its element type: that of a user's named type where the definition names one."""
    items = source.state.items
    for i in source.state.of(Type):
        if i.typ.kind != kind or i.typ.element is None:
            continue
        known = [items.get(gid) for gid in i.depends_on]
        element = i.typ.element
        # Types created before definitions kept the names of their elements' types are matched by structure.
        named = [
            k.id
            for k in known
            if isinstance(k, Type) and (k.id == element.custom_id or k.typ == element)
        ]
        yield i.id, named[0] if named else type_id(type_oid(i.typ.element))


def _list_types(source: Source) -> Rows:
    yield from _held_types(source, "list")


def _map_types(source: Source) -> Rows:
    for gid, value in _held_types(source, "map"):
        yield gid, type_id(TYPE_OIDS["text"]), value


def _schemas(source: Source) -> Rows:
    for number, name in enumerate(SYSTEM_SCHEMAS, start=1):
        yield f"s{number}", oid(f"s{number}"), None, name, SYSTEM_OWNER, USABLE
    for one in source.state.schemas.values():
        yield one.id, oid(one.id), one.database, one.name, one.owner, acl(one)


def _databases(source: Source) -> Rows:
    for one in source.state.databases.values():
        yield one.id, oid(one.id), one.name, one.owner, acl(one)


def _roles(source: Source) -> Rows:
    for one in (*SYSTEM_ROLES, *source.state.roles.values()):
        yield one.id, oid(one.id), one.name, True


def _role_members(source: Source) -> Rows:
    for one in source.state.roles.values():
        for role in one.member_of:
            yield role, one.id, FIRST_ID


def _role_parameters(source: Source) -> Rows:
    for one in source.state.roles.values():
        for name, value in one.parameters:
            yield one.id, name, value


def _comments(source: Source) -> Rows:
    """What builtin relations' files say of them and their columns, then what COMMENT ON has said. The key of such a comment consists of the
    kind of thing it is on, its id and, for a column, the column's position.
    """
    for b in builtins().values():
        if b.purpose:
            yield b.id, b.kind, None, b.purpose
        told = b.column_comments()
        for place, name in enumerate(source.builtin_desc(b).names, start=1):
            if name in told:
                yield b.id, b.kind, place, told[name]
    for key, text in source.state.comments.items():
        kind, gid, *column = key.split("/")
        label = "cluster-replica" if kind == "replica" else kind
        yield gid, label, int(column[0]) if column else None, text


def _clusters(source: Source) -> Rows:
    state = source.state
    for cluster in (*state.clusters.values(), CATALOG_CLUSTER):
        size, factor = size_of(state, cluster), factor_of(state, cluster)
        own = cluster.owner, acl(cluster)
        disk, debugging, every = None, None, None
        if cluster.managed:
            disk, debugging, every = True, False, (0, 0, cluster.introspection_ms * 1000)
        made = cluster.id, cluster.name, cluster.managed, size, factor
        yield *made, disk, None, *own, debugging, every


def _cluster_replicas(source: Source) -> Rows:
    owners = {one.id: one.owner for one in source.state.clusters.values()}
    for r in source.state.replicas.values():
        every = (0, 0, r.introspection_ms * 1000)
        owner = owners.get(r.cluster_id, FIRST_ID)
        yield r.id, r.name, r.cluster_id, r.size, None, owner, True, every


def _replica_statuses(source: Source) -> Rows:
    for one, reason in about_each(source.state.replicas.values(), source.trouble):
        yield one.id, 0, "online" if reason is None else "offline", reason


def _replica_metrics(source: Source) -> Rows:
    for one, found in about_each(source.state.replicas.values(), source.usage):
        if found is not None:
            stored = found.memory, found.memory_limit, found.disk, found.disk_limit
            yield one.id, 0, found.cpu, found.cpu_limit, *stored


def _sizes(_: Source) -> Rows:
    for name, size in SIZES.items():
        yield name, size.processes, size.workers, None, None, None, Decimal(0)


def _variables(_: Source) -> Rows:
    for name, one in sorted(VARIABLES.items()):
        least, most, values = one.kind.shown()
        context = "internal" if one.read_only else "sighup" if one.of_system else "user"
        listed = list(values) or None
        yield (
            name,
            one.kind.vartype,
            least,
            most,
            listed,
            one.default,
            context,
            one.heeded,
            spelled(name),
        )


def _dependencies(source: Source) -> Rows:
    for item in source.state.items.values():
        for gid in item.depends_on:
            yield item.id, gid


def _transitive_dependencies(source: Source) -> Rows:
    return reached({gid: item.depends_on for gid, item in source.state.items.items()})


def _read(source: Source) -> Iterator[tuple[GlobalId, set[GlobalId]]]:
    """What the plan of each running dataflow reads; where that is not known, what it is made of by its definition."""
    by_definition = made_of(source.state.items)
    for item, runs in source.running():
        # What runs reads the physical plan's imports; the MIR may import other indexes.
        yield item.id, {*(by_definition(item) if runs is None else runs.reads)}


def _compute_dependencies(source: Source) -> Rows:
    for gid, read in _read(source):
        # Most read one collection.
        for one in read if len(read) == 1 else sorted(read, key=sort_key):
            yield gid, one


def _compute_roots(source: Source) -> Rows:
    return roots(dict(_read(source)))


def _frontiers(source: Source) -> Rows:
    collections = source.env.collections
    wal = functools.cache(lambda: source.env.wal.follow().upper)
    reach = functools.cache(collections.reaching)
    state = source.state
    ahead = states_ahead(source.env.persist, [item.shard for item in state.stored])
    for item in state.stored:
        seen = _Pair(partial(_stored_frontiers, source, item.id, ahead.of, reach))
        yield item.id, seen.first, wal if isinstance(item, Table) else seen.second
    arranged = arranged_indexes(state)
    for index in state.of(Index):
        found = _Pair(partial(_index_frontiers, source, index, arranged))
        yield index.id, found.first, found.second


def _stored_frontiers(
    source: Source,
    gid: GlobalId,
    state_of: StateOf,
    reach: Callable[[], Reach | None],
) -> tuple[Frontier, Frontier]:
    return source.env.collections.frontiers(gid, state_of, reach())


def _index_frontiers(
    source: Source, item: Index, arranged: dict[tuple[str, str], list[str]]
) -> tuple[Frontier, Frontier]:
    """An index's since and upper: those of its arrangement or, before that exists, its as-of and 0."""
    serving = source.state.serving(item.cluster)
    for shard in () if serving is None else arranged.get((serving.id, item.id), ()):
        held = source.env.persist.inspect(shard)
        if held is not None and not held.finalized:
            return held.since, held.upper
    return item.as_of, 0


def _arrangements(source: Source) -> Rows:
    found = list(source.arrangements())
    ahead = states_ahead(source.env.persist, [shard for *_, shard in found])
    for gid, lir_id, replica, shard in found:
        size = _Pair(partial(_size, ahead.of, shard))
        yield gid, lir_id, replica, shard, size.first, size.second


def _size(state_of: StateOf, shard: str) -> tuple[int, int]:
    """The number of updates in a shard, and their bytes as stored."""
    state = state_of(shard)
    parts = [part for batch in state.trace for part in batch.parts] if state is not None else []
    return sum(part.rows for part in parts), sum(part.size for part in parts)


def _startup(source: Source) -> Rows:
    for one in source.env.startup.phases():
        yield one.name, one.began, one.seconds, one.objects


def _notices(source: Source) -> Rows:
    items = source.state.items
    for item, runs in source.running():
        for one in () if runs is None else runs.notices:
            if items.keys() >= set(one.about):
                told = f"{item.id} {one.kind} {one.message}"
                digest = hashlib.sha256(told.encode()).hexdigest()[:16]
                shown = one.kind, one.message, one.hint, None
                redacted = one.redacted_message, one.redacted_hint, None
                yield f"n{digest}", *shown, *redacted, None, item.id, None


def _damage(source: Source) -> Rows:
    for one in source.env.cache_shard.incidents():
        at = datetime.datetime.fromtimestamp(one.found_at / 1000, datetime.UTC)
        yield one.shard, one.entry, at, one.reason


def _threads(source: Source) -> Rows:
    for one in (*source.env.supervisor.statuses(), *PROCESS.statuses()):
        since = datetime.datetime.fromtimestamp(one.since_ms / 1000, datetime.UTC)
        yield one.name, one.object_id, one.status, one.error, one.restarts, since


#: Relations whose rows depend only on the build and on the catalog's definitions (`DurableCatalog.definitions`).
DEFINED: dict[str, Callable[[Source], Rows]] = {
    **INTROSPECTION_DEFINED,
    "mz_catalog.mz_tables": _tables,
    "mz_catalog.mz_views": _views,
    "mz_catalog.mz_materialized_views": _materialized_views,
    "mz_catalog.mz_sources": _sources,
    "mz_catalog.mz_indexes": _indexes,
    "mz_catalog.mz_index_columns": _index_columns,
    "mz_catalog.mz_columns": objects.column_rows,
    "mz_catalog.mz_relations": objects.relation_rows,
    "mz_catalog.mz_objects": objects.object_rows(_system_type_objects),
    "mz_internal.mz_pg_class": objects.class_rows,
    "mz_internal.mz_pg_attribute": objects.attribute_rows,
    "mz_internal.mz_pg_namespace": objects.namespace_rows,
    "mz_internal.mz_pg_index": objects.index_rows,
    "mz_internal.mz_pg_type": objects.type_rows(_types, _array_types),
    "mz_catalog.mz_types": _types,
    "mz_catalog.mz_array_types": _array_types,
    "mz_catalog.mz_base_types": _base_types,
    "mz_catalog.mz_pseudo_types": _pseudo_types,
    "mz_catalog.mz_functions": _functions,
    "mz_catalog.mz_operators": lambda _: operator_rows(),
    "mz_internal.mz_aggregates": lambda _: aggregate_rows(),
    "mz_catalog.mz_list_types": _list_types,
    "mz_catalog.mz_map_types": _map_types,
    "mz_catalog.mz_timezone_names": time_zones.time_zones,
    "pg_catalog.pg_timezone_abbrevs": time_zones.pg_time_zone_abbreviations,
    "mz_catalog.mz_schemas": _schemas,
    "mz_catalog.mz_databases": _databases,
    "mz_catalog.mz_roles": _roles,
    "mz_catalog.mz_role_members": _role_members,
    "mz_catalog.mz_role_parameters": _role_parameters,
    "mz_catalog.mz_system_privileges": lambda source: (
        (acl_text(one),) for one in system_privileges(source.state)
    ),
    "mz_internal.mz_show_all_privileges": lambda source: shown(source.state),
    "mz_catalog.mz_default_privileges": lambda source: default_rows(source.state),
    "mz_internal.mz_show_default_privileges": lambda source: named_default_privileges(source.state),
    "mz_internal.mz_comments": _comments,
    "mz_catalog.mz_clusters": _clusters,
    "mz_catalog.mz_cluster_replicas": _cluster_replicas,
    "mz_internal.mz_cluster_schedules": schedules,
    "mz_catalog.mz_cluster_replica_sizes": _sizes,
    "mz_internal.mz_object_dependencies": _dependencies,
    "mz_internal.mz_object_transitive_dependencies": _transitive_dependencies,
    "mz_internal.mz_variables": _variables,
    "mz_internal.mz_keywords": lambda _: keywords(),
}
#: Relations whose rows can change at any moment.
PASSING: dict[str, Callable[[Source], Rows]] = {
    **INTROSPECTION,
    "pg_catalog.pg_timezone_names": time_zones.pg_time_zones,
    "mz_internal.mz_cluster_replica_statuses_raw": _replica_statuses,
    "mz_internal.mz_cluster_replica_metrics": _replica_metrics,
    "mz_internal.mz_compute_dependencies": _compute_dependencies,
    "mz_internal.mz_compute_roots": _compute_roots,
    "mz_internal.mz_frontiers": _frontiers,
    "mz_internal.mz_threads": _threads,
    "mz_internal.mz_arrangements": _arrangements,
    "mz_internal.mz_startup_phases": _startup,
    "mz_internal.mz_expression_cache_damage": _damage,
    "mz_internal.mz_notices": _notices,
}
