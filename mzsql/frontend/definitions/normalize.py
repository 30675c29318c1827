"""Normalizing a definition's text for the catalog and SHOW CREATE.

Promise: normalized text means the same in any session: relations by their full names, identifiers quoted, keywords in
capitals, no comments, single spaces. It is made from the user's tokens instead of printed from a tree, so nothing else
is rewritten; parsing and normalizing it again gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.catalog import FullName
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.parse.pieces import fold

_AS_WRITTEN = frozenset(
    {
        TokenType.VAR,
        TokenType.IDENTIFIER,
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.BYTE_STRING,
        TokenType.HEREDOC_STRING,
    }
)


def quoted(name: str) -> str:
    """An identifier in double quotes."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quoted_name(name: FullName) -> str:
    """A full name with each part quoted."""
    parts = (name.database, name.schema, name.item)
    return ".".join(quoted(p) for p in parts if p is not None)


def quoted_list(names: Iterable[str]) -> str:
    """Names in quotes, separated by commas."""
    return ", ".join(quoted(n) for n in names)


def normalize_create_sql(
    text: str,
    span: tuple[int, int],
    nodes: Iterable[exp.Expr],
    references: Iterable[tuple[int, int, FullName]],
) -> str:
    """The characters ``span`` of ``text``, normalized.

    Args:
        text: the whole text.
        span: start and end (exclusive) of the part.
        nodes: the part's syntax trees; their identifiers are quoted.
        references: the catalog's relations in the text: start, end (exclusive), full name.
    """
    start, end = span
    names: dict[int, tuple[int, str]] = {}
    for node in nodes:
        # The alias of a join's merged columns is in its meta, not in the tree.
        aliases = (join.meta.get("alias") for join in node.find_all(exp.Join))
        for part in (*node.find_all(exp.Identifier), *(a for a in aliases if a is not None)):
            at = part.meta.get("start")
            if at is not None:
                names[int(at)] = (int(part.meta["end"]) + 1, quoted(fold(part)))
    for first, last, full in references:
        names[first] = (last, quoted_name(full))
    pieces: list[str] = []
    previous_end = start
    skip_to = start
    for token in tokenize(text[start:end]):
        at, past = token.start + start, token.end + start + 1
        if at < skip_to:
            previous_end = past
            continue
        if pieces and at > previous_end:
            pieces.append(" ")
        if at in names:
            skip_to, written = names[at]
            pieces.append(written)
        else:
            pieces.append(_written(token, text[at:past]))
        previous_end = past
    return "".join(pieces)


def _written(token: Token, source: str) -> str:
    if token.token_type in _AS_WRITTEN or not source[:1].isalpha():
        return source
    return " ".join(source.upper().split())
