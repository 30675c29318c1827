"""Text to statements.

Promise: `parse_statements` yields structs of `mzsql.frontend.statements` or raises a `SqlSyntaxError` (or `Unsupported`) with a 1-based
position; no other exception leaves it, whatever the text. Statements are parsed here by hand over sqlglot's tokens, in the way of
Materialize's grammar; queries and expressions inside them by `mzsql.frontend.dialect`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import expressions as exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend import statements as st
from mzsql.frontend.catalog import PartialName
from mzsql.frontend.depth import deep
from mzsql.frontend.dialect import Dialect, Parser, SyntaxProblem, describe, tokenize
from mzsql.repr.errors import SqlError, SqlSyntaxError, Unsupported

EXPLAIN_STAGES = (
    ("RAW",),
    ("DECORRELATED",),
    ("LOCALLY", "OPTIMIZED"),
    ("OPTIMIZED",),
    ("PHYSICAL",),
)
EXPLAIN_FORMATS = ("TEXT", "JSON", "SQL", "DOT")
#: Options of EXPLAIN … WITH (…), words joined by spaces; ``node_ids`` is the older spelling of ``node identifiers``.
EXPLAIN_OPTIONS = frozenset(
    """
    arity|cardinality|column names|equivalences|filter pushdown|humanized expressions|join implementations|keys|node identifiers|
    no fast path|no notices|non negative|raw plans|raw syntax|raw|redacted|subtree size|timing|types|
    enable eager delta joins|enable new outer join lowering|enable variadic left join lowering|enable letrec fixpoint analysis|
    enable reduce mfp fusion|enable cardinality estimates|enable join prioritize arranged|enable projection pushdown after relation cse|
    reoptimize imported views
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
)
_OBJECT_KINDS = (
    ("MATERIALIZED", "VIEW"),
    ("TABLE",),
    ("VIEW",),
    ("INDEX",),
    ("SOURCE",),
    ("SCHEMA",),
    ("DATABASE",),
    ("CLUSTER",),
)
_UNSUPPORTED = (
    ("SUBSCRIBE",),
    ("TAIL",),
    ("DECLARE",),
    ("FETCH",),
    ("CLOSE",),
    ("PREPARE",),
    ("EXECUTE",),
    ("DEALLOCATE",),
    ("DISCARD",),
    ("GRANT",),
    ("REVOKE",),
    ("COMMENT",),
    ("ALTER",),
    ("TRUNCATE",),
    ("MERGE",),
    ("CALL",),
    ("VACUUM",),
    ("ANALYZE",),
    ("LOCK",),
    ("SAVEPOINT",),
    ("RELEASE",),
    ("REASSIGN",),
    ("VALIDATE",),
    ("REFRESH",),
)
_ISOLATION = (
    ("STRICT", "SERIALIZABLE"),
    ("SERIALIZABLE",),
    ("REPEATABLE", "READ"),
    ("READ", "COMMITTED"),
    ("READ", "UNCOMMITTED"),
)


def parse_statements(text: str) -> list[st.Statement]:
    """Parse a text of statements separated by semicolons; empty statements are skipped.

    Raises:
        SqlSyntaxError: the text is no statement of the dialect, or nests too deeply.
        Unsupported: it is one of those not supported yet.
    """
    with deep():
        return _parse_all(text)


def _parse_all(text: str) -> list[st.Statement]:
    chunks: list[list[Token]] = [[]]
    for token in tokenize(text):
        if token.token_type == TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    found: list[st.Statement] = []
    for chunk in chunks:
        if chunk:
            source = st.Source(text, chunk[0].start, chunk[-1].end + 1)
            found.append(_parse_chunk(chunk, source))
    return found


