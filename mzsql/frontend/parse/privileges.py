"""Parsing GRANT and REVOKE, REASSIGN and DROP OWNED, ALTER DEFAULT PRIVILEGES, SHOW PRIVILEGES and SHOW ROLE
MEMBERSHIP.
"""

from __future__ import annotations

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.internal_queries import column_named, equals, internal_query
from mzsql.frontend.parse.pieces import Statements, each
from mzsql.frontend.parse.variables import VariableParser
from mzsql.repr.errors import SqlSyntaxError, Unsupported

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
#: Kinds without a schema: their names have one part.
_PLAIN = ("database", "cluster", "role")
_KINDS = ("TABLE", "TYPE", "SECRET", "CONNECTION", "SCHEMA", "DATABASE", "CLUSTER")
_ALL_OF = {f"{kind}S": kind for kind in _KINDS}
_SHOWN = (
    *((f"{kind}S",) for kind in ("OBJECT", *_KINDS)),
    ("SYSTEM",),
)


class PrivilegeParser(VariableParser):
    """Parses these statements, and the names of things of any kind."""

    def plain_name(self) -> st.Name:
        """A name of one part."""
        position = self.position()
        return st.Name(PartialName(self.identifier()), position)

    def replica_name(self) -> st.Name:
        """cluster.replica"""
        position = self.position()
        cluster = self.identifier()
        if not self.p._match(TokenType.DOT):
            self.p.expected("dot")
        return st.Name(PartialName(self.identifier(), cluster), position)

    def schema_name(self) -> st.Name:
        """[database.]schema"""
        name = self.name()
        if name.partial.database is not None:
            raise SqlSyntaxError(
                f"schema name '{name}' cannot have more than two components",
                position=name.position,
            )
        return name

    def name_of(self, kind: str) -> st.Name:
        """A name in the form that things of this kind have."""
        if kind in _PLAIN:
            return self.plain_name()
        if kind == "cluster replica":
            return self.replica_name()
        return self.schema_name() if kind == "schema" else self.name()

    def grant(self) -> cs.Membership | cs.Privileges:
        """GRANT role TO role, or GRANT privileges ON what TO role, after GRANT."""
        return self._granted("TO", revoke=False)

    def revoke(self) -> cs.Membership | cs.Privileges:
        """REVOKE … FROM role, after REVOKE."""
        return self._granted("FROM", revoke=True)

    def reassign(self) -> cs.Owned:
        """REASSIGN OWNED BY roles TO role, after REASSIGN OWNED."""
        self.need("BY")
        roles = self._plain_names()
        self.need("TO")
        return cs.Owned(self.source, roles, self.plain_name())

    def drop_owned(self) -> cs.Owned:
        """DROP OWNED BY roles, after DROP OWNED."""
        self.need("BY")
        roles = self._plain_names()
        cascade = self.at("CASCADE")
        if not cascade:
            self.at("RESTRICT")
        return cs.Owned(self.source, roles, None, cascade)

    def alter_default(self) -> cs.DefaultPrivileges:
        """ALTER DEFAULT PRIVILEGES FOR … [IN …] GRANT | REVOKE …, after PRIVILEGES."""
        self.need("FOR")
        makers: tuple[st.Name, ...] | None = None
        if not self.at("ALL", "ROLES"):
            if self.one_of((("ROLE",), ("USER",))) is None:
                self.p.expected("one of ALL or ROLE or USER")
            makers = self._plain_names()
        within, places = None, tuple[st.Name, ...]()
        if self.at("IN"):
            within, places = self._within()
        verb = self.one_of((("GRANT",), ("REVOKE",)))
        if verb is None:
            self.p.expected("one of GRANT or REVOKE")
        position = self.position()
        said = self._said()
        self.need("ON")
        at = self.position()
        kinds = self.one_of(tuple((word,) for word in _ALL_OF))
        if kinds is None:
            self.p.expected(f"one of {' or '.join(_ALL_OF)}")
        assert kinds is not None
        kind = _ALL_OF[kinds.upper()].lower()
        self._refuse_kind(kind, at)
        self.need("TO" if verb == "grant" else "FROM")
        self.at("GROUP")
        return cs.DefaultPrivileges(
            self.source,
            makers,
            within,
            places,
            said,
            kind,
            self._plain_names(),
            verb == "revoke",
            position,
        )

    def _granted(self, preposition: str, *, revoke: bool) -> cs.Membership | cs.Privileges:
        if self._at_privilege():
            return self._privileges(preposition, revoke=revoke)
        roles = self._plain_names()
        self.need(preposition)
        self.at("GROUP")
        return cs.Membership(self.source, roles, self._plain_names(), revoke)

    def _at_privilege(self) -> bool:
        token = self.p._curr
        if not token or token.token_type == TokenType.IDENTIFIER:
            return False
        return token.text.upper() in ("ALL", *PRIVILEGES)

    def _plain_names(self) -> tuple[st.Name, ...]:
        found = [self.plain_name()]
        while self.p._match(TokenType.COMMA):
            found.append(self.plain_name())
        return tuple(found)

    def _privileges(self, preposition: str, *, revoke: bool) -> cs.Privileges:
        position = self.position()
        said = self._said()
        self.need("ON")
        kind, names, every = self._what()
        self.need(preposition)
        self.at("GROUP")
        roles = self._plain_names()
        return cs.Privileges(self.source, said, kind, names, every, roles, revoke, position)

    def _said(self) -> tuple[str, ...] | None:
        """The named privileges; None: ALL."""
        if self.at("ALL"):
            self.at("PRIVILEGES")
            return None
        return self._named_privileges()

    def _named_privileges(self) -> tuple[str, ...]:
        found: list[str] = []
        while True:
            privilege = self.one_of(tuple((word,) for word in PRIVILEGES))
            if privilege is None:
                self.p.expected(f"one of {' or '.join(PRIVILEGES)}")
            assert privilege is not None
            found.append(privilege.upper())
            if not self.p._match(TokenType.COMMA):
                return tuple(dict.fromkeys(found))

    def _what(self) -> tuple[str, tuple[st.Name, ...], str | None]:
        """The kind of thing that a privilege is on, names, and for ALL … IN the kind of the names."""
        if self.at("SYSTEM"):
            return "system", (), None
        if self.at("ALL"):
            return self._all_of()
        position = self.position()
        kind = self.one_of(tuple((word,) for word in _KINDS)) or "table"
        self._refuse_kind(kind, position)
        names = [self.name_of(kind)]
        while self.p._match(TokenType.COMMA):
            names.append(self.name_of(kind))
        return kind, tuple(names), None

    def _refuse_kind(self, kind: str, position: int) -> None:
        if kind in ("secret", "connection"):
            raise Unsupported(f"there are no {kind}s", position=position)

    def _all_of(self) -> tuple[str, tuple[st.Name, ...], str | None]:
        position = self.position()
        said = self.one_of(tuple((word,) for word in _ALL_OF))
        if said is None:
            self.p.expected(f"one of {' or '.join(_ALL_OF)}")
        assert said is not None
        kind = _ALL_OF[said.upper()].lower()
        self._refuse_kind(kind, position)
        if not self.at("IN"):
            return kind, (), "everywhere"
        within, names = self._within()
        return kind, names, within

    def _within(self) -> tuple[str, tuple[st.Name, ...]]:
        """SCHEMA or DATABASE with names, after IN."""
        within = self.one_of((("SCHEMA",), ("DATABASE",)))
        if within is None:
            self.p.expected("one of DATABASE or SCHEMA")
        assert within is not None
        names = [self.name_of(within)]
        while self.p._match(TokenType.COMMA):
            names.append(self.name_of(within))
        return within, tuple(names)

    # --- SHOW ---------------------------------------------------------------------------------

    def shown_privileges(self) -> exp.Select | None:
        """SHOW [DEFAULT] PRIVILEGES [ON kind] [FOR role] or SHOW ROLE MEMBERSHIP [FOR role], after SHOW; None where it
        is neither.
        """
        if self.at("ROLE", "MEMBERSHIP"):
            query = internal_query("mz_show_role_members", ("role", "member", "grantor"))
            return self._of_role(query, "member")
        if self.at("DEFAULT", "PRIVILEGES"):
            own = ("object_owner", "database", "schema", "object_type", "grantee")
            query = internal_query("mz_show_default_privileges", (*own, "privilege_type"))
        elif self.at("PRIVILEGES"):
            columns = ("grantor", "grantee", "database", "schema", "name", "object_type")
            query = internal_query("mz_show_all_privileges", (*columns, "privilege_type"))
        else:
            return None
        kind = None
        if self.at("ON"):
            kind = self.one_of(_SHOWN)
            if kind is None:
                self.p.expected(f"one of {' or '.join(words[0] for words in _SHOWN)}")
        if kind is not None and kind != "objects":
            query = query.where(
                equals("object_type", kind.removesuffix("s") if kind != "system" else kind)
            )
        return self._of_role(query, "grantee", "PUBLIC")

    def _of_role(self, query: exp.Select, column: str, *others: str) -> exp.Select:
        if not self.at("FOR"):
            return query
        given = [exp.Literal.string(one) for one in (self.identifier(), *others)]
        return query.where(exp.In(this=column_named(column), expressions=given))


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("ALTER", "DEFAULT", "PRIVILEGES"), PrivilegeParser.alter_default),
    (("DROP", "OWNED"), PrivilegeParser.drop_owned),
    (("REASSIGN", "OWNED"), PrivilegeParser.reassign),
    (("GRANT",), PrivilegeParser.grant),
    (("REVOKE",), PrivilegeParser.revoke),
)
#: What these statements begin with where no other system's SQL has them (`mzsql.frontend.parse.heads`).
OWN = (
    ("ALTER", "DEFAULT", "PRIVILEGES"),
    ("DROP", "OWNED"),
    ("REASSIGN", "OWNED"),
    ("GRANT",),
    ("REVOKE",),
    *each(("SHOW",), (("PRIVILEGES",), ("DEFAULT", "PRIVILEGES"), ("ROLE", "MEMBERSHIP"))),
)
