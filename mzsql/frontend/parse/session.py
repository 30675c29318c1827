"""Parsing EXPLAIN, SHOW, SET and transactions."""

from __future__ import annotations

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.ddl import DefinitionParser
from mzsql.frontend.parse.pieces import FOREIGN_KINDS, OBJECT_KINDS, OWN_KINDS, Statements, each
from mzsql.frontend.parse.shows import show_table
from mzsql.repr.errors import SqlSyntaxError, Unsupported

EXPLAIN_STAGES = (
    ("RAW",),
    ("DECORRELATED",),
    ("LOCALLY", "OPTIMIZED"),
    ("OPTIMIZED",),
    ("PHYSICAL",),
)
EXPLAIN_FORMATS = ("TEXT", "JSON", "SQL", "DOT")
#: Options of EXPLAIN … WITH (…); ``node_ids`` is an older spelling of ``node identifiers``.
EXPLAIN_OPTIONS = frozenset(
    """
    arity|cardinality|column names|equivalences|filter pushdown|humanized expressions|join implementations|keys|linear chains|
    node identifiers|no fast path|no notices|non negative|raw plans|raw syntax|raw|redacted|subtree size|timing|types|
    enable eager delta joins|enable new outer join lowering|enable variadic left join lowering|enable letrec fixpoint analysis|
    enable reduce mfp fusion|enable cardinality estimates|enable join prioritize arranged|enable projection pushdown after relation cse|
    enable reduce reduction|enable coalesce case transform|reoptimize imported views
    """.replace("\n", " ")
    .replace("    ", "")
    .strip()
    .replace("| ", "|")
    .split("|")
)
_SHOW_KINDS = (
    ("TABLES",),
    ("VIEWS",),
    ("MATERIALIZED", "VIEWS"),
    ("INDEXES",),
    ("SOURCES",),
    ("OBJECTS",),
    ("SCHEMAS",),
    ("DATABASES",),
    ("CLUSTERS",),
    ("CLUSTER", "REPLICAS"),
    ("ROLES",),
    ("TYPES",),
    ("CONNECTIONS",),
    ("SECRETS",),
    ("SINKS",),
    ("SUBSOURCES",),
)
#: Things that Materialize's SHOW lists and that do not exist here.
_UNKNOWN_KINDS = (("NETWORK", "POLICIES"),)
_ISOLATION = (
    ("STRICT", "SERIALIZABLE"),
    ("STRONG", "SESSION", "SERIALIZABLE"),
    ("SERIALIZABLE",),
    ("REPEATABLE", "READ"),
    ("READ", "COMMITTED"),
    ("READ", "UNCOMMITTED"),
)


_OPTION_ENDS = (TokenType.COMMA, TokenType.EQ, TokenType.R_PAREN, TokenType.L_PAREN)


