"""Relations that plugins add to the system catalog: checked when they are registered, read when a query reads them.

Promise: an invalid relation (a bad name, an unknown type, a name that is taken) is left out and reported with its
plugin; others are not affected. A fault of a plugin's function when it is called (it raises, its rows do not fit, are
too many, or never come) is a `PluginRelationFailed` of the query that reads the relation, and of nothing else. The
function runs on a thread of its own, for which a query waits no longer than its time limit. While a call runs no second
one is started: other queries wait for the first to end. A relation's id follows from its name and columns, so processes
with different plugins agree on it.
"""

from __future__ import annotations

import itertools
import queue
import re
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from mzsql.frontend.catalog import SYSTEM_SCHEMAS
from mzsql.location import (
    PluginColumn,
    PluginRelation,
    PluginRelationFailed,
    Registry,
    Whereabouts,
    without_secrets,
)
from mzsql.repr.errors import QueryCanceled
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import current
from mzsql.repr.types import ColumnType, RelationDesc, RelationType, SqlType, arrow_schema
from mzsql.threads import PROCESS, Supervised

#: A plugin's relation holds metadata: more rows are an error, never truncated.
MAX_ROWS = 100_000
#: A function may take so many seconds, or the query's remaining time if that is less.
MOST_SECONDS = 30.0

#: Seconds between checks whether the waiting query was canceled.
_LOOK_SECONDS = 0.1


class _Reading(NamedTuple):
    """A running read, and its deadline (of `time.monotonic`)."""

    thread: Supervised
    until: float


#: The latest read of each relation; a new one is started under the lock, where none is running.
_reading: dict[GlobalId, _Reading] = {}
_starting = threading.Lock()

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_FIRST_ID = 10_000_000
_KINDS = frozenset(
    {
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "uint2",
        "uint4",
        "uint8",
        "oid",
        "real",
        "double",
        "numeric",
    }
    | {"text", "bytea", "date", "timestamp", "timestamptz", "mz_timestamp"}
)


class Checked(msgspec.Struct, frozen=True):
    """A valid relation of the plugin with this name."""

    id: GlobalId
    plugin: str
    relation: PluginRelation
    desc: RelationDesc

    @property
    def sql(self) -> str:
        """The statement that its file in the system catalog would have."""
        columns = ", ".join(_definition(c) for c in self.relation.columns)
        return f"CREATE SOURCE {self.relation.schema}.{self.relation.name} ({columns})"

    @property
    def comment(self) -> str:
        """The documentation of the relation and its columns."""
        lines = [f"{c.name}: {c.comment}" for c in self.relation.columns if c.comment]
        return "\n".join([self.relation.comment, *([""] if lines else []), *lines])


def checked_relations(
    registry: Registry,
    parse_type: Callable[[str], SqlType | None],
    taken: Collection[tuple[str, str]],
) -> list[Checked]:
    """The valid relations of all plugins, by name; the registry is told of invalid ones.

    Args:
        registry: the plugins.
        parse_type: the type for a spelling; None where there is none.
        taken: names of builtin relations.
    """
    found: dict[tuple[str, str], Checked] = {}
    ids: set[GlobalId] = set()
    for plugin, relation in registry.builtin_relations():
        try:
            one = _check(plugin, relation, parse_type)
            name = (relation.schema, relation.name)
            if name in taken or name in found or one.id in ids:
                raise ValueError("there is a relation of this name")
        except (ValueError, TypeError, AttributeError) as wrong:  # a stranger made it, of anything
            registry.complain(plugin, f"its relation {relation.name!r} is left out: {wrong}")
        else:
            found[name] = one
            ids.add(one.id)
    return [found[name] for name in sorted(found)]


def _check(
    plugin: str, relation: PluginRelation, parse_type: Callable[[str], SqlType | None]
) -> Checked:
    if relation.schema not in SYSTEM_SCHEMAS:
        raise ValueError(f"{relation.schema!r} is no schema of the system catalog")
    names = [column.name for column in relation.columns]
    for name in (relation.name, *names):
        if not _NAME.match(name):
            raise ValueError(f"{name!r} is no name: lower case letters, digits and underscores")
    if not names or len(set(names)) != len(names):
        raise ValueError("it needs columns, each of another name")
    if not callable(relation.rows):
        raise TypeError("its rows are no function")
    if not isinstance(relation.comment, str):
        raise TypeError("its comment is no text")
    types = tuple(_column_type(column, parse_type) for column in relation.columns)
    definitions = ", ".join(_definition(column) for column in relation.columns)
    number = zlib.crc32(f"{relation.schema}.{relation.name} ({definitions})".encode()) >> 1
    desc = RelationDesc(tuple(names), RelationType(types))
    return Checked(GlobalId(f"s{_FIRST_ID + number}"), plugin, relation, desc)


