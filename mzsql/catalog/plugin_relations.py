"""Relations that plugins add to the system catalog: checked when they are registered, read when a query reads them.

Promise: an invalid relation (a bad name, an unknown type, a name that is taken) is left out and reported with its
plugin; others are not affected. A fault of a plugin's function when it is called (it raises, whatever that is; its rows
do not fit, are too many, or never come) is a `PluginRelationFailed` of the query that reads the relation, and of nothing
else. No value is changed to fit its column, but that a `real` is the nearest there is. The function runs on a thread of
its own, for which a query waits no longer than its time limit. While a call runs no second one is started: other queries
wait for the first to end. A relation's id follows from its name and columns, so processes with different plugins agree
on it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import numbers
import queue
import re
import threading
import time
import zlib
from collections.abc import Callable, Collection
from decimal import Decimal
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
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import current
from mzsql.repr.types import ColumnType, RelationDesc, RelationType, SqlType, arrow_schema
from mzsql.threads import PROCESS, Supervised

#: A plugin's relation holds metadata: more rows are an error, never truncated.
MAX_ROWS = 100_000
#: Its values together have at most so many bytes: a text or bytea what it is long, any other one eight, in lists too.
MAX_BYTES = 64 * 2**20
_VALUE_BYTES = 8
#: Of an error, so many characters are told.
_MOST_TOLD = 2000
#: As many as a table of PostgreSQL's has at most.
_MOST_COLUMNS = 1600
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
        except Exception as wrong:  # a stranger made it, of anything
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
    if len(names) > _MOST_COLUMNS:
        raise ValueError(f"it has more than {_MOST_COLUMNS} columns")
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
        QueryCanceled: the query may wait no longer.
    """
    answer: queue.SimpleQueue[pa.Table | str] = queue.SimpleQueue()
    query = current()
    name = f"{one.relation.schema}.{one.relation.name}"

    def read(_: Supervised) -> None:
        answer.put(_read(one, where))

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
        if isinstance(found, str):
            raise _failed(one, found)
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


class _Unfit(Exception):
    """Rows are not what the relation says that they are."""


def _read(one: Checked, where: Whereabouts) -> pa.Table | str:
    """The rows, or what is wrong with them.

    All that touches what the plugin made is done here, on its thread: a value's own methods may hang or raise as well as the function.
    """
    try:
        return _table(one, _fitting(one, where))
    except _Unfit as wrong:
        return str(wrong)
    except (
        BaseException
    ) as failure:  # KeyboardInterrupt, too: nobody at the keyboard has raised it here
        return _shown(failure, where)


def _shown(failure: BaseException, where: Whereabouts) -> str:
    text = type(failure).__name__
    # An exception may fail to say what it is about.
    with contextlib.suppress(BaseException):
        text = f"{text}: {' '.join(str(failure).split())}"
    for url in (where.blob, where.consensus, where.oracle):
        text = without_secrets(text, url)
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}…"


def _table(one: Checked, rows: list[tuple[Any, ...]]) -> pa.Table:
    schema = arrow_schema(one.desc.typ.columns)
    arrays = []
    for n, field in enumerate(schema):
        try:
            arrays.append(pa.array([row[n] for row in rows], field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as wrong:
            column = one.relation.columns[n]
            raise _Unfit(f"column {column.name!r} is no {column.type}: {wrong}") from None
    return pa.table(arrays, names=schema.names)


def _fitting(one: Checked, where: Whereabouts) -> list[tuple[Any, ...]]:
    """The rows, each value of a class that its column takes."""
    columns = [
        (column, _classes(typ.type))
        for column, typ in zip(one.relation.columns, one.desc.typ.columns, strict=True)
    ]
    found: list[tuple[Any, ...]] = []
    left = MAX_BYTES
    for row in one.relation.rows(where):
        if not isinstance(row, tuple | list) or len(row) != len(columns):
            raise _Unfit(f"a row is not {len(columns)} values")
        for value, (column, classes) in zip(row, columns, strict=True):
            if value is None:
                if not column.nullable:
                    raise _Unfit(f"column {column.name!r} has a NULL and says it has none")
                continue
            for inner in value if classes.several and isinstance(value, list | tuple) else (value,):
                if not ((inner is None and classes.several) or classes.take(inner)):
                    told = f"{type(inner).__name__} {inner!r:.40}"
                    raise _Unfit(f"column {column.name!r} is no {column.type}: it has the {told}")
                left -= len(inner) if isinstance(inner, str | bytes) else _VALUE_BYTES
                if left < 0:
                    raise _Unfit(f"its rows have more than {MAX_BYTES >> 20} MiB")
        found.append(tuple(row))
        if len(found) > MAX_ROWS:
            raise _Unfit(f"it yields more than {MAX_ROWS} rows")
    return found


class _Classes(NamedTuple):
    """The classes of values that a column takes.

    Attributes:
        classes: them; of the elements, where the column has lists.
        but: classes of those that it does not take.
        zoned: whether a time must have a zone; None: it is no time.
        several: whether it takes lists.
    """

    classes: tuple[type, ...]
    but: tuple[type, ...] = ()
    zoned: bool | None = None
    several: bool = False

    def take(self, value: object) -> bool:
        if not isinstance(value, self.classes) or isinstance(value, self.but):
            return False
        return self.zoned is None or (value.tzinfo is not None) == self.zoned  # type: ignore[attr-defined]


#: What Arrow would take beside, it would change: 1.5 to 1, a time to its date, a number to a date, bytes to text.
_TAKEN = {
    "boolean": _Classes((bool,)),
    "real": _Classes((numbers.Real,), (bool,)),
    "double": _Classes((numbers.Real,), (bool,)),
    "numeric": _Classes((Decimal, numbers.Integral), (bool,)),
    "text": _Classes((str,)),
    "bytea": _Classes((bytes,)),
    "date": _Classes((dt.date,), (dt.datetime,)),
    "timestamp": _Classes((dt.datetime,), zoned=False),
    "timestamptz": _Classes((dt.datetime,), zoned=True),
}
_WHOLE = _Classes((numbers.Integral,), (bool,))


def _classes(typ: SqlType) -> _Classes:
    if typ.element is not None:
        return _classes(typ.element)._replace(several=True)
    return _TAKEN.get(typ.kind, _WHOLE)


def _failed(one: Checked, what: str) -> PluginRelationFailed:
    relation = one.relation
    return PluginRelationFailed(
        f"the rows of {relation.schema}.{relation.name} cannot be had: {what}",
        detail=f"The plugin {one.plugin!r} yields them.",
    )
