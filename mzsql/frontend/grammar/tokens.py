"""The tokens of a text.

Promise: an unterminated string or comment is reported as such. Characters that SQL text cannot have, numbers too long
for any type and brackets nested too deeply are refused before a parser sees them.
"""

from __future__ import annotations

import threading
from typing import Any

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.grammar import number_tokens
from mzsql.frontend.grammar.dialect import DIALECT
from mzsql.frontend.grammar.numbered import unended, without_tags
from mzsql.repr.errors import InvalidParameter, SqlSyntaxError

#: How many brackets may be open at the same time; bounds the parser's recursion.
MAX_NESTING = 256
#: An integer with more digits is out of range for every type, and too long for Python's int().
MAX_DIGITS = 1000


class _Tokenizers(threading.local):
    """A tokenizer for each thread: its tables do not depend on the text."""

    def __init__(self) -> None:
        self.own: Any = DIALECT.tokenizer()


_TOKENIZERS = _Tokenizers()


def _tokens_of(text: str) -> list[Token]:
    """The tokens of a text.

    Raises:
        TokenError: it cannot be tokenized.
    """
    own = _TOKENIZERS.own
    try:
        found: list[Token] = own.tokenize(text)
    finally:
        own._core.reset()  # it would keep the text and its tokens for as long as the thread lives
    return found


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
_NUMBER = TokenType.NUMBER


def tokenize(text: str) -> list[Token]:
    """The tokens of a text.

    Raises:
        InvalidParameter: it has characters that SQL text cannot have (22021).
        SqlSyntaxError: something is not terminated, a number is malformed or too long, or brackets nest too deeply.
    """
    check_text(text, "the statement", positions=True)
    try:
        tokens = _tokens_of(without_tags(text) if "$" in text else text)
    except TokenError as error:
        raise _token_problem(text) from error
    depth = 0
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            depth += 1
            if depth > MAX_NESTING:
                raise SqlSyntaxError(
                    f"statement is nested too deeply: more than {MAX_NESTING} levels",
                    position=token.start + 1,
                    sqlstate="54001",
                )
        elif kind in _CLOSING:
            depth = max(0, depth - 1)
        elif kind == _NUMBER:
            _check_number(token)
    return tokens


def check_text(text: str, what: str, *, positions: bool = False) -> None:
    """Check that a text only has characters that SQL text may have.

    Args:
        text: the text.
        what: names it in the error.
        positions: whether the error has the character's position.

    Raises:
        InvalidParameter: it has U+0000 or an unpaired surrogate (22021).
    """
    at = text.find("\0")
    bad = "0x00"
    if at < 0:
        try:
            text.encode()
        except UnicodeEncodeError as failure:
            at = failure.start
        else:
            return
        bad = " ".join(f"0x{byte:02x}" for byte in text[at].encode(errors="surrogatepass"))
    raise InvalidParameter(
        f'invalid byte sequence for encoding "UTF8": {bad}',
        detail=f"Character {at + 1} of {what} is {text[at]!a}.",
        position=at + 1 if positions else None,
        sqlstate="22021",
    )


def _check_number(token: Token) -> None:
    number = token.text
    wrong = number_tokens.problem(number)
    if len(number) > MAX_DIGITS and number.isdigit():
        wrong = f"invalid number: {number[:64]}"
    if wrong is not None:
        raise SqlSyntaxError(wrong, position=token.start + 1)


def _token_problem(text: str) -> SqlSyntaxError:
    """The error for a text that cannot be tokenized: what is not terminated, and where it begins."""
    what, at = unended(text) or ("quoted string", None)
    return SqlSyntaxError(f"unterminated {what}", position=None if at is None else at + 1)
