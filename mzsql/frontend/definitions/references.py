"""What a stored definition names, found in its text.

Promise: a stored definition has every object by its full name, so what it names does not depend on the session or the build.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.catalog import SYSTEM_SCHEMAS
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.parse.pieces import fold


def system_relations(create_sql: str) -> set[tuple[str, str]]:
    """Schemas and names of the system's relations that a definition names; no other kind than a view's names any.

    Raises:
        SqlError: the text does not parse.
    """
    (statement,) = parse_statements(create_sql)
    if not isinstance(statement, st.CreateView):
        return set()
    found: set[tuple[str, str]] = set()
    for table in statement.query.query.find_all(exp.Table):
        schema, name = table.args.get("db"), table.args.get("this")
        if isinstance(schema, exp.Identifier) and isinstance(name, exp.Identifier):
            found.add((fold(schema), fold(name)))
    return {(schema, name) for schema, name in found if schema in SYSTEM_SCHEMAS}
