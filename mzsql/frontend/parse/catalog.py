"""Parsing statements about databases, schemas, clusters, roles, names and comments."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.pieces import OWN_KINDS, Statements, each
from mzsql.frontend.parse.privileges import PrivilegeParser
from mzsql.repr.errors import InvalidParameter, SqlSyntaxError, Unsupported
from mzsql.repr.interval_text import parse_interval

#: Options of clusters and, below, of replicas; their values are checked when the statement is planned.
CLUSTER_OPTIONS = (
    ("AVAILABILITY", "ZONES"),
    ("DISK",),
    ("INTROSPECTION", "INTERVAL"),
    ("INTROSPECTION", "DEBUGGING"),
    ("MANAGED",),
    ("REPLICAS",),
    ("REPLICATION", "FACTOR"),
    ("SIZE",),
    ("SCHEDULE",),
    ("WORKLOAD", "CLASS"),
)
REPLICA_OPTIONS = (
    ("AVAILABILITY", "ZONE"),
    ("BILLED", "AS"),
    ("COMPUTE", "ADDRESSES"),
    ("COMPUTECTL", "ADDRESSES"),
    ("DISK",),
    ("INTERNAL",),
    ("INTROSPECTION", "INTERVAL"),
    ("INTROSPECTION", "DEBUGGING"),
    ("SIZE",),
    ("STORAGE", "ADDRESSES"),
    ("STORAGECTL", "ADDRESSES"),
    ("WORKERS",),
)
_ATTRIBUTES = (
    ("INHERIT",),
    ("NOINHERIT",),
    ("CREATECLUSTER",),
    ("NOCREATECLUSTER",),
    ("CREATEDB",),
    ("NOCREATEDB",),
    ("CREATEROLE",),
    ("NOCREATEROLE",),
    ("LOGIN",),
    ("NOLOGIN",),
    ("SUPERUSER",),
    ("NOSUPERUSER",),
    ("PASSWORD",),
)
_COMMENTED = (
    ("MATERIALIZED", "VIEW"),
    ("TABLE",),
    ("VIEW",),
    ("COLUMN",),
    ("INDEX",),
    ("SCHEMA",),
    ("DATABASE",),
    ("CLUSTER", "REPLICA"),
    ("CLUSTER",),
    ("ROLE",),
    ("SOURCE",),
    ("SINK",),
    ("TYPE",),
    ("FUNCTION",),
    ("CONNECTION",),
    ("SECRET",),
)


def _words(options: tuple[tuple[str, ...], ...]) -> str:
    firsts = dict.fromkeys(words[0] for words in options)
    return "one of " + " or ".join(firsts)


class CatalogParser(PrivilegeParser):
    """Parses these statements."""

    # --- CREATE -------------------------------------------------------------------------------

    def create_schema(self) -> cs.CreateSchema:
        """CREATE SCHEMA, after these words."""
        if_not_exists = self.if_not_exists()
        return cs.CreateSchema(self.source, self.schema_name(), if_not_exists=if_not_exists)

    def create_database(self) -> cs.CreateDatabase:
        """CREATE DATABASE, after these words."""
        if_not_exists = self.if_not_exists()
        return cs.CreateDatabase(self.source, self.plain_name(), if_not_exists=if_not_exists)

    def create_role(self) -> cs.CreateRole:
        """CREATE ROLE, after these words."""
        name = self.plain_name()
        self.at("WITH")
        return cs.CreateRole(self.source, name, self._attributes())

    def _attributes(self) -> tuple[tuple[str, int], ...]:
        found: list[tuple[str, int]] = []
        while self.p._curr:
            position = self.position()
            attribute = self.one_of(_ATTRIBUTES)
            if attribute is None:
                self.p.expected(_words(_ATTRIBUTES))
            assert attribute is not None
            if attribute == "password":
                raise Unsupported("passwords of roles are not supported", position=position)
            found.append((attribute.upper(), position))
        return tuple(found)

    def create_cluster(self) -> cs.CreateCluster | cs.CreateReplica:
        """CREATE CLUSTER [REPLICA], after the word CLUSTER."""
        if self.at("REPLICA"):
            if_not_exists = self.if_not_exists()
            name = self.replica_name()
            options = self._options_of(REPLICA_OPTIONS)
            return cs.CreateReplica(self.source, name, options, if_not_exists=if_not_exists)
        if_not_exists = self.if_not_exists()
        name = self.plain_name()
        options = self._options_of(CLUSTER_OPTIONS)
        if self._at_word("FEATURES"):
            raise Unsupported("FEATURES of clusters are not supported", position=self.position())
        return cs.CreateCluster(self.source, name, options, if_not_exists=if_not_exists)

    def _at_word(self, word: str) -> bool:
        return bool(self.p._curr and self.p._curr.text.upper() == word)

    def _options_of(self, known: tuple[tuple[str, ...], ...]) -> tuple[cs.Option, ...]:
        """Options separated by commas, with or without parentheses."""
        if not self.p._match(TokenType.L_PAREN):
            return self._option_list(known)
        found = self._option_list(known)
        self.p._match_r_paren()
        return found

    def _option_list(
        self, known: tuple[tuple[str, ...], ...], *, values: bool = True
    ) -> tuple[cs.Option, ...]:
        found: list[cs.Option] = []
        while True:
            option = self._option(known, values=values)
            if any(one.name == option.name for one in found):
                raise SqlSyntaxError(
                    f"{option.name} specified more than once", position=option.position
                )
            found.append(option)
            if not self.p._match(TokenType.COMMA):
                return tuple(found)

    def _option(self, known: tuple[tuple[str, ...], ...], *, values: bool) -> cs.Option:
        position = self.position()
        name = self.one_of(known)
        if name is None:
            self.p.expected(_words(known))
        assert name is not None
        if not values:
            return cs.Option(name.upper(), None, position)
        self.p._match(TokenType.EQ)
        if name == "replicas":
            return cs.Option("REPLICAS", self._replicas(), position)
        if name == "schedule":
            return cs.Option("SCHEDULE", self._schedule(), position)
        at = self.p._curr
        quoted = bool(at) and at.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return cs.Option(name.upper(), self._option_value(), position, quoted)

    def _schedule(self) -> str:
        """MANUAL or ON REFRESH [(HYDRATION TIME ESTIMATE = 'interval')]."""
        if self.at("MANUAL"):
            return "manual"
        if not self.at("ON"):
            self.p.expected("one of MANUAL or ON")
        self.need("REFRESH")
        if self.p._match(TokenType.L_PAREN):
            self.need("HYDRATION", "TIME", "ESTIMATE")
            self.p._match(TokenType.EQ)
            position = self.position()
            _check_estimate(self.string(), position)
            self.p._match_r_paren()
        return "on refresh"

    def _option_value(self) -> str | int | bool | tuple[str, ...] | None:
        """An option's value; True where none is written."""
        p = self.p
        token = p._curr
        if not token or token.token_type in (TokenType.COMMA, TokenType.R_PAREN):
            return True
        if p._match(TokenType.L_BRACKET):
            return self._list()
        p._advance()
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            return str(token.text)
        if token.token_type == TokenType.NUMBER and str(token.text).isdigit():
            return int(token.text)
        word = str(token.text).lower()
        if token.token_type in (TokenType.TRUE, TokenType.FALSE):
            return word == "true"
        if word == "null":
            return None
        if word == "interval":
            return self.string()
        if not (word[:1].isalpha() or word[:1] == "_"):
            p._retreat(p._index - 1)
            p.expected("option value")
        return word

    def _list(self) -> tuple[str, ...]:
        found: list[str] = []
        while found or not self._at(TokenType.R_BRACKET):
            found.append(self.string())
            if not self.p._match(TokenType.COMMA):
                break
        if not self.p._match(TokenType.R_BRACKET):
            self.p.expected("right square bracket")
        return tuple(found)

    def _replicas(self) -> tuple[cs.ReplicaSpec, ...]:
        if not self.p._match(TokenType.L_PAREN):
            self.p.expected("left parenthesis")
        found: list[cs.ReplicaSpec] = []
        while found or not self._at(TokenType.R_PAREN):
            position = self.position()
            name = self.identifier()
            if not self.p._match(TokenType.L_PAREN):
                self.p.expected("left parenthesis")
            found.append(cs.ReplicaSpec(name, self._option_list(REPLICA_OPTIONS), position))
            self.p._match_r_paren()
            if not self.p._match(TokenType.COMMA):
                break
        self.p._match_r_paren()
        return tuple(found)

    # --- DROP ---------------------------------------------------------------------------------

    def drop_named(self, kind: str) -> cs.DropNamed:
        """DROP SCHEMA and the like, after the kind."""
        if_exists = self.at("IF", "EXISTS")
        names = [self.name_of(kind)]
        while self.p._match(TokenType.COMMA):
            names.append(self.name_of(kind))
        cascade: bool | None = None
        if kind in ("schema", "database", "cluster"):
            if self.at("CASCADE"):
                cascade = True
            elif self.at("RESTRICT"):
                cascade = False
        return cs.DropNamed(self.source, kind, tuple(names), if_exists, cascade)

    # --- ALTER --------------------------------------------------------------------------------

    def alter_named(self, kind: str, name: st.Name, *, if_exists: bool) -> st.Statement | None:
        """The rest of an ALTER statement after kind and name, where it is one of this family; else None."""
        source = self.source
        if self.at("RENAME", "TO"):
            if kind in ("database", "role"):
                raise Unsupported(
                    f"ALTER {kind.upper()} … RENAME TO is not supported", position=name.position
                )
            return cs.Rename(source, kind, name, self.identifier(), if_exists=if_exists)
        if self.at("OWNER", "TO"):
            return cs.SetOwner(source, kind, name, self.identifier(), if_exists=if_exists)
        if kind in ("schema", "cluster") and self.at("SWAP", "WITH"):
            return cs.Swap(source, kind, name, self.name_of(kind), if_exists=if_exists)
        if kind in ("table", "view", "materialized view") and self.at("SET", "SCHEMA"):
            return cs.SetSchema(source, kind, name, self.schema_name(), if_exists=if_exists)
        if kind in ("materialized view", "index") and self.at("SET", "CLUSTER"):
            return cs.SetCluster(source, kind, name, self.plain_name(), if_exists=if_exists)
        if kind == "cluster":
            return self._alter_cluster(name, if_exists=if_exists)
        if kind == "role":
            return self._alter_role(name)
        return None

    def _alter_role(self, name: st.Name) -> cs.AlterRole | cs.AlterRoleVariable:
        if self.at("SET"):
            variable = self.set_name()
            return cs.AlterRoleVariable(self.source, name, variable, self.set_values())
        if self.at("RESET"):
            return cs.AlterRoleVariable(self.source, name, self.reset_name(), None)
        self.at("WITH")
        return cs.AlterRole(self.source, name, self._attributes())

    def _alter_cluster(self, name: st.Name, *, if_exists: bool) -> cs.AlterCluster:
        setting = self.one_of((("SET",), ("RESET",)))
        if setting is None:
            self.p.expected("one of OWNER or RENAME or RESET or SET or SWAP")
        if not self.p._match(TokenType.L_PAREN):
            self.p.expected("left parenthesis")
        options = self._option_list(CLUSTER_OPTIONS, values=setting == "set")
        self.p._match_r_paren()
        return cs.AlterCluster(self.source, name, options, setting == "reset", if_exists)

    # --- COMMENT ------------------------------------------------------------------------------

    def comment(self) -> cs.Comment:
        """COMMENT ON … IS …, after COMMENT."""
        self.need("ON")
        position = self.position()
        kind = self.one_of(_COMMENTED)
        if kind is None:
            self.p.expected(_words(_COMMENTED))
        assert kind is not None
        if kind in ("source", "sink", "function", "connection", "secret"):
            raise Unsupported(f"COMMENT ON {kind.upper()} is not supported", position=position)
        name, column = self._commented(kind)
        self.need("IS")
        text = None if self.at("NULL") else self.string()
        return cs.Comment(self.source, kind, name, column, text)

    def _commented(self, kind: str) -> tuple[st.Name, str | None]:
        if kind != "column":
            return self.name_of(kind), None
        position = self.position()
        parts = [self.identifier()]
        while self.p._match(TokenType.DOT):
            parts.append(self.identifier())
        if not 2 <= len(parts) <= 4:
            raise SqlSyntaxError(
                "need to specify an object and a column", position=position, sqlstate="42601"
            )
        return st.Name(PartialName(*reversed(parts[:-1])), position), parts[-1]


def _check_estimate(text: str, position: int) -> None:
    estimate = parse_interval(text)
    what = "HYDRATION TIME ESTIMATE must"
    if estimate.months:
        raise InvalidParameter(f"{what} not involve units larger than days", position=position)
    if estimate.days * 86_400_000_000 + estimate.microseconds < 0:
        raise InvalidParameter(f"{what} be non-negative; got: {estimate}", position=position)


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = ((("COMMENT",), CatalogParser.comment),)
#: What these statements begin with where no other system's SQL has them (`mzsql.frontend.parse.heads`).
OWN = each(("COMMENT ON",), OWN_KINDS)
#: What they begin with where others have them too; the relation's name follows.
NAMED = each(("COMMENT ON",), (("TABLE",), ("VIEW",)))
