"""Parsing INSERT, UPDATE, DELETE and COPY."""

from __future__ import annotations

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.pieces import QUERY_STARTS, Pieces, Statements
from mzsql.repr.errors import SqlSyntaxError


def _values_of(node: exp.Expr, names: list[str], position: int) -> list[exp.Expr]:
    """The values assigned to several columns."""
    if isinstance(node, exp.Subquery):
        return [_column_of(node, names, i) for i in range(len(names))]
    row = isinstance(node, exp.Anonymous) and str(node.this).upper() == "ROW"
    if not row and not isinstance(node, exp.Tuple | exp.Paren):
        raise SqlSyntaxError(
            "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
            position=position,
        )
    values = [node.this] if isinstance(node, exp.Paren) else list(node.expressions)
    if len(values) != len(names):
        raise SqlSyntaxError("number of columns does not match number of values", position=position)
    return [exp.Var(this="DEFAULT") if _is_default(value) else value for value in values]


def _is_default(node: exp.Expr) -> bool:
    """Whether an expression is the word DEFAULT, which parses as a column name."""
    plain = isinstance(node, exp.Column) and not node.args.get("table")
    return plain and not node.this.args.get("quoted") and node.name.upper() == "DEFAULT"


def _column_of(query: exp.Subquery, names: list[str], at: int) -> exp.Expr:
    """One column of a subquery by position; `meta["row"]` has the whole subquery and its expected number of columns."""
    columns = [exp.to_identifier(f"f{i + 1}", quoted=True) for i in range(len(names))]
    alias = exp.TableAlias(this=exp.to_identifier("row", quoted=True), columns=columns)
    source = exp.Subquery(this=query.this.copy(), alias=alias)
    picked = exp.Select(expressions=[exp.Column(this=columns[at].copy())])
    picked.set("from_", exp.From(this=source))
    node = exp.Subquery(this=picked)
    node.meta["row"] = (query.this, len(names))
    return node


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
        """Whether a column list follows, instead of a query in parentheses."""
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
        assignments = self._assignment()
        while self.p._match(TokenType.COMMA):
            assignments += self._assignment()
        sources = self._tables() if self.at("FROM") else None
        where = self.expression() if self.at("WHERE") else None
        returning = self._returning()
        values = tuple(assignments)
        return st.Update(self.source, table, alias, values, where, returning, sources)

    def _tables(self) -> exp.Select:
        """The relations of a FROM or USING clause, as a query over all of them."""
        first = self.p._parse_table()
        if first is None:
            self.p.expected("identifier")
        joins = list(self.p._parse_joins())
        return exp.Select(expressions=[exp.Star()], from_=exp.From(this=first), joins=joins)

    def _alias(self, *stop: str) -> str | None:
        if self.p._match(TokenType.ALIAS):
            return self.identifier()
        if self.p._curr and self.p._curr.text.upper() not in (*stop, "WHERE", "USING", "RETURNING"):
            return self.identifier("end of statement")
        return None

    def _assignment(self) -> list[tuple[str, int, exp.Expr]]:
        """``column = value``, or ``(column, …) = (value, …)``, where a subquery may replace the values."""
        at = self.position()
        targets = self.names_in_parentheses()
        single = not targets
        if single:
            targets = (self._named(),)
        if not self.p._match(TokenType.EQ):
            self.p.expected("=")
        if single:
            value = exp.Var(this="DEFAULT") if self.at("DEFAULT") else self.expression()
            return [(*targets[0], value)]
        values = _values_of(self.expression(), [name for name, _ in targets], at)
        return [(*target, value) for target, value in zip(targets, values, strict=True)]

    def delete(self) -> st.Delete:
        """DELETE FROM …"""
        self.need("FROM")
        table = self.name()
        alias = self._alias()
        using = self._tables() if self.at("USING") else None
        where = self.expression() if self.at("WHERE") else None
        return st.Delete(self.source, table, alias, using, where, self._returning())

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
        """The query in the parentheses of COPY (…) TO."""
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
        while (option := self._bare_copy_option()) is not None:
            options.append(option)
        return tuple(options)

    def _bare_copy_option(self) -> tuple[str, str, int] | None:
        """An option in COPY's old syntax without parentheses, such as ``CSV HEADER NULL AS ''``, which clients still
        use.
        """
        position = self.position()
        for word in ("csv", "binary"):
            if self.at(word.upper()):
                return "format", word, position
        if self.at("HEADER"):
            return "header", "true", position
        option = self.one_of((("DELIMITER",), ("QUOTE",), ("ESCAPE",), ("NULL",)))
        if option is None:
            return None
        self.at("AS")
        return option, self.string(), position

    def _copy_option(self) -> tuple[str, str, int]:
        position = self.position()
        option = self.one_of((("FORMAT",), ("HEADER",), ("DELIMITER",), ("QUOTE",), ("ESCAPE",)))
        if option is None and self.at("NULL"):
            option = "null"
        if option is None:
            self.p.expected("one of DELIMITER, ESCAPE, FORMAT, HEADER, NULL or QUOTE")
        assert option is not None
        if option == "header":
            return option, "true" if self.boolean() else "false", position
        self.p._match(TokenType.EQ)
        if option == "format":
            # As in Materialize, the format may be a string too.
            text = self.p._curr is not None and self.p._curr.token_type == TokenType.STRING
            return option, self.string().lower() if text else self.identifier(), position
        return option, self.string(), position


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("INSERT",), WritingParser.insert),
    (("UPDATE",), WritingParser.update),
    (("DELETE",), WritingParser.delete),
    (("COPY",), WritingParser.copy),
)
#: What these statements begin with where no other system's SQL has them (`mzsql.frontend.parse.heads`).
OWN = (("COPY",),)
#: What they begin with where others have them too; the relation's name follows.
NAMED = (("INSERT", "INTO"), ("UPDATE",), ("DELETE", "FROM"))
