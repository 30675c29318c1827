"""Numeric options: ``RECURSION LIMIT = 10``, ``AGGREGATE INPUT GROUP SIZE 1000``; and group size options that
contradict each other.

Promise: a value that is no unsigned integer is refused with Materialize's message, which names the option.
"""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import TokenType

from mzsql.repr.errors import SqlError, SqlSyntaxError

_NOT_A_NUMBER = "invalid unsigned numeric value: invalid digit found in string"
_GROUP_SIZES = (
    ("AGGREGATE", "INPUT", "GROUP", "SIZE"),
    ("DISTINCT", "ON", "INPUT", "GROUP", "SIZE"),
    ("LIMIT", "INPUT", "GROUP", "SIZE"),
    ("EXPECTED", "GROUP", "SIZE"),
)
_OLD = "expected group size"


def unsigned_option(parser: Any, name: str) -> int:
    """An option's unsigned integer, after the option's name.

    Raises:
        SqlSyntaxError: ``invalid RECURSION LIMIT: cannot use value as number``.
    """
    parser._match(TokenType.EQ)
    if parser._match(TokenType.DASH):
        parser._advance()
        raise invalid_option(name, _NOT_A_NUMBER)
    token = parser._curr
    if not token or token.token_type in (TokenType.R_PAREN, TokenType.COMMA):
        raise invalid_option(name, "must provide an unsigned integer value")
    if token.token_type != TokenType.NUMBER:
        raise invalid_option(name, "cannot use value as number", int(token.start) + 1)
    if not token.text.isdigit():
        raise invalid_option(name, _NOT_A_NUMBER, int(token.start) + 1)
    parser._advance()
    return int(token.text)


def invalid_option(name: str, why: str, position: int | None = None) -> SqlSyntaxError:
    """``invalid <option>: <why>``."""
    return SqlSyntaxError(f"invalid {name}: {why}", position=position)


def group_size_options(parser: Any) -> dict[str, int]:
    """``(AGGREGATE INPUT GROUP SIZE = 1000, …)``: sizes by option, in lower case.

    Raises:
        SqlError: an option is given twice, or the deprecated one together with a newer one.
    """
    found: dict[str, int] = {}
    for name, size in parser._parse_wrapped_csv(lambda: _group_size(parser)):
        if name in found:
            raise SqlSyntaxError(f"{name.upper()} specified more than once")
        found[name] = size
    if _OLD in found and len(found) > 1:
        raise SqlError(
            "EXPECTED GROUP SIZE cannot be provided simultaneously with any of AGGREGATE INPUT GROUP SIZE, "
            "DISTINCT ON INPUT GROUP SIZE, or LIMIT INPUT GROUP SIZE",
            hint="Say the size of each input by the option that names it.",
            sqlstate="42601",
        )
    return found


def _group_size(parser: Any) -> tuple[str, int]:
    for words in _GROUP_SIZES:
        if parser._match_text_seq(*words):
            name = " ".join(words)
            return name.lower(), unsigned_option(parser, name)
    return parser.expected(  # type: ignore[no-any-return]  # the parser is sqlglot's, untyped
        "one of AGGREGATE INPUT GROUP SIZE, DISTINCT ON INPUT GROUP SIZE, LIMIT INPUT GROUP SIZE"
    )
