"""What sqlglot takes from other dialects, refused at its place: ``LIMIT 1, 2``, ``GROUP BY a WITH ROLLUP``, ``abs(1 AS x)``.

Promise: a text that neither PostgreSQL nor Materialize parses is an error, not a query that means something else. Words of other dialects
are in `mzsql.frontend.grammar.words`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import expressions as exp
from sqlglot.parsers.materialize import MaterializeParser
from sqlglot.tokenizer_core import Token, TokenType

_END = "Expected end of statement"
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)


def extract(parser: Any) -> Any:
    """``extract(field FROM value)``, after its opening parenthesis."""
    if parser._next and parser._next.token_type != TokenType.FROM:
        parser._advance()
        parser.raise_error("Expected FROM")
    return MaterializeParser.FUNCTION_PARSERS["EXTRACT"](parser)


def negation(parser: Any) -> Any:
    """``NOT x``, after NOT; sqlglot takes ``!`` for that."""
    if parser._prev.text == "!":
        parser.raise_error("Expected an expression", parser._prev)
    return MaterializeParser.UNARY_PARSERS[TokenType.NOT](parser)


def _null_behind(parser: Any, _: Any) -> None:
    """NULL behind an operand, or ``NOT NULL``: neither goes on with it."""
    negated = parser._tokens[parser._index - 2].token_type == TokenType.NOT
    parser._retreat(parser._index - (2 if negated else 1))


def _ends_function(token: Token) -> bool:
    """Whether a token may be the last of a function in FROM."""
    return token.token_type in (TokenType.R_PAREN, TokenType.ORDINALITY)


class StrictGrammar(MaterializeParser):
    """The parser's methods that refuse."""

    def _outside(self, first: int, *kinds: TokenType) -> int | None:
        """The index of the last token of some kinds since an index, outside of parentheses that began there."""
        depth = 0
        for index in range(self._index - 1, first - 1, -1):
            kind = self._tokens[index].token_type
            if kind in _CLOSING or kind in _OPENING:
                depth += 1 if kind in _CLOSING else -1
            elif depth == 0 and kind in kinds:
                return index
        return None

    def _parse_limit(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        limit = super()._parse_limit(*args, **kwargs)
        comma = isinstance(limit, exp.Limit) and limit.args.get("offset")
        at = self._outside(first, TokenType.COMMA) if comma else None
        if at is not None:
            self.raise_error(_END, self._tokens[at])
        return limit

    def _parse_ordered(self, *args: Any, **kwargs: Any) -> exp.Ordered | None:
        first = self._index
        ordered: exp.Ordered | None = super()._parse_ordered(*args, **kwargs)
        last = self._outside(first, TokenType.DESC)
        if last is not None and last > first and self._tokens[last - 1].token_type == TokenType.ASC:
            self.raise_error(_END, self._tokens[last])
        return ordered

    def _parse_group(self, *args: Any, **kwargs: Any) -> exp.Group | None:
        first = self._index
        group: exp.Group | None = super()._parse_group(*args, **kwargs)
        if (
            group is not None
            and self._prev
            and self._prev.text.upper() in ("ROLLUP", "CUBE", "TOTALS")
        ):
            before = self._outside(first, TokenType.WITH)
            if before is not None:
                self.raise_error(_END, self._tokens[before])
        return group

    def _parse_window(self, *args: Any, **kwargs: Any) -> Any:
        made = super()._parse_window(*args, **kwargs)
        if isinstance(made, exp.Window) and self._prev.token_type == TokenType.OVER:
            self.raise_error("Expected left parenthesis")
        return made

    def _parse_window_spec(self) -> Any:
        between = self._prev.token_type == TokenType.BETWEEN
        bound = super()._parse_window_spec()
        if between and not (self._curr and self._curr.token_type == TokenType.AND):
            self.raise_error("Expected AND")
        return bound

    def _parse_value(self, *args: Any, **kwargs: Any) -> Any:
        if self._next and self._next.token_type == TokenType.R_PAREN:
            self._advance()
            self.raise_error("Expected an expression")
        return super()._parse_value(*args, **kwargs)

    def _parse_lambda(self, alias: bool = False) -> Any:
        argument = super()._parse_lambda(alias)
        if isinstance(argument, exp.Alias):
            # The name is the last token, behind AS if that was written.
            written = self._tokens[self._index - 2].token_type == TokenType.ALIAS
            self._retreat(self._index - (2 if written else 1))
            self.raise_error("Expected right parenthesis")
        return argument

    def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
        first, before = self._index, self._prev
        alias: exp.TableAlias | None = super()._parse_table_alias(*args, **kwargs)
        if alias is None:
            return None
        columns = alias.args.get("columns") or ()
        typed = next((one for one in columns if isinstance(one, exp.ColumnDef)), None)
        if typed is None and alias.this is None:
            self._retreat(first + 1)
            self.raise_error("Expected identifier")
        if typed is not None and not (before and _ends_function(before)):
            self._refuse_type(typed)
        return alias

    def _refuse_type(self, column: exp.ColumnDef) -> None:
        """Only a function's columns have types."""
        start = column.args["kind"].meta["span"][0]
        at = next(token for token in self._tokens if token.start == start)
        self.raise_error("Expected right parenthesis", at)

    # What is NULL behind NOT belongs to a column's definition, if to anything.
    RANGE_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **MaterializeParser.RANGE_PARSERS,
        TokenType.NULL: _null_behind,
    }
