"""SHOW where a relation stands: in FROM, with WHERE, under EXPLAIN.

Promise: ``(SHOW …)`` has the rows that SHOW by itself answers with, as the statement finds the catalog: they are constants of the query. A
view would go on showing them when they are no longer true, so views (and subscriptions to more than the SHOW itself) are refused.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogView, ShownObjects
from mzsql.frontend.names.items import cluster_name, item_named, shown_schema
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.shows import shown_by
from mzsql.repr.errors import SqlError, Unsupported
from mzsql.repr.types import RelationDesc


def has_show(query: exp.Expr) -> bool:
    """Whether a query has a SHOW in it."""
    return any(shown_by(table) is not None for table in query.find_all(exp.Table))


def refuse_shows(query: exp.Expr) -> None:
    """Raise where a view's query has a SHOW in it."""
    if has_show(query):
        raise Unsupported(
            "SHOW commands are not allowed in views",
            hint="Read the relations of mz_catalog that it shows.",
        )


def shown_objects(statement: st.Show, catalog: CatalogView) -> ShownObjects:
    """What SHOW TABLES and its like ask for, their names resolved."""
    on = None if statement.on is None else item_named(catalog, statement.on)
    if on is not None and on.desc is None:
        raise SqlError(
            f"{on.name} is {on.described}, which has no columns or indexes", sqlstate="42809"
        )
    schema = shown_schema(statement, catalog)
    cluster = None if statement.cluster is None else cluster_name(catalog, statement.cluster)
    return ShownObjects(statement.kind, schema, on, cluster, statement.like)


def shown_rows(show: st.Show, catalog: CatalogView) -> tuple[RelationDesc, hir.Relation]:
    """What SHOW answers, as a relation."""
    desc, rows = catalog.shown(shown_objects(show, catalog))
    return desc, hir.Constant(tuple(rows), desc.typ)
