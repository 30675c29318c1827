"""SHOW where a relation stands: ``(SHOW TABLES)`` is a relation of a FROM clause, which carries the statement that it is."""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.parse import statements as st

_KEY = "show"


def show_table(show: st.Show) -> exp.Select:
    """``SELECT * FROM`` what SHOW answers."""
    table = exp.Table(this=exp.to_identifier("show"))
    table.meta[_KEY] = show
    query = exp.Select(expressions=[exp.Star()])
    query.set("from_", exp.From(this=table))
    return query


def shown_by(node: exp.Expr) -> st.Show | None:
    """The SHOW that a relation of a FROM clause is, if it is one."""
    found = node.meta.get(_KEY)
    return found if isinstance(found, st.Show) else None
