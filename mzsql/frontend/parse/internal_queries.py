"""SELECTs over relations of ``mz_internal``, as SHOW is read and planned."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp


def column_named(name: str) -> exp.Column:
    """A column, its name as it is written."""
    return exp.column(exp.to_identifier(name, quoted=True))


def equals(name: str, value: str) -> exp.Expr:
    """That a column has a value."""
    return exp.EQ(this=column_named(name), expression=exp.Literal.string(value))


def internal_query(relation: str, columns: Sequence[str]) -> exp.Select:
    """Columns of a relation."""
    table = exp.Table(this=exp.to_identifier(relation), db=exp.to_identifier("mz_internal"))
    query = exp.Select(expressions=[column_named(name) for name in columns])
    query.set("from_", exp.From(this=table))
    return query
