"""SQL text to MIR: parse, resolve names and types, decorrelate.

The stages: `parse_statements(text)` gives `Statement`s, structs of our own around sqlglot's ASTs in our dialect.
`plan_statement(statement, catalog)` resolves names and types against a `CatalogView` into a `Plan`
(`mzsql.frontend.plan.plans`, and a module for each family), whose queries are HIR. `lower_query(query)` decorrelates
HIR into a MIR relation with a `RelationDesc` and a `RowSetFinishing`. `bind_parameters(text, params)` inserts parameters
into a text as typed literals, before parsing; `RecentTexts` keeps the trees of recent queries. Whatever the text, only
`SqlError`s leave this package. See docs/architecture.md, "The way of a SELECT".
"""

from mzsql.frontend.catalog import CatalogItem, CatalogView, FullName, PartialName
from mzsql.frontend.definitions.normalize import normalize_create_sql, quoted, quoted_name
from mzsql.frontend.grammar.dialect import check_sqlglot
from mzsql.frontend.lowering.lower import (
    LoweredQuery,
    lower_as_made,
    lower_as_written,
    lower_query,
    lower_relation,
)
from mzsql.frontend.parse.parameters import bind_parameters
from mzsql.frontend.parse.parse import RecentTexts, parse_statements
from mzsql.frontend.parse.statements import Statement
from mzsql.frontend.plan.plan import plan_statement

__all__ = [
    "CatalogItem",
    "CatalogView",
    "FullName",
    "LoweredQuery",
    "PartialName",
    "RecentTexts",
    "Statement",
    "bind_parameters",
    "check_sqlglot",
    "lower_as_made",
    "lower_as_written",
    "lower_query",
    "lower_relation",
    "normalize_create_sql",
    "parse_statements",
    "plan_statement",
    "quoted",
    "quoted_name",
]
