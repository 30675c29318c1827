"""Parsing CREATE, ALTER and DROP."""

from __future__ import annotations

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.catalog import CatalogParser
from mzsql.frontend.parse.pieces import FOREIGN_KINDS, OBJECT_KINDS, OWN_KINDS, Statements, each
from mzsql.frontend.parse.retention import OPTION, retained_ms
from mzsql.repr.errors import SqlSyntaxError, Unsupported
from mzsql.repr.interval_text import FIELDS

_UNSUPPORTED_CREATES = frozenset(
    """
    SOURCE SINK USER SECRET CONNECTION FUNCTION TRIGGER SEQUENCE
    EXTENSION NETWORK
    """.split()  # noqa: SIM905
)


def _unenforced(what: str, position: int) -> Unsupported:
    return Unsupported(
        f"CREATE TABLE with a {what} is not supported",
        position=position,
        hint="Leave it out: it would not be enforced.",
    )


class DefinitionParser(CatalogParser):
    """Parses CREATE, ALTER and DROP."""

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
        if self.at("SCHEMA"):
            return self.create_schema()
        if self.at("DATABASE"):
            return self.create_database()
        if self.at("CLUSTER"):
            return self.create_cluster()
        if self.at("ROLE"):
            return self.create_role()
        if self.at("TYPE"):
            return self._create_type()
        words = self._next_words()
        if words not in _UNSUPPORTED_CREATES:
            self.p.expected(
                "one of CLUSTER, DATABASE, DEFAULT INDEX, INDEX, MATERIALIZED VIEW, ROLE, SCHEMA, TABLE, TYPE or VIEW"
            )
        raise Unsupported(f"CREATE {words} is not supported", position=position)

    def _next_words(self) -> str:
        return str(self.p._curr.text.upper()) if self.p._curr else ""

    def _create_type(self) -> st.CreateType:
        """Name AS LIST (ELEMENT TYPE = …), AS MAP (KEY TYPE = …, VALUE TYPE = …), AS (field type, …)."""
        name = self.name()
        if not self.p._match(TokenType.ALIAS):
            self.p.expected("AS")
        position = self.position()
        kind = self.one_of((("LIST",), ("MAP",), ("ENUM",), ("RANGE",)))
        if kind in ("enum", "range"):
            raise Unsupported(
                f"CREATE TYPE … AS {kind.upper()} is not supported", position=position
            )
        if not self.p._match(TokenType.L_PAREN):
            self.p.expected("left parenthesis")
        if kind is not None:
            options = self._type_options(("KEY", "VALUE") if kind == "map" else ("ELEMENT",))
            element = options.get("VALUE") or options["ELEMENT"]
            return st.CreateType(self.source, name, kind, options.get("KEY"), element)
        fields: list[tuple[str, int, exp.DataType]] = []
        while fields or not self._at(TokenType.R_PAREN):
            at = self.position()
            fields.append((self.identifier(), at, self.p.data_type()))
            if not self.p._match(TokenType.COMMA):
                break
        self.p._match_r_paren()
        return st.CreateType(self.source, name, "record", fields=tuple(fields))

    def _type_options(self, wanted: tuple[str, ...]) -> dict[str, exp.DataType]:
        """Options such as ELEMENT TYPE = integer, each once, in any order."""
        found: dict[str, exp.DataType] = {}
        while True:
            left = tuple((word, "TYPE") for word in wanted if word not in found)
            said = self.one_of(left)
            if said is None:
                self.p.expected(
                    " or ".join(" ".join(words) for words in left) or "right parenthesis"
                )
            assert said is not None
            self.p._match(TokenType.EQ)
            found[said.split()[0].upper()] = self.p.data_type()
            if not self.p._match(TokenType.COMMA):
                break
        missing = [word for word in wanted if word not in found]
        if missing:
            raise SqlSyntaxError(f"{missing[0]} TYPE option is required", position=self.position())
        self.p._match_r_paren()
        return found

    def _create_view(self, *, materialized: bool, or_replace: bool) -> st.CreateView:
        if_not_exists = self.if_not_exists()
        name = self.name()
        columns = tuple(n for n, _ in self.names_in_parentheses())
        cluster = self.in_cluster() if materialized else None
        refresh: list[st.Refresh] = []
        options = self._options(refresh) if materialized and self.at("WITH") else ()
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
            tuple(refresh),
        )

    def _options(self, refresh: list[st.Refresh]) -> tuple[tuple[str, str], ...]:
        """WITH (ASSERT NOT NULL c, …) of a materialized view, as kind and operand; its REFRESH options are appended to
        ``refresh``.
        """
        if not self.p._match(TokenType.L_PAREN):
            self.p.expected("left parenthesis")
        found: list[tuple[str, str]] = []
        while True:
            position = self.position()
            if self.at("ASSERT", "NOT", "NULL"):
                self.p._match(TokenType.EQ)
                found.append(("assert not null", self.identifier()))
            elif self.at("RETAIN", "HISTORY"):
                if any(kind == OPTION for kind, _ in found):
                    self._refuse_again(position)
                found.append((OPTION, self._retained()))
            elif self.at("REFRESH"):
                refresh.append(self._refresh(position))
            else:
                self.p.expected("one of ASSERT NOT NULL, REFRESH or RETAIN HISTORY")
            if not self.p._match(TokenType.COMMA):
                break
        self.p._match_r_paren()
        return tuple(found)

    def _refresh(self, position: int) -> st.Refresh:
        """A REFRESH option, after REFRESH."""
        self.p._match(TokenType.EQ)
        if self.at("ON"):
            self.need("COMMIT")
            return st.Refresh("on commit", position)
        if self.at("AT", "CREATION"):
            return st.Refresh("at creation", position)
        if self.at("AT"):
            return st.Refresh("at", position, self.expression())
        if not self.at("EVERY"):
            self.p.expected("one of ON or AT or EVERY")
        every = self.string()
        unit = self.one_of(tuple((word.upper(),) for one in FIELDS for word in (one, f"{one}s")))
        aligned = self.expression() if self.at("ALIGNED", "TO") else None
        return st.Refresh("every", position, aligned, every, (unit or "").removesuffix("s"))

    def _refuse_again(self, position: int) -> None:
        raise SqlSyntaxError(
            "RETAIN HISTORY specified more than once", position=position, sqlstate="42601"
        )

    def _retained(self) -> str:
        """[=] FOR 'interval' of RETAIN HISTORY; the interval's text, checked."""
        self.p._match(TokenType.EQ)
        self.need("FOR")
        position = self.position()
        self.at("INTERVAL")
        text = self.string()
        retained_ms(text, position)
        return text

    def _retention(self) -> str | None:
        """An optional WITH (RETAIN HISTORY FOR …) of a table or an index."""
        if not self.at("WITH"):
            return None
        if not self.p._match(TokenType.L_PAREN):
            self.p.expected("left parenthesis")
        self.need("RETAIN", "HISTORY")
        text = self._retained()
        position = self.position()
        if self.p._match(TokenType.COMMA):
            self.need("RETAIN", "HISTORY")
            self._refuse_again(position)
        self.p._match_r_paren()
        return text

    def alter(self) -> st.Statement:
        """ALTER … RENAME TO and the like, SET (RETAIN HISTORY FOR …), RESET (RETAIN HISTORY)."""
        position = self.position()
        kind = self.one_of(OBJECT_KINDS)
        if kind is not None and kind != "source":
            if_exists = self.at("IF", "EXISTS")
            name = self.name_of(kind)
            altered = self.alter_named(kind, name, if_exists=if_exists)
            if altered is not None:
                return altered
        if kind in ("table", "view", "materialized view", "index"):
            setting = self.one_of((("SET",), ("RESET",)))
            if setting is not None and self.p._match(TokenType.L_PAREN):
                self.need("RETAIN", "HISTORY")
                text = self._retained() if setting == "set" else None
                self.p._match_r_paren()
                return st.AlterRetain(self.source, kind, name, text, if_exists)
        what = "ALTER" if kind is None else f"this form of ALTER {kind.upper()}"
        raise Unsupported(
            f"{what} is not supported",
            position=position,
            hint="There are RENAME TO, SET SCHEMA, SET CLUSTER, SET (RETAIN HISTORY FOR …), SWAP WITH and OWNER TO.",
        )

    def _create_table(self) -> st.CreateTable:
        if_not_exists = self.if_not_exists()
        position = self.position()
        name = self.name()
        if self._at(TokenType.ALIAS):
            raise Unsupported(
                "CREATE TABLE … AS is not supported",
                position=position,
                hint="CREATE TABLE with the columns and INSERT INTO it what SELECT finds, or CREATE MATERIALIZED VIEW … AS.",
            )
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
        return st.CreateTable(
            self.source, name, tuple(columns), tuple(keys), if_not_exists, self._retention()
        )

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
        if self.p._match(TokenType.FOREIGN_KEY):
            raise _unenforced("foreign key", position)
        if self.at("CHECK"):
            raise _unenforced("check constraint", position)
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
        """A key of CREATE TABLE; with NOT ENFORCED it is documentation only."""
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
            elif self.at("REFERENCES"):
                raise _unenforced("foreign key", at)
            elif self.at("CHECK"):
                raise _unenforced("check constraint", at)
            else:
                return st.ColumnSpec(name, typ, position, not_null, default)

    def _create_index(self, *, default: bool) -> st.CreateIndex:
        if_not_exists = self.if_not_exists()
        name = None
        if self.p._curr and self.p._curr.text.upper() not in ("ON", "IN"):
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
        retain = self._retention()
        return st.CreateIndex(self.source, name, on, keys, cluster, if_not_exists, retain)

    def drop(self) -> st.Statement:
        """DROP …"""
        position = self.position()
        kind = self.one_of((*OBJECT_KINDS, *FOREIGN_KINDS))
        if kind is None:
            words = self._next_words()
            if words in _UNSUPPORTED_CREATES:
                raise Unsupported(f"DROP {words} is not supported", position=position)
            self.p.expected(
                "one of CLUSTER, CONNECTION, DATABASE, INDEX, MATERIALIZED VIEW, ROLE, SCHEMA, SECRET, SINK, SOURCE, TABLE, "
                "TYPE or VIEW"
            )
        assert kind is not None
        if kind in ("schema", "database", "cluster", "cluster replica", "role"):
            return self.drop_named(kind)
        if_exists = self.at("IF", "EXISTS")
        names = [self.name()]
        while self.p._match(TokenType.COMMA):
            names.append(self.name())
        cascade = self.at("CASCADE")
        if not cascade:
            self.at("RESTRICT")
        return st.Drop(self.source, kind, tuple(names), if_exists, cascade)


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("CREATE",), DefinitionParser.create),
    (("DROP",), DefinitionParser.drop),
    (("ALTER",), DefinitionParser.alter),
)
#: What these statements begin with where no other system's SQL has them (`mzsql.frontend.parse.heads`).
OWN = (
    *each(("CREATE", "CREATE OR REPLACE", "DROP", "ALTER"), OWN_KINDS),
    ("CREATE", "DEFAULT", "INDEX"),
)
#: What they begin with where others have them too, longer ones first, as the relation's name follows.
NAMED = each(("DROP TABLE", "DROP VIEW", "ALTER TABLE", "ALTER VIEW"), (("IF", "EXISTS"), ()))