class SessionParser(DefinitionParser):
    """Parses what shows and sets."""

    def explain(self) -> st.Statement:
        """EXPLAIN …"""
        position = self.position()
        if self.at("TIMESTAMP"):
            return self._explain_timestamp()
        if self.at("ANALYZE"):
            return self._explain_analyze()
        if self.at("FILTER", "PUSHDOWN"):
            return self._explain_pushdown()
        if self.at("QUERY"):
            raise Unsupported("EXPLAIN QUERY is not supported", position=position)
        stage = self.one_of(EXPLAIN_STAGES)
        if stage is not None or self.at("PLAN"):
            if stage is not None:
                self.need("PLAN")
            stage = stage or "optimized"
        options: tuple[tuple[str, bool | int | str], ...] = ()
        if self.p._match_pair(TokenType.WITH, TokenType.L_PAREN, advance=False):
            self.at("WITH")
            options = self._explain_options()
        fmt = self._explain_format(EXPLAIN_FORMATS)
        self.at("FOR")
        replan = self.at("REPLAN")
        # BROKEN means that planning may fail halfway; here it fails as a whole or not at all.
        if not replan:
            self.at("BROKEN")
        return st.Explain(
            self.source, stage or "optimized", fmt, options, self._explainee(replan), replan
        )

    def _explain_format(self, formats: tuple[str, ...]) -> str:
        if not self.p._match(TokenType.ALIAS):
            return "text"
        fmt = self.one_of(tuple((f,) for f in formats))
        if fmt is None:
            self.p.expected(f"one of {' or '.join(formats)}")
        assert fmt is not None
        return fmt

    def _explain_timestamp(self) -> st.Explain:
        """EXPLAIN TIMESTAMP [AS TEXT | JSON] FOR query."""
        fmt = self._explain_format(("TEXT", "JSON"))
        self.need("FOR")
        return st.Explain(self.source, "timestamp", fmt, (), self.select())

    def _explain_pushdown(self) -> st.Explain:
        """EXPLAIN FILTER PUSHDOWN FOR query | MATERIALIZED VIEW name."""
        self.need("FOR")
        of_view = self.at("MATERIALIZED", "VIEW")
        explainee = (
            st.ObjectRef(self.source, "materialized view", self.name())
            if of_view
            else self.select()
        )
        return st.Explain(self.source, "filter pushdown", "text", (), explainee)

    def _explain_analyze(self) -> st.ExplainAnalyze:
        """EXPLAIN ANALYZE CPU | MEMORY | HYDRATION, … [WITH SKEW] FOR INDEX | MATERIALIZED VIEW name [AS SQL]."""
        position = self.position()
        properties: dict[str, None] = {}
        while True:
            one = self.one_of(tuple((name.upper(),) for name in st.ANALYZED))
            if one is None:
                raise Unsupported(
                    "EXPLAIN ANALYZE is supported for what runs all the time, by what it takes",
                    position=position,
                    hint="EXPLAIN ANALYZE CPU, MEMORY, HYDRATION [WITH SKEW] FOR MATERIALIZED VIEW v; or FOR INDEX i.",
                )
            properties[one] = None
            if not self.p._match(TokenType.COMMA):
                break
        skew = self.at("WITH", "SKEW")
        self.need("FOR")
        kind = self.one_of((("MATERIALIZED", "VIEW"), ("INDEX",)))
        if kind is None:
            self.p.expected("one of MATERIALIZED VIEW or INDEX")
        assert kind is not None
        about = st.ObjectRef(self.source, kind, self.name())
        as_sql = bool(self.p._match(TokenType.ALIAS))
        if as_sql:
            self.need("SQL")
        return st.ExplainAnalyze(self.source, tuple(properties), skew, about, as_sql)

    def _explainee(self, replan: bool) -> st.Statement:
        kind = self.one_of((("VIEW",), ("MATERIALIZED", "VIEW"), ("INDEX",)))
        if kind is not None:
            return st.ObjectRef(self.source, kind, self.name())
        if replan:
            self.p.expected("one of VIEW, MATERIALIZED VIEW or INDEX")
        if self.at("SHOW"):
            shown = self.show()
            if isinstance(shown, st.Select):
                return shown
            if not isinstance(shown, st.Show):
                raise Unsupported("EXPLAIN of this kind of SHOW is not supported")
            return st.Select(self.source, show_table(shown), (self.source.start, self.source.end))
        if self.p._match(TokenType.CREATE):
            return self.create()
        return self.select()

    def _explain_options(self) -> tuple[tuple[str, bool | int | str], ...]:
        if not self.p._match(TokenType.L_PAREN):
            self.p.expected("left parenthesis")
        found: list[tuple[str, bool | int | str]] = []
        while not self.p._match(TokenType.R_PAREN):
            position = self.position()
            words: list[str] = []
            while self.p._curr and self.p._curr.token_type not in _OPTION_ENDS:
                words.append(self.p._curr.text.lower())
                self.p._advance()
            name = " ".join(words).replace("_", " ")
            name = "node identifiers" if name == "node ids" else name
            if name not in EXPLAIN_OPTIONS:
                raise SqlSyntaxError(
                    f"Expected a valid explain plan option name, found {' '.join(words)!r}",
                    position=position,
                )
            if any(name == before for before, _ in found):
                raise SqlSyntaxError(f"{name.upper()} specified more than once", position=position)
            found.append((name, self.boolean()))
            if not self.p._match(TokenType.COMMA) and not self._at(TokenType.R_PAREN):
                self.p.expected("right parenthesis")
        return tuple(found)

    def show(self) -> st.Statement:
        """SHOW …"""
        if self.at("CREATE"):
            kind = self.one_of((*OBJECT_KINDS, *FOREIGN_KINDS))
            if kind is None:
                self.p.expected("one of CLUSTER, INDEX, MATERIALIZED VIEW, TABLE, TYPE or VIEW")
            assert kind is not None
            if kind == "cluster":
                return cs.ShowCreateCluster(self.source, self.plain_name())
            if kind in ("schema", "database", "role", "cluster replica"):
                raise Unsupported(
                    f"SHOW CREATE {kind.upper()} is not supported", position=self.position()
                )
            return st.ShowCreate(self.source, kind, self.name())
        start = self.position() - 1
        shown = self._shown()
        if shown is None and self.at("SCHEMA"):
            # SHOW SCHEMA is the first existing schema of the search path, which is not a variable.
            query = exp.select(exp.alias_(exp.Anonymous(this="current_schema"), "schema"))
            return st.Select(self.source, query, (start, self.p._prev.end + 1))
        if shown is None:
            granted = self.shown_privileges()
            if granted is not None:
                if self._at_where():
                    granted = granted.where(self.p._parse_where().this)
                return self._ordered(granted, start)
            self._refuse_privileges_shown(start + 1)
            return st.ShowVariable(self.source, self.variable_name())
        if not self._at_where():
            return shown
        return self._ordered(self._where(show_table(shown)), start)

    def _ordered(self, query: exp.Select, start: int) -> st.Select:
        query = query.order_by(exp.Literal.number(1), copy=False)
        return st.Select(self.source, query, (start, self.p._prev.end + 1))

    def shown_query(self) -> exp.Expr:
        """SHOW … in a FROM clause, as a query."""
        self.need("SHOW")
        shown = self._shown()
        assert shown is not None, "the parser of queries knows what can be shown"
        return self._where(show_table(shown))

    def _shown(self) -> st.Show | None:
        """What follows SHOW, where it is a kind of objects; else None."""
        if self.at("COLUMNS"):
            if not self.at("FROM"):
                self.need("IN")
            on = self.name()
            return st.Show(self.source, "columns", on=on, like=self._like())
        kind = self.one_of(_SHOW_KINDS)
        return None if kind is None else self._show_objects(kind)

    def _show_objects(self, kind: str) -> st.Show:
        schema = on = None
        cluster = self.in_cluster()
        if kind in ("indexes", "subsources") and self.at("ON"):
            on = self.name()
        elif self.at("FROM") or self.at("IN"):
            schema = self.name()
        cluster = cluster or self.in_cluster()
        return st.Show(self.source, kind, schema, on, cluster, self._like())

    def _like(self) -> str | None:
        return self.string() if self.at("LIKE") else None

    def _refuse_privileges_shown(self, position: int) -> None:
        what = self.one_of(_UNKNOWN_KINDS)
        if what is not None:
            raise Unsupported(
                f"SHOW {what.upper()} is not supported",
                position=position,
                hint="Every role may do everything. There are SHOW ROLES, SHOW ROLE MEMBERSHIP, SHOW [DEFAULT] PRIVILEGES.",
            )

    def _at_where(self) -> bool:
        return bool(self._at(TokenType.WHERE))

    def _where(self, query: exp.Select) -> exp.Select:
        """The query with the optional WHERE of a SHOW."""
        if self._at_where():
            query.set("where", self.p._parse_where())
        return query

    def set_variable(self) -> st.Statement:
        """SET [SESSION | LOCAL] name {TO | =} values."""
        if self.at("TRANSACTION"):
            return self._transaction("set")
        if self.at("SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"):
            return self._transaction("set session")
        local = self.at("LOCAL")
        if not local:
            self.at("SESSION")
        return st.SetVariable(self.source, self.set_name(), self.set_values(), local)

    def reset(self) -> st.SetVariable:
        """RESET name."""
        return st.SetVariable(self.source, self.reset_name(), None)

    def alter_system(self) -> st.SetVariable:
        """ALTER SYSTEM SET | RESET."""
        if self.at("SET"):
            name = self.named_variable()
            return st.SetVariable(self.source, name, self.set_values(), system=True)
        self.need("RESET")
        return st.SetVariable(self.source, self.variable_name(), None, system=True)

    def begin(self) -> st.Transaction:
        """BEGIN, START TRANSACTION."""
        if not self.at("TRANSACTION"):
            self.at("WORK")
        return self._transaction("begin")

    def _transaction(self, kind: str) -> st.Transaction:
        isolation: str | None = None
        read_only: bool | None = None
        while True:
            if self.at("ISOLATION", "LEVEL"):
                isolation = self.one_of(_ISOLATION)
                if isolation is None:
                    self.p.expected("isolation level")
            elif self.at("READ", "ONLY"):
                read_only = True
            elif self.at("READ", "WRITE"):
                read_only = False
            elif not self.p._match(TokenType.COMMA):
                return st.Transaction(self.source, kind, isolation, read_only)

    def _end(self, kind: str) -> st.Transaction:
        if not self.at("TRANSACTION"):
            self.at("WORK")
        if self.at("AND", "CHAIN"):
            raise Unsupported(
                f"{kind.upper()} AND CHAIN not yet supported", position=self.position()
            )
        self.at("AND", "NO", "CHAIN")
        return st.Transaction(self.source, kind)

    def commit(self) -> st.Transaction:
        """COMMIT, END."""
        return self._end("commit")

    def rollback(self) -> st.Transaction:
        """ROLLBACK, ABORT."""
        return self._end("rollback")


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("EXPLAIN",), SessionParser.explain),
    (("SHOW",), SessionParser.show),
    (("SET",), SessionParser.set_variable),
    (("RESET",), SessionParser.reset),
    (("ALTER", "SYSTEM"), SessionParser.alter_system),
    (("BEGIN",), SessionParser.begin),
    (("START", "TRANSACTION"), SessionParser.begin),
    (("COMMIT",), SessionParser.commit),
    (("END",), SessionParser.commit),
    (("ROLLBACK",), SessionParser.rollback),
    (("ABORT",), SessionParser.rollback),
)
#: What SHOW lists in other systems' SQL too.
_SHARED_SHOWN = (("TABLES",), ("VIEWS",), ("SCHEMAS",), ("DATABASES",))
#: What these statements begin with where no other system's SQL has them (`mzsql.frontend.parse.heads`). A bare BEGIN starts a script in
#: Spark's; SET and RESET are about its own settings.
OWN = (
    *(("EXPLAIN", *stage, "PLAN") for stage in ((), *EXPLAIN_STAGES)),
    *each(("EXPLAIN",), (("TIMESTAMP",), ("FILTER", "PUSHDOWN"), ("ANALYZE",))),
    *each(("SHOW CREATE",), OWN_KINDS),
    *each(("SHOW",), tuple(kind for kind in _SHOW_KINDS if kind not in _SHARED_SHOWN)),
    ("ALTER", "SYSTEM"),
    *each(("BEGIN",), (("TRANSACTION",), ("WORK",), ("ISOLATION",), ("READ",))),
    ("START", "TRANSACTION"),
    ("COMMIT",),
    ("ROLLBACK",),
    ("ABORT",),
)
#: What they begin with where others have them too; the relation's name follows.
NAMED = each(("SHOW CREATE",), (("TABLE",), ("VIEW",)))