def _column_type(column: PluginColumn, parse_type: Callable[[str], SqlType | None]) -> ColumnType:
    typ = parse_type(column.type)
    inner = typ.element if typ is not None and typ.element is not None else typ
    if typ is None or inner is None or inner.kind not in _KINDS:
        raise ValueError(f"column {column.name!r} cannot have the type {column.type!r}")
    return ColumnType(typ, column.nullable)


def _definition(column: PluginColumn) -> str:
    return f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}"


def plugin_rows(one: Checked, where: Whereabouts) -> pa.Table:
    """The relation's present rows: columns c0, c1, … in its types.

    Raises:
        PluginRelationFailed: the plugin's function raised, took too long, or gave too many rows or rows that do not
            fit.
    """
    try:
        rows = _in_time(one, where)
    except (PluginRelationFailed, QueryCanceled):
        raise
    except (Exception, SystemExit) as failure:
        # A plugin's function may raise anything; all of it becomes the query's error.
        text = f"{type(failure).__name__}: {failure}"
        for url in (where.blob, where.consensus, where.oracle):
            text = without_secrets(text, url)
        raise _failed(one, text) from None
    if len(rows) > MAX_ROWS:
        raise _failed(one, f"it yields more than {MAX_ROWS} rows")
    schema = arrow_schema(one.desc.typ.columns)
    arrays = []
    for n, field in enumerate(schema):
        try:
            arrays.append(pa.array([row[n] for row in rows], field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as wrong:
            column = one.relation.columns[n]
            raise _failed(one, f"column {column.name!r} is no {column.type}: {wrong}") from None
    return pa.table(arrays, names=schema.names)


def _in_time(one: Checked, where: Whereabouts) -> list[tuple[Any, ...]]:
    """The rows, or the function's exception; fails where the function takes too long."""
    answer: queue.SimpleQueue[list[tuple[Any, ...]] | BaseException] = queue.SimpleQueue()

    def read(_: Supervised) -> None:
        try:
            answer.put(list(itertools.islice(_fitting(one, where), MAX_ROWS + 1)))
        except BaseException as failure:  # whoever has asked meets it
            answer.put(failure)

    query = current()
    name = f"{one.relation.schema}.{one.relation.name}"
    while True:
        _wait_for_earlier(one)
        with _starting:
            if one.id in _reading and _reading[one.id].thread.is_alive():
                continue  # another query has waited for it, too, and was faster
            seconds = min(query.left(), MOST_SECONDS)
            until = time.monotonic() + seconds
            thread = PROCESS.start(
                "plugin-rows", read, thread_name=f"mzsql-{one.relation.name}", object_id=name
            )
            _reading[one.id] = _Reading(thread, until)
            break
    while True:
        try:
            found = answer.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            query.check()
            if time.monotonic() < until:
                continue
            raise _failed(one, f"its function has not yielded them within {seconds:g} s") from None
        thread.join(_LOOK_SECONDS)
        if isinstance(found, BaseException):
            raise found
        return found


def _wait_for_earlier(one: Checked) -> None:
    """Wait for a running read that is still in time, as long as this query may."""
    query = current()
    while (before := _reading.get(one.id)) is not None:
        late = time.monotonic() >= before.until
        before.thread.join(_LOOK_SECONDS)
        if not before.thread.is_alive():
            return
        query.check()
        if late:
            raise _failed(one, "an earlier read of it has not ended")


def _fitting(one: Checked, where: Whereabouts) -> Iterator[tuple[Any, ...]]:
    columns = one.relation.columns
    for row in one.relation.rows(where):
        if not isinstance(row, tuple | list) or len(row) != len(columns):
            raise _failed(one, f"a row is not {len(columns)} values")
        for value, column in zip(row, columns, strict=True):
            if value is None and not column.nullable:
                raise _failed(one, f"column {column.name!r} has a NULL and says it has none")
        yield tuple(row)


def _failed(one: Checked, what: str) -> PluginRelationFailed:
    relation = one.relation
    return PluginRelationFailed(
        f"the rows of {relation.schema}.{relation.name} cannot be had: {what}",
        detail=f"The plugin {one.plugin!r} yields them.",
    )
