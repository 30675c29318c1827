"""SHOW: what there is, as rows of text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from mzsql.adapter.builtin import builtins
from mzsql.adapter.catalog import DATABASE, CatalogState, Item
from mzsql.adapter.session import READ_ONLY, Session
from mzsql.explain.scalars import ScalarPrinter
from mzsql.frontend import plans as p
from mzsql.frontend.catalog import SYSTEM_SCHEMAS
from mzsql.repr.ids import sort_key
from mzsql.repr.types import BOOLEAN, TEXT, ColumnType, RelationDesc, RelationType, type_name

Rows = list[tuple[str | bool | None, ...]]
_KINDS = {
    "tables": ("table",),
    "views": ("view",),
    "materialized views": ("materialized-view",),
    "sources": ("source",),
    "objects": ("table", "view", "materialized-view", "source", "index"),
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


def show_objects(plan: p.ShowObjectsPlan, state: CatalogState) -> tuple[RelationDesc, Rows]:
    """The answer of SHOW TABLES and its like, ordered by name."""
    match plan.kind:
        case "columns":
            return _columns(plan)
        case "indexes":
            return _indexes(plan, state)
        case "schemas":
            names = [*state.schemas, *SYSTEM_SCHEMAS]
            return _named(plan, names, "name", "comment")
        case "databases":
            return _named(plan, [DATABASE], "name", "comment")
        case "roles":
            return _named(plan, ["mzsql"], "name", "comment")
        case "clusters":
            replicas = {
                c.name: ", ".join(
                    f"{r.name} ({r.size})" for r in state.replicas.values() if r.cluster_id == c.id
                )
                for c in state.clusters.values()
            }
            found: Rows = [(n, replicas[n], "") for n in sorted(replicas) if like(plan.like, n)]
            return text_desc("name", "replicas", "comment"), found
        case "cluster replicas":
            names_of = {c.id: c.name for c in state.clusters.values()}
            rows: Rows = [
                (names_of[r.cluster_id], r.name, r.size, True, "") for r in state.replicas.values()
            ]
            return (
                text_desc("cluster", "replica", "size", "ready", "comment", booleans=("ready",)),
                [row for row in rows if like(plan.like, str(row[1]))],
            )
        case "types":
            return _named(plan, [], "name", "comment")
        case _:
            return _items(plan, state)


def _named(
    plan: p.ShowObjectsPlan, names: Sequence[str], *columns: str
) -> tuple[RelationDesc, Rows]:
    found: Rows = [(n, *[""] * (len(columns) - 1)) for n in sorted(names) if like(plan.like, n)]
    return text_desc(*columns), found


def _items(plan: p.ShowObjectsPlan, state: CatalogState) -> tuple[RelationDesc, Rows]:
    kinds = _KINDS.get(plan.kind, ())
    schema = "public" if plan.schema is None else plan.schema[1]
    found: list[tuple[str, str, str | None]] = []
    if schema in SYSTEM_SCHEMAS:
        found = [
            (b.name, b.kind, None)
            for b in builtins().values()
            if b.schema == schema and b.kind in kinds
        ]
    else:
        found = [(i.name, i.kind, i.cluster) for i in state.of_kind(*kinds) if i.schema == schema]
    found = [row for row in sorted(found) if like(plan.like, row[0])]
    if plan.kind == "materialized views":
        mine = [row for row in found if plan.cluster in (None, row[2])]
        return text_desc("name", "cluster", "comment"), [(n, c, "") for n, _, c in mine]
    if plan.kind == "sources":
        return text_desc("name", "type", "cluster", "comment"), [
            (n, "system", None, "") for n, _, _ in found
        ]
    if plan.kind == "objects":
        return text_desc("name", "type", "comment"), [(n, kind, "") for n, kind, _ in found]
    return text_desc("name", "comment"), [(n, "") for n, _, _ in found]


def _columns(plan: p.ShowObjectsPlan) -> tuple[RelationDesc, Rows]:
    rows: Rows = []
    if plan.on is not None and plan.on.desc is not None:
        desc = plan.on.desc
        for name, column in zip(desc.names, desc.typ.columns, strict=True):
            if like(plan.like, name):
                rows.append((name, column.nullable, type_name(column.type).partition("(")[0], ""))
    return text_desc("name", "nullable", "type", "comment", booleans=("nullable",)), rows


def key_text(item: Item, state: CatalogState) -> list[str]:
    """An index's key expressions as a person reads them, columns by name."""
    on = None if item.on_id is None else state.items.get(item.on_id)
    names = on.desc.names if on is not None and on.desc is not None else ()
    printer = ScalarPrinter()
    texts = []
    for expr in item.key:
        text = printer.scalar(expr)
        texts.append(
            re.sub(r"#(\d+)", lambda m: names[int(m[1])] if int(m[1]) < len(names) else m[0], text)
        )
    return texts


def _indexes(plan: p.ShowObjectsPlan, state: CatalogState) -> tuple[RelationDesc, Rows]:
    desc = text_desc("name", "on", "cluster", "key", "comment")
    schema = None if plan.schema is None else plan.schema[1]
    rows: Rows = []
    for item in sorted(state.of_kind("index"), key=lambda i: (i.name, sort_key(i.id))):
        on = None if item.on_id is None else state.items.get(item.on_id)
        if on is None or not like(plan.like, item.name):
            continue
        if plan.on is not None and plan.on.id != on.id:
            continue
        if plan.cluster not in (None, item.cluster) or schema not in (None, item.schema):
            continue
        key = "{" + ",".join(key_text(item, state)) + "}"
        rows.append((item.name, on.name, item.cluster, key, ""))
    return desc, rows


def show_create(plan: p.ShowCreatePlan) -> tuple[RelationDesc, Rows]:
    """SHOW CREATE: the object's whole name and its statement."""
    text = plan.item.create_sql.rstrip().rstrip(";") + ";"
    return text_desc("name", "create_sql"), [(str(plan.item.name), text)]


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
