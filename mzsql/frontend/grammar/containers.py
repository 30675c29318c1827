"""The grammar of arrays, lists, maps, records and jsonb: constructors, subscripts, arrows.

Promise: the tree is what the user wrote: subscripts keep their numbers, a key after ``->`` stays the expression that it
is, and a bracket inside a constructor is a constructor of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import expressions as exp
from sqlglot.parsers.materialize import MaterializeParser
from sqlglot.tokenizer_core import TokenType

_WORDS: dict[str, type[exp.Expression]] = {"ARRAY": exp.Array, "LIST": exp.List}


def _arrow(kind: type[exp.Expression]) -> Callable[[Any, Any, Any], Any]:
    """An operator whose right side is an ordinary expression; sqlglot would turn it into a JSON path."""

    def build(parser: Any, this: Any, key: Any) -> Any:
        return parser.expression(kind(this=this, expression=key))

    return build


class ContainerGrammar(MaterializeParser):
    """The parser's methods for containers."""

    # ``j -> 'a'`` as an argument is an operator, not a lambda.
    LAMBDAS: ClassVar[dict[TokenType, Any]] = {}
    TYPED_LAMBDA_ARGS: ClassVar[bool] = False
    JSON_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        **MaterializeParser.JSON_OPERATORS,
        TokenType.ARROW: _arrow(exp.JSONExtract),
        TokenType.DARROW: _arrow(exp.JSONExtractScalar),
    }

    def _parse_type(self, *args: Any, **kwargs: Any) -> Any:
        made = self._constructor()
        return (
            super()._parse_type(*args, **kwargs) if made is None else self._parse_column_ops(made)
        )

    def _constructor(self) -> Any:
        """``ARRAY[…]``, ``LIST[…]`` or ``MAP[…]``, or one of a query in parentheses; None where none begins here."""
        if not self._next or self._next.token_type not in (TokenType.L_BRACKET, TokenType.L_PAREN):
            return None
        word = self._curr
        if word.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
            return None
        kind = word.text.upper()
        if kind not in (*_WORDS, "MAP"):
            return None
        self._advance()
        if self._curr.token_type == TokenType.L_PAREN:
            return self._of_query(word)
        made = self._map_entries() if kind == "MAP" else self._items(_WORDS[kind])
        made.meta.update(start=word.start, end=word.end)
        return made

    def _items(self, kind: type[exp.Expression]) -> Any:
        self._advance()
        items: list[Any] = []
        if not self._match(TokenType.R_BRACKET):
            items = self._parse_csv(lambda: self._item(kind))
            self._close_bracket()
        return self.expression(kind(expressions=items))

    def _item(self, kind: type[exp.Expression]) -> Any:
        """An element; in brackets without a keyword it is a constructor of the same kind."""
        if self._curr and self._curr.token_type == TokenType.L_BRACKET:
            return self._parse_column_ops(self._items(kind))
        return self._parse_disjunction()

    def _close_bracket(self) -> None:
        if not self._match(TokenType.R_BRACKET):
            self.raise_error("Expected right square bracket")

    def _of_query(self, word: Any) -> Any:
        """The query in parentheses after a constructor's keyword."""
        before = self._index
        query = self._parse_primary()
        while isinstance(query, exp.Paren):
            query = query.this
        if not isinstance(query, exp.Subquery):
            self._retreat(before + 1)
            self.raise_error("Expected SELECT, VALUES, or a subquery in the query body")
        kind = word.text.lower()
        if kind == "map":
            made: Any = self.expression(exp.ToMap(this=query))
        else:
            made = self.expression(exp.Anonymous(this=kind, expressions=[query]))
        made.meta.update(start=word.start, end=word.end)
        return made

    def _map_entries(self) -> Any:
        self._advance()
        entries: list[Any] = []
        if not self._match(TokenType.R_BRACKET):
            entries = self._parse_csv(self._map_entry)
            self._close_bracket()
        return self.expression(exp.ToMap(this=self.expression(exp.Struct(expressions=entries))))

    def _map_entry(self) -> Any:
        key = self._parse_disjunction()
        if not self._match(TokenType.FARROW):
            self.raise_error("Expected =>")
        if self._curr and self._curr.token_type == TokenType.L_BRACKET:
            value: Any = self._map_entries()
        else:
            value = self._parse_disjunction()
        return self.expression(exp.PropertyEQ(this=key, expression=value))

    def _parse_bracket(self, this: Any = None) -> Any:
        if this is not None and self._curr and self._curr.token_type == TokenType.L_BRACE:
            # sqlglot calls this while any kind of bracket follows.
            self.raise_error("Expected end of statement")
        if not self._curr or self._curr.token_type != TokenType.L_BRACKET:
            return this
        if this is None:
            self.raise_error("Expected an expression")
        self._advance()
        parts = self._parse_csv(self._subscript)
        self._close_bracket()
        return self._parse_bracket(self.expression(exp.Bracket(this=this, expressions=parts)))

    def _subscript(self) -> Any:
        return self._parse_slice(self._parse_disjunction())
