"""Required parts of clauses where sqlglot's parser is lenient: keywords, parentheses, names.

Promise: an incomplete clause is an error at its place with Materialize's message, instead of a query with another
meaning: ``FROM t,``, ``FROM t AS``, ``FROM 't'``, ``VALUES 1``, ``DISTINCT ON a``, ``FETCH FIRST 1``, ``FILTER (a >
1)``, ``WINDOW w``.
"""

from __future__ import annotations

from typing import Any

from sqlglot import expressions as exp
from sqlglot.parsers.materialize import MaterializeParser
from sqlglot.tokenizer_core import TokenType

#: The words that begin a frame after ROWS, RANGE or GROUPS.
_FRAME_BEGINS = ("BETWEEN", "UNBOUNDED", "CURRENT")
_LITERALS = frozenset((TokenType.STRING, TokenType.NUMBER, TokenType.NULL))


class ClauseGrammar(MaterializeParser):
    """The parser's methods for clauses."""

    def _at(self, kind: TokenType, ahead: int = 0) -> bool:
        index = self._index + ahead
        return index < len(self._tokens) and self._tokens[index].token_type == kind

    def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
        made: exp.TableAlias | None = super()._parse_table_alias(*args, **kwargs)
        if made is None and self._prev and self._prev.token_type == TokenType.ALIAS:
            self.raise_error("Expected identifier")
        return made

    def _parse_table_part(self, *args: Any, **kwargs: Any) -> Any:
        if self._at(TokenType.STRING):
            self.raise_error("Expected identifier")
        return super()._parse_table_part(*args, **kwargs)

    def _parse_join(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        join = super()._parse_join(*args, **kwargs)
        if join is None and self._index > first:
            self.raise_error("Expected identifier")
        return join

    def _parse_expression(self, *args: Any, **kwargs: Any) -> Any:
        # Fast path for a literal that is a whole list item: long lists of values consist of them, and need none of the
        # grammar's levels.
        alone = self._at(TokenType.COMMA, 1) or self._at(TokenType.R_PAREN, 1)
        if alone and self._curr.token_type in _LITERALS:
            return self._parse_primary()
        return super()._parse_expression(*args, **kwargs)

    def _parse_escape(self, this: exp.Expr | None) -> exp.Expr | None:
        # sqlglot takes a string alone; PostgreSQL any expression.
        if not self._match(TokenType.ESCAPE):
            return this
        letter = self._parse_bitwise()
        if letter is None:
            self.raise_error("Expected an expression")
        return self.expression(exp.Escape(this=this, expression=letter))

    def _parse_value(self, *args: Any, **kwargs: Any) -> Any:
        if not self._at(TokenType.L_PAREN):
            self.raise_error("Expected left parenthesis")
        return super()._parse_value(*args, **kwargs)

    def _parse_window(self, *args: Any, **kwargs: Any) -> Any:
        filtered = self._at(TokenType.FILTER) and self._at(TokenType.L_PAREN, 1)
        if filtered and not self._at(TokenType.WHERE, 2):
            self._advance(2)
            self.raise_error("Expected WHERE")
        return super()._parse_window(*args, **kwargs)

    def _parse_id_var(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("tokens") is self.WINDOW_ALIAS_TOKENS and self._curr and self._next:
            frame = self._next.text.upper() in _FRAME_BEGINS
            if self._curr.text.upper() == "GROUPS" and (frame or self._next.text.isdigit()):
                # This is a frame, not a window's name.
                return None
        return super()._parse_id_var(*args, **kwargs)

    def _parse_named_window(self) -> Any:
        if self._curr and not self._at(TokenType.ALIAS, 1):
            self._advance()
            self.raise_error("Expected AS")
        return super()._parse_named_window()

    def _parse_limit(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index if self._at(TokenType.FETCH) else None
        made = super()._parse_limit(*args, **kwargs)
        if first is not None:
            words = [token.text.upper() for token in self._tokens[first : self._index]]
            if "ROW" not in words and "ROWS" not in words:
                self.raise_error("Expected one of ROW or ROWS")
            if words[-1] not in ("ONLY", "TIES"):
                self.raise_error("Expected one of ONLY or WITH TIES")
        return made
