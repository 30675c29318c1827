"""The options of WITH MUTUALLY RECURSIVE: ``(RETURN AT RECURSION LIMIT = 10)``.

Promise: at most one limit, greater than zero; anything else is refused with Materialize's message.
"""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.grammar.options import unsigned_option
from mzsql.repr.errors import SqlError, SqlSyntaxError

_INVALID = "Invalid WITH MUTUALLY RECURSIVE recursion limit."
_KINDS = {
    "": "RECURSION LIMIT",
    "error": "ERROR AT RECURSION LIMIT",
    "return": "RETURN AT RECURSION LIMIT",
}


def recursion_limit(parser: Any) -> dict[str, Any]:
    """The options in parentheses after WITH MUTUALLY RECURSIVE: ``limit`` and ``return_at``; empty where there are
    none.

    Raises:
        SqlSyntaxError: a limit is given twice.
        SqlError: two kinds of limit are given (42601), or a limit of 0 (22023).
    """
    if not parser._match(TokenType.L_PAREN):
        return {}
    found: list[tuple[str, int]] = []
    while True:
        found.append(_option(parser))
        if not parser._match(TokenType.COMMA):
            break
    parser._match_r_paren()
    kinds = [kind for kind, _ in found]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise SqlSyntaxError(f"{_KINDS[kind]} specified more than once")
    if len(found) > 1:
        listed = ", ".join(_KINDS.values())
        raise SqlError(
            f"{_INVALID} More than one recursion limit given. Please give at most one of {listed}.",
            sqlstate="42601",
        )
    ((kind, limit),) = found
    if limit == 0:
        raise SqlError(f"{_INVALID} Recursion limit has to be greater than 0.", sqlstate="22023")
    return {"return_at": kind == "return", "limit": limit}


def _option(parser: Any) -> tuple[str, int]:
    kind = ""
    if parser._match_text_seq("RETURN", "AT"):
        kind = "return"
    elif parser._match_text_seq("ERROR", "AT"):
        kind = "error"
    if not parser._match_text_seq("RECURSION", "LIMIT"):
        parser.expected("RECURSION LIMIT" if kind else "one of RECURSION or RETURN or ERROR")
    return kind, unsigned_option(parser, _KINDS[kind])
