"""SHOW as a query: ``(SHOW TABLES)`` in a FROM clause is a table node that carries the parsed statement; SHOW of privileges
and of members is a SELECT over the relations of ``mz_internal``.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.kinds import KINDS
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.internal_queries import column_named, equals, internal_query
from mzsql.frontend.parse.pieces import Pieces

_KEY = "show"
#: The kinds of things that a privilege can be on, as GRANT names them; what there is none of here is refused by name.
GRANTED_KINDS = (
    *(kind.words for kind in KINDS if kind.granted_as == kind.name and kind.in_schema),
    ("SECRET",),
    ("CONNECTION",),
    *(kind.words for kind in KINDS if kind.granted_as == kind.name and not kind.in_schema),
)
#: Those kinds by their plurals.
GRANTED_PLURALS = {f"{words[-1]}S": words[-1] for words in GRANTED_KINDS}
_ON = (("OBJECTS",), *((plural,) for plural in GRANTED_PLURALS), ("SYSTEM",))


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


def shown_privileges(pieces: Pieces) -> exp.Select | None:
    """SHOW [DEFAULT] PRIVILEGES [ON kind] [FOR role] or SHOW ROLE MEMBERSHIP [FOR role], after SHOW; None where it is
    neither.

    Raises:
        SqlSyntaxError: no kind follows ON, or no role FOR.
    """
    if pieces.take("ROLE", "MEMBERSHIP"):
        query = internal_query("mz_show_role_members", ("role", "member", "grantor"))
        return _of_role(pieces, query, "member")
    if pieces.take("DEFAULT", "PRIVILEGES"):
        own = ("object_owner", "database", "schema", "object_type", "grantee")
        query = internal_query("mz_show_default_privileges", (*own, "privilege_type"))
    elif pieces.take("PRIVILEGES"):
        columns = ("grantor", "grantee", "database", "schema", "name", "object_type")
        query = internal_query("mz_show_all_privileges", (*columns, "privilege_type"))
    else:
        return None
    if pieces.take("ON"):
        kind = pieces.expect_one(_ON)
        if kind != "objects":
            singular = GRANTED_PLURALS.get(kind.upper(), kind)
            query = query.where(equals("object_type", singular.lower()))
    return _of_role(pieces, query, "grantee", "PUBLIC")


def _of_role(pieces: Pieces, query: exp.Select, column: str, *others: str) -> exp.Select:
    if not pieces.take("FOR"):
        return query
    given = [exp.Literal.string(one) for one in (pieces.identifier(), *others)]
    return query.where(exp.In(this=column_named(column), expressions=given))
