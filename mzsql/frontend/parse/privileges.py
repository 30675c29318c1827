"""Parsing GRANT and REVOKE, REASSIGN and DROP OWNED, ALTER DEFAULT PRIVILEGES.

SHOW of privileges is parsed with the rest of SHOW (`mzsql.frontend.parse.session`).
"""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.named import names_of
from mzsql.frontend.parse.pieces import Pieces, Statements
from mzsql.frontend.parse.shows import GRANTED_KINDS, GRANTED_PLURALS
from mzsql.repr.errors import Unsupported

#: Privileges and their ACL letters, in the order of an ACL.
PRIVILEGES = {
    "INSERT": "a",
    "SELECT": "r",
    "UPDATE": "w",
    "DELETE": "d",
    "USAGE": "U",
    "CREATE": "C",
    "CREATEROLE": "R",
    "CREATEDB": "B",
    "CREATECLUSTER": "N",
    "CREATENETWORKPOLICY": "P",
}
_PLURALS = tuple((plural,) for plural in GRANTED_PLURALS)
_WORDS = tuple((privilege,) for privilege in PRIVILEGES)
#: What an object or a default privilege may be within.
_PLACES = (("SCHEMA",), ("DATABASE",))


def grant(pieces: Pieces) -> cs.Membership | cs.Privileges:
    """GRANT role TO role, or GRANT privileges ON what TO role, after GRANT.

    Raises:
        SqlSyntaxError: it is neither.
        Unsupported: it is on a kind of things that do not exist here.
    """
    return _granted(pieces, "TO", revoke=False)


def revoke(pieces: Pieces) -> cs.Membership | cs.Privileges:
    """REVOKE … FROM role, after REVOKE.

    Raises:
        SqlSyntaxError, Unsupported: as by `grant`.
    """
    return _granted(pieces, "FROM", revoke=True)


def reassign(pieces: Pieces) -> cs.Owned:
    """REASSIGN OWNED BY roles TO role, after REASSIGN OWNED.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    pieces.expect("BY")
    roles = pieces.plain_names()
    pieces.expect("TO")
    return cs.Owned(pieces.source, roles, pieces.plain_name())


def drop_owned(pieces: Pieces) -> cs.Owned:
    """DROP OWNED BY roles, after DROP OWNED.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    pieces.expect("BY")
    roles = pieces.plain_names()
    cascade = pieces.take("CASCADE")
    if not cascade:
        pieces.take("RESTRICT")
    return cs.Owned(pieces.source, roles, None, cascade)


def alter_default(pieces: Pieces) -> cs.DefaultPrivileges:
    """ALTER DEFAULT PRIVILEGES FOR … [IN …] GRANT | REVOKE …, after PRIVILEGES.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: it is about a kind of things that do not exist here.
    """
    pieces.expect("FOR")
    makers = None
    if not pieces.take("ALL", "ROLES"):
        pieces.expect_one((("ROLE",), ("USER",)), "one of ALL or ROLE or USER")
        makers = pieces.plain_names()
    within, places = _within(pieces) if pieces.take("IN") else (None, ())
    revoked = pieces.expect_one((("GRANT",), ("REVOKE",))) == "revoke"
    position = pieces.position()
    said = _said(pieces)
    pieces.expect("ON")
    kind = _plural_kind(pieces)
    roles = _grantees(pieces, "FROM" if revoked else "TO")
    return cs.DefaultPrivileges(
        pieces.source, makers, within, places, said, kind, roles, revoked, position
    )


def _granted(pieces: Pieces, preposition: str, *, revoke: bool) -> cs.Membership | cs.Privileges:
    if not _at_privilege(pieces):
        members = pieces.plain_names()
        return cs.Membership(pieces.source, members, _grantees(pieces, preposition), revoke)
    position = pieces.position()
    said = _said(pieces)
    pieces.expect("ON")
    kind, names, every = _what(pieces)
    roles = _grantees(pieces, preposition)
    return cs.Privileges(pieces.source, said, kind, names, every, roles, revoke, position)


def _grantees(pieces: Pieces, preposition: str) -> tuple[st.Name, ...]:
    pieces.expect(preposition)
    pieces.take("GROUP")
    return pieces.plain_names()


def _at_privilege(pieces: Pieces) -> bool:
    # A quoted word is a role's name.
    return not pieces.peek_token(TokenType.IDENTIFIER) and pieces.word() in ("ALL", *PRIVILEGES)


def _said(pieces: Pieces) -> tuple[str, ...] | None:
    """The named privileges; None: ALL."""
    if pieces.take("ALL"):
        pieces.take("PRIVILEGES")
        return None
    return tuple(dict.fromkeys(pieces.separated(_privilege)))


def _privilege(pieces: Pieces) -> str:
    return pieces.expect_one(_WORDS).upper()


def _what(pieces: Pieces) -> tuple[str, tuple[st.Name, ...], str | None]:
    """The kind of thing that a privilege is on, names, and for ALL … IN the kind of the names."""
    if pieces.take("SYSTEM"):
        return "system", (), None
    if pieces.take("ALL"):
        kind = _plural_kind(pieces)
        if not pieces.take("IN"):
            return kind, (), "everywhere"
        within, names = _within(pieces)
        return kind, names, within
    position = pieces.position()
    # A relation's name may follow with no kind before it.
    kind = pieces.take_one(GRANTED_KINDS) or "table"
    _refuse_kind(kind, position)
    return kind, names_of(pieces, kind), None


def _plural_kind(pieces: Pieces) -> str:
    """The kind whose plural follows."""
    position = pieces.position()
    kind = GRANTED_PLURALS[pieces.expect_one(_PLURALS).upper()].lower()
    _refuse_kind(kind, position)
    return kind


def _refuse_kind(kind: str, position: int) -> None:
    if kind in ("secret", "connection"):
        raise Unsupported(f"there are no {kind}s", position=position)


def _within(pieces: Pieces) -> tuple[str, tuple[st.Name, ...]]:
    """SCHEMA or DATABASE with names, after IN."""
    within = pieces.expect_one(_PLACES, "one of DATABASE or SCHEMA")
    return within, names_of(pieces, within)


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("ALTER", "DEFAULT", "PRIVILEGES"), alter_default),
    (("DROP", "OWNED"), drop_owned),
    (("REASSIGN", "OWNED"), reassign),
    (("GRANT",), grant),
    (("REVOKE",), revoke),
)
