"""The rows of relations with a row for each object or column, which `pg_catalog` and `information_schema` are views
over.

Promise: each relation is one pass over the catalog. Tools join `pg_catalog`'s relations with each other. Computed here,
each of these relations is one input of such a query; as views over the relations of single kinds they would be dozens.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from mzsql.adapter.system.described import column_type_name, key_texts
from mzsql.adapter.system.source import Rows, Source
from mzsql.catalog.builtin import Builtin, builtins
from mzsql.catalog.commands.privileges import READABLE, acl
from mzsql.catalog.objects import (
    CATALOG_CLUSTER,
    SYSTEM_OWNER,
    Index,
    Item,
    RelationItem,
    Table,
)
from mzsql.catalog.state import CatalogState
from mzsql.expr.scalar import Column
from mzsql.frontend.catalog import SYSTEM_SCHEMAS
from mzsql.frontend.definitions.shown_sql import shown_defaults
from mzsql.repr.errors import InternalError
from mzsql.repr.ids import oid
from mzsql.repr.type_oids import SHORT_TEXT_OIDS, type_oid
from mzsql.repr.types import RelationDesc, SqlType

#: pg_class's letters for kinds of objects; any other kind appears as a table.
_RELKINDS = {"index": "i", "view": "v", "materialized-view": "m"}


def system_schema_id(schema: str) -> str:
    """The id of a system schema."""
    return f"s{SYSTEM_SCHEMAS.index(schema) + 1}"


class SchemaIds:
    """The ids of objects' schemas, each looked up once."""

    def __init__(self, state: CatalogState) -> None:
        self._state = state
        self._known: dict[tuple[str, str], str] = {}

    def __getitem__(self, item: Item) -> str:
        place = item.database, item.schema
        if place not in self._known:
            found = self._state.schema(*place)
            if found is None:
                raise InternalError(f"{item.full_name} is in no schema")
            self._known[place] = found[1].id
        return self._known[place]


# --- objects ----------------------------------------------------------------------------------


def relation_rows(source: Source) -> Rows:
    """Tables, sources, views and materialized views."""
    state = source.state
    schemas, clusters = SchemaIds(state), cluster_ids(state)
    for b in builtins().values():
        schema = system_schema_id(b.schema)
        yield b.id, oid(b.id), schema, b.name, b.kind, SYSTEM_OWNER, None, READABLE
    for i in state.relations:
        cluster = clusters.get(getattr(i, "cluster", ""))
        yield i.id, oid(i.id), schemas[i], i.name, i.kind, i.owner, cluster, partial(acl, i)


def object_rows(system: Callable[[Source], Rows]) -> Callable[[Source], Rows]:
    """All objects.

    Args:
        system: gives those of the system's that are no relations.
    """

    def made(source: Source) -> Rows:
        state = source.state
        schemas, clusters = SchemaIds(state), cluster_ids(state)
        yield from relation_rows(source)
        for i, on in _indexes(state):
            cluster = clusters.get(i.cluster)
            yield i.id, oid(i.id), schemas[on], i.name, i.kind, i.owner, cluster, None
        yield from system(source)
        for one in state.items.values():
            if not isinstance(one, Index | RelationItem):
                yield (
                    one.id,
                    oid(one.id),
                    schemas[one],
                    one.name,
                    one.kind,
                    one.owner,
                    None,
                    acl(one),
                )

    return made


def schedules(source: Source) -> Rows:
    """How it is decided when clusters have replicas."""
    for one in (*source.state.clusters.values(), CATALOG_CLUSTER):
        if one.schedule is None:
            yield one.id, "manual", None
        else:
            yield one.id, "on-refresh", (0, 0, one.schedule.hydration_ms * 1000)


def cluster_ids(state: CatalogState) -> dict[str, str]:
    """Ids of clusters, by name."""
    return {one.name: one.id for one in state.clusters.values()}


def _indexes(state: CatalogState) -> Iterator[tuple[Index, RelationItem]]:
    """Each index with the relation that it is on."""
    for index in state.of(Index):
        on = state.items.get(index.on_id)
        if isinstance(on, RelationItem):
            yield index, on


# --- as PostgreSQL has them -------------------------------------------------------------------


def class_rows(source: Source) -> Rows:
    """The rows of pg_class, for all databases."""
    state = source.state
    schemas = SchemaIds(state)
    indexed = Counter(index.on_id for index in state.of(Index))
    for b in builtins().values():
        arity = partial(_arity, source, b)
        at = oid(system_schema_id(b.schema)), oid(SYSTEM_OWNER)
        yield _class(b, at, indexed[b.id] > 0, arity, b.schema, None)
    for i in state.relations:
        at = oid(schemas[i]), oid(i.owner)
        yield _class(i, at, indexed[i.id] > 0, i.desc.arity, i.schema, i.database)
    for index, on in _indexes(state):
        at = oid(schemas[on]), oid(index.owner)
        yield _class(index, at, False, 0, on.schema, on.database)


def _class(
    one: Builtin | Item,
    at: tuple[int, int],
    has_index: bool,
    arity: Any,
    schema: str,
    database: str | None,
) -> tuple[Any, ...]:
    kind = _RELKINDS.get(one.kind, "r")
    own = one.id, oid(one.id), one.name, one.kind
    return *own, *at, has_index, kind, arity, schema, database


