"""SHOW: what there is, as rows of text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from mzsql.adapter.environment.leader import seems_alive
from mzsql.adapter.session.session import READ_ONLY, Session
from mzsql.catalog.builtin import builtins
from mzsql.catalog.commands.clusters import cluster_named, factor_of, size_of
from mzsql.catalog.commands.comments import item_comment_key
from mzsql.catalog.objects import CATALOG_CLUSTER, DATABASE, Index, RelationItem, cluster_of
from mzsql.catalog.state import CatalogState
from mzsql.explain.scalars import ScalarPrinter
from mzsql.frontend.catalog import SYSTEM_SCHEMAS, ShownObjects
from mzsql.frontend.definitions.normalize import quoted
from mzsql.frontend.definitions.shown_sql import shown_sql
from mzsql.frontend.plan import plans as p
from mzsql.frontend.plan.catalog_plans import ShowCreateClusterPlan
from mzsql.persist import SystemClock
from mzsql.repr.errors import Unsupported
from mzsql.repr.ids import sort_key
from mzsql.repr.types import (
    BOOLEAN,
    TEXT,
    ColumnType,
    RelationDesc,
    RelationType,
    SqlType,
    type_name,
)

Rows = list[tuple[str | bool | None, ...]]
_KINDS = {
    "tables": ("table",),
    "views": ("view",),
    "materialized views": ("materialized-view",),
    "sources": ("source",),
    "objects": ("table", "view", "materialized-view", "source", "index", "type"),
    "types": ("type",),
}
#: The columns that SHOW has for kinds of things that do not exist here.
_NONE = {
    "connections": ("name", "type", "comment"),
    "secrets": ("name", "comment"),
    "sinks": ("name", "type", "cluster", "comment"),
    "subsources": ("name", "type"),
}


def like(pattern: str | None, text: str) -> bool:
    """Whether a name matches a LIKE pattern; everything matches none."""
    if pattern is None:
        return True
    regex = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def text_desc(*names: str, booleans: Sequence[str] = ()) -> RelationDesc:
    """A relation of text columns (and boolean ones), as SHOW answers with."""
    columns = tuple(ColumnType(BOOLEAN if n in booleans else TEXT, nullable=True) for n in names)
    return RelationDesc(names, RelationType(columns))


def show_objects(objects: ShownObjects, state: CatalogState) -> tuple[RelationDesc, Rows]:
    """The answer of SHOW TABLES and its like, ordered by name."""
    match objects.kind:
        case "columns":
            return _columns(objects, state)
        case "indexes":
            return _indexes(objects, state)
        case "schemas":
            return _schemas(objects, state)
        case "databases":
            named = {d.name: f"database/{d.id}" for d in state.databases.values()}
            return _named(objects, named, state)
        case "roles":
            return _named(objects, {r.name: f"role/{r.id}" for r in state.roles.values()}, state)
        case "clusters":
            return _clusters(objects, state)
        case "cluster replicas":
            return _replicas(objects, state)
        case "connections" | "secrets" | "sinks" | "subsources":
            # Nothing of the kind can be made here.
            return text_desc(*_NONE[objects.kind]), []
        case _:
            return _items(objects, state)


def _named(
    objects: ShownObjects, named: Mapping[str, str | None], state: CatalogState
) -> tuple[RelationDesc, Rows]:
    """Names, each with the comment under its key."""
    found: Rows = [
        (name, "" if key is None else state.comments.get(key, ""))
        for name, key in sorted(named.items())
        if like(objects.like, name)
    ]
    return text_desc("name", "comment"), found


def _schemas(objects: ShownObjects, state: CatalogState) -> tuple[RelationDesc, Rows]:
    """The schemas of a database, and those of the system, which every database shows."""
    of = state.database(str((objects.schema or (DATABASE, ""))[0]))
    named: dict[str, str | None] = dict.fromkeys(SYSTEM_SCHEMAS)
    named.update(
        {
            one.name: f"schema/{one.id}"
            for one in state.schemas.values()
            if of is not None and one.database == of.id
        }
    )
    return _named(objects, named, state)


def _clusters(objects: ShownObjects, state: CatalogState) -> tuple[RelationDesc, Rows]:
    rows: Rows = []
    for cluster in sorted([*state.clusters.values(), CATALOG_CLUSTER], key=lambda c: c.name):
        if like(objects.like, cluster.name):
            replicas = ", ".join(f"{r.name} ({r.size})" for r in state.replicas_of(cluster.id))
            comment = state.comments.get(f"cluster/{cluster.id}", "")
            rows.append((cluster.name, replicas, comment))
    return text_desc("name", "replicas", "comment"), rows


def _replicas(objects: ShownObjects, state: CatalogState) -> tuple[RelationDesc, Rows]:
    """Ready is a replica whose dataflows a process runs, as far as can be told, or that has none to run."""
    names = {c.id: c.name for c in state.clusters.values()}
    led = seems_alive(state.lease, SystemClock().now_ms())
    used = {item.cluster for item in state.maintained}

    def comment(gid: str) -> str:
        return state.comments.get(f"replica/{gid}", "")

    rows: Rows = [
        (names[r.cluster_id], r.name, r.size, led or names[r.cluster_id] not in used, comment(r.id))
        for r in state.replicas.values()
        if like(objects.like, r.name)
    ]
    desc = text_desc("cluster", "replica", "size", "ready", "comment", booleans=("ready",))
    return desc, sorted(rows, key=lambda row: (str(row[0]), str(row[1])))


def _items(objects: ShownObjects, state: CatalogState) -> tuple[RelationDesc, Rows]:
    kinds = _KINDS.get(objects.kind, ())
    database, schema = objects.schema or (DATABASE, "public")
    found: list[tuple[str, str, str | None, str]] = []
    if schema in SYSTEM_SCHEMAS:
        found = [
            (b.name, b.kind, None, "")
            for b in builtins().values()
            if b.schema == schema and b.kind in kinds
        ]
    else:
        found = [
            (i.name, i.kind, cluster_of(i), state.comments.get(item_comment_key(i), ""))
            for i in state.items.values()
            if i.kind in kinds and i.schema == schema and i.database == database
        ]
    found = [row for row in sorted(found, key=lambda r: r[:2]) if like(objects.like, row[0])]
    if objects.kind == "materialized views":
        mine = [row for row in found if objects.cluster in (None, row[2])]
        return text_desc("name", "cluster", "comment"), [(n, c, text) for n, _, c, text in mine]
    if objects.kind == "sources":
        return text_desc("name", "type", "cluster", "comment"), [
            (n, "system", None, "") for n, _, _, _ in found
        ]
    if objects.kind == "objects":
        return text_desc("name", "type", "comment"), [(n, k, text) for n, k, _, text in found]
    return text_desc("name", "comment"), [(n, text) for n, _, _, text in found]


def column_type_name(typ: SqlType) -> str:
    """The type of a column without its modifiers: what a list or a map holds is none of its name."""
    if typ.kind in ("list", "map", "record"):
        return typ.kind
    if typ.kind == "array" and typ.element is not None:
        return f"{column_type_name(typ.element)}{'' if typ.element.kind == 'array' else '[]'}"
    return type_name(typ).partition("(")[0]


def _columns(objects: ShownObjects, state: CatalogState) -> tuple[RelationDesc, Rows]:
    rows: Rows = []
    if objects.on is not None and objects.on.desc is not None:
        desc = objects.on.desc
        for n, (name, column) in enumerate(zip(desc.names, desc.typ.columns, strict=True), 1):
            if like(objects.like, name):
                comment = state.comments.get(f"{objects.on.kind}/{objects.on.id}/{n}", "")
                typ = column_type_name(column.type)
                rows.append((name, column.nullable, typ, comment))
    return text_desc("name", "nullable", "type", "comment", booleans=("nullable",)), rows


def key_text(index: Index, state: CatalogState) -> list[str]:
    """An index's key expressions as a person reads them, columns by name."""
    on = state.items.get(index.on_id)
    names = on.desc.names if isinstance(on, RelationItem) else ()
    printer = ScalarPrinter()
    texts = []
    for expr in index.key:
        text = printer.scalar(expr)
        texts.append(
            re.sub(r"#(\d+)", lambda m: names[int(m[1])] if int(m[1]) < len(names) else m[0], text)
        )
    return texts


