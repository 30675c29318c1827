"""INSERT, UPDATE, DELETE, COPY, parsed."""

from __future__ import annotations

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend import statements as st
from mzsql.frontend.parse_pieces import QUERY_STARTS, Pieces
from mzsql.repr.errors import Unsupported


class WritingParser(Pieces):
    """Parses statements that write rows."""

    def insert(self) -> st.Insert:
        """INSERT INTO …"""
        self.need("INTO")
        table = self.name()
        alias = self.identifier() if self.p._match(TokenType.ALIAS) else None
        columns = self.names_in_parentheses() if self._at_column_list() else ()
        query: exp.Expr | None = None
        if not self.at("DEFAULT", "VALUES"):
            query = self.p.parse_query()
        return st.Insert(self.source, table, columns, query, alias, self._returning())

    def _returning(self) -> tuple[exp.Expr, ...]:
        """An optional RETURNING list."""
        if not self.at("RETURNING"):
            return ()
        items, _ = self.p._parse_projections()
        if not items:
            self.p.expected("an expression")
        return tuple(items)

    def _at_column_list(self) -> bool:
        """Whether a list of columns comes next, rather than a query in parentheses."""
        p = self.p
        return bool(
            p._curr
            and p._curr.token_type == TokenType.L_PAREN
            and p._next
            and p._next.token_type not in (*QUERY_STARTS, TokenType.VALUES)
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
        return st.Update(self.source, table, alias, tuple(assignments), where, self._returning())

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
        return st.Delete(self.source, table, alias, tuple(using), where, self._returning())

    def copy(self) -> st.CopyFrom | st.CopyTo:
        """COPY t FROM {'<file>' | STDIN}, COPY {t | (query)} TO {STDOUT | '<file>'} [WITH] (FORMAT …)."""
        if self.p._match(TokenType.L_PAREN):
            what = self.copied()
            self.p._match_r_paren()
            self.need("TO")
            return self._copy_to(what, ())
        table = self.name()
        columns = self.names_in_parentheses()
        if self.at("TO"):
            return self._copy_to(table, columns)
        if not self.at("FROM"):
            self.p.expected("FROM or TO")
        path = None if self.at("STDIN") else self.string()
        return st.CopyFrom(self.source, table, columns, path, self._copy_options())

    def copied(self) -> st.Select | st.Subscribe:
        """What stands in the parentheses of COPY (…) TO."""
        return self.select()

    def _copy_to(
        self, what: st.Name | st.Select | st.Subscribe, columns: tuple[tuple[str, int], ...]
    ) -> st.CopyTo:
        path = None if self.at("STDOUT") else self.string()
        return st.CopyTo(self.source, what, columns, path, self._copy_options())

    def _copy_options(self) -> tuple[tuple[str, str, int], ...]:
        self.at("WITH")
        options: list[tuple[str, str, int]] = []
        if self.p._match(TokenType.L_PAREN):
            options.append(self._copy_option())
            while self.p._match(TokenType.COMMA):
                options.append(self._copy_option())
            self.p._match_r_paren()
        return tuple(options)

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
            # Materialize writes it as a string too.
            text = self.p._curr is not None and self.p._curr.token_type == TokenType.STRING
            return option, self.string().lower() if text else self.identifier(), position
        if option == "header":
            value = self.one_of((("TRUE",), ("FALSE",), ("ON",), ("OFF",)))
            return option, "false" if value in ("false", "off") else "true", position
        return option, self.string(), position