def _arity(source: Source, builtin: Builtin) -> int:
    return source.builtin_desc(builtin).arity


def column_rows(source: Source) -> Rows:
    """The columns of all relations."""
    for gid, _, columns in _described(source):
        for place, name, nullable, default, typ in columns:
            yield gid, name, place, nullable, typ.spelled, default, typ.oid, typ.modifier


def attribute_rows(source: Source) -> Rows:
    """The rows of pg_attribute, for all databases."""
    for gid, database, columns in _described(source):
        number = oid(gid)
        for place, name, nullable, default, typ in columns:
            of = number, name, typ.oid, place, typ.modifier, typ.dimensions
            yield *of, nullable, default, database


class _Typed(NamedTuple):
    """A type's name, OID, modifier and number of dimensions, as in pg_attribute."""

    spelled: str
    oid: int
    modifier: int
    dimensions: int


#: A column: its position from 1 on, name, nullability, default and type.
_Described: TypeAlias = tuple[int, str, bool, str | None, _Typed]


def _described(source: Source) -> Iterator[tuple[str, str | None, Iterable[_Described]]]:
    """The columns of each relation, with the relation's id and database."""
    typed = functools.cache(_of_type)
    for gid, database, desc, defaults in _relations(source):
        columns = desc.typ.columns
        yield (
            gid,
            database,
            zip(
                range(1, len(columns) + 1),
                desc.names,
                [column.nullable for column in columns],
                itertools.chain(defaults, itertools.repeat(None)),
                [typed(column.type) for column in columns],
                strict=False,  # there may be fewer defaults than columns
            ),
        )


def _relations(
    source: Source,
) -> Iterator[tuple[str, str | None, RelationDesc, tuple[str | None, ...]]]:
    """For each relation: id, database, columns and the texts of their defaults."""
    for b in builtins().values():
        yield b.id, None, source.builtin_desc(b), ()
    for i in source.state.relations:
        with_defaults = isinstance(i, Table) and any(i.defaults)
        yield i.id, i.database, i.desc, shown_defaults(i.create_sql) if with_defaults else ()


def _of_type(typ: SqlType) -> _Typed:
    spelled = column_type_name(typ)
    return _Typed(spelled, type_oid(typ), _modifier(typ), int(spelled.endswith("[]")))


def _modifier(typ: SqlType) -> int:
    """A type's modifier as PostgreSQL has it; an array's is that of its elements."""
    if typ.kind == "array" and typ.element is not None:
        return _modifier(typ.element)
    if typ.kind == "numeric" and typ.scale is not None:
        return (39 << 16 | typ.scale) + 4
    # Types of their own, such as name, are texts whose length tells them apart: it is no modifier.
    if typ.length is None or typ in SHORT_TEXT_OIDS:
        return -1
    return typ.length if typ.kind in ("timestamp", "timestamptz") else typ.length + 4


def namespace_rows(source: Source) -> Rows:
    """The rows of pg_namespace, for all databases."""
    databases = {one.id: one.name for one in source.state.databases.values()}
    for name in SYSTEM_SCHEMAS:
        yield oid(system_schema_id(name)), name, oid(SYSTEM_OWNER), None
    for one in source.state.schemas.values():
        yield oid(one.id), one.name, oid(one.owner), databases.get(one.database)


def type_rows(
    types: Callable[[Source], Rows], arrays: Callable[[Source], Rows]
) -> Callable[[Source], Rows]:
    """The rows of pg_type, for all databases.

    Args:
        types: gives the rows of mz_types.
        arrays: gives the rows of mz_array_types.
    """

    def made(source: Source) -> Rows:
        # Read the types before the schemas: a schema and a type created in between would otherwise give a type without
        # a schema.
        known = list(types(source))
        numbers = {gid: number for gid, number, *_ in known}
        element: dict[str, str] = dict(arrays(source))
        array = {held: gid for gid, held in element.items()}
        places = _places(source.state)
        for gid, number, schema, name, category, owner, *_ in known:
            if schema not in places:
                continue  # dropped meanwhile, with its schema
            related = numbers.get(element.get(gid), 0), numbers.get(array.get(gid), 0)
            yield number, name, oid(schema), oid(owner), category, *related, *places[schema]

    return made


def _places(state: CatalogState) -> dict[str, tuple[str, str | None]]:
    """Schema ids to the names of schema and database."""
    databases = {one.id: one.name for one in state.databases.values()}
    found: dict[str, tuple[str, str | None]] = {
        system_schema_id(name): (name, None) for name in SYSTEM_SCHEMAS
    }
    for one in state.schemas.values():
        found[one.id] = one.name, databases.get(one.database)
    return found


def index_rows(source: Source) -> Rows:
    """The rows of pg_index, for all databases."""
    state = source.state
    for index, on in _indexes(state):
        keys = partial(_keys, state, index, on)
        positions = [key.index + 1 if isinstance(key, Column) else 0 for key in index.key]
        numbers = oid(index.id), oid(on.id)
        # NULL for no keys, as array_agg returns it.
        shown = positions or None, [0] * len(positions) or None, len(positions)
        yield *numbers, *shown, keys, index.name, on.name


def _keys(state: CatalogState, index: Index, on: RelationItem) -> list[str]:
    return [
        on.desc.names[key.index] if isinstance(key, Column) else text
        for key, text in zip(index.key, key_texts(index, state), strict=True)
    ]
