"""Parsing names and values of variables in SET, SHOW, RESET, ALTER SYSTEM and ALTER ROLE."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse.pieces import Pieces

_NO_VALUE = (TokenType.R_PAREN, TokenType.L_PAREN, TokenType.COMMA)
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)


def variable_name(pieces: Pieces) -> str:
    """A variable after SHOW or RESET; ``all`` for ALL.

    Raises:
        SqlSyntaxError: no name follows.
    """
    if pieces.take("TRANSACTION", "ISOLATION", "LEVEL"):
        return "transaction_isolation"
    if pieces.take("TIME", "ZONE"):
        return "timezone"
    if pieces.take("ALL"):
        return "all"
    return pieces.identifier()


def assigned_name(pieces: Pieces) -> str:
    """A variable's name, followed by TO or an equals sign.

    Raises:
        SqlSyntaxError: no name follows, or neither of the two after it.
    """
    name = pieces.identifier()
    if not pieces.take("TO"):
        pieces.expect_token(TokenType.EQ, "equals sign or TO")
    return name


def set_name(pieces: Pieces) -> str:
    """A session variable after SET, with what separates it from its values.

    Raises:
        SqlSyntaxError: as of `assigned_name`.
    """
    if pieces.take("TIME", "ZONE"):
        return "timezone"
    if pieces.take("SCHEMA"):
        # The separator may be left out only where PostgreSQL has a form of SET of its own.
        if not pieces.take("TO"):
            pieces.take_token(TokenType.EQ)
        return "search_path"
    if pieces.take("NAMES"):
        return "client_encoding"
    return assigned_name(pieces)


def reset_name(pieces: Pieces) -> str:
    """A session variable after RESET.

    Raises:
        SqlSyntaxError: no name follows.
    """
    return "search_path" if pieces.take("SCHEMA") else variable_name(pieces)


def set_values(pieces: Pieces) -> tuple[str, ...] | None:
    """The values of SET; None: DEFAULT.

    Raises:
        SqlSyntaxError: no value follows.
    """
    return None if pieces.take("DEFAULT") else pieces.separated(value)


def value(pieces: Pieces) -> str:
    """One value: in lower case unless quoted.

    Raises:
        SqlSyntaxError: no value follows.
    """
    sign = "-" if pieces.take_token(TokenType.DASH) else ""
    token = pieces.parser._curr
    if not token or token.token_type in _NO_VALUE:
        pieces.expected("variable value")
    pieces.parser._advance()
    text = str(token.text)
    return sign + (text if token.token_type in _QUOTED else text.lower())
