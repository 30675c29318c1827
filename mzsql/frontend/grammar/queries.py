"""The grammar of queries where sqlglot's differs: commas in FROM, aliases of USING joins, VALUES wherever a query may
be.

Promise: what the planner must tell apart is in a node's `meta`: ``comma`` of a `Join` written as a comma (which binds
weaker than JOIN), ``alias`` of a join whose merged columns have a table name (``USING (…) AS x``).
"""

from __future__ import annotations

from typing import Any

from sqlglot import expressions as exp
from sqlglot.parsers.materialize import MaterializeParser
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.kinds import LISTED
from mzsql.repr.errors import SqlSyntaxError

#: What may follow the rows of VALUES inside parentheses, besides a table alias.
_GOES_ON = frozenset(
    {
        TokenType.UNION,
        TokenType.EXCEPT,
        TokenType.INTERSECT,
        TokenType.ORDER_BY,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.FETCH,
    }
)
#: The first words of what SHOW in a FROM clause may list.
_SHOWN = frozenset(("COLUMNS", *(words[0] for words in LISTED)))


class QueryGrammar(MaterializeParser):
    """The parser's methods for queries."""

    def _parse_respect_or_ignore_nulls(self, this: Any) -> Any:
        done = super()._parse_respect_or_ignore_nulls(this)
        if done is this:
            return this
        if super()._parse_respect_or_ignore_nulls(done) is not done:
            raise SqlSyntaxError("Both IGNORE NULLS and RESPECT NULLS were given.")
        if not self._curr or self._curr.token_type != TokenType.OVER:
            self.raise_error("Expected OVER")
        return done

    def _parse_ordered(self, *args: Any, **kwargs: Any) -> exp.Ordered | None:
        done = super()._parse_ordered(*args, **kwargs)
        nulls = self._curr and self._curr.token_type != TokenType.IDENTIFIER
        if done is not None and nulls and self._curr.text.upper() == "NULLS":
            self._advance()
            self.raise_error("Expected one of FIRST or LAST")
        return done

    #: Parses SHOW as a query; the statement parser sets it.
    parse_show: Any = None

    def _parse_wrapped_select(self, table: bool = False) -> exp.Expr | None:
        if table and self.parse_show is not None and self._at_show():
            shown: exp.Expr = self.parse_show()
            return shown
        return super()._parse_wrapped_select(table)

    def _at_show(self) -> bool:
        """Whether SHOW and a kind follow, instead of a table named show."""
        return bool(
            self._curr
            and self._curr.token_type != TokenType.IDENTIFIER
            and self._curr.text.upper() == "SHOW"
            and self._next
            and self._next.text.upper() in _SHOWN
        )

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        comma = bool(self._curr) and self._curr.token_type == TokenType.COMMA
        first = self._index
        join = super()._parse_join(*args, **kwargs)
        if join is None:
            return None
        if join.kind == "CROSS" or join.method == "NATURAL":
            self._refuse_condition(join, first)
        if comma:
            join.meta["comma"] = True
        elif join.args.get("using") and self._at_join_alias():
            self._advance()
            name = self._parse_id_var()
            if name is None:
                self.raise_error("Expected identifier")
            join.meta["alias"] = name
        return join

    def _refuse_condition(self, join: exp.Join, first: int) -> None:
        """Refuse a condition on a join that must not have one."""
        if not join.args.get("on") and not join.args.get("using"):
            return
        depth = 0
        for index in range(self._index - 1, first, -1):
            token = self._tokens[index]
            if token.token_type in (TokenType.L_PAREN, TokenType.R_PAREN):
                depth += 1 if token.token_type == TokenType.R_PAREN else -1
            elif depth == 0 and token.token_type in (TokenType.ON, TokenType.USING):
                self._retreat(index)
                self.raise_error("Expected end of statement")

    def parse_set_operation(self, this: Any, *args: Any, **kwargs: Any) -> Any:
        """A set operation on ``this``, which may have ORDER BY or LIMIT only inside parentheses."""
        left = this.expression if isinstance(this, exp.SetOperation) else this
        token = self._curr
        if (
            isinstance(left, exp.Select)
            and token
            and token.token_type in self.SET_OPERATIONS
            and any(left.args.get(clause) for clause in ("order", "limit", "offset"))
        ):
            self.raise_error("Expected end of statement")
        return super().parse_set_operation(this, *args, **kwargs)

    def _at_join_alias(self) -> bool:
        """Whether ``AS name`` follows, instead of a statement's AS OF."""
        if not self._curr or self._curr.token_type != TokenType.ALIAS:
            return False
        return not (
            self._next
            and self._next.token_type == TokenType.VAR
            and self._next.text.upper() == "OF"
        )

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        index = self._index
        self._match(TokenType.LATERAL)
        if self._match_text_seq("ROWS", "FROM"):
            return self._rows_from()
        self._retreat(index)
        return super()._parse_table(*args, **kwargs)

    def _rows_from(self) -> exp.Table:
        """The calls in the parentheses of ROWS FROM."""
        if not self._match(TokenType.L_PAREN):
            self.raise_error("Expected left parenthesis")
        calls = self._parse_csv(self._table_call)
        if not self._match(TokenType.R_PAREN):
            self.raise_error("Expected right parenthesis")
        table = self.expression(exp.Table(rows_from=calls))
        if self._match_pair(TokenType.WITH, TokenType.ORDINALITY):
            table.set("ordinality", True)
        table.set("alias", self._parse_table_alias())
        return table

    def _table_call(self) -> Any:
        part = self._parse_table_parts()
        if not isinstance(part, exp.Table) or not isinstance(part.this, exp.Anonymous):
            self.raise_error("Expected left parenthesis")
        return part

    def _parse_derived_table_values(self, *args: Any, **kwargs: Any) -> exp.Values | None:
        if self._goes_on_after_values():
            return None  # (VALUES … UNION …), (VALUES … LIMIT 1): a query in parentheses
        return super()._parse_derived_table_values(*args, **kwargs)

    def _goes_on_after_values(self) -> bool:
        if not self._curr or self._curr.token_type != TokenType.L_PAREN:
            return False
        if not self._next or self._next.token_type != TokenType.VALUES:
            return False
        depth = 0
        for token in self._tokens[self._index :]:
            kind = token.token_type
            if kind in (TokenType.L_PAREN, TokenType.L_BRACKET):
                depth += 1
            elif kind in (TokenType.R_PAREN, TokenType.R_BRACKET):
                depth -= 1
                if depth == 0:
                    return False
            elif depth == 1 and kind in _GOES_ON:
                return True
        return False

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        if (
            self._curr
            and self._curr.token_type == TokenType.EXISTS
            and self._next
            and self._next.token_type == TokenType.L_PAREN
        ):
            token = self._curr
            self._advance(2)
            query = self._parse_select(nested=True)
            if query is None:
                self.raise_error("Expected a query")
            query = self._parse_query_modifiers(self._parse_set_operations(query))
            self._match_r_paren()
            node = exp.Exists(this=query)
            node.meta.update(start=token.start, end=token.end)
            return node
        return super()._parse_function_call(*args, **kwargs)
