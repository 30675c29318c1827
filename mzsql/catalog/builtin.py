"""The builtin relations, loaded from the data package `mzsql.system_catalog`: one ``.sql`` file per relation.

Promise: a file has leading ``-- `` lines (the relation's documentation), then either ``CREATE SOURCE schema.name
(column type [NOT NULL], …)``, whose rows the adapter computes or a storage-managed collection holds, or ``CREATE VIEW
schema.name AS SELECT …``. The file's folder and name are the relation's schema and name, so that one relation can be read without the
others. Ids stay the same from build to build (`mzsql.catalog.builtin_ids`). Relations of plugins are
additional sources with ids of their own (`mzsql.catalog.plugin_relations`).
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterable, Iterator
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

from mzsql.catalog import builtin_ids
from mzsql.catalog.plugin_relations import Checked, checked_relations
from mzsql.location import Registry, default_registry
from mzsql.repr import types as t
from mzsql.repr.errors import InternalError
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, RelationDesc, RelationType, SqlType

PACKAGE = builtin_ids.PACKAGE

_STATEMENT = re.compile(
    r"CREATE\s+(?P<kind>SOURCE|VIEW)\s+(?P<schema>\w+)\.(?P<name>\w+)\s*(?P<rest>.*?);?\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
#: Where a builtin relation's documentation begins to speak of a column.
_OF_COLUMN = re.compile(r"(?P<name>\w+): (?P<text>\S.*)\Z")
_TYPES: dict[str, SqlType] = {
    "boolean": t.BOOLEAN,
    "bool": t.BOOLEAN,
    "smallint": t.SMALLINT,
    "integer": t.INTEGER,
    "int": t.INTEGER,
    "bigint": t.BIGINT,
    "uint2": t.UINT2,
    "uint4": t.UINT4,
    "uint8": t.UINT8,
    "real": t.REAL,
    "double": t.DOUBLE,
    "double precision": t.DOUBLE,
    "numeric": t.NUMERIC,
    "text": t.TEXT,
    "bytea": t.BYTEA,
    "date": t.DATE,
    "timestamp": t.TIMESTAMP,
    "timestamptz": t.TIMESTAMPTZ,
    "timestamp with time zone": t.TIMESTAMPTZ,
    "interval": t.INTERVAL,
    "uuid": t.UUID,
    "jsonb": t.JSONB,
    "mz_timestamp": t.MZ_TIMESTAMP,
    "oid": t.OID,
    "mz_aclitem": t.MZ_ACLITEM,
    '"char"': t.PG_CHAR,
}


_reading = threading.RLock()


class Builtin(msgspec.Struct, frozen=True):
    """A builtin relation.

    Attributes:
        id: its id, ``s<n>``.
        schema, name: its name.
        kind: ``source`` or ``view``.
        comment: its documentation.
        desc: a source's columns; None for a view, whose columns are found by planning its query.
        query: a view's query.
        sql: the statement in the file.
        plugin: for a plugin's relation, the plugin's definition.
    """

    id: GlobalId
    schema: str
    name: str
    kind: str
    comment: str
    desc: RelationDesc | None
    query: str
    sql: str
    plugin: Checked | None = None

    @property
    def full_name(self) -> str:
        """``mz_catalog.mz_tables``."""
        return f"{self.schema}.{self.name}"

    @property
    def purpose(self) -> str:
        """What the relation is, by its documentation."""
        return " ".join(self.comment.partition("\n\n")[0].split())

    def column_comments(self) -> dict[str, str]:
        """What its documentation says of its columns, by name: a paragraph each, which begins with the name."""
        found: dict[str, list[str]] = {}
        name = ""
        for line in self.comment.partition("\n\n")[2].splitlines():
            begins = _OF_COLUMN.match(line)
            if begins is not None:
                name = begins["name"]
            found.setdefault(name, []).append((line if begins is None else begins["text"]).strip())
        return {name: " ".join(lines) for name, lines in found.items() if name}


def parse_builtin(text: str, gid: GlobalId, origin: str) -> Builtin:
    """The relation that a file's text defines.

    Raises:
        InternalError: it defines none; ``origin`` names the file.
    """
    lines = text.splitlines()
    head = 0
    while head < len(lines) and (lines[head].startswith("--") or not lines[head].strip()):
        head += 1
    comment = "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[:head]).strip()
    body = "\n".join(lines[head:]).strip()
    match = _STATEMENT.match(body)
    if match is None:
        raise InternalError(f"{origin} is neither CREATE SOURCE … nor CREATE VIEW …")
    kind = match["kind"].lower()
    rest = match["rest"].strip()
    desc, query = None, ""
    if kind == "source":
        desc = _columns(rest, origin)
    else:
        as_query = re.match(r"AS\s+(.*)", rest, re.IGNORECASE | re.DOTALL)
        if as_query is None:
            raise InternalError(f"{origin}: a view needs AS and a query")
        query = as_query[1].strip()
    return Builtin(gid, match["schema"], match["name"], kind, comment, desc, query, body)


def parse_type(spelled: str) -> SqlType | None:
    """The type with this spelling in the system catalog; None where there is none."""
    element = spelled.removesuffix(" list").removesuffix("[]")
    typ = _TYPES.get(element)
    if typ is None:
        return None
    if spelled.endswith(" list"):
        return SqlType("list", element=typ)
    return SqlType("array", element=typ) if spelled.endswith("[]") else typ


def _columns(text: str, origin: str) -> RelationDesc:
    stripped = re.sub(r"--[^\n]*", "", text).strip()
    if not (stripped.startswith("(") and stripped.endswith(")")):
        raise InternalError(f"{origin}: a source needs its columns in parentheses")
    names, columns = [], []
    for definition in stripped[1:-1].split(","):
        words = definition.split()
        if len(words) < 2:
            raise InternalError(f"{origin}: not a column: {definition.strip()!r}")
        rest = " ".join(words[1:]).lower()
        nullable = not rest.endswith(" not null")
        spelled = rest.removesuffix(" not null").removesuffix(" null")
        typ = parse_type(spelled)
        if typ is None:
            raise InternalError(f"{origin}: unknown type {spelled!r}")
        names.append(words[0].strip('"'))
        columns.append(ColumnType(typ, nullable))
    return RelationDesc(tuple(names), RelationType(tuple(columns)))


def _files(folder: Traversable) -> Iterator[tuple[str, str]]:
    for child in folder.iterdir():
        if child.is_dir():
            yield from _files(child)
        elif child.name.endswith(".sql"):
            yield child.name.removesuffix(".sql"), child.read_text(encoding="utf-8")


@functools.cache
def own_builtin(schema: str, name: str) -> Builtin:
    """One relation of the system catalog, from its file alone: opening an environment needs a dozen of some 250.

    Raises:
        InternalError: there is no such relation.
    """
    file = resources.files(PACKAGE).joinpath(schema, f"{name}.sql")
    if not file.is_file():
        raise InternalError(f"the system catalog has no relation {schema}.{name}")
    gid = builtin_ids.id_of(f"{schema}.{name}")
    return parse_builtin(file.read_text(encoding="utf-8"), gid, name)


@functools.cache
def _own() -> dict[GlobalId, Builtin]:
    parsed = [
        parse_builtin(text, GlobalId("s0"), name) for name, text in _files(resources.files(PACKAGE))
    ]
    parsed.sort(key=lambda b: (b.schema, b.name))
    numbered: dict[GlobalId, Builtin] = {}
    for one in parsed:
        gid = builtin_ids.id_of(one.full_name)
        other = numbered.get(gid, one)
        if other.full_name != one.full_name:
            raise InternalError(f"{one.full_name} and {other.full_name} have one id, {gid}")
        numbered[gid] = msgspec.structs.replace(one, id=gid)
    return numbered


@functools.lru_cache(maxsize=1)
def _with_plugins(registry: Registry, generation: int) -> dict[GlobalId, Builtin]:
    """All builtin relations, with those of the plugins registered up to ``generation``. Of two threads that need them first one reads them
    and asks the plugins.
    """
    with _reading:
        return _read(registry, generation)


@functools.lru_cache(maxsize=1)
def _read(registry: Registry, generation: int) -> dict[GlobalId, Builtin]:
    del generation  # only keys the cache
    taken = {(b.schema, b.name) for b in _own().values()}
    added = checked_relations(registry, parse_type, taken)
    theirs = {
        c.id: Builtin(
            c.id, c.relation.schema, c.relation.name, "source", c.comment, c.desc, "", c.sql, c
        )
        for c in added
    }
    return {**_own(), **theirs}


def builtins() -> dict[GlobalId, Builtin]:
    """Every builtin relation of this build and of the installed plugins, by id."""
    registry = default_registry()
    return _with_plugins(registry, registry.generation)


def only_builtins(ids: Iterable[GlobalId]) -> bool:
    """Whether all ids are those of builtin relations; no file is read to tell of those of users."""
    return all(gid[0] == "s" and gid in builtins() for gid in ids)


@functools.lru_cache(maxsize=1)
def _names(registry: Registry, generation: int) -> dict[tuple[str, str], Builtin]:
    return {(b.schema, b.name): b for b in _with_plugins(registry, generation).values()}


def builtins_by_name() -> dict[tuple[str, str], Builtin]:
    """The same by schema and name."""
    registry = default_registry()
    return _names(registry, registry.generation)