def _parse_chunk(tokens: list[Token], source: st.Source) -> st.Statement:
    parser: Any = Dialect().parser(error_level=ErrorLevel.IMMEDIATE)
    # sqlglot's own entry knows blocks (BEGIN … ELSE … END); here a chunk of tokens is one statement.
    parser.reset()
    parser.sql = source.text[: source.end]
    parser._chunks = [tokens]
    parser._advance_chunk()
    try:
        return StatementParser(parser, source).statement()
    except SyntaxProblem as problem:
        raise SqlSyntaxError(problem.message, position=problem.position) from None
    except SqlError:
        raise
    except RecursionError:
        raise
    except (SqlglotError, AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
        # sqlglot trips over its own feet on some broken texts; where it stood is where the text is at fault.
        at = parser._curr or None
        raise SqlSyntaxError(
            f"Expected a valid expression, found {describe(at)}",
            position=at.start + 1 if at else source.end + 1,
        ) from error


class StatementParser:
    """Parses one statement with a parser that stands at its first token."""

    def __init__(self, parser: Parser, source: st.Source) -> None:
        self.p: Any = parser
        self.source = source

    # --- small pieces ----------------------------------------------------------------------------

    def at(self, *words: str) -> bool:
        """Take these words if they come next."""
        return bool(self.p._match_text_seq(*words))

    def need(self, *words: str) -> None:
        """Take these words; they must come next."""
        if not self.at(*words):
            self.p.expected(" ".join(words))

    def one_of(self, choices: tuple[tuple[str, ...], ...]) -> str | None:
        """Take one of these sequences of words; it in lower case, or None."""
        for words in choices:
            if self.at(*words):
                return " ".join(words).lower()
        return None

    def position(self) -> int:
        """The 1-based position of the next token."""
        token = self.p._curr
        return int(token.start) + 1 if token else self.source.end + 1

    def identifier(self, what: str = "identifier") -> str:
        """A name: folded to lower case unless quoted."""
        node = self.p._parse_id_var(any_token=False)
        if not isinstance(node, exp.Identifier):
            self.p.expected(what)
        return fold(node)

    def name(self) -> st.Name:
        """A name of up to three parts."""
        position = self.position()
        parts = [self.identifier()]
        while self.p._match(TokenType.DOT):
            parts.append(self.identifier())
        if len(parts) > 3:
            raise SqlSyntaxError(
                f"qualified name did not have between 1 and 3 components: {'.'.join(parts)}",
                position=position,
            )
        return st.Name(PartialName(*reversed(parts)), position)

    def string(self) -> str:
        """A string literal's value."""
        if not self.p._match(TokenType.STRING):
            self.p.expected("literal string")
        return str(self.p._prev.text)

    def names_in_parentheses(self) -> tuple[tuple[str, int], ...]:
        """An optional list of names with their positions; empty where there is none."""
        if not self.p._match(TokenType.L_PAREN):
            return ()
        found = [self._named()]
        while self.p._match(TokenType.COMMA):
            found.append(self._named())
        self.p._match_r_paren()
        return tuple(found)

    def _named(self) -> tuple[str, int]:
        position = self.position()
        return self.identifier(), position

    def if_not_exists(self) -> bool:
        """IF NOT EXISTS."""
        return self.at("IF", "NOT", "EXISTS")

    def in_cluster(self) -> st.Name | None:
        """IN CLUSTER c."""
        if not self.at("IN", "CLUSTER"):
            return None
        position = self.position()
        return st.Name(PartialName(self.identifier()), position)

    def expression(self) -> exp.Expr:
        """A scalar expression; `meta["span"]` says where it stands."""
        return self._spanned(self.p._parse_disjunction)

    def _spanned(self, parse: Callable[[], Any]) -> exp.Expr:
        start = self.position() - 1
        node = parse()
        if node is None:
            self.p.expected("an expression")
        node.meta["span"] = (start, self.p._prev.end + 1)
        return node  # type: ignore[no-any-return]

    # --- statements --------------------------------------------------------------------------------

    def statement(self) -> st.Statement:
        """The statement, to the end."""
        parsed = self._dispatch()
        if self.p._curr:
            self.p.expected("end of statement")
        return parsed

    def _dispatch(self) -> st.Statement:
        for words, method in _STATEMENTS:
            if self.at(*words):
                return method(self)
        position = self.position()
        name = self.one_of(_UNSUPPORTED)
        if name is not None:
            raise Unsupported(f"{name.upper()} statements are not supported", position=position)
        token = self.p._curr
        if token.token_type in _QUERY_STARTS or token.text.upper() in ("TABLE", "VALUES"):
            return self.select()
        self.p.expected("a keyword at the beginning of a statement")
        raise AssertionError

    def select(self) -> st.Select:
        """A query and AS OF."""
        start = self.position() - 1
        query = self.p.parse_query()
        span = (start, self.p._prev.end + 1)
        as_of = None
        at_least = False
        if self.p._match(TokenType.ALIAS):
            self.need("OF")
            at_least = self.at("AT", "LEAST")
            as_of = self.expression()
        return st.Select(self.source, query, span, as_of, at_least)

    def create(self) -> st.Statement:
        """CREATE …"""
        position = self.position()
        or_replace = self.at("OR", "REPLACE")
        if self.one_of((("TEMPORARY",), ("TEMP",))):
            raise Unsupported("temporary objects are not supported", position=position)
        if self.at("MATERIALIZED", "VIEW"):
            return self._create_view(materialized=True, or_replace=or_replace)
        if self.at("VIEW"):
            return self._create_view(materialized=False, or_replace=or_replace)
        if or_replace:
            self.p.expected("[MATERIALIZED] VIEW after OR REPLACE")
        if self.at("TABLE"):
            return self._create_table()
        if self.at("DEFAULT", "INDEX"):
            return self._create_index(default=True)
        if self.at("INDEX"):
            return self._create_index(default=False)
        words = self._next_words()
        if words not in _UNSUPPORTED_CREATES:
            self.p.expected("one of DEFAULT INDEX, INDEX, MATERIALIZED VIEW, TABLE or VIEW")
        raise Unsupported(f"CREATE {words} is not supported", position=position)

    def _next_words(self) -> str:
        return str(self.p._curr.text.upper()) if self.p._curr else ""

    def _create_view(self, *, materialized: bool, or_replace: bool) -> st.CreateView:
        if_not_exists = self.if_not_exists()
        name = self.name()
        columns = tuple(n for n, _ in self.names_in_parentheses())
        cluster = self.in_cluster() if materialized else None
        options = self._options() if materialized and self.at("WITH") else ()
        if not self.p._match(TokenType.ALIAS):
            self.p.expected("AS")
        query = self.select()
        return st.CreateView(
            self.source,
            name,
            columns,
            query,
            materialized,
            if_not_exists,
            or_replace,
            cluster,
            options,
        )

    def _options(self) -> tuple[tuple[str, str], ...]:
        """WITH (ASSERT NOT NULL c, …) of a materialized view: kind and operand."""
        if not self.p._match(TokenType.L_PAREN):
            self.p.expected("left parenthesis")
        found: list[tuple[str, str]] = []
        while True:
            position = self.position()
            if self.at("ASSERT", "NOT", "NULL"):
                self.p._match(TokenType.EQ)
                found.append(("assert not null", self.identifier()))
            elif self.at("REFRESH") or self.at("RETAIN", "HISTORY"):
                raise Unsupported(
                    "options REFRESH and RETAIN HISTORY of materialized views are not supported",
                    position=position,
                )
            else:
                self.p.expected("ASSERT NOT NULL")
            if not self.p._match(TokenType.COMMA):
                break
        self.p._match_r_paren()
        return tuple(found)

    def _create_table(self) -> st.CreateTable:
        if_not_exists = self.if_not_exists()
        name = self.name()
        columns: list[st.ColumnSpec] = []
        keys: list[tuple[str, tuple[str, ...], int]] = []
        if not self.p._match(TokenType.L_PAREN):
            self.p.expected("left parenthesis")
        while columns or keys or not self._at(TokenType.R_PAREN):
            if not self._table_constraint(keys):
                columns.append(self._column(keys))
            if not self.p._match(TokenType.COMMA):
                break
        self.p._match_r_paren()
        return st.CreateTable(self.source, name, tuple(columns), tuple(keys), if_not_exists)

    def _table_constraint(self, keys: list[tuple[str, tuple[str, ...], int]]) -> bool:
        position = self.position()
        named = self.at("CONSTRAINT")
        if named:
            self.identifier()
        if self.p._match(TokenType.PRIMARY_KEY) or self.at("UNIQUE"):
            kind = "UNIQUE" if self.p._prev.text.upper() == "UNIQUE" else "PRIMARY KEY"
            names = self.names_in_parentheses()
            if not names:
                self.p.expected("left parenthesis")
            self._key(keys, kind, tuple(n for n, _ in names), position)
            return True
        if self.p._match(TokenType.FOREIGN_KEY) or self.at("CHECK"):
            raise Unsupported(
                "CREATE TABLE with a foreign key or check constraint is not supported",
                position=position,
                hint="Leave the constraint out: it would not be enforced.",
            )
        if named:
            self.p.expected("PRIMARY KEY, UNIQUE, FOREIGN KEY, or CHECK")
        return False

    def _key(
        self,
        keys: list[tuple[str, tuple[str, ...], int]],
        kind: str,
        columns: tuple[str, ...],
        position: int,
    ) -> None:
        """A key; NOT ENFORCED makes it a note for the reader."""
        enforced = not self.at("NOT", "ENFORCED")
        keys.append((kind if enforced else f"{kind} NOT ENFORCED", columns, position))

    def _column(self, keys: list[tuple[str, tuple[str, ...], int]]) -> st.ColumnSpec:
        position = self.position()
        name = self.identifier()
        typ = self.p.data_type()
        not_null, default = False, None
        while True:
            at = self.position()
            if self.at("NOT", "NULL"):
                not_null = True
            elif self.at("NULL"):
                not_null = False
            elif self.at("DEFAULT"):
                default = self._spanned(self.p._parse_bitwise)
            elif self.p._match(TokenType.PRIMARY_KEY):
                self._key(keys, "PRIMARY KEY", (name,), at)
            elif self.at("UNIQUE"):
                self._key(keys, "UNIQUE", (name,), at)
            elif self.at("REFERENCES") or self.at("CHECK"):
                raise Unsupported(
                    "CREATE TABLE with a foreign key or check constraint is not supported",
                    position=at,
                    hint="Leave the constraint out: it would not be enforced.",
                )
            else:
                return st.ColumnSpec(name, typ, position, not_null, default)

    def _create_index(self, *, default: bool) -> st.CreateIndex:
        if_not_exists = self.if_not_exists()
        name = None
        if not default and self.p._curr and self.p._curr.text.upper() not in ("ON", "IN"):
            name = self.name()
        cluster = self.in_cluster()
        self.need("ON")
        on = self.name()
        if self.at("USING"):
            self.need("ARRANGEMENT")
        keys: tuple[exp.Expr, ...] | None = None
        if not default and self.p._match(TokenType.L_PAREN):
            found: list[exp.Expr] = []
            while found or not self._at(TokenType.R_PAREN):
                found.append(self.expression())
                self.at("ASC")
                if not self.p._match(TokenType.COMMA):
                    break
            self.p._match_r_paren()
            keys = tuple(found)
        elif not default:
            self.p.expected("left parenthesis")
        return st.CreateIndex(self.source, name, on, keys, cluster, if_not_exists)

    def drop(self) -> st.Drop:
        """DROP …"""
        position = self.position()
        kind = self.one_of(_OBJECT_KINDS)
        if kind is None:
            self.p.expected("one of INDEX, MATERIALIZED VIEW, SCHEMA, SOURCE, TABLE or VIEW")
        assert kind is not None
        if kind in ("schema", "database", "cluster", "source"):
            raise Unsupported(f"DROP {kind.upper()} is not supported", position=position)
        if_exists = self.at("IF", "EXISTS")
        names = [self.name()]
        while self.p._match(TokenType.COMMA):
            names.append(self.name())
        cascade = self.at("CASCADE")
        if not cascade:
            self.at("RESTRICT")
        return st.Drop(self.source, kind, tuple(names), if_exists, cascade)

    def insert(self) -> st.Insert:
        """INSERT INTO …"""
        self.need("INTO")
        table = self.name()
        columns = self.names_in_parentheses() if self._at_column_list() else ()
        query: exp.Expr | None = None
        if not self.at("DEFAULT", "VALUES"):
            query = self.p.parse_query()
        if self.at("RETURNING"):
            raise Unsupported("INSERT … RETURNING is not supported", position=self.position())
        return st.Insert(self.source, table, columns, query)

    def _at_column_list(self) -> bool:
        """Whether a list of columns comes next, rather than a query in parentheses."""
        p = self.p
        return bool(
            p._curr
            and p._curr.token_type == TokenType.L_PAREN
            and p._next
            and p._next.token_type not in (*_QUERY_STARTS, TokenType.VALUES)
        )

    def update(self) -> st.Update:
        """UPDATE …"""
        table = self.name()
        alias = self._alias("SET")
        self.need("SET")
        assignments = [self._assignment()]
        while self.p._match(TokenType.COMMA):
            assignments.append(self._assignment())
        if self.at("FROM"):
            raise Unsupported("UPDATE … FROM is not supported", position=self.position())
        where = self.expression() if self.at("WHERE") else None
        return st.Update(self.source, table, alias, tuple(assignments), where)

    def _alias(self, *stop: str) -> str | None:
        if self.p._match(TokenType.ALIAS):
            return self.identifier()
        if self.p._curr and self.p._curr.text.upper() not in (*stop, "WHERE", "USING", "RETURNING"):
            return self.identifier("end of statement")
        return None

    def _assignment(self) -> tuple[str, int, exp.Expr]:
        name, position = self._named()
        if not self.p._match(TokenType.EQ):
            self.p.expected("=")
        if self.at("DEFAULT"):
            return name, position, exp.Var(this="DEFAULT")
        return name, position, self.expression()

    def delete(self) -> st.Delete:
        """DELETE FROM …"""
        self.need("FROM")
        table = self.name()
        alias = self._alias()
        using: list[exp.Expr] = []
        if self.at("USING"):
            using.append(self.p._parse_table(joins=True))
            while self.p._match(TokenType.COMMA):
                using.append(self.p._parse_table(joins=True))
        where = self.expression() if self.at("WHERE") else None
        return st.Delete(self.source, table, alias, tuple(using), where)

    def copy(self) -> st.CopyFrom:
        """COPY t FROM '<file>' [WITH] (FORMAT …)."""
        if self.p._curr and self.p._curr.token_type == TokenType.L_PAREN:
            raise Unsupported("COPY (query) TO is not supported", position=self.position())
        table = self.name()
        columns = self.names_in_parentheses()
        if not self.at("FROM"):
            if self.at("TO"):
                raise Unsupported("COPY … TO is not supported", position=self.position())
            self.p.expected("FROM")
        if self.at("STDIN"):
            raise Unsupported(
                "COPY … FROM STDIN is not supported",
                position=self.position(),
                hint="Give a file: COPY t FROM '<file>' (FORMAT CSV).",
            )
        path = self.string()
        self.at("WITH")
        options: list[tuple[str, str, int]] = []
        if self.p._match(TokenType.L_PAREN):
            options.append(self._copy_option())
            while self.p._match(TokenType.COMMA):
                options.append(self._copy_option())
            self.p._match_r_paren()
        return st.CopyFrom(self.source, table, columns, path, tuple(options))

    def _copy_option(self) -> tuple[str, str, int]:
        position = self.position()
        option = self.one_of((("FORMAT",), ("HEADER",), ("DELIMITER",), ("QUOTE",), ("ESCAPE",)))
        if option is None and self.at("NULL"):
            option = "null"
        if option is None:
            self.p.expected("one of DELIMITER, ESCAPE, FORMAT, HEADER, NULL or QUOTE")
        assert option is not None
        self.p._match(TokenType.EQ)
        if option == "format":
            return option, self.identifier(), position
        if option == "header":
            value = self.one_of((("TRUE",), ("FALSE",), ("ON",), ("OFF",)))
            return option, "false" if value in ("false", "off") else "true", position
        return option, self.string(), position

    def explain(self) -> st.Explain:
        """EXPLAIN …"""
        position = self.position()
        if self.one_of((("TIMESTAMP",), ("FILTER", "PUSHDOWN"), ("ANALYZE",), ("QUERY",))):
            raise Unsupported(
                "EXPLAIN TIMESTAMP, FILTER PUSHDOWN, ANALYZE are not supported", position=position
            )
        stage = self.one_of(EXPLAIN_STAGES)
        if stage is not None or self.at("PLAN"):
            if stage is not None:
                self.need("PLAN")
            stage = stage or "optimized"
        options: tuple[tuple[str, bool | int | str], ...] = ()
        if self.p._match_pair(TokenType.WITH, TokenType.L_PAREN, advance=False):
            self.at("WITH")
            options = self._explain_options()
        fmt = "text"
        if self.p._match(TokenType.ALIAS):
            fmt = self.one_of(tuple((f,) for f in EXPLAIN_FORMATS)) or ""
            if not fmt:
                self.p.expected(f"one of {' or '.join(EXPLAIN_FORMATS)}")
        self.at("FOR")
        replan = self.at("REPLAN")
        return st.Explain(
            self.source, stage or "optimized", fmt, options, self._explainee(replan), replan
        )

    def _explainee(self, replan: bool) -> st.Statement:
        kind = self.one_of((("VIEW",), ("MATERIALIZED", "VIEW"), ("INDEX",)))
        if kind is not None:
            return st.ObjectRef(self.source, kind, self.name())
        if replan:
            self.p.expected("one of VIEW, MATERIALIZED VIEW or INDEX")
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
            value: bool = True
            if self.p._match(TokenType.EQ):
                text = self.p._curr.text.lower() if self.p._curr else ""
                if text not in ("true", "false", "on", "off"):
                    self.p.expected("TRUE or FALSE")
                self.p._advance()
                value = text in ("true", "on")
            found.append((name, value))
            if not self.p._match(TokenType.COMMA) and not self._at(TokenType.R_PAREN):
                self.p.expected("right parenthesis")
        return tuple(found)

    def _at(self, kind: TokenType) -> bool:
        return bool(self.p._curr and self.p._curr.token_type == kind)

    def show(self) -> st.Statement:
        """SHOW …"""
        if self.at("CREATE"):
            kind = self.one_of(_OBJECT_KINDS)
            if kind is None:
                self.p.expected("one of INDEX, MATERIALIZED VIEW, TABLE or VIEW")
            assert kind is not None
            return st.ShowCreate(self.source, kind, self.name())
        if self.at("COLUMNS"):
            if not self.at("FROM"):
                self.need("IN")
            on = self.name()
            return st.Show(self.source, "columns", on=on, like=self._like())
        kind = self.one_of(_SHOW_KINDS)
        if kind is None:
            return st.ShowVariable(self.source, self._variable())
        return self._show_objects(kind)

    def _show_objects(self, kind: str) -> st.Show:
        schema = on = None
        cluster = self.in_cluster()
        if kind == "indexes" and self.at("ON"):
            on = self.name()
        elif self.at("FROM"):
            schema = self.name()
        cluster = cluster or self.in_cluster()
        return st.Show(self.source, kind, schema, on, cluster, self._like())

    def _like(self) -> str | None:
        if self.at("WHERE"):
            raise Unsupported(
                "SHOW … WHERE is not supported",
                position=self.position(),
                hint="Query the relations of mz_catalog, or use LIKE.",
            )
        return self.string() if self.at("LIKE") else None

    def _variable(self) -> str:
        if self.at("TRANSACTION", "ISOLATION", "LEVEL"):
            return "transaction_isolation"
        if self.at("TIME", "ZONE"):
            return "timezone"
        if self.at("ALL"):
            return "all"
        return self.identifier()

    def set_variable(self) -> st.Statement:
        """SET [SESSION | LOCAL] name {TO | =} values."""
        if self.at("TRANSACTION"):
            return self._transaction("set")
        if self.at("SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"):
            return self._transaction("set")
        local = self.at("LOCAL")
        if not local:
            self.at("SESSION")
        if self.at("TIME", "ZONE"):
            return st.SetVariable(self.source, "timezone", self._values(), local)
        if self.at("SCHEMA"):
            return st.SetVariable(self.source, "search_path", self._values(), local)
        name = self.identifier()
        self._equals()
        return st.SetVariable(self.source, name, self._values(), local)

    def _equals(self) -> None:
        if not self.at("TO") and not self.p._match(TokenType.EQ):
            self.p.expected("equals sign or TO")

    def _values(self) -> tuple[str, ...] | None:
        if self.at("DEFAULT"):
            return None
        found = [self._value()]
        while self.p._match(TokenType.COMMA):
            found.append(self._value())
        return tuple(found)

    def _value(self) -> str:
        p = self.p
        sign = "-" if p._match(TokenType.DASH) else ""
        token = p._curr
        if not token or token.token_type in (TokenType.R_PAREN, TokenType.L_PAREN, TokenType.COMMA):
            p.expected("variable value")
        p._advance()
        text = str(token.text)
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return sign + (text if quoted else text.lower())

    def reset(self) -> st.SetVariable:
        """RESET name."""
        return st.SetVariable(self.source, self._variable(), None)

    def alter_system(self) -> st.SetVariable:
        """ALTER SYSTEM SET | RESET."""
        if self.at("SET"):
            name = self.identifier()
            self._equals()
            return st.SetVariable(self.source, name, self._values(), system=True)
        self.need("RESET")
        return st.SetVariable(self.source, self._variable(), None, system=True)

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
            raise Unsupported("COMMIT AND CHAIN is not supported", position=self.position())
        self.at("AND", "NO", "CHAIN")
        return st.Transaction(self.source, kind)

    def commit(self) -> st.Transaction:
        """COMMIT, END."""
        return self._end("commit")

    def rollback(self) -> st.Transaction:
        """ROLLBACK, ABORT."""
        return self._end("rollback")


def fold(node: exp.Expr) -> str:
    """An identifier's name: as it stands if quoted, else in lower case."""
    return str(node.name) if node.args.get("quoted") else str(node.name).lower()


_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES)
_OPTION_ENDS = (TokenType.COMMA, TokenType.EQ, TokenType.R_PAREN, TokenType.L_PAREN)
_UNSUPPORTED_CREATES = frozenset(
    """
    SOURCE SINK SCHEMA DATABASE CLUSTER ROLE USER TYPE SECRET CONNECTION FUNCTION TRIGGER SEQUENCE
    EXTENSION NETWORK
    """.split()  # noqa: SIM905
)
_STATEMENTS: tuple[tuple[tuple[str, ...], Callable[[StatementParser], st.Statement]], ...] = (
    (("CREATE",), StatementParser.create),
    (("DROP",), StatementParser.drop),
    (("INSERT",), StatementParser.insert),
    (("UPDATE",), StatementParser.update),
    (("DELETE",), StatementParser.delete),
    (("COPY",), StatementParser.copy),
    (("EXPLAIN",), StatementParser.explain),
    (("SHOW",), StatementParser.show),
    (("SET",), StatementParser.set_variable),
    (("RESET",), StatementParser.reset),
    (("ALTER", "SYSTEM"), StatementParser.alter_system),
    (("BEGIN",), StatementParser.begin),
    (("START", "TRANSACTION"), StatementParser.begin),
    (("COMMIT",), StatementParser.commit),
    (("END",), StatementParser.commit),
    (("ROLLBACK",), StatementParser.rollback),
    (("ABORT",), StatementParser.rollback),
)