def _indexes(objects: ShownObjects, state: CatalogState) -> tuple[RelationDesc, Rows]:
    desc = text_desc("name", "on", "cluster", "key", "comment")
    rows: Rows = []
    for item in sorted(state.of(Index), key=lambda i: (i.name, sort_key(i.id))):
        on = state.items.get(item.on_id)
        if on is None or not like(objects.like, item.name):
            continue
        if objects.on is not None and objects.on.id != on.id:
            continue
        if objects.cluster not in (None, item.cluster):
            continue
        if objects.schema not in (None, (item.database, item.schema)):
            continue
        key = "{" + ",".join(key_text(item, state)) + "}"
        comment = state.comments.get(item_comment_key(item), "")
        rows.append((item.name, on.name, item.cluster, key, comment))
    return desc, rows


def show_create(plan: p.ShowCreatePlan) -> tuple[RelationDesc, Rows]:
    """SHOW CREATE: the object's whole name and its statement."""
    text = plan.item.create_sql.rstrip().rstrip(";")
    if not plan.item.id.startswith("s"):
        text = shown_sql(text)
    return text_desc("name", "create_sql"), [(str(plan.item.name), text)]


def show_create_cluster(
    plan: ShowCreateClusterPlan, state: CatalogState
) -> tuple[RelationDesc, Rows]:
    """SHOW CREATE CLUSTER."""
    if plan.name == CATALOG_CLUSTER.name:
        raise Unsupported(f"SHOW CREATE of the system cluster '{plan.name}' is not supported")
    cluster = cluster_named(state, plan.name)
    if cluster.managed:
        size = str(size_of(state, cluster)).replace("'", "''")
        factor = factor_of(state, cluster)
        options = f"MANAGED = true, REPLICATION FACTOR = {factor}, SIZE = '{size}'"
    else:
        replicas = ", ".join(
            f"{quoted(r.name)} (SIZE = '{r.size}')" for r in state.replicas_of(cluster.id)
        )
        options = f"REPLICAS ({replicas})"
    text = f"CREATE CLUSTER {quoted(cluster.name)} ({options})"
    return text_desc("name", "create_sql"), [(cluster.name, text)]


def show_variable(session: Session, name: str) -> tuple[RelationDesc, Rows]:
    """SHOW <variable> or SHOW ALL."""
    if name == "all":
        rows: Rows = [
            (n, session.get(n), "read only" if n in READ_ONLY else "") for n in session.names()
        ]
        return text_desc("name", "setting", "description"), rows
    return text_desc(name), [(session.get(name),)]


def as_table(desc: RelationDesc, rows: Rows) -> pa.Table:
    """Rows of SHOW as Arrow."""
    arrays = [
        pa.array([row[i] for row in rows], pa.bool_() if c.type == BOOLEAN else pa.string())
        for i, c in enumerate(desc.typ.columns)
    ]
    return pa.table(arrays, names=list(desc.names))
