"""SHOW as a relation: ``(SHOW TABLES)`` in a FROM clause is a table node that carries the parsed statement."""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.parse import statements as st

_KEY = "show"


def show_table(show: st.Show) -> exp.Select:
    """``SELECT * FROM`` the rows of a SHOW."""
    table = exp.Table(this=exp.to_identifier("show"))
    table.meta[_KEY] = show
    query = exp.Select(expressions=[exp.Star()])
    query.set("from_", exp.From(this=table))
    return query


def shown_by(node: exp.Expr) -> st.Show | None:
    """The SHOW that a table node carries; None where it carries none."""
    found = node.meta.get(_KEY)
    return found if isinstance(found, st.Show) else None
