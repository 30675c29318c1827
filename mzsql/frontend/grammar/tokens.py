"""The tokens of a statement's text.

Promise: what has no tokens is told by what it lacks; characters that no text has, numbers that no type has and brackets that nest too
deeply are refused before a parser meets them.
"""

from __future__ import annotations

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.grammar import number_tokens
from mzsql.frontend.grammar.dialect import Dialect
from mzsql.frontend.grammar.numbered import unended, without_tags
from mzsql.repr.errors import InvalidParameter, SqlSyntaxError

#: How many brackets may stand open at once.
MAX_NESTING = 256
#: A whole number of more digits is beyond every type and every setting, and beyond what Python reads.
MAX_DIGITS = 1000


def tokenize(text: str) -> list[Token]:
    """The tokens of a text.

    Raises:
        InvalidParameter: it has characters that no text of SQL has (22021).
        SqlSyntaxError: there are none, a number is none or has too many digits, or brackets nest too deeply.
    """
    check_text(text, "the statement", positions=True)
    try:
        tokens = Dialect().tokenize(without_tags(text) if "$" in text else text)
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
        elif token.token_type == TokenType.NUMBER:
            _check_number(token)
    return tokens


def check_text(text: str, what: str, *, positions: bool = False) -> None:
    """Check that a text has only characters that a text of SQL may have.

    Raises:
        InvalidParameter: it holds U+0000 or half of a surrogate pair (22021).
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
    """What a text that has no tokens lacks, and where that begins."""
    what, at = unended(text) or ("quoted string", None)
    return SqlSyntaxError(f"unterminated {what}", position=None if at is None else at + 1)
