"""The tokens of a statement's text.

Promise: what has no tokens is told by what it lacks, and brackets that nest too deeply are refused before a parser meets them.
"""

from __future__ import annotations

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.grammar.dialect import Dialect
from mzsql.frontend.grammar.numbered import unended, without_tags
from mzsql.repr.errors import SqlSyntaxError

#: How many brackets may stand open at once.
MAX_NESTING = 256


def tokenize(text: str) -> list[Token]:
    """The tokens of a text; SqlSyntaxError where there are none, or where brackets nest too deeply."""
    try:
        tokens = Dialect().tokenize(without_tags(text))
    except TokenError as error:
        raise _token_problem(text) from error
    depth = 0
    for token in tokens:
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE):
            depth += 1
            if depth > MAX_NESTING:
                raise SqlSyntaxError(
                    f"statement is nested too deeply: more than {MAX_NESTING} levels",
                    position=token.start + 1,
                    sqlstate="54001",
                )
        elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END):
            depth = max(0, depth - 1)
    return tokens


def _token_problem(text: str) -> SqlSyntaxError:
    """What a text that has no tokens lacks, and where that begins."""
    what, at = unended(text) or ("quoted string", None)
    return SqlSyntaxError(f"unterminated {what}", position=None if at is None else at + 1)
