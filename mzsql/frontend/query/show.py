"""SHOW as a query over the system catalog: by itself, in FROM, with WHERE, in EXPLAIN, in SUBSCRIBE.

Promise: SHOW TABLES is a SELECT from ``mz_internal.mz_show_all_objects``, and the others are as simple: everything
about objects is in the catalog's relations. Names are resolved when the statement is planned, so an unknown one is an
error. A SHOW depends on the session, so views must not contain one.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import expressions as exp

from mzsql.frontend.catalog import CatalogView
from mzsql.frontend.kinds import KINDS
from mzsql.frontend.names.items import cluster_name, item_named, shown_schema
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.internal_queries import column_named, equals, internal_query
from mzsql.frontend.parse.shows import shown_by
from mzsql.repr.errors import SqlError, Unsupported


class _Shown(NamedTuple):
    """What a kind of SHOW reads.

    Attributes:
        relation: the relation in ``mz_internal``.
        columns: the columns shown.
        of_type: the type of objects shown; None: all in the relation.
        like: the column that LIKE applies to.
    """

    relation: str
    columns: tuple[str, ...]
    of_type: str | None = None
    like: str = "name"


_OBJECTS = "mz_show_all_objects"
_SHOWN = {
    # Of any kind of objects; below are those that have more to show.
    **{
        " ".join(kind.listed).lower(): _Shown(
            _OBJECTS, ("name", "comment"), kind.name.replace(" ", "-")
        )
        for kind in KINDS
        if kind.in_schema
    },
    "objects": _Shown(_OBJECTS, ("name", "type", "comment")),
    "materialized views": _Shown(_OBJECTS, ("name", "cluster", "comment"), "materialized-view"),
    # There can be none of the next three here, so these are always empty.
    "connections": _Shown(_OBJECTS, ("name", "type", "comment"), "connection"),
    "sinks": _Shown(_OBJECTS, ("name", "type", "cluster", "comment"), "sink"),
    "subsources": _Shown(_OBJECTS, ("name", "type"), "subsource"),
    "sources": _Shown("mz_show_sources", ("name", "type", "cluster", "comment")),
    "indexes": _Shown("mz_show_indexes", ("name", "on", "cluster", "key", "comment")),
    "columns": _Shown("mz_show_columns", ("name", "nullable", "type", "comment")),
    "schemas": _Shown("mz_show_schemas", ("name", "comment")),
    "databases": _Shown("mz_show_databases", ("name", "comment")),
    "roles": _Shown("mz_show_roles", ("name", "comment")),
    "clusters": _Shown("mz_show_clusters", ("name", "replicas", "comment")),
    "cluster replicas": _Shown(
        "mz_show_cluster_replicas",
        ("cluster", "replica", "size", "ready", "comment"),
        like="replica",
    ),
}


def has_show(query: exp.Expr) -> bool:
    """Whether a query contains a SHOW."""
    return any(shown_by(table) is not None for table in query.find_all(exp.Table))


def refuse_shows(query: exp.Expr) -> None:
    """Check that a view's query contains no SHOW.

    Raises:
        Unsupported: it contains one.
    """
    if has_show(query):
        raise Unsupported(
            "SHOW commands are not allowed in views",
            hint="Read the relations of mz_catalog that it shows.",
        )


def shown_query(show: st.Show, catalog: CatalogView) -> exp.Select:
    """The query for a SHOW, with names resolved and no ORDER BY.

    Raises:
        SqlError: something named does not exist, or has nothing of this kind to show.
    """
    shown = _SHOWN[show.kind]
    query = internal_query(shown.relation, shown.columns)
    for condition in _conditions(show, shown, catalog):
        query = query.where(condition, copy=False)
    return query


def created_cluster(name: str) -> exp.Select:
    """The query for SHOW CREATE CLUSTER."""
    return internal_query("mz_show_create_clusters", ("name", "create_sql")).where(
        equals("name", name)
    )


def ordered(show: st.Show, query: exp.Select) -> exp.Select:
    """The query with the order of a SHOW as a statement: by name; columns by position."""
    if show.kind == "columns":
        return query.order_by(column_named("position"), copy=False)
    keys = _SHOWN[show.kind].columns
    return query.order_by(*(column_named(name) for name in keys[:2]), copy=False)


def _conditions(show: st.Show, shown: _Shown, catalog: CatalogView) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    on = None if show.on is None else item_named(catalog, show.on)
    if on is not None:
        if on.desc is None:
            raise SqlError(
                f"{on.name} is {on.described}, which has no columns or indexes", sqlstate="42809"
            )
        # No source has subsources, and nothing is one.
        on_itself = show.kind in ("columns", "subsources")
        found.append(equals("id" if on_itself else "on_id", on.id))
    schema = shown_schema(show, catalog)
    if show.kind == "schemas" and schema is not None:
        database = column_named("database")
        of_system = exp.Is(this=database, expression=exp.Null())
        found.append(exp.Or(this=of_system, expression=equals("database", str(schema[0]))))
    elif schema is not None:
        if schema[0] is not None:
            found.append(equals("database", schema[0]))
        found.append(equals("schema", schema[1]))
    if show.cluster is not None:
        found.append(equals("cluster", cluster_name(catalog, show.cluster)))
    if shown.of_type is not None:
        found.append(equals("type", shown.of_type))
    if show.like is not None:
        pattern = exp.Literal.string(show.like)
        found.append(exp.Like(this=column_named(shown.like), expression=pattern))
    return found
