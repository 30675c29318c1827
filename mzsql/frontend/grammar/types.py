"""The grammar of types: names of up to three parts, arrays and lists (``int[] list``).

Promise: for a type that is no keyword ``meta["parts"]`` has the parts of its name and ``meta["named"]`` their place in
the text; ``meta["span"]`` is the place of the whole type. What other dialects write behind a type's name is not part of it:
``<`` compares, and ``unsigned`` is a name.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import expressions as exp
from sqlglot.parsers.materialize import MaterializeParser
from sqlglot.tokenizer_core import TokenType

_CONTAINERS = (TokenType.MAP, TokenType.LIST, TokenType.ARRAY)


def _name_leaf(node: exp.DataType, first: Any) -> None:
    """Record the single word of a type, or of its innermost element: sqlglot's type keywords may be names of
    user-created types.
    """
    while node.this in (exp.DType.ARRAY, exp.DType.LIST) and node.expressions:
        (node,) = node.expressions
    if not isinstance(node, exp.DataType) or node.expressions or "parts" in node.meta:
        return
    quoted = first.token_type == TokenType.IDENTIFIER
    name = first.text if quoted else first.text.lower()
    node.meta.update(parts=(name,), named=(first.start, first.end + 1))


def _is_unsigned(token: Any) -> bool:
    return str(token.text).upper() == "UNSIGNED"


class TypeGrammar(MaterializeParser):
    """The parser's methods for types."""

    #: Types of other types in brackets, ``array<int>``, and those that have fields in parentheses.
    NESTED_TYPE_TOKENS: ClassVar[set[TokenType]] = set()
    STRUCT_TYPE_TOKENS: ClassVar[set[TokenType]] = set()
    AGGREGATE_TYPE_TOKENS: ClassVar[set[TokenType]] = set()
    ENUM_TYPE_TOKENS: ClassVar[set[TokenType]] = set()
    #: UNSIGNED is taken by sqlglot whatever this says; it is given back in `_parse_types`.
    SIGNED_TO_UNSIGNED_TYPE_TOKEN: ClassVar[dict[TokenType, TokenType]] = {
        token: token for token in MaterializeParser.TYPE_TOKENS
    }

    def _parse_types(self, *args: Any, **kwargs: Any) -> Any:
        first, index = self._curr, self._index
        if not kwargs.get("check_func") and self._is_called():
            self._advance()
            self.raise_error("Expected left square bracket")
        this = super()._parse_types(*args, **kwargs)
        for at in range(index + 1, self._index):
            if self._tokens[at].token_type == TokenType.VAR and _is_unsigned(self._tokens[at]):
                self._retreat(at)
                break
        if first and isinstance(this, exp.DataType):
            _name_leaf(this, first)
        if not kwargs.get("check_func"):
            this = self._sized(this)
        while isinstance(this, exp.DataType) and self._match(TokenType.LIST):
            # sqlglot only parses LIST before array brackets.
            this = exp.DataType(this=exp.DType.LIST, expressions=[this], nested=True)
            while self._match_pair(TokenType.L_BRACKET, TokenType.R_BRACKET):
                this = exp.DataType(this=exp.DType.ARRAY, expressions=[this], nested=True)
        if first and isinstance(this, exp.DataType):
            this.meta["span"] = (first.start, self._prev.end + 1)
        return this

    def _is_called(self) -> bool:
        """Whether the word of a container stands before a parenthesis."""
        kinds = [token.token_type for token in self._tokens[self._index : self._index + 2]]
        return len(kinds) == 2 and kinds[0] in _CONTAINERS and kinds[1] == TokenType.L_PAREN

    def _sized(self, this: Any) -> Any:
        """The type of an array written with sizes, ``int[3][2]``, which mean nothing, as in PostgreSQL.

        Not for lists, which can be subscripted after a cast.
        """
        while isinstance(this, exp.DataType) and this.this != exp.DType.LIST:
            brackets = self._tokens[self._index : self._index + 3]
            kinds = tuple(token.token_type for token in brackets)
            if kinds == (TokenType.L_BRACKET, TokenType.NUMBER, TokenType.R_BRACKET):
                self._advance(3)
            elif not self._match_pair(TokenType.L_BRACKET, TokenType.R_BRACKET):
                break
            if this.this != exp.DType.ARRAY:
                this = exp.DataType(this=exp.DType.ARRAY, expressions=[this], nested=True)
        return this

    def _parse_user_defined_type(self, identifier: exp.Identifier) -> exp.Expr | None:
        first = self._prev
        names: list[Any] = [identifier]
        while self._match(TokenType.DOT):
            part = self._parse_id_var()
            if not isinstance(part, exp.Identifier):
                self.raise_error("Expected identifier")
            names.append(part)
        spelled: exp.Expr = names[0]
        for part in names[1:]:
            spelled = exp.Dot(this=spelled, expression=part)
        node = exp.DataType(this=exp.DType.USERDEFINED, kind=spelled)
        parts = tuple(
            str(part.name) if part.args.get("quoted") else str(part.name).lower() for part in names
        )
        node.meta.update(parts=parts, named=(first.start, self._prev.end + 1))
        return node

    def data_type(self) -> exp.DataType:
        """A type, which must follow."""
        typ = self._parse_types(check_func=False)
        if not isinstance(typ, exp.DataType):
            self.raise_error("Expected a data type")
        return typ  # type: ignore[no-any-return]  # the parser is sqlglot's, untyped
